"""Priority locks (`storage/txn/priority_lock.py`): admission, order, timeout.

- At most one is held at a time and its holder waits for no other, so they cannot deadlock. Requests
  queue first come, first served.
- The lock ends with its holder, or after `limits.BARRIER_SECONDS`; the holder then goes on without.
- After a lock no other is granted for as long as it was held, so that blocked transactions make
  progress.
- A request that queues, or is blocked by the lock, holds no transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import structlog

from actors.execution.blocking import CallbackWait, Line, Wait
from protocol import limits
from storage.txn.priority_lock import PriorityLock
from storage.txn.read_set import ReadSet

if TYPE_CHECKING:
    from actors.runtime import Runtime
    from storage.txn.ledger import Ledger

log = structlog.get_logger("commits")

SAID_US: Final = 1_000_000
"""Minimum interval (µs) of log lines on priority locks. Each counts those without a line since the
last one: many short locks may follow each other."""


class PriorityLockRequest:
    """A transaction's place in the queue, and then its priority lock.

    :param who: id of its request, for the log
    :param reads: its read set when it lost its last race
    :param wake: called when the lock is granted
    """

    def __init__(
        self, line: PriorityLocks, who: str, reads: ReadSet, wake: Callable[[], None]
    ) -> None:
        self._line = line
        self._wake = wake
        self.who = who
        self.barrier = PriorityLock(reads)
        self.since_us = 0
        """Monotonic time (µs) at which the lock was granted."""
        self.was_granted = False
        """True once the lock was granted; it may have ended since."""
        self.wait: Wait | None = None
        """Its place in the queue, while it stands there."""

    @property
    def holds_lock(self) -> bool:
        """True if it holds the lock."""
        return self._line.holder is self

    def grant(self, now_us: int) -> None:
        """Grant the lock."""
        self.was_granted = True
        self.since_us = now_us
        self._wake()

    def leave(self) -> None:
        """Release the lock, or leave the queue: the transaction has ended, or gives up.
        Idempotent."""
        self._line.leave(self)


R = TypeVar("R")


class BlockedLines(Generic[R]):
    """Requests that a priority lock blocks. A blocked one holds up its own lines alone: later
    requests that may not overtake it stand behind it.

    :param again: has requests run again, in their order, before all that have come since
    """

    def __init__(self, locks: PriorityLocks, again: Callable[[list[R]], None]) -> None:
        self._locks = locks
        self._again = again
        self.requests: list[R] = []
        """Blocked requests and those behind them, in their order."""
        self._lines: set[Hashable] = set()

    def holds_up(self, lines: Iterable[Hashable]) -> bool:
        """True if a request that follows these lines has to stand behind a blocked one."""
        return not self._lines.isdisjoint(lines)

    def block(self, request: R, lines: Iterable[Hashable]) -> None:
        """Have a request run again once the lock is gone. :param lines: those that it stands in"""
        if not self.requests:
            self._locks.block(CallbackWait(self._release))
        self.requests.append(request)
        self._lines.update(lines)

    def take_all(self) -> list[R]:
        """Remove all requests, and return them in their order."""
        requests, self.requests = self.requests, []
        self._lines.clear()
        return requests

    def _release(self, _lost: BaseException | None) -> None:
        self._again(self.take_all())


class PriorityLocks:
    """The lock that is held, the queue for it, and the commits that it blocks; on the loop only."""

    ledger: Ledger

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.holder: PriorityLockRequest | None = None
        self.granted = 0
        """Number of locks granted since the start."""
        self._line = Line(self._report_error)
        """Requests for the lock."""
        self._blocked = Line(self._report_error)
        """Requests that the lock blocks."""
        self._timer: asyncio.TimerHandle | None = None
        """Ends the lock that is held, or the time without a lock after it."""
        self._closed = False
        self._said_us = -SAID_US
        self._unsaid = 0

    def join(self, place: PriorityLockRequest) -> None:
        """Queue for the lock, which may be granted at once."""
        if self._closed:
            # The node stops: the request goes on without a lock, instead of a wait without end.
            place.grant(self._runtime.clock.monotonic_us())
            return
        place.wait = CallbackWait(lambda _: self._grant(place))
        self._line.block(place.wait)
        self._next()

    def leave(self, place: PriorityLockRequest) -> None:
        """Release the lock, or leave the queue: `PriorityLockRequest.leave`."""
        # Idempotent: a holder has left the queue, and a former holder is in neither.
        if place.wait is not None:
            place.wait.cancel()
            place.wait = None
        if place is self.holder:
            self._goes(place, "ended")

    def block(self, wait: Wait) -> None:
        """Resume a wait when the lock held now has ended; at once if none is held."""
        if self.holder is None:
            wait.resume(None)
        else:
            self._blocked.block(wait)

    def close(self) -> None:
        """Cancel the timer. Blocked requests end with the node's drain."""
        self._closed = True
        self._line = Line(self._report_error)
        self._disarm()
        if self.holder is not None:
            self.holder = self.ledger.barrier = None

    def _next(self) -> None:
        # The timer runs while a lock is held, and during the pause after it.
        if self._timer is None and (wait := self._line.take_first()) is not None:
            wait.resume(None)

    def _grant(self, place: PriorityLockRequest) -> None:
        # The wait references the place, which holds a read set: no cycle may keep it alive.
        place.wait = None
        self.holder = place
        # In force before the holder is woken: no commit slips in before its next read.
        self.ledger.barrier = place.barrier
        self.granted += 1
        # Bounds the wait of blocked writers; the holder goes on without its lock.
        seconds = limits.BARRIER_SECONDS
        self._timer = self._runtime.loop.call_later(seconds, self._goes, place, "out of time")
        place.grant(self._runtime.clock.monotonic_us())

    def _goes(self, place: PriorityLockRequest, why: str) -> None:
        self._disarm()
        self.holder = self.ledger.barrier = None
        stood_us = self._runtime.clock.monotonic_us() - place.since_us
        # A pause as long as the lock: long statements leave half of the time to others.
        self._timer = self._runtime.loop.call_later(stood_us / 1_000_000, self._end_cooldown)
        self._say(place, why, stood_us)
        # After `holder` is cleared: a retry that starts here meets no lock.
        self._blocked.unblock()

    def _end_cooldown(self) -> None:
        self._timer = None
        self._next()

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _say(self, place: PriorityLockRequest, why: str, stood_us: int) -> None:
        now_us = self._runtime.clock.monotonic_us()
        # Fewer lines, not fewer facts: the next line counts the omitted ones.
        if now_us - self._said_us < SAID_US:
            self._unsaid += 1
            return
        log.info(
            "a transaction that kept conflicting was given priority",
            request=place.who,
            barrier=why,
            stood_ms=stood_us // 1000,
            held_back=place.barrier.held_back,
            others_before=self._unsaid,
        )
        self._said_us, self._unsaid = now_us, 0

    def _report_error(self, error: BaseException) -> None:
        self._runtime.report_error(type(self).__name__, error)
