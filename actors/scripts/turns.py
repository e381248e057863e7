"""Turns: how scripts share the event loop.

A script is plain synchronous code that runs in a greenlet. In its loops it calls `tick()`; when its
slice is used up, `tick` hands the loop back and returns at the script's next turn. So a SELECT may
call an expression that runs a subquery that scans a table, with no `await` in between and without
holding the loop for longer than a slice. Code that never ticks, a commit above all, is atomic.

Scripts that used up a slice queue for their next one, and the loop resumes one of them each time
round: however many long scripts there are, a short one waits for one slice, not for all of them.
Of two users' long scripts each user has every second slice (`workers.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from greenlet import getcurrent, greenlet

from actors.scripts.workers import Turns
from language.planning import CHARGES
from protocol.errors import Cancelled, Refusal, StatementTimeout
from protocol.values import PACE

ITEMS_A_US: Final = 5
"""Items of an array that are gone through in a microsecond."""

Awaited = TypeVar("Awaited")

PARKED_US: Final = 3_600_000_000
"""A parked script looks at its clock at least so often."""


class Turn:
    """One script's run: its greenlet, its slice, its deadline, and whether it was cancelled.

    :param user: whose it is; empty: the node's own
    """

    # What most work never changes stands here: a turn is made for each script.

    ended = False
    """Whether the work has ended."""
    error: Exception | None = None
    """What the work raised, once it has ended."""
    began_us = 0
    """When the work was started, on the monotonic clock."""
    now_us = 0
    """What that clock said when it was last looked at for this work; at each of its slices, and
    each tick."""
    slices = 0
    """How often the loop was handed back."""
    slice_us: int
    """How long its slices are, from the next one on."""
    hurries = False
    """Whether it gets every second slice of those that scripts queue for."""
    _slice_ends_us = 0
    _charged = 0
    """Work charged since the last look at the clock."""
    _deadlines_us: Sequence[int] = ()
    """From the outermost in; each is no later than those around it."""
    _ended_by: Refusal | None = None
    _parked: asyncio.TimerHandle | None = None
    _outcome: asyncio.Future[None] | None = None
    _work: Callable[[], None]
    _paused: Callable[[], None]
    _loop_side: greenlet

    def __init__(self, turns: Turns, user: str) -> None:
        self._turns = turns
        self._user = user
        self._clock = turns.clock
        self.slice_us = turns.slice_us
        self._worker = turns.worker()

    @property
    def outcome(self) -> asyncio.Future[None]:
        """Done when the work has ended; what the work raised, this raises. Made when it is first
        asked for: most work has ended before anybody could wait for it."""
        if self._outcome is None:
            self._outcome = self._turns.loop.create_future()
            if self.ended:
                self._settle(self._outcome)
        return self._outcome

    def _settle(self, outcome: asyncio.Future[None]) -> None:
        if self.error is None:
            outcome.set_result(None)
        else:
            outcome.set_exception(self.error)

    def start(self, work: Callable[[], None], paused: Callable[[], None]) -> None:
        """Run until the first time the work hands the loop back, or to its end. Its first slice
        is a part of one where other work of its user waits for slices: of hundreds that come
        together each would hold the loop for one.

        :param paused: called each time before the loop is handed back, with work half done
        """
        self._paused = paused
        self._work = work
        self._begin(self.slice_us // (1 + self._turns.waiting_of(self._user)))

    def start_in_line(self, work: Callable[[], None], paused: Callable[[], None]) -> None:
        """Begin when its turn comes, as if it had used up a slice: of hundreds that are there at
        once each would hold the loop for one before anybody else had a turn."""
        self._paused = paused
        self._work = work
        self._turns.queue(partial(self._begin, self.slice_us), self._user)

    def _begin(self, slice_us: int) -> None:
        self.began_us = self.now_us = now_us = self._clock.monotonic_us()
        self._slice_ends_us = now_us + slice_us
        self._loop_side = getcurrent()
        self._worker.switch(self.run)

    def cancel(self, refusal: Refusal | None = None) -> None:
        """Make the work's next tick raise. What it committed stays."""
        if self._ended_by is None:
            self._ended_by = refusal or Cancelled("the request was cancelled")
            self.wake()

    @property
    def over(self) -> bool:
        """Whether the work's next tick raises. May be asked from any thread."""
        deadlines_us = self._deadlines_us
        late = bool(deadlines_us) and self._clock.monotonic_us() >= deadlines_us[-1]
        return late or self._ended_by is not None

    def wake(self) -> None:
        """End the work's `park`, if it is in one."""
        if self._parked is not None:
            self._parked.cancel()
            self._unpark()

    # --- called by the work, inside the greenlet --------------------------------------------------

    def tick(self, cost: int = PACE) -> None:
        """Give the loop its turn when the slice is used up, or what follows would use it up: a
        single call of tens of milliseconds begins in a slice of its own, so that of many that come
        together each waits for its turn.

        :param cost: of the work that follows, in items of an array; the clock is looked at once for
            each PACE of them
        :raises StatementTimeout: a deadline has passed
        :raises Cancelled: somebody called `cancel`
        """
        self._charged += cost
        if self._charged < PACE:
            return
        self._charged = 0
        self.now_us = now_us = self._clock.monotonic_us()
        ahead_us = cost // ITEMS_A_US if cost > PACE else 0
        if now_us + ahead_us >= self._slice_ends_us:
            self._turns.queue(self._resume, self._user, hurries=self.hurries)
            self._hand_back()

    def looked_us(self) -> int:
        """Look at the clock: `now_us`."""
        self.now_us = now_us = self._clock.monotonic_us()
        return now_us

    def rest(self) -> None:
        """Give the loop its turn now, and begin a slice anew. Raises as `tick`."""
        self._turns.queue(self._resume, self._user, hurries=self.hurries)
        self._hand_back()

    def wait(self, awaitable: Awaitable[Awaited]) -> Awaited:
        """What an awaitable of the loop brings; others run meanwhile."""
        awaited = asyncio.ensure_future(awaitable, loop=self._turns.loop)
        if not awaited.done():
            awaited.add_done_callback(self._awaited)
            self._hand_back()
        return awaited.result()

    def park(self, until_us: int | None = None) -> None:
        """Wait without working, until somebody calls `wake` or the monotonic clock says so. It may
        end earlier.

        :raises StatementTimeout: a deadline has passed
        :raises Cancelled: somebody called `cancel`
        """
        if self._ended_by is not None:
            raise self._ended_by
        now_us = self._clock.monotonic_us()
        until_us = now_us + PARKED_US if until_us is None else until_us
        if self._deadlines_us:
            until_us = min(until_us, self._deadlines_us[-1])
        left_us = min(max(until_us - now_us, 0), PARKED_US)
        self._parked = self._turns.loop.call_later(left_us / 1_000_000, self._unpark)
        self._hand_back()

    def _unpark(self) -> None:
        self._parked = None
        self._turns.queue(self._resume, self._user)

    def _awaited(self, done: asyncio.Future[Any]) -> None:
        if not done.cancelled():
            done.exception()  # seen, also when the work was ended meanwhile and won't look
        self._turns.queue(self._resume, self._user)

    def push_deadline(self, after_us: int) -> None:
        """Let `tick` raise once so many microseconds have passed, or an outer deadline has."""
        ends = self._clock.monotonic_us() + after_us
        if self._deadlines_us:
            ends = min(ends, self._deadlines_us[-1])
        self._deadlines_us = (*self._deadlines_us, ends)

    @property
    def ends_us(self) -> int | None:
        """When `tick` raises for want of time, on the monotonic clock; None: never."""
        return self._deadlines_us[-1] if self._deadlines_us else None

    def pop_deadline(self) -> None:
        """Drop the innermost deadline."""
        self._deadlines_us = self._deadlines_us[:-1]

    def _hand_back(self) -> None:
        self._paused()
        self.slices += 1
        self._loop_side.switch()
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
        """Do the work, inside the greenlet: called by that alone."""
        outer = CHARGES.set(self.tick)
        try:
            if self._ended_by is not None:
                raise self._ended_by  # while it stood in line
            self._work()
        except Exception as error:
            if isinstance(error, Refusal):
                _forget_frames(error)
            self.error = error
        finally:
            CHARGES.reset(outer)
            self.ended = True
            if self._outcome is not None:
                self._settle(self._outcome)
            # The work's owner holds this turn: without the ways back it is freed at once, and not
            # only when the collector comes by.
            self._paused = self._work = _nothing


def _nothing() -> None:
    """What a turn does, and how it pauses, once it has ended."""


def _forget_frames(error: BaseException | None) -> None:
    """Let go of the frames that a refusal came through. They hold the run, which holds its outcome,
    which holds the refusal: a transaction of 64 MiB that was refused would stay until the collector
    comes by, and that is seldom."""
    while error is not None:
        error.__traceback__ = None
        error = error.__context__
