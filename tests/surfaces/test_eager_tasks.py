"""Coroutines that begin before their task."""

from __future__ import annotations

import asyncio

import pytest

from actors.rate_limited_log import RateLimitedLog
from protocol import limits
from surfaces.background_tasks import BackgroundTasks
from surfaces.eager_tasks import start
from tests.logbook import Logbook


def nothing() -> None:
    pass


async def test_what_waits_for_nothing_ends_at_once() -> None:
    done = []

    async def work() -> None:
        done.append(1)

    assert start(work()) is None
    assert done == [1]


async def test_what_it_raises_at_once_is_raised() -> None:
    async def work() -> None:
        raise ValueError("so soon")

    with pytest.raises(ValueError, match="so soon"):
        start(work())


async def test_the_rest_is_a_task_s() -> None:
    """Futures that come before and after the task has begun, and turns of the loop."""
    loop = asyncio.get_running_loop()
    one, two, heard = loop.create_future(), loop.create_future(), list[object]()

    async def work() -> None:
        heard.append(await one)
        heard.append(asyncio.current_task())
        await asyncio.sleep(0)
        try:
            await two
        except LookupError as error:
            heard.append(error)

    rest = start(work())
    assert rest is not None
    one.set_result("one")
    task = loop.create_task(rest)
    await asyncio.sleep(0)
    assert heard == []  # it has said what it waits for, and hears of it in a turn of its own
    error = LookupError()
    two.set_exception(error)
    await task
    assert heard == ["one", task, error]


async def test_a_turn_that_is_given_away_is_given() -> None:
    turns = []

    async def work() -> None:
        await asyncio.sleep(0)
        turns.append("work")

    rest = start(work())
    assert rest is not None
    task = asyncio.create_task(rest)
    for _ in range(2):
        turns.append("other")
        await asyncio.sleep(0)
    await task
    assert turns == ["other", "other", "work"]


async def test_work_that_is_cancelled_at_once_ends_as_a_task_would(logbook: Logbook) -> None:
    """Whoever begins it is none of those that it asked."""
    asked, background = (
        asyncio.get_running_loop().create_future(),
        BackgroundTasks(RateLimitedLog("test")),
    )
    asked.cancel()

    async def work() -> None:
        await asked

    async def fails() -> None:
        raise ValueError("so soon")

    background.start(work(), nothing)
    logbook.allow("work for a connection failed")
    background.start(fails(), nothing)
    assert not background


async def test_what_waits_says_so_before_there_is_a_task() -> None:
    said, background = list[int](), BackgroundTasks(RateLimitedLog("test"))

    async def work() -> None:
        await asyncio.sleep(0)

    background.start(work(), lambda: said.append(len(asyncio.all_tasks())))
    assert said == [1]  # this one
    assert len(asyncio.all_tasks()) == 2
    await background.ended()


async def test_what_begins_at_once_takes_a_slice_and_no_more_until_others_had_their_turn() -> None:
    done, background = list[float](), BackgroundTasks(RateLimitedLog("test"))
    loop, slice_seconds = asyncio.get_running_loop(), limits.SLICE_US / 1_000_000

    async def work() -> None:
        until = loop.time() + slice_seconds / 4
        while loop.time() < until:
            pass
        done.append(until)

    for turn in range(3):
        before = len(done)
        for _ in range(10):
            background.start(work(), nothing)
        assert before < len(done) <= before + 4, turn
        await background.ended()
        assert len(done) == before + 10
        await asyncio.sleep(0)


@pytest.mark.parametrize("begun", [False, True])
async def test_the_rest_is_cancelled_where_it_waits(begun: bool) -> None:
    waits, heard = asyncio.get_running_loop().create_future(), []

    async def work() -> None:
        try:
            await waits
        except asyncio.CancelledError:
            heard.append("cancelled")
            raise

    rest = start(work())
    assert rest is not None
    task = asyncio.create_task(rest)
    if begun:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert heard == ["cancelled"]
