"""Waits in queues: each is resumed once, as soon as what it waits for is there, and not before."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from actors.environment import SystemClock
from actors.execution.blocking import STALE, CallbackWait, Deadlines, NumberedQueue


def failing(error: BaseException) -> None:
    raise error


def compared(seed: int) -> None:
    """Arrivals, beside a list that is looked through each time."""
    rng, sequence_waiters = Random(seed), NumberedQueue(failing)
    shown, woken = 0, list[int]()
    waits: dict[int, tuple[int, CallbackWait]] = {}

    def wake(number: int) -> CallbackWait:
        return CallbackWait(lambda _lost: woken.append(number))

    for number in range(200):
        if rng.random() < 0.6:
            sequence = shown + rng.randint(1, 9)
            waits[number] = sequence, wake(number)
            sequence_waiters.block(waits[number][1], sequence)
        elif waits and rng.random() < 0.5:
            assert waits.pop(rng.choice(list(waits)))[1].cancel()
        else:
            shown += rng.randint(0, 3)
            due = {one for one, (sequence, _) in waits.items() if sequence <= shown}
            woken.clear()
            sequence_waiters.unblock_upto(shown)
            assert sorted(woken) == sorted(due)
            assert [waits[one][0] for one in woken] == sorted(waits[one][0] for one in woken)
            for one in due:
                assert not waits.pop(one)[1].cancel()
        assert len(sequence_waiters) == len(waits)


@pytest.mark.parametrize("seed", range(20))
def test_at_random(seed: int) -> None:
    compared(seed)


def _too_early(patch: pytest.MonkeyPatch) -> None:
    upto = NumberedQueue.unblock_upto
    patch.setattr(NumberedQueue, "unblock_upto", lambda self, number: upto(self, number + 1))


def _nearest_alone(patch: pytest.MonkeyPatch) -> None:
    def unblock_upto(self: Any, number: int) -> None:
        if self._waits and min(self._waits) <= number:
            (wait, *_) = self._waits.pop(min(self._waits))
            wait.resume(None)

    patch.setattr(NumberedQueue, "unblock_upto", unblock_upto)


def _left_behind(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NumberedQueue, "remove", lambda self, wait: True)


@pytest.mark.parametrize("planted", [_too_early, _nearest_alone, _left_behind])
def test_planted_ones_are_caught(
    planted: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    planted(monkeypatch)
    with pytest.raises(AssertionError):
        for seed in range(20):
            compared(seed)


def test_who_fails_keeps_nobody_else_waiting() -> None:
    heard, woken = list[BaseException](), list[int]()
    sequence_waiters = NumberedQueue(heard.append)
    sequence_waiters.block(CallbackWait(lambda _: failing(RuntimeError("a bug"))), 1)
    sequence_waiters.block(CallbackWait(lambda _: woken.append(1)), 1)
    sequence_waiters.unblock_upto(1)
    assert woken == [1] and [str(error) for error in heard] == ["a bug"]
    assert not len(sequence_waiters)


def test_numbers_without_waits_are_forgotten() -> None:
    queue = NumberedQueue(failing)
    for number in range(10_000):
        wait = CallbackWait(failing_result)
        queue.block(wait, 10**9 + number)
        assert wait.cancel() and not wait.cancel()
    assert len(queue._numbers) <= 2 * STALE


def failing_result(_lost: BaseException | None) -> None:
    raise AssertionError("nothing is there")


def test_a_wait_that_is_resumed_may_wait_again() -> None:
    queue, heard = NumberedQueue(failing), list[tuple[str, BaseException | None]]()

    def again(lost: BaseException | None) -> None:
        heard.append(("again", lost))
        queue.block(CallbackWait(lambda lost: heard.append(("new", lost))), 7)
        assert not (other.cancel() or same.cancel()), "they are about to be resumed"

    other = CallbackWait(lambda lost: heard.append(("other", lost)))
    same = CallbackWait(lambda lost: heard.append(("same", lost)))
    queue.block(CallbackWait(again), 5)
    queue.block(same, 5)
    queue.block(other, 6)
    gone = ValueError("rolled back")
    queue.fail(4, lambda _number: gone)
    assert heard == [("again", gone), ("same", gone), ("other", gone)], "the new one waits on"
    queue.unblock_upto(7)
    assert heard[3:] == [("new", None)] and not len(queue)


# --- deadlines ------------------------------------------------------------------------------------


def ends(ended: list[int], number: int) -> CallbackWait:
    """A wait that notes its deadline."""
    return CallbackWait(lambda lost: ended.append(number if type(lost) is TimeoutError else -1))


@pytest.mark.parametrize("seed", range(20))
def test_deadlines_end_in_their_order_and_cleared_ones_not(seed: int) -> None:
    async def main() -> None:
        rng, clock = Random(seed), ManualClock()
        ended, heard = list[int](), list[BaseException]()
        deadlines = Deadlines(asyncio.get_running_loop(), clock, heard.append)
        waits = [ends(ended, number) for number in range(50)]
        due: dict[int, int] = {}
        for _ in range(200):
            number = rng.randrange(len(waits))
            if rng.random() < 0.3:
                deadlines.clear(waits[number])
                due.pop(number, None)
            else:
                due[number] = 1_000 * rng.randrange(1, 1_000)
                deadlines.set(waits[number], due[number])
        assert len(deadlines._heap) <= 2 * len(due) + STALE + 200
        for now_us in range(0, 1_000_001, 100_000):
            clock.now_us = now_us
            while deadlines._timer is not None and deadlines._armed_us <= now_us:
                deadlines._end_due()
            passed = {number for number, until_us in due.items() if until_us <= now_us}
            assert set(ended) == passed and len(ended) == len(passed)
            assert [due[number] for number in ended] == sorted(due[number] for number in ended)
        assert not heard and not deadlines._heap
        deadlines.close()

    asyncio.run(main())


def test_a_timer_fires_at_the_nearest_deadline() -> None:
    async def main() -> None:
        ended, heard = list[int](), list[BaseException]()
        clock = SystemClock()
        deadlines = Deadlines(asyncio.get_running_loop(), clock, heard.append)
        far, near, again = (ends(ended, number) for number in range(3))
        now_us = clock.monotonic_us()
        deadlines.set(far, now_us + 3_600_000_000)
        deadlines.set(again, now_us + 1_000_000)
        deadlines.set(near, now_us - 1)
        assert ended == [], "never inside the call"
        deadlines.set(again, now_us + 3_600_000_000)
        while not ended:
            await asyncio.sleep(0)
        assert ended == [1] and deadlines._timer is not None
        deadlines.close()

    asyncio.run(main())


def test_a_far_deadline_set_at_a_deadline_puts_no_near_one_off() -> None:
    async def main() -> None:
        ended, heard = list[int](), list[BaseException]()
        clock = SystemClock()
        deadlines = Deadlines(asyncio.get_running_loop(), clock, heard.append)
        far, near, now_us = ends(ended, 0), ends(ended, 1), clock.monotonic_us()
        first = CallbackWait(lambda _: deadlines.set(far, now_us + 3_600_000_000))
        deadlines.set(near, now_us + 20_000)
        deadlines.set(first, now_us)
        async with asyncio.timeout(60):
            while not ended:
                await asyncio.sleep(0)
        assert ended == [1] and not heard
        deadlines.close()

    asyncio.run(main())


def test_cleared_deadlines_hold_no_wait() -> None:
    async def main() -> None:
        deadlines = Deadlines(asyncio.get_running_loop(), ManualClock(), failing)
        for number in range(10_000):
            wait = ends([], number)
            deadlines.set(wait, 10**12 + number)
            deadlines.clear(wait)
            gone = weakref.ref(wait)
            del wait
            assert gone() is None, "its answer may be large"
        assert len(deadlines._heap) <= 2 * STALE
        deadlines.close()

    asyncio.run(main())


class ManualClock(SystemClock):
    """A clock that the test sets."""

    now_us = 0

    def monotonic_us(self) -> int:
        """The time that was set."""
        return self.now_us
