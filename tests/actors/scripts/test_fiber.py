from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from actors.scripts.fiber import ITEMS_A_US, Fiber
from actors.scripts.scheduler import FiberScheduler
from protocol import limits
from protocol.errors import Cancelled, Failed, StatementTimeout
from protocol.values import PACE


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
async def turns(hands: Hands) -> FiberScheduler:
    return FiberScheduler(asyncio.get_running_loop(), hands)


def nothing() -> None:
    pass


def run(
    turns: FiberScheduler,
    work: Callable[[Fiber], None],
    paused: Callable[[], None] = nothing,
    *,
    user: str = "",
) -> Fiber:
    turn = Fiber(turns, user)
    turn.start(lambda: work(turn), paused)
    return turn


async def test_short_work_ends_before_start_returns(turns: FiberScheduler) -> None:
    done: list[int] = []

    def work(turn: Fiber) -> None:
        turn.tick()
        done.append(1)

    turn = run(turns, work)
    assert turn.outcome.done() and len(done) == 1 and turn.slices == 0


async def test_work_hands_the_loop_back_when_its_slice_is_used_up(
    turns: FiberScheduler, hands: Hands
) -> None:
    order: list[str] = []

    def work(turn: Fiber) -> None:
        order.append("first slice")
        hands.us += limits.SLICE_US
        turn.tick()
        order.append("second slice")

    turn = run(turns, work, lambda: order.append("paused"))
    order.append("the loop")
    await turn.outcome
    assert order == ["first slice", "paused", "the loop", "second slice"]
    assert turn.slices == 1


async def test_long_scripts_take_turns_and_a_short_one_waits_for_one_slice(
    turns: FiberScheduler, hands: Hands
) -> None:
    order: list[str] = []

    def long(name: str) -> Callable[[Fiber], None]:
        def work(turn: Fiber) -> None:
            for _ in range(3):
                order.append(name)
                hands.us += limits.SLICE_US
                turn.tick()

        return work

    turnees = [run(turns, long(name)) for name in "ab"]
    asyncio.get_running_loop().call_soon(order.append, "short")
    await asyncio.wait([turn.outcome for turn in turnees])
    assert order == ["a", "b", "a", "short", "b", "a", "b"]


async def test_slices_go_round_by_user(turns: FiberScheduler, hands: Hands) -> None:
    """Of three scripts of one user and one of another's each user has every second slice, and what
    hurries has every second slice of all."""
    order: list[str] = []

    def long(name: str, user: str, *, high_priority: bool = False) -> Fiber:
        turn = Fiber(turns, user)
        turn.high_priority = high_priority

        def work() -> None:
            for _ in range(3):
                hands.us += limits.SLICE_US
                turn.tick()
                order.append(name)

        turn.start(work, nothing)
        return turn

    many = [long(name, "a") for name in ("a1", "a2", "a3")]
    for turn in [*many, long("b", "b")]:
        await turn.outcome
    assert order == ["a1", "b", "a2", "b", "a3", "b", "a1", "a2", "a3", "a1", "a2", "a3"]
    order.clear()
    begun = [long("a", "a"), long("b", "b"), long("first", "c", high_priority=True)]
    await asyncio.wait([turn.outcome for turn in begun])
    assert order == ["first", "a", "first", "b", "first", "a", "b", "a", "b"]


async def test_many_of_one_user_that_begin_together_share_a_slice(
    turns: FiberScheduler, hands: Hands
) -> None:
    """Else each of hundreds would hold the loop for one."""

    def work(turn: Fiber) -> None:
        for _ in range(2 * limits.SLICE_US):
            hands.us += 1
            turn.tick(0 if hands.us % 4 else PACE)

    began_us = hands.us
    begun = [Fiber(turns, "a") for _ in range(400)]
    for turn in begun:
        turn.start(partial(work, turn), nothing)
    assert all(turn.slices for turn in begun) and hands.us - began_us < 10 * limits.SLICE_US
    before_us = hands.us
    other = run(turns, work, user="b")
    assert other.slices and hands.us - before_us > limits.SLICE_US // 2, "a slice of its own"
    await asyncio.wait([turn.outcome for turn in (*begun, other)])


async def test_a_single_call_that_uses_up_a_slice_begins_in_one_of_its_own(
    turns: FiberScheduler,
) -> None:
    order: list[str] = []

    def work(turn: Fiber) -> None:
        turn.tick(limits.SLICE_US)  # a fifth of what a slice has
        order.append("short")
        turn.tick(ITEMS_A_US * limits.SLICE_US)
        order.append("heavy")

    turn = run(turns, work)
    order.append("the loop")
    await turn.outcome
    assert order == ["short", "the loop", "heavy"] and turn.slices == 1


async def test_a_deadline_ends_work_at_its_next_slice(turns: FiberScheduler, hands: Hands) -> None:
    def work(turn: Fiber) -> None:
        turn.push_deadline(10 * limits.SLICE_US)
        while True:
            hands.us += limits.SLICE_US
            turn.tick()

    turn = run(turns, work)
    with pytest.raises(StatementTimeout):
        await turn.outcome
    assert turn.slices == 10


async def test_an_outer_deadline_holds_inside_an_inner_one(
    turns: FiberScheduler, hands: Hands
) -> None:
    def work(turn: Fiber) -> None:
        turn.push_deadline(2 * limits.SLICE_US)
        turn.push_deadline(100 * limits.SLICE_US)
        while True:
            hands.us += limits.SLICE_US
            turn.tick()

    turn = run(turns, work)
    with pytest.raises(StatementTimeout):
        await turn.outcome
    assert turn.slices == 2


async def test_a_deadline_that_was_popped_ends_nothing(turns: FiberScheduler, hands: Hands) -> None:
    def work(turn: Fiber) -> None:
        turn.push_deadline(limits.SLICE_US)
        turn.pop_deadline()
        hands.us += 5 * limits.SLICE_US
        turn.tick()

    await run(turns, work).outcome


async def test_cancelling_ends_work_at_its_next_slice(turns: FiberScheduler, hands: Hands) -> None:
    unwound = []

    def work(turn: Fiber) -> None:
        try:
            while True:
                hands.us += limits.SLICE_US
                turn.tick()
        finally:
            unwound.append(True)

    turn = run(turns, work)
    turn.cancel()
    with pytest.raises(Cancelled):
        await turn.outcome
    assert unwound


async def test_work_waits_for_the_loop_without_holding_it(turns: FiberScheduler) -> None:
    coming: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    got: list[int] = []
    turn = run(turns, lambda turn: got.append(turn.wait(coming)))
    assert not turn.outcome.done()
    coming.set_result(7)
    await turn.outcome
    assert got == [7]


async def test_what_a_future_raises_is_raised_in_the_work(turns: FiberScheduler) -> None:
    coming: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    got: list[int] = []
    turn = run(turns, lambda turn: got.append(turn.wait(coming)))
    coming.set_exception(Failed("no"))
    with pytest.raises(Failed):
        await turn.outcome


async def test_nothing_of_a_script_outlives_it(turns: FiberScheduler) -> None:
    """Neither an idle worker nor a cycle keeps what a script had gathered."""

    class Script:
        def __init__(self) -> None:
            self.turn = Fiber(turns, "")

        def run(self) -> None:
            self.turn.tick()

        def pause(self) -> None:
            pass

    gc.disable()
    try:
        script = Script()
        script.turn.start(script.run, script.pause)
        gone = weakref.ref(script)
        del script
        assert gone() is None
    finally:
        gc.enable()


async def test_idle_workers_do_not_keep_the_turns_they_belong_to(hands: Hands) -> None:
    """The collector does not see into their frames: a node once stopped would never be freed."""
    turns = FiberScheduler(asyncio.get_running_loop(), hands)
    assert run(turns, lambda turn: turn.tick()).ended
    gone = weakref.ref(turns)
    del turns
    gc.collect()
    assert gone() is None


async def test_what_an_ended_script_waited_for_may_fail_unseen(turns: FiberScheduler) -> None:
    awaited: Any = asyncio.get_running_loop().create_future()
    turn = Fiber(turns, "")
    turn.start(lambda: turn.wait(awaited), lambda: None)
    turn.cancel()
    awaited.set_exception(RuntimeError("nobody looks"))
    with pytest.raises(Cancelled):
        await turn.outcome
    assert not awaited._log_traceback, "it will be logged as never retrieved"


FAR_US = 1_000_000_000_000


async def test_parked_work_goes_on_when_it_is_woken(turns: FiberScheduler) -> None:
    order: list[str] = []

    def work(turn: Fiber) -> None:
        turn.park(FAR_US)
        order.append("woken")

    turn = run(turns, work, lambda: order.append("paused"))
    await asyncio.sleep(0)
    order.append("parked")
    turn.wake()
    turn.wake()
    await turn.outcome
    assert order == ["paused", "parked", "woken"]


async def test_parked_work_goes_on_when_its_time_is_over(
    turns: FiberScheduler, hands: Hands
) -> None:
    turn = run(turns, lambda turn: turn.park(hands.us))
    await turn.outcome
    assert turn.slices == 1


async def test_parked_work_is_cancelled_at_once(turns: FiberScheduler) -> None:
    turn = run(turns, lambda turn: turn.park(FAR_US))
    turn.cancel()
    with pytest.raises(Cancelled):
        await turn.outcome


async def test_work_that_was_cancelled_does_not_park(turns: FiberScheduler) -> None:
    def work(turn: Fiber) -> None:
        turn.cancel()
        turn.park(FAR_US)

    turn = run(turns, work)
    with pytest.raises(Cancelled):
        await turn.outcome
    assert turn.slices == 0


async def test_a_deadline_ends_parked_work(turns: FiberScheduler, hands: Hands) -> None:
    def work(turn: Fiber) -> None:
        turn.push_deadline(1_000)
        turn.park(FAR_US)

    turn = run(turns, work)
    hands.us += 1_000
    turn.wake()
    with pytest.raises(StatementTimeout):
        await turn.outcome


async def test_a_wake_of_work_that_is_not_parked_is_nothing(
    turns: FiberScheduler, hands: Hands
) -> None:
    def work(turn: Fiber) -> None:
        turn.wake()
        hands.us += limits.SLICE_US
        turn.tick()
        turn.wake()

    turn = run(turns, work)
    turn.wake()
    await turn.outcome
    assert turn.slices == 1
