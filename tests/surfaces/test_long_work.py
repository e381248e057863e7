"""Long work of a surface: in turns with everybody else's, from its first slice on."""

from __future__ import annotations

import asyncio
import gc

import pytest

from actors.environment import SystemClock
from actors.execution.loop_budget import LoopBudget
from actors.execution.scheduler import FiberScheduler
from protocol.values import Tick
from surfaces.long_work import LongWork


def long_work() -> LongWork:
    return LongWork(FiberScheduler(asyncio.get_running_loop(), SystemClock()))


async def test_of_many_that_begin_together_each_waits_for_its_turn() -> None:
    """Others have theirs between any two of them, short as each may be."""
    loop, told = asyncio.get_running_loop(), list[str]()

    def other() -> None:
        told.append("other")
        if told.count("work") < 20:
            loop.call_soon(other)

    async def one(work: LongWork) -> None:
        await work.run("", lambda tick: told.append("work"))

    work = long_work()
    tasks = [asyncio.ensure_future(one(work)) for _ in range(20)]
    loop.call_soon(other)
    await asyncio.gather(*tasks)
    together = max(len(run) for run in "".join(each[0] for each in told).split("o"))
    assert told.count("work") == 20 and together == 1, told


async def test_who_no_longer_waits_has_nothing_begun() -> None:
    work, begun = long_work(), list[str]()

    async def one(name: str) -> None:
        await work.run("", lambda tick: begun.append(name))

    tasks = [asyncio.ensure_future(one(name)) for name in ("first", "second")]
    await asyncio.sleep(0)  # both stand in line, one behind the other
    tasks[1].cancel()
    with pytest.raises(asyncio.CancelledError):
        await tasks[1]
    await tasks[0]
    assert await work.run("", _answers) == "answer"
    assert begun == ["first"]


async def test_what_it_raises_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        await long_work().run("", lambda tick: 1 // 0)


async def test_what_it_raises_in_the_turn_in_which_its_waiter_is_cancelled_is_told_to_nobody() -> (
    None
):
    """Nor does asyncio tell of it, which would fail this."""
    work = long_work()

    def fails(tick: Tick) -> None:
        task.cancel()
        raise ValueError("nobody waits")

    task = asyncio.ensure_future(work.run("", fails))
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0)
    gc.collect()


def _answers(tick: Tick) -> str:
    tick()
    return "answer"


async def test_what_waits_for_an_iteration_comes_before_what_is_ready_later() -> None:
    """Many short calls share one, and users take turns."""
    pace, order, turn = LoopBudget(16_000), list[str](), asyncio.Event()
    for number in range(100):
        pace.later("a", lambda number=number: order.append(f"a{number}"))  # type: ignore[misc]
    pace.later("b", lambda: order.append("b"))
    asyncio.get_running_loop().call_soon(turn.set)
    await turn.wait()
    assert order[:3] == ["a0", "b", "a1"] and len(order) == 101

    pace.later("a", lambda: pace.spend(16_000))
    pace.later("a", lambda: order.append("late"))
    await asyncio.sleep(0)
    assert pace.is_spent and order[-1] != "late"
    await asyncio.sleep(0)
    assert order[-1] == "late" and not pace.is_spent
