from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable

import pytest

from actors.execution.fiber import ITEMS_A_US, Fiber
from actors.execution.scheduler import FEED, LOCK, SCRIPT, FiberScheduler
from protocol import limits
from protocol.errors import Cancelled, Failed, StatementTimeout


class Hands:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.us = 1_000_000

    def wall_us(self) -> int:
        return self.us

    def monotonic_us(self) -> int:
        return self.us

    def boottime_us(self) -> int:
        return self.us


@pytest.fixture
async def hands() -> Hands:
    return Hands()


@pytest.fixture
async def scheduler(hands: Hands) -> FiberScheduler:
    return FiberScheduler(asyncio.get_running_loop(), hands)


def nothing() -> None:
    pass


def run(
    scheduler: FiberScheduler,
    work: Callable[[Fiber], None],
    paused: Callable[[], None] = nothing,
    *,
    user: str = "",
) -> Fiber:
    fiber = Fiber(scheduler, SCRIPT, user)
    fiber.start(lambda: work(fiber), paused)
    return fiber


async def test_short_work_ends_before_start_returns(scheduler: FiberScheduler) -> None:
    done: list[int] = []

    def work(fiber: Fiber) -> None:
        fiber.tick()
        done.append(1)

    fiber = run(scheduler, work)
    assert fiber.outcome.done() and len(done) == 1 and fiber.slices == 0


async def test_work_hands_the_loop_back_when_its_slice_is_used_up(
    scheduler: FiberScheduler, hands: Hands
) -> None:
    order: list[str] = []

    def work(fiber: Fiber) -> None:
        order.append("first slice")
        hands.us += limits.SLICE_US
        fiber.tick()
        order.append("second slice")

    fiber = run(scheduler, work, lambda: order.append("paused"))
    order.append("the loop")
    await fiber.outcome
    assert order == ["first slice", "paused", "the loop", "second slice"]
    assert fiber.slices == 1


async def test_long_scripts_take_turns_and_a_short_one_waits_for_one_slice(
    scheduler: FiberScheduler, hands: Hands
) -> None:
    order: list[str] = []

    def long(name: str) -> Callable[[Fiber], None]:
        def work(fiber: Fiber) -> None:
            for _ in range(3):
                order.append(name)
                hands.us += limits.SLICE_US
                fiber.tick()

        return work

    turnees = [run(scheduler, long(name)) for name in "ab"]
    asyncio.get_running_loop().call_soon(order.append, "short")
    await asyncio.wait([fiber.outcome for fiber in turnees])
    assert order == ["a", "b", "a", "short", "b", "a", "b"]


async def test_slices_go_round_by_user(scheduler: FiberScheduler, hands: Hands) -> None:
    """Of three scripts of one user and one of another's each user has every second slice, who
    holds a lock has every second slice of all, and other ranks take turns."""
    order: list[str] = []

    def long(name: str, user: str, rank: int = SCRIPT) -> Fiber:
        fiber = Fiber(scheduler, rank, user)

        def work() -> None:
            for _ in range(3):
                hands.us += limits.SLICE_US
                fiber.tick()
                order.append(name)

        fiber.start(work, nothing)
        return fiber

    many = [long(name, "a") for name in ("a1", "a2", "a3")]
    for fiber in [*many, long("b", "b")]:
        await fiber.outcome
    assert order == ["a1", "b", "a2", "b", "a3", "b", "a1", "a2", "a3", "a1", "a2", "a3"]
    order.clear()
    begun = [long("a", "a"), long("b", "b"), long("first", "c", LOCK)]
    await asyncio.wait([fiber.outcome for fiber in begun])
    assert order == ["first", "a", "first", "b", "first", "a", "b", "a", "b"]
    order.clear()
    begun = [long("script", "a"), long("feed", "a", FEED), long("lock", "a", LOCK)]
    await asyncio.wait([fiber.outcome for fiber in begun])
    expected = ["lock", "feed", "lock", "script", "lock", "feed", "script", "feed", "script"]
    assert order == expected


async def test_a_single_call_that_uses_up_a_slice_begins_in_one_of_its_own(
    scheduler: FiberScheduler,
) -> None:
    order: list[str] = []

    def work(fiber: Fiber) -> None:
        fiber.tick(limits.SLICE_US)  # a fifth of what a slice has
        order.append("short")
        fiber.tick(ITEMS_A_US * limits.SLICE_US)
        order.append("heavy")

    fiber = run(scheduler, work)
    order.append("the loop")
    await fiber.outcome
    assert order == ["short", "the loop", "heavy"] and fiber.slices == 1


async def test_a_deadline_ends_work_at_its_next_slice(
    scheduler: FiberScheduler, hands: Hands
) -> None:
    def work(fiber: Fiber) -> None:
        fiber.push_deadline(10 * limits.SLICE_US)
        while True:
            hands.us += limits.SLICE_US
            fiber.tick()

    fiber = run(scheduler, work)
    with pytest.raises(StatementTimeout):
        await fiber.outcome
    assert fiber.slices == 10


async def test_an_outer_deadline_holds_inside_an_inner_one(
    scheduler: FiberScheduler, hands: Hands
) -> None:
    def work(fiber: Fiber) -> None:
        fiber.push_deadline(2 * limits.SLICE_US)
        fiber.push_deadline(100 * limits.SLICE_US)
        while True:
            hands.us += limits.SLICE_US
            fiber.tick()

    fiber = run(scheduler, work)
    with pytest.raises(StatementTimeout):
        await fiber.outcome
    assert fiber.slices == 2


async def test_cancelling_ends_work_at_its_next_slice(
    scheduler: FiberScheduler, hands: Hands
) -> None:
    unwound = []

    def work(fiber: Fiber) -> None:
        try:
            while True:
                hands.us += limits.SLICE_US
                fiber.tick()
        finally:
            unwound.append(True)

    fiber = run(scheduler, work)
    fiber.cancel()
    with pytest.raises(Cancelled):
        await fiber.outcome
    assert unwound


async def test_work_waits_for_the_loop_without_holding_it(scheduler: FiberScheduler) -> None:
    coming: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    got: list[int] = []
    fiber = run(scheduler, lambda fiber: got.append(fiber.wait(coming)))
    assert not fiber.outcome.done()
    coming.set_result(7)
    await fiber.outcome
    assert got == [7]


async def test_what_a_future_raises_is_raised_in_the_work(scheduler: FiberScheduler) -> None:
    coming: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    got: list[int] = []
    fiber = run(scheduler, lambda fiber: got.append(fiber.wait(coming)))
    coming.set_exception(Failed("no"))
    with pytest.raises(Failed):
        await fiber.outcome


async def test_nothing_of_a_script_outlives_it(scheduler: FiberScheduler) -> None:
    """Neither an idle worker nor a cycle keeps what a script had gathered."""

    class Script:
        def __init__(self) -> None:
            self.fiber = Fiber(scheduler, SCRIPT, "")

        def run(self) -> None:
            self.fiber.tick()

        def pause(self) -> None:
            pass

    gc.disable()
    try:
        script = Script()
        script.fiber.start(script.run, script.pause)
        gone = weakref.ref(script)
        del script
        assert gone() is None
    finally:
        gc.enable()


FAR_US = 1_000_000_000_000


async def test_parked_work_goes_on_when_it_is_woken(scheduler: FiberScheduler) -> None:
    order: list[str] = []

    def work(fiber: Fiber) -> None:
        fiber.park(FAR_US)
        order.append("woken")

    fiber = run(scheduler, work, lambda: order.append("paused"))
    await asyncio.sleep(0)
    order.append("parked")
    fiber.wake()
    fiber.wake()
    await fiber.outcome
    assert order == ["paused", "parked", "woken"]


async def test_parked_work_is_cancelled_at_once(scheduler: FiberScheduler) -> None:
    fiber = run(scheduler, lambda fiber: fiber.park(FAR_US))
    fiber.cancel()
    with pytest.raises(Cancelled):
        await fiber.outcome


async def test_work_that_was_cancelled_does_not_park(scheduler: FiberScheduler) -> None:
    def work(fiber: Fiber) -> None:
        fiber.cancel()
        fiber.park(FAR_US)

    fiber = run(scheduler, work)
    with pytest.raises(Cancelled):
        await fiber.outcome
    assert fiber.slices == 0


async def test_a_deadline_ends_parked_work(scheduler: FiberScheduler, hands: Hands) -> None:
    def work(fiber: Fiber) -> None:
        fiber.push_deadline(1_000)
        fiber.park(FAR_US)

    fiber = run(scheduler, work)
    hands.us += 1_000
    fiber.wake()
    with pytest.raises(StatementTimeout):
        await fiber.outcome


async def test_a_wake_of_work_that_is_not_parked_is_nothing(
    scheduler: FiberScheduler, hands: Hands
) -> None:
    def work(fiber: Fiber) -> None:
        fiber.wake()
        hands.us += limits.SLICE_US
        fiber.tick()
        fiber.wake()

    fiber = run(scheduler, work)
    fiber.wake()
    await fiber.outcome
    assert fiber.slices == 1
