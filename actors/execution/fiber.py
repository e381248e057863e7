"""Cooperative scheduling: fibers share the event loop in time slices.

A script is plain synchronous code that runs in a greenlet (fiber). In its loops it calls `tick()`.
When its slice is used up, `tick` yields to the loop, and returns at the script's next slice. So a
SELECT may call an expression that runs a subquery that scans a table, without `await` in between
and without holding the loop for longer than a slice. Code that never ticks, a commit above all, is
atomic.

Fibers that used up a slice queue for their next one, and the loop resumes one of them in each
iteration. However many long scripts there are, a short one waits for one slice, not for all of
them. If two users run long scripts, each user gets every second slice (`scheduler.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from greenlet import getcurrent, greenlet

from actors.execution.blocking import Wait
from actors.execution.scheduler import FiberScheduler
from language.planning import CHARGES
from protocol.errors import Cancelled, Refusal, StatementTimeout
from protocol.values import PACE

ITEMS_A_US: Final = 5
"""Items of an array that are processed in a microsecond."""

Awaited = TypeVar("Awaited")


class Fiber:
    """Fiber: greenlet, time slice, deadlines and cancellation of one piece of work.

    :param rank: of `scheduler.py`
    :param user: user whose work it is; empty: the node
    """

    # Class attributes are defaults: a fiber is made for each script, and most never set them.

    ended = False
    """True once the work has ended."""
    error: Exception | None = None
    """Exception of the work, once it has ended."""
    began_us = 0
    """Start of the work, on the monotonic clock (µs)."""
    now_us = 0
    """Cached monotonic time (µs), refreshed on every slice and tick."""
    slices = 0
    """Number of yields."""
    slice_us: int
    """Length of its slices (µs), from the next one on."""
    _slice_ends_us = 0
    _charged = 0
    """Work charged since the last read of the clock."""
    _deadlines_us: Sequence[int] = ()
    """Deadlines from the outermost in; each is no later than those around it."""
    _ended_by: Refusal | None = None
    _parked = False
    _alarm: _Alarm | None = None
    """Ends the work's `park`; made when it first needs one."""
    _outcome: asyncio.Future[None] | None = None
    _work: Callable[[], None]
    _paused: Callable[[], None]
    _loop_side: greenlet

    def __init__(self, scheduler: FiberScheduler, rank: int, user: str) -> None:
        self._scheduler = scheduler
        self.rank = rank
        """Rank of its slices, from the next one on."""
        self._user = user
        self._clock = scheduler.clock
        self.slice_us = scheduler.slice_us
        self._worker = scheduler.worker()

    @property
    def outcome(self) -> asyncio.Future[None]:
        """Future that is done when the work has ended, with its exception. Made on first use: most
        work has ended before a caller could wait for it."""
        if self._outcome is None:
            self._outcome = self._scheduler.loop.create_future()
            if self.ended:
                self._resolve_outcome(self._outcome)
        return self._outcome

    def _resolve_outcome(self, outcome: asyncio.Future[None]) -> None:
        if self.error is None:
            outcome.set_result(None)
        else:
            outcome.set_exception(self.error)

    def start(self, work: Callable[[], None], paused: Callable[[], None]) -> None:
        """Start, and run until the first yield, or to the end. The first slice is shorter if other
        work of the same user waits for slices: of hundreds that arrive together each would hold the
        loop for one.

        :param paused: called before each yield, with work half done
        """
        self._paused = paused
        self._work = work
        waiting = self._scheduler.waiting_of(self.rank, self._user)
        self._start_fiber(self.slice_us // (1 + waiting))

    def start_in_line(self, work: Callable[[], None], paused: Callable[[], None]) -> None:
        """Start in the queue, as after a used-up slice: of hundreds that are there at once each
        would hold the loop for one before other work runs."""
        self._paused = paused
        self._work = work
        self._scheduler.queue(self.rank, self._user, partial(self._start_fiber, self.slice_us))

    def _start_fiber(self, slice_us: int) -> None:
        self.began_us = self.now_us = now_us = self._clock.monotonic_us()
        self._slice_ends_us = now_us + slice_us
        self._loop_side = getcurrent()
        self._worker.switch(self.run)

    def cancel(self, refusal: Refusal | None = None) -> None:
        """Make the work's next tick raise. Its commits stay."""
        if self._ended_by is None:
            # A fiber in `wait` is not woken: it raises once its awaitable is done.
            self._ended_by = refusal or Cancelled("the request was cancelled")
            self.wake()

    @property
    def over(self) -> bool:
        """True if the work's next tick raises. Thread-safe."""
        deadlines_us = self._deadlines_us
        late = bool(deadlines_us) and self._clock.monotonic_us() >= deadlines_us[-1]
        return late or self._ended_by is not None

    def wake(self) -> None:
        """End the work's `park`, if it is in one."""
        if self._parked:
            if self._alarm is not None:
                self._scheduler.deadlines.clear(self._alarm)
            self.unpark()

    # --- called by the work, inside the fiber -----------------------------------------------------

    def tick(self, cost: int = PACE) -> None:
        """Yield to the loop when the slice is used up, or the work to follow would use it up. A
        single call of tens of milliseconds begins in a slice of its own, so that many that arrive
        together are spread over slices.

        :param cost: cost of the work that follows, in items of an array; the clock is read once for
            each PACE of them
        :raises StatementTimeout: a deadline has passed
        :raises Cancelled: `cancel` was called
        """
        self._charged += cost
        if self._charged < PACE:
            return
        self._charged = 0
        self.now_us = now_us = self._clock.monotonic_us()
        # Only long calls are looked ahead for: short ones overrun a slice by little.
        ahead_us = cost // ITEMS_A_US if cost > PACE else 0
        if now_us + ahead_us >= self._slice_ends_us:
            self._scheduler.queue(self.rank, self._user, self._resume)
            self._hand_back()

    def refresh_clock(self) -> int:
        """Refresh and return `now_us`."""
        self.now_us = now_us = self._clock.monotonic_us()
        return now_us

    def yield_now(self) -> None:
        """Yield now, and begin a new slice. Raises as `tick`."""
        self._scheduler.queue(self.rank, self._user, self._resume)
        self._hand_back()

    def wait(self, awaitable: Awaitable[Awaited]) -> Awaited:
        """Return the result of an awaitable of the loop; yield until it is done."""
        awaited = asyncio.ensure_future(awaitable, loop=self._scheduler.loop)
        if not awaited.done():
            awaited.add_done_callback(self._awaited)
            self._hand_back()
        return awaited.result()

    def park(self, until_us: int | None = None) -> None:
        """Wait without working, until `wake` is called or the monotonic time is reached. It may end
        earlier.

        :raises StatementTimeout: a deadline has passed
        :raises Cancelled: `cancel` was called
        """
        # A `cancel` before the park has woken no fiber: without this check it would be lost.
        if self._ended_by is not None:
            raise self._ended_by
        if self._deadlines_us:
            due_us = self._deadlines_us[-1]
            until_us = due_us if until_us is None else min(until_us, due_us)
        self._parked = True
        if until_us is not None:
            if self._alarm is None:
                self._alarm = _Alarm(self)
            self._scheduler.deadlines.set(self._alarm, until_us)
        self._hand_back()

    def unpark(self) -> None:
        """Queue the work for its next slice."""
        self._parked = False
        self._scheduler.queue(self.rank, self._user, self._resume)

    def _awaited(self, done: asyncio.Future[Any]) -> None:
        if not done.cancelled():
            done.exception()  # retrieved, or asyncio would log it if the work was ended meanwhile
        self._scheduler.queue(self.rank, self._user, self._resume)

    def push_deadline(self, after_us: int) -> None:
        """Add a deadline, after which `tick` raises. An earlier outer deadline counts too."""
        ends = self._clock.monotonic_us() + after_us
        if self._deadlines_us:
            ends = min(ends, self._deadlines_us[-1])
        self._deadlines_us = (*self._deadlines_us, ends)

    @property
    def ends_us(self) -> int | None:
        """Monotonic time after which `tick` raises StatementTimeout; None: never."""
        return self._deadlines_us[-1] if self._deadlines_us else None

    def pop_deadline(self) -> None:
        """Remove the innermost deadline."""
        self._deadlines_us = self._deadlines_us[:-1]

    def _hand_back(self) -> None:
        self._paused()
        self.slices += 1
        self._loop_side.switch()  # returns when the loop resumes this fiber
        if self._ended_by is not None:
            raise self._ended_by
        if self._deadlines_us and self._clock.monotonic_us() >= self._deadlines_us[-1]:
            raise StatementTimeout("the statement used up its time")

    # --- called by the loop -----------------------------------------------------------------------

    def _resume(self) -> None:
        self._slice_begins()
        self._worker.switch()

    def _slice_begins(self) -> None:
        self.now_us = now_us = self._clock.monotonic_us()
        self._slice_ends_us = now_us + self.slice_us
        self._loop_side = getcurrent()

    def run(self) -> None:
        """Do the work. Called by the fiber's greenlet only."""
        outer = CHARGES.set(self.tick)
        try:
            if self._ended_by is not None:
                raise self._ended_by  # cancelled while it was queued
            self._work()
        except Exception as error:
            if isinstance(error, Refusal):
                _forget_frames(error)
            self.error = error
        finally:
            CHARGES.reset(outer)
            self.ended = True
            if self._outcome is not None:
                self._resolve_outcome(self._outcome)
            # The work's owner references this fiber: without these back references both are freed
            # at once, and not only when the garbage collector runs.
            self._paused = self._work = _nothing
            self._alarm = None


class _Alarm(Wait):
    """Deadline of a parked fiber. It stands in no queue."""

    def __init__(self, fiber: Fiber) -> None:
        self._fiber = fiber

    def resume(self, lost: BaseException | None) -> None:
        self._fiber.unpark()


class FiberWait(Wait):
    """Wait of a fiber, used inside it.

    :param began_us: as for `Wait`
    """

    _lost: BaseException | None = None
    _over = False

    def __init__(self, fiber: Fiber, began_us: int = -1) -> None:
        self._fiber = fiber
        self.began_us = began_us

    def resume(self, lost: BaseException | None) -> None:
        self._lost = lost
        self._over = True
        self._fiber.wake()

    def until_resumed(self) -> None:
        """Park until it is resumed, and leave its queue.

        :raises BaseException: the reason why the wait is in vain
        :raises StatementTimeout, Cancelled: as `Fiber.park`
        """
        try:
            # A park may end early: only `resume` counts.
            while not self._over:
                self._fiber.park()
        finally:
            # A fiber that was ended meanwhile leaves no wait behind.
            self.cancel()
        if self._lost is not None:
            raise self._lost


def _nothing() -> None:
    """Replaces the work and the pause callback of an ended fiber."""


def _forget_frames(error: BaseException | None) -> None:
    """Release the frames of a refusal's traceback. They hold the run, which holds its outcome,
    which holds the refusal: a refused transaction of 64 MiB would stay until the garbage collector
    runs, which is seldom."""
    while error is not None:
        error.__traceback__ = None
        error = error.__context__
