"""Answers that wait for commits, each by its ticket: see `storage/txn/tickets.py`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from actors.execution.blocking import (
    CallbackWait,
    Deadlines,
    FutureWait,
    NumberedQueue,
    Resume,
    Wait,
)
from actors.runtime import Runtime
from protocol.errors import Refusal, UnknownOutcome
from storage.txn.ledger import Ledger
from storage.txn.tickets import CommitTicket, Why


class Stall(NamedTuple):
    """State of a leader that releases nothing for now: too few replicas, or etcd is silent."""

    shows_all: bool
    """True if this commit index is the newest anywhere; a leader that was just elected doesn't know
    yet."""


class CommitTickets:
    """The waiters of one node, by the commits they wait for; on the loop only."""

    ledger: Ledger

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.call_soon = runtime.loop.call_soon
        self.commit_index = 0
        """Commit index: the newest sequence that probes and answers may show."""
        self.blocked = NumberedQueue(self.report_error)
        """Waits for pending commits, by sequence."""
        self.deadlines = Deadlines(runtime.loop, runtime.clock, self.report_error)
        """Deadlines of waits for anything."""
        self._lost: BaseException | None = None
        """Why nothing is released any more."""

    @property
    def generation(self) -> int:
        """Number of the roll-backs so far, from 1. See `CommitTicket`."""
        return self.ledger.state.roll_backs.generation

    def ticket(self, sequence: int) -> CommitTicket:
        """Return the ticket of a pending or released commit. What a transaction has read or made
        has a ticket already."""
        return CommitTicket(sequence, self.generation)

    def merge(self, one: CommitTicket, other: CommitTicket) -> CommitTicket:
        """Return the ticket of all that either stands for.

        :raises UnknownOutcome, DiskFull: one of them was rolled back, the first of them first
        """
        roll_backs = self.ledger.state.roll_backs
        generation = roll_backs.generation
        # Once neither is rolled back, the higher sequence covers the lower one.
        for ticket in (one, other):
            if ticket.generation != generation and (why := roll_backs.why(ticket)) is not None:
                raise why(ticket.sequence)
        return CommitTicket(max(one.sequence, other.sequence), generation)

    def is_released(self, ticket: CommitTicket) -> bool:
        """True if there is nothing to wait for. False may mean that it was rolled back."""
        sequence = ticket.sequence
        # The sequence alone proves nothing: after a roll back it may name another commit.
        return not sequence or (
            sequence <= self.commit_index and self._why_rolled_back(ticket) is None
        )

    def released(self, ticket: CommitTicket) -> asyncio.Future[None]:
        """Return a future that is done once the commit is released.

        :raises UnknownOutcome: the log failed first: it may be there after the next start, or not
        :raises DiskFull: there was no room; it will not be there
        """
        return self._wait_for(ticket, -1)

    def released_in_time(self, ticket: CommitTicket) -> asyncio.Future[None]:
        """Wait for a release on behalf of a client, as `released` does, within a time-out
        (`actors/execution/late_answers.py`).

        :raises UnknownOutcome: also on time-out
        """
        return self._wait_for(ticket, self.monotonic_us())

    def _wait_for(self, ticket: CommitTicket, began_us: int) -> asyncio.Future[None]:
        future: asyncio.Future[None] = self._runtime.loop.create_future()
        self.block(FutureWait(future, began_us), ticket)
        return future

    def when_released(self, ticket: CommitTicket, told: Resume) -> None:
        """Call `told` once a commit is released, with the error that `released` would raise, or
        None; at once if that is known. For the node's own work: it has no time-out."""
        self.block(CallbackWait(told), ticket)

    def block(self, wait: Wait, ticket: CommitTicket) -> None:
        """Resume a wait once a commit is released, or was rolled back; at once if that is known.
        Thousands of answers of a group are resumed in one loop iteration."""
        sequence, roll_backs = ticket.sequence, self.ledger.state.roll_backs
        # First: since the roll back the sequence may name another commit, released already. Nearly
        # every ticket is of the present generation, and needs no call.
        if (
            ticket.generation != roll_backs.generation
            and (why := roll_backs.why(ticket)) is not None
        ):
            wait.resume(why(sequence))
        elif sequence <= self.commit_index:
            wait.resume(None)
        # No index moves after a failure of the log, and no other call would come.
        elif self._lost is not None:
            wait.resume(unknown(sequence))
        else:
            self.blocked.block(wait, sequence)

    def monotonic_us(self) -> int:
        """The clock of `at`."""
        return self._runtime.clock.monotonic_us()

    def at(self, at_us: int, act: Callable[[], None]) -> asyncio.TimerHandle:
        """Have something done at a moment of the monotonic clock."""
        # A past moment is due in the next iteration, never inside this call.
        wait_us = at_us - self._runtime.clock.monotonic_us()
        return self._runtime.loop.call_later(max(wait_us, 0) / 1_000_000, act)

    def was_rolled_back(self, ticket: CommitTicket) -> bool:
        """True if the commit was rolled back."""
        return self._why_rolled_back(ticket) is not None

    def _why_rolled_back(self, ticket: CommitTicket) -> Why | None:
        return self.ledger.state.roll_backs.why(ticket)

    def report_error(self, error: BaseException) -> None:
        """Report a bug: other requests go on."""
        self._runtime.report_error(type(self).__name__, error)


def late(sequence: int, why: Refusal) -> UnknownOutcome:
    """Return the refusal of waiters when a commit was not released in time."""
    return UnknownOutcome(
        f"the outcome of commit {sequence} is unknown: {why.message}",
        sequence=sequence,
    )


def unknown(sequence: int) -> UnknownOutcome:
    """Return the refusal of waiters when the log has failed."""
    return UnknownOutcome(
        f"the log failed while commit {sequence} was being written: its outcome is unknown",
        sequence=sequence,
    )


def left_over(sequence: int) -> UnknownOutcome:
    """Return the refusal of waiters when a full disk holds an unsynced commit that could not be cut
    off."""
    return UnknownOutcome(
        f"the disk is full, and commit {sequence} cannot be rolled back before there is room: if"
        " the node ends until then, its outcome is unknown",
        sequence=sequence,
    )
