"""Long work of a surface, such as parsing a body of megabytes: cooperatively scheduled in slices.

It is plain synchronous code that calls a `tick` function, and is scheduled like scripts: see
`actors/scripts/fiber.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar
from weakref import WeakValueDictionary

from actors.scripts.fiber import Fiber
from actors.scripts.scheduler import FiberScheduler, UserQueues

Found = TypeVar("Found")


class _LoopClock:
    """The loop's clock: virtual where the loop's time is."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._time = loop.time

    def wall_us(self) -> int:
        """Not needed for scheduling."""
        raise NotImplementedError

    def monotonic_us(self) -> int:
        """Return microseconds on the loop's clock."""
        return int(self._time() * 1_000_000)

    def boottime_us(self) -> int:
        """Not needed for scheduling."""
        raise NotImplementedError


PACE_SECONDS: Final = 0.016
"""Seconds that all connections together may take of one iteration of the loop: eight slices."""


class IterationBudget:
    """Time budget of one loop iteration that many connections share. Each is short, but a thousand
    ready ones are not, and the loop serves all of them before anything else.

    A connection that finds the budget spent queues here, by user. The queue comes first in the next
    iteration, up to the budget, so that no connection waits behind those that are ready later.
    """

    def __init__(self) -> None:
        self.is_spent = False
        self._seconds = 0.0
        self._renews = False
        self._lines = UserQueues()

    def spend(self, seconds: float) -> None:
        """Count time against the budget of this iteration of the loop."""
        self._seconds += seconds
        if self._seconds > PACE_SECONDS / 4:
            self._renew_soon()  # not at each call: scheduling costs as much as a GET
        self.is_spent = self._seconds >= PACE_SECONDS

    def later(self, user: str, call: Callable[[], None]) -> None:
        """Make a short call in a later iteration. :param user: user whose work it is"""
        self._lines.add(user, call)
        self._renew_soon()

    def _renew_soon(self) -> None:
        if not self._renews:
            self._renews = True
            asyncio.get_running_loop().call_soon(self._renew)

    def _renew(self) -> None:
        self.is_spent = self._renews = False
        self._seconds = 0.0
        try:
            while self._lines and not self.is_spent:
                self._lines.pop()()
        finally:
            if self._lines:
                self._renew_soon()


class LongWork:
    """Runs long work on one loop; slices of several are queued."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._turns = FiberScheduler(loop, _LoopClock(loop))
        self._reading: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Locks by user, kept while a task holds or awaits them."""

    def reading_of(self, user: str) -> asyncio.Lock:
        """Return the user's lock for reads whose memory need is known only afterwards. A user has
        one such read at a time, in order of arrival."""
        found = self._reading.get(user)
        if found is None:
            found = self._reading[user] = asyncio.Lock()
        return found

    async def run(self, user: str, work: Callable[[Callable[[], None]], Found]) -> Found:
        """Run `work(tick)` in slices. Return its result, or raise its exception. If the awaiting
        task is cancelled, the work ends at its next slice.

        :param user: user whose work it is
        """
        turn, found = Fiber(self._turns, user), list[Found]()
        turn.start_in_line(lambda: found.append(work(turn.tick)), _nothing)
        try:
            await asyncio.wait((turn.outcome,))
        finally:
            if not turn.ended:
                turn.cancel()
            # A cancelled caller gets no result, even if the work failed in this very slice.
            turn.outcome.add_done_callback(asyncio.Future.exception)
        turn.outcome.result()
        return found.pop()


def _nothing() -> None:
    """Do nothing before the loop runs on."""
