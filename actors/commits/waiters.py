"""Waiters: answers that wait for a release, each of which can be listed and ended.

A stalled disk may take minutes. A waiter ends earlier by its deadline, by KILL, or when its client
goes away. An answer that waits for its own commit is UnknownOutcome then: the commit may still
become durable, or not. An answer that has only read another's pending commit gets the reason of its
end, and nothing of what it read.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from protocol import limits
from protocol.errors import Refusal, StatementTimeout, UnknownOutcome
from protocol.values import Value
from storage.txn.tickets import NO_COMMIT, CommitTicket

if TYPE_CHECKING:
    from actors.commits.committer import Committer


class Waiter(ABC):
    """An answer that waits for a release; called by the committer.

    :param began_us: start of its request, on the monotonic clock
    """

    __slots__ = ("_committer", "_ended", "_timer", "_waits", "began_us", "ends_us", "ticket")

    def __init__(self, committer: Committer, began_us: int) -> None:
        self._committer = committer
        self._timer: asyncio.TimerHandle | None = None
        self._waits = False
        self._ended: Refusal | None = None
        """Refusal that ends it, during the delay that `end_soon` gives."""
        self.began_us = began_us
        self.ends_us: int | None = None
        """Deadline of the wait, on the monotonic clock; None: it has none."""
        self.ticket: CommitTicket
        """Ticket that it waits for."""

    # --- what it is -----------------------------------------------------------------------------

    @property
    @abstractmethod
    def id(self) -> str:
        """Id of the request, for KILL."""

    @property
    @abstractmethod
    def written(self) -> CommitTicket:
        """The newest commit of the request's own."""

    @abstractmethod
    def describe(self, now_us: int) -> dict[str, Value]:
        """Return its row of INFO FOR RUNNING."""

    @abstractmethod
    def on_result(self, lost: BaseException | None) -> None:
        """Answer; or `wait` for something else.

        :param lost: the reason why the commit is not released; None: it is
        """

    def out_of_time(self) -> Refusal:
        """Why it was ended when its time was over."""
        return self._ended or StatementTimeout("the statement used up its time")

    # --- waiting --------------------------------------------------------------------------------

    def wait(self, ticket: CommitTicket, ends_us: int | None = None) -> None:
        """Wait for a ticket; `on_result` is called in the end, which may be before this returns.

        :param ends_us: how long at most, on the monotonic clock; None: for as long as it waits yet
        """
        self.ticket = ticket
        self._waits = True
        self._committer.registry.enter(self)
        if ends_us is not None:
            self.wait_until(ends_us)
        # Last: it may call back at once, which undoes the entry and the timer.
        self._committer.when_released(ticket, self)

    @property
    def waits(self) -> bool:
        """True until it was notified."""
        return self._waits

    def wait_at_most(self, for_us: int) -> None:
        """Wait no longer than that from now on."""
        self.wait_until(self._committer.monotonic_us() + for_us)

    def wait_until(self, ends_us: int) -> None:
        """Wait no longer than that, on the monotonic clock."""
        if self.ends_us is not None and self.ends_us <= ends_us:
            # The earlier deadline stands: no wait is prolonged.
            return
        if self._timer is not None:
            self._timer.cancel()
        self.ends_us = ends_us
        self._timer = self._committer.at(ends_us, self._time_is_over)

    def end(self, why: Refusal) -> bool:
        """End the wait. False: it has ended already."""
        return self._give_up(why)

    def on_credential_ended(self, cut: bool, sparing: str | None) -> None:
        """Wait on: what the answer shows was done with a good credential."""
        return

    def end_soon(self, why: Refusal) -> None:
        """End the wait after a grace period. A working disk brings the answer meanwhile, with
        messages in it, perhaps, that would stay delivered to no consumer."""
        # The first reason stands.
        self._ended = self._ended or why
        self.wait_at_most(limits.ENDED_SECONDS * 1_000_000)

    def _give_up(self, why: Refusal) -> bool:
        # The committer has called it already: its answer is on the way.
        if not self._committer.stop_waiting(self.ticket, self):
            return False
        self.answer_ended(self.why_ended(why))
        return True

    def why_ended(self, why: Refusal) -> Refusal:
        """Return the refusal of an ended wait: the reason, or UnknownOutcome if a commit of its own
        is pending."""
        written, committer = self.written, self._committer
        # No commit of its own is pending: its outcome is certain.
        if committer.is_released(written):
            return why
        try:
            # Raises the reason if that commit was rolled back.
            committer.merge(written, NO_COMMIT)
        except Refusal as rolled_back:
            return rolled_back
        return UnknownOutcome(
            f"the outcome of commit {written.sequence} is unknown: {why.message}",
            sequence=written.sequence,
        )

    def answer_ended(self, why: Refusal) -> None:
        """Answer with the reason of its end."""
        self(why)

    def __call__(self, lost: BaseException | None) -> None:
        """Handle the release, or its failure: called once for each `wait`."""
        # Before `on_result`, which may wait for another ticket.
        self._waits = False
        self._committer.registry.leave(self)
        self.on_result(lost)
        # A further wait keeps the timer: the deadline is that of the whole answer.
        if self._timer is not None and not self._waits:
            self._timer.cancel()
            self._timer = None

    def _time_is_over(self) -> None:
        self._timer = None
        self._give_up(self.out_of_time())
