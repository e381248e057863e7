"""Environments for tests: a manual clock, a seeded generator, schedulers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from importlib import import_module

from actors.environment import ready_calls
from tests.simulation.loop import SteppedLoop

START_US = 1_790_000_000_000_000
"""Start of a manual wall clock: a day in 2026."""


class ManualClock:
    """Clocks that stand still until the test moves them."""

    def __init__(self, wall_us: int = START_US) -> None:
        self._wall_us = wall_us
        self._monotonic_us = 1_000_000

    def wall_us(self) -> int:
        """Microseconds since 1970."""
        return self._wall_us

    def monotonic_us(self) -> int:
        """Microseconds since an arbitrary start."""
        return self._monotonic_us

    def boottime_us(self) -> int:
        """The same: nothing suspends this machine."""
        return self._monotonic_us

    def advance(self, microseconds: int) -> None:
        self._wall_us += microseconds
        self._monotonic_us += microseconds

    def step_wall(self, microseconds: int) -> None:
        self._wall_us += microseconds


class LoopClock:
    """Clocks that follow the virtual time of a stepped loop. The wall clock may be stepped in
    addition.

    :param tick_us: time that each read of the monotonic clock takes. Without it computing takes no
        time, so that no script ever uses up its slice and yields to others.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, wall_us: int = START_US, tick_us: int = 0
    ) -> None:
        assert isinstance(loop, SteppedLoop)
        self._loop = loop
        self._wall_us = wall_us
        self._tick_us = tick_us

    def wall_us(self) -> int:
        """Microseconds since 1970."""
        return self._wall_us + self._passed_us()

    def monotonic_us(self) -> int:
        """Microseconds since an arbitrary start."""
        if self._tick_us:
            self._loop.advance(self._tick_us / 1_000_000)
        return 1_000_000 + self._passed_us()

    def boottime_us(self) -> int:
        """Microseconds since an arbitrary start; a look takes no time."""
        return 1_000_000 + self._passed_us()

    def step_wall(self, microseconds: int) -> None:
        self._wall_us += microseconds

    def _passed_us(self) -> int:
        return round(self._loop.time() * 1_000_000)


class SeededRng:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)

    def below(self, bound: int) -> int:
        """0 <= n < bound."""
        return self._random.randrange(bound)


class SteppedScheduler:
    """Scheduler that runs everything on the running loop, thread actors too."""

    threads = False

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        assert isinstance(self._loop, SteppedLoop)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def ready(self) -> int:
        return ready_calls(self._loop)

    async def compute(self, module: str, request: Sequence[bytes]) -> bytes:
        """Compute in place."""
        found: bytes = import_module(module).answer_of(b"".join(request))
        return found

    def lower_priority(self) -> None:
        """Do nothing: there is one thread."""


class ThreadScheduler:
    """The running real loop, with real threads."""

    threads = True

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def ready(self) -> int:
        return ready_calls(self._loop)

    async def compute(self, module: str, request: Sequence[bytes]) -> bytes:
        """Compute in place."""
        found: bytes = import_module(module).answer_of(b"".join(request))
        return found

    def lower_priority(self) -> None:
        """Do nothing: tests need no latency."""
