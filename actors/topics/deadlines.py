"""Deadlines that an answer tells, and that a slow disk uses up before anybody hears of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from protocol.errors import Refusal
from storage.tickets import CommitTicket

if TYPE_CHECKING:
    from actors.topics.service import HandedOut, Topics

TIMES: Final = 3
"""How often the deadlines of one answer are counted anew because the disk was slow."""


class LateDeadlines:
    """Of one answer that waits for the disk.

    :param since_us: when it began to wait, on the monotonic clock
    """

    __slots__ = ("_handed_out", "_since_us", "_tell", "_times", "_topics")

    def __init__(self, topics: Topics, handed_out: Sequence[HandedOut], since_us: int) -> None:
        self._topics = topics
        self._handed_out = handed_out
        self._since_us = since_us
        self._times = 0
        self._tell: Callable[[], None] | None = None
        """Writes into the answer what is waited for."""

    @property
    def prolongs(self) -> bool:
        """Whether it is its deadlines that the answer waits for; its own commits are released."""
        return self._tell is not None

    def prolonged(self) -> None:
        """What it waited for is released: the answer tells so."""
        if self._tell is not None:
            self._tell()

    def again(self, now_us: int) -> CommitTicket | None:
        """Whether the disk has used up half or more of a deadline: then that counts from now on,
        which is a commit of its own, and the answer waits for that too. On a disk that stays so
        slow it comes anyway: None."""
        waited_us, self._since_us = now_us - self._since_us, now_us
        late = [each for each in self._handed_out if each.group.deadline_us <= 2 * waited_us]
        if not late or self._times == TIMES:
            return None
        try:
            ticket, self._tell = self._topics.count_from_now(late)
        except Refusal:  # no room, or no writes any more: the deadline is what it was told to be
            return None
        self._times += 1
        return ticket
