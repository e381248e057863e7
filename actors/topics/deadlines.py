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

    def on_released(
        self, lost: BaseException | None, now_us: int
    ) -> tuple[BaseException | None, CommitTicket | None]:
        """Take the end of a wait of the answer. Return the loss that the answer fails with, and the
        ticket of a commit that it has to wait for next.

        :param lost: the reason why what it waited for is not released; None: it is
        """
        if self._write_answers is None:
            # The answer's own commits.
            if lost is not None:
                return lost, None
        elif lost is not None:
            return None, None  # the deadlines in the answer are those of the log, and hold
        else:
            self._write_answers()
        return None, self._restart(now_us)

    def _restart(self, now_us: int) -> CommitTicket | None:
        """Restart deadlines of which the disk has used up half or more. Return the ticket of that
        commit.

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
