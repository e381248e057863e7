"""Replies whose hearers are called where they are answered, and who hears of scripts that way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from actors.rate_limited_log import RateLimitedLog
from actors.runtime import LoopActor, Reply, Runtime, call_now, handles, stop
from protocol.errors import Busy, UnknownOutcome
from protocol.requests import Request
from surfaces.background_tasks import BackgroundTasks
from tests.actors.parts import Failures, play


def alone(check: Callable[[asyncio.AbstractEventLoop], None]) -> None:
    """Run a check in one turn of a loop."""

    async def main() -> None:
        check(asyncio.get_running_loop())

    asyncio.run(main())


def test_who_hears_is_called_where_it_is_answered() -> None:
    def check(loop: asyncio.AbstractEventLoop) -> None:
        reply: Reply[int] = Reply(loop)
        heard: list[tuple[str, int]] = []
        reply.add_callback(lambda one: heard.append(("first", one.result())))
        reply.add_callback(lambda one: heard.append(("second", one.result())))
        reply.set_result(3)
        assert heard == [("first", 3), ("second", 3)]

    alone(check)


def test_who_hears_is_told_why_there_is_none() -> None:
    def check(loop: asyncio.AbstractEventLoop) -> None:
        heard: list[object] = []
        failed: Reply[int] = Reply(loop)
        failed.add_callback(lambda one: heard.append(one.exception()))
        busy = Busy("no")
        failed.set_exception(busy)
        ended: Reply[int] = Reply(loop)
        ended.add_callback(lambda one: heard.append(one.cancelled()))
        assert ended.cancel()
        assert not ended.cancel()
        assert heard == [busy, True]
        with pytest.raises(AssertionError):
            ended.add_callback(heard.append)

    alone(check)


def test_what_is_under_way_goes_on_in_the_turn_of_its_reply() -> None:
    def check(loop: asyncio.AbstractEventLoop) -> None:
        left: list[str] = []
        background = BackgroundTasks(RateLimitedLog("tests"), lambda: left.append("none"))
        reply: Reply[int] = Reply(loop)
        background.follow(reply, lambda one: left.append(f"then {one.result()}"))
        assert background
        reply.set_result(3)
        assert left == ["then 3", "none"]
        assert not background

    alone(check)


def test_what_is_under_way_hears_once_that_it_was_cancelled() -> None:
    def check(loop: asyncio.AbstractEventLoop) -> None:
        ended: list[bool] = []
        background = BackgroundTasks(RateLimitedLog("tests"))
        for _ in range(2):
            background.follow(Reply(loop), lambda one: ended.append(one.cancelled()))
        background.cancel()
        assert ended == [True, True]

    alone(check)


@dataclass(frozen=True, slots=True)
class Promise(Request[int]):
    pass


class Promising(LoopActor):
    """Answers when the test says so."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self.promised: list[Reply[int]] = []

    @handles(Promise)
    def promise(self, _message: Promise) -> Reply[int]:
        self.promised.append(Reply(self.runtime.loop))
        return self.promised[-1]


@pytest.mark.parametrize("kind", ["real", "stepped"])
def test_an_actor_that_fails_fails_what_it_has_promised(kind: str) -> None:
    async def main() -> None:
        runtime = Failures().runtime(kind)
        ref = Promising.start(runtime)
        await asyncio.sleep(0)
        heard: list[Any] = []
        for _ in range(2):
            reply: Any = call_now(ref, Promise())
            assert type(reply) is Reply
            reply.add_callback(lambda one: heard.append(one.exception() or one.result()))
        actor = ref._actor_weakref()
        assert actor is not None
        actor.promised[0].set_result(3)
        assert heard == [3]
        await stop(ref)
        actor.refuse_waiting()
        assert heard[0] == 3
        assert isinstance(heard[1], UnknownOutcome)

    play(kind, main)
