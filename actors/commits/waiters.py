"""Waiters: answers that wait for a release, each of which can be listed and ended.

A stalled disk may take minutes. A waiter ends earlier by its deadline, by KILL, or when its client
goes away. An answer that waits for its own commit is UnknownOutcome then: the commit may still
become durable, or not. An answer that has only read another's pending commit gets the reason of its
end, and nothing of what it read.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from actors.execution.blocking import Wait
from protocol import limits
from protocol.errors import Refusal, StatementTimeout, UnknownOutcome
from protocol.values import Value
from storage.txn.tickets import NO_COMMIT, CommitTicket

if TYPE_CHECKING:
    from actors.commits.committer import Committer


class Waiter(Wait):
    """An answer that waits for a release; resumed by the committer.

    :param began_us: start of its request, on the monotonic clock
    """

    ticket: CommitTicket
    """Ticket that it waits for."""
    _ended: Refusal | None = None
    """Refusal that ends it, during the delay that `end_soon` gives."""

    def __init__(self, committer: Committer, began_us: int) -> None:
        self._committer = committer
        self.began_us = began_us

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

    def wait(self, ticket: CommitTicket, until_us: int | None = None) -> None:
        """Wait for a ticket; `on_result` is called in the end, which may be before this returns.

        :param until_us: how long at most, on the monotonic clock; None: for as long as it waits yet
        """
        self.ticket = ticket
        self._committer.registry.enter(self)
        if until_us is not None:
            self.wait_until(until_us)
        # Last: it may resume at once, which undoes the entry and the deadline.
        self._committer.block(self, ticket)

    @property
    def waits(self) -> bool:
        """True until it was notified."""
        return self.queue is not None

    def wait_at_most(self, for_us: int) -> None:
        """Wait no longer than that from now on."""
        self.wait_until(self._committer.monotonic_us() + for_us)

    def wait_until(self, until_us: int) -> None:
        """Wait no longer than that, on the monotonic clock."""
        # The earlier deadline stands: no wait is prolonged.
        if self.deadline_us is None or self.deadline_us > until_us:
            self._committer.deadlines.set(self, until_us)

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
        # The committer has resumed it already: its answer is on the way.
        if not self.cancel():
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
        self.resume(why)

    def resume(self, lost: BaseException | None) -> None:
        """Handle the release, or its failure: called once for each `wait`."""
        # Before `on_result`, which may wait for another ticket.
        self.queue = None
        self._committer.registry.leave(self)
        self.on_result(lost)
        # A further wait keeps the deadline: it is that of the whole answer.
        if self.deadline_us is not None and self.queue is None:
            self._committer.deadlines.clear(self)

    def on_deadline(self) -> None:
        self._give_up(self.out_of_time())
