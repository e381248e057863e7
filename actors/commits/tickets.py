"""Answers that wait for commits, each by its ticket: see `storage/txn/tickets.py`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from actors.commits.waiters import Waiter
from actors.runtime import Runtime
from protocol.errors import Refusal, UnknownOutcome
from storage.txn.ledger import Ledger
from storage.txn.tickets import CommitTicket, Why

ReleaseCallback = Callable[[BaseException | None], None]
"""Hears why a commit was not released, or None when it was."""


class Stall(NamedTuple):
    """State of a leader that releases nothing for now: too few replicas, or etcd is silent."""

    shows_all: bool
    """True if this commit index is the newest anywhere; a leader that was just elected doesn't know
    yet."""


class BoundedCallback:
    """Release callback on behalf of a client that is no `Waiter`. Fails with UnknownOutcome after
    the time-out; internal callbacks wait for ever.

    :param began_us: start of the wait, on the monotonic clock
    """

    __slots__ = ("_callback", "began_us")

    def __init__(self, told: ReleaseCallback, began_us: int) -> None:
        self._callback = told
        self.began_us = began_us

    def __call__(self, lost: BaseException | None) -> None:
        """Tell it."""
        self._callback(lost)


class CommitTickets:
    """The waiters of one node, by the commits they wait for; on the loop only."""

    ledger: Ledger

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.commit_index = 0
        """Commit index: the newest sequence that probes and answers may show."""
        self._waiters: dict[int, list[ReleaseCallback]] = {}
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
        # Once neither is rolled back, the higher sequence covers the lower one.
        for ticket in (one, other):
            if (why := self._why_rolled_back(ticket)) is not None:
                raise why(ticket.sequence)
        return CommitTicket(max(one.sequence, other.sequence), self.generation)

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
        future: asyncio.Future[None] = self._runtime.loop.create_future()

        self.when_released(ticket, partial(_resolve, future))
        return future

    def released_in_time(self, ticket: CommitTicket) -> asyncio.Future[None]:
        """Wait for a release on behalf of a client, as `released` does, within a time-out
        (`end_waits`).

        :raises UnknownOutcome: also on time-out
        """
        future: asyncio.Future[None] = self._runtime.loop.create_future()
        self.when_released(ticket, BoundedCallback(partial(_resolve, future), self.monotonic_us()))
        return future

    def when_released(self, ticket: CommitTicket, told: ReleaseCallback) -> None:
        """Call `told` once a commit is released, with the error that `released` would raise, or
        None; at once if that is known. Thousands of answers of a group are notified in one loop
        iteration. An answer that may wait as long as the disk takes is a `Waiter`, which can be
        listed and ended."""
        sequence = ticket.sequence
        # First: since the roll back the sequence may name another commit, released already.
        if (why := self._why_rolled_back(ticket)) is not None:
            told(why(sequence))
        elif sequence <= self.commit_index:
            told(None)
        # No index moves after a failure of the log, and no other call would come.
        elif self._lost is not None:
            told(unknown(sequence))
        else:
            self._waiters.setdefault(sequence, []).append(told)

    def stop_waiting(self, ticket: CommitTicket, told: ReleaseCallback) -> bool:
        """Cancel a callback. False: it was called already."""
        waiters = self._waiters.get(ticket.sequence, [])
        if told not in waiters:
            return False
        waiters.remove(told)
        return True

    def end_waits(self, upto: int, began_us: int, why: Refusal) -> None:
        """End the waits of clients for commits up to a sequence. The commits stay pending, and the
        node itself waits on.

        :param began_us: only waits that began before, on the monotonic clock
        :param why: for those that wrote nothing; others get UnknownOutcome
        """
        for sequence in [each for each in self._waiters if each <= upto]:
            # A copy: an ended wait removes itself.
            for told in list(self._waiters[sequence]):
                if isinstance(told, Waiter) and told.began_us <= began_us:
                    told.end(why)
                elif isinstance(told, BoundedCallback) and told.began_us <= began_us:
                    self._waiters[sequence].remove(told)
                    self._call_back(told, late(sequence, why))

    def end_reads(self, began_us: int, why: Refusal) -> None:
        """End the waits of clients that have only read pending commits, refusals that rest on them
        included.

        :param began_us: only waits that began before, on the monotonic clock
        :param why: for the clients
        """
        for waiter in list(self.waiters):
            # Its own commits are released, or there are none: it has only seen those of others.
            if self.is_released(waiter.written) and waiter.began_us <= began_us:
                waiter.end(why)

    @property
    def waiters(self) -> Iterator[Waiter]:
        """The answers that wait and can be ended."""
        for waiters in self._waiters.values():
            for told in waiters:
                if isinstance(told, Waiter):
                    yield told

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

    def _fail_waiters(self, after: int, error: Callable[[int], BaseException]) -> None:
        # Collect all of them first: a waiter that is called may commit at once, and wait for one of
        # these sequences, which rolled-back commits had before.
        failed = [(each, self._waiters.pop(each)) for each in list(self._waiters) if each > after]
        for sequence, waiters in failed:
            for told in waiters:
                self._call_back(told, error(sequence))

    def _call_back(self, told: ReleaseCallback, lost: BaseException | None) -> None:
        try:
            told(lost)
        except Exception as error:  # a bug of one waiter's is not the others'
            self._report_error(error)

    def _report_error(self, error: BaseException) -> None:
        self._runtime.report_error(type(self).__name__, error)


def _resolve(future: asyncio.Future[None], lost: BaseException | None) -> None:
    # Cancelled by its waiter meanwhile.
    if future.done():
        return
    if lost is None:
        future.set_result(None)
    else:
        future.set_exception(lost)


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
