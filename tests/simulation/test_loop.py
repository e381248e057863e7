"""The event loop with virtual time."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.simulation.environment import LoopClock, ManualClock, SeededRng
from tests.simulation.loop import Deadlock, run


def test_time_jumps_to_the_next_timer() -> None:
    async def main() -> tuple[float, int]:
        loop = asyncio.get_running_loop()
        clock = LoopClock(loop)
        before = clock.monotonic_us()
        await asyncio.sleep(3600 * 24)
        return loop.time(), clock.monotonic_us() - before

    began = time.monotonic()
    assert run(main()) == (86_400.0, 86_400_000_000)
    assert time.monotonic() - began < 60


def test_waiting_for_what_can_not_come_is_said() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock):
        run(main())


async def order() -> list[int]:
    came: list[int] = []

    async def one(number: int) -> None:
        await asyncio.sleep(1)
        came.append(number)

    await asyncio.gather(*(one(number) for number in range(8)))
    return came


def test_a_seed_decides_the_order_of_what_comes_together() -> None:
    assert run(order()) == run(order())
    orders = [tuple(run(order(), seed)) for seed in range(20)]
    assert orders == [tuple(run(order(), seed)) for seed in range(20)]
    assert len(set(orders)) > 10
    assert all(sorted(one) == list(range(8)) for one in orders)


def test_timers_that_are_cancelled_do_not_run() -> None:
    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        ran: list[str] = []
        for number in range(200):
            timer = loop.call_later(1, ran.append, f"no {number}")
            timer.cancel()
        loop.call_later(1, ran.append, "yes")
        await asyncio.sleep(2)
        return ran

    assert run(main(), 1) == ["yes"]
    assert run(main()) == ["yes"]


def test_the_other_doors_stand_still_or_repeat() -> None:
    clock = ManualClock()
    before = clock.wall_us(), clock.monotonic_us()
    assert before == (clock.wall_us(), clock.monotonic_us())
    clock.step_wall(-5)
    clock.advance(2)
    assert (clock.wall_us(), clock.monotonic_us()) == (before[0] - 3, before[1] + 2)
    assert SeededRng(1).bytes(9) == SeededRng(1).bytes(9)
    assert SeededRng(1).below(1000) == SeededRng(1).below(1000)
