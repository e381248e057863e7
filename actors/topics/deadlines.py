"""Ack deadlines (visibility timeouts) in an answer that a slow disk uses up before it is sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from protocol.errors import Refusal
from storage.txn.tickets import CommitTicket

if TYPE_CHECKING:
    from actors.topics.service import DeliveredMessages, TopicService

TIMES: Final = 3
"""Most restarts of the ack deadlines of one answer because of a slow disk."""


class LateDeadlines:
    """Ack deadlines of one answer that waits for the disk.

    :param since_us: start of the wait, on the monotonic clock
    """

    __slots__ = ("_handed_out", "_since_us", "_times", "_topics", "_write_answers")

    def __init__(
        self, topics: TopicService, handed_out: Sequence[DeliveredMessages], since_us: int
    ) -> None:
        self._topics = topics
        self._handed_out = handed_out
        self._since_us = since_us
        self._times = 0
        self._write_answers: Callable[[], None] | None = None
        """Writes the new deadlines into the answer."""

    @property
    def prolongs(self) -> bool:
        """True if the answer waits for new deadlines only; its own commits are released."""
        return self._write_answers is not None

    def write_deadlines(self) -> None:
        """Write the new deadlines into the answer: their commit is released."""
        if self._write_answers is not None:
            self._write_answers()

    def again(self, now_us: int) -> CommitTicket | None:
        """Restart deadlines of which the disk has used up half or more. Return the ticket of that
        commit, which the answer waits for too.

        None if no deadline needs it, the commit is refused, or after TIMES restarts: the answer is
        sent as it is.
        """
        waited_us, self._since_us = now_us - self._since_us, now_us
        # Below half no commit is made: one for every TAKE would cost more than the lost time.
        late = [each for each in self._handed_out if each.group.deadline_us <= 2 * waited_us]
        if not late or self._times == TIMES:
            return None
        try:
            ticket, self._write_answers = self._topics.restart_deadlines(late)
        except Refusal:  # no room, or no writes any more: the deadline in the answer stands
            return None
        self._times += 1
        return ticket
