"""An asyncio event loop with virtual time (deterministic simulation).

It runs the same coroutines as the real loop, in one thread and without a selector. When nothing is
ready, time jumps to the next timer; without a timer every task waits for ever, and `Deadlock` is
raised. Ready callbacks may be run in an order drawn from a seed: every order that the real loop
could produce between independent events.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar

T = TypeVar("T")


class Deadlock(AssertionError):
    """Nothing is ready, no timer is set, and the main coroutine has not ended."""


class _NoSelector:
    """Placeholder for asyncio's selector: there is nothing to wait for but time."""

    def __init__(self, loop: SteppedLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise Deadlock("everybody waits, and no timer is set")
        if timeout > 0:
            self._loop.advance(timeout)
        return []

    def close(self) -> None:
        pass


class SteppedLoop(asyncio.BaseEventLoop):
    """The loop. `time()` is virtual, in seconds, and starts at 0.

    :param seed: when given, the order of callbacks that are ready together is drawn from it
    :param latency: seconds that a call from one thread to another takes, asked for at each; without
        it such a call arrives in the loop's next round
    """

    def __init__(self, seed: int | None = None, latency: Callable[[], float] | None = None) -> None:
        super().__init__()
        self._latency = latency
        self._now = 0.0
        self._selector = _NoSelector(self)
        self._shuffle = None if seed is None else random.Random(seed)
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass. Timers due by then run in the loop's next round."""
        self._now += seconds

    def _shuffle_due(self, shuffle: random.Random) -> None:
        base: Any = self  # asyncio's own fields
        due: list[Any] = []
        while base._scheduled and base._scheduled[0]._when <= self._now:
            handle = heapq.heappop(base._scheduled)
            handle._scheduled = False
            if handle._cancelled:
                base._timer_cancelled_count -= 1
            else:
                due.append(handle)
        if len(due) > 1:
            shuffle.shuffle(due)
        base._ready.extend(due)

    def _process_events(self, events: list[Any]) -> None:
        # Called after time has moved on and before asyncio looks at its timers. What `call_soon`
        # was given keeps its order, since code relies on it; timers that are due together stand
        # for events from outside, which may come in any order.
        if self._shuffle is not None:
            self._shuffle_due(self._shuffle)

    def _write_to_self(self) -> None:
        pass  # there is no other thread, and no select that would have to be woken

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Schedule as `call_soon`, or after `latency`: one thread stands for many."""
        seconds = self._latency() if self._latency is not None else 0.0
        if seconds > 0:
            return self.call_later(seconds, callback, *args, context=context)
        return self.call_soon(callback, *args, context=context)


def run(
    main: Coroutine[Any, Any, T],
    seed: int | None = None,
    latency: Callable[[], float] | None = None,
    loop: SteppedLoop | None = None,
) -> T:
    """Run a coroutine to its end on a loop of its own, in virtual time.

    :param loop: one that was made of seed and latency, in place of another
    """
    loop = loop or SteppedLoop(seed, latency)
    try:
        asyncio.set_event_loop(loop)
        return loop.run_until_complete(main)
    finally:
        try:
            _cancel_all(loop)
        finally:
            asyncio.set_event_loop(None)
            loop.close()


def _cancel_all(loop: SteppedLoop) -> None:
    while tasks := asyncio.all_tasks(loop):  # what is cancelled may begin something else
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
