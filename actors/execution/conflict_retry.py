"""Conflict retries of one transaction that runs in a fiber (optimistic concurrency control).

1. Conflict: it runs again, in slices twice as long each time. A transaction that fits into one
slice can't conflict.
2. After `limits.BARRIER_AFTER` conflicts it queues for a priority lock. While it holds the lock, no
other transaction commits to its read set. So it runs in short slices again, and gets every second
slice.
3. Blocked by another's priority lock: it waits until the lock is gone. This is no conflict.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from actors.commits.priority_locks import PriorityLockRequest
from actors.execution.fiber import FiberWait
from actors.execution.scheduler import LOCK, SCRIPT
from protocol import limits
from protocol.errors import Conflict, Refusal

if TYPE_CHECKING:
    from actors.commits.committer import Committer
    from actors.execution.fiber import Fiber
    from storage.txn.read_set import ReadSet
    from storage.txn.transaction import Transaction


class ConflictRetry:
    """Retry state of one transaction. All methods are called inside the script's fiber.

    :param request: id of the request, for the log
    """

    def __init__(self, committer: Committer, fiber: Fiber, request: str) -> None:
        self._committer = committer
        self._fiber = fiber
        self._request = request
        self._lost = 0
        self._blocked_by_lock = False
        self._place: PriorityLockRequest | None = None
        self._reads: ReadSet
        """Read set of the last attempt."""

    @property
    def barrier(self) -> bool:
        """True if it holds a priority lock."""
        return self._place is not None and self._place.holds_lock

    def start_attempt(self, transaction: Transaction) -> None:
        """Start the next attempt."""
        if self._place is not None:
            self._place.barrier.protect_attempt(transaction)

    def may_retry(self, refusal: Refusal, transaction: Transaction, *, lost: bool) -> bool:
        """True if the transaction may run again after a failed attempt.

        :param transaction: that of the failed attempt
        :param lost: True if it failed because of a conflict
        """
        self._reads = transaction.reads  # and nothing else of it: it may hold 64 MiB of changes
        self._blocked_by_lock = type(refusal) is Conflict and transaction.blocked_by_lock
        # Not counted as a conflict: the lock ends within a bounded time.
        if self._blocked_by_lock:
            return True
        if not lost or self._lost == limits.COMMIT_RETRIES:
            return False
        self._lost += 1
        return True

    @property
    def must_wait(self) -> bool:
        """True if it has to `wait` before it may run again; it holds no priority lock then."""
        return self._blocked_by_lock or (self._lost >= limits.BARRIER_AFTER and not self.barrier)

    def wait(self) -> None:
        """Wait until it is unblocked, or holds its own lock. :raises Refusal: it is ended"""
        if self._blocked_by_lock:
            self._wait_until_free()
            self._blocked_by_lock = False
        else:
            self._wait_for_lock()

    def yield_now(self) -> None:
        """Set the slice for the next attempt, and yield. :raises Refusal: it is ended"""
        if self.barrier:
            # The lock keeps others' commits off its reads, so short slices are enough.
            self._fiber.slice_us, self._fiber.rank = limits.SLICE_US, LOCK
        else:
            # Longer slices: a transaction that fits into one slice can't conflict.
            self._fiber.slice_us = min(limits.SLICE_US << self._lost, limits.RETRY_SLICE_US)
            self._fiber.rank = SCRIPT
        self._fiber.yield_now()

    def leave(self) -> None:
        """Give the lock up: it has ended, or waits for something else, and blocks no other
        transaction."""
        self._fiber.slice_us, self._fiber.rank = limits.SLICE_US, SCRIPT
        if self._place is not None:
            self._place.leave()
            self._place = None

    def _wait_until_free(self) -> None:
        wait = FiberWait(self._fiber)
        self._committer.priority_locks.block(wait)
        wait.until_resumed()

    def _wait_for_lock(self) -> None:
        # A request whose lock ran out of time is left: a new one queues.
        self.leave()
        line, wait = self._committer.priority_locks, FiberWait(self._fiber)
        granted = partial(wait.resume, None)
        self._place = PriorityLockRequest(line, self._request, self._reads, granted)
        line.join(self._place)
        # A granted lock may be over before the fiber goes on.
        wait.until_resumed()
