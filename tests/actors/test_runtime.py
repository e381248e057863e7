"""The two kinds of actor, on the real scheduler and on the stepped one."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import weakref
from dataclasses import dataclass
from typing import Any

import pykka
import pytest
from pykka._envelope import Envelope

from actors.environment import NICE, SystemClock, SystemScheduler
from actors.runtime import (
    Actor,
    LoopActor,
    Runtime,
    Supervised,
    ThreadActor,
    ask,
    handles,
    stop,
    tell,
)
from actors.runtime.threads import ThreadInbox
from protocol import limits
from protocol.errors import BadRequest, Busy, Draining, UnknownOutcome
from protocol.requests import Request
from tests.actors.parts import KINDS, Failures, on_both, outcome, play, until
from tests.logbook import Logbook


@dataclass(frozen=True, slots=True)
class Add(Request[int]):
    number: int


@dataclass(frozen=True, slots=True)
class Later(Request[int]):
    """Answered only when the actor's event is set."""


@dataclass(frozen=True, slots=True)
class Refuse(Request[None]):
    pass


@dataclass(frozen=True, slots=True)
class Break(Request[None]):
    pass


@dataclass(frozen=True, slots=True)
class Strange(Request[None]):
    """Nobody handles it."""


@dataclass(frozen=True)
class Secret(Request[int]):
    """Watched by weak references."""


class OnLoop(LoopActor):
    mailbox_limit = 5

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self.total = 0
        self.let = asyncio.Event()
        self.ended = False

    @handles(Add)
    def add(self, message: Add) -> int:
        self.total += message.number
        return self.total

    @handles(Secret)
    def keep_secret(self, _message: Secret) -> int:
        return self.total

    @handles(Later)
    async def later(self, _message: Later) -> int:
        await self.let.wait()
        return self.total

    @handles(Refuse)
    def say_no(self, _message: Refuse) -> None:
        raise BadRequest("no")

    @handles(Break)
    def broken(self, _message: Break) -> None:
        raise ZeroDivisionError("a bug")

    def on_stop(self) -> None:
        self.ended = True


class OnThread(ThreadActor):
    mailbox_limit = 5

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self.total = 0
        self.let = threading.Event()
        self.thread = ""
        self.batches: list[int] = []
        self.ended = False

    def on_batch(self, batch: list[Envelope[Any]]) -> None:
        self.batches.append(len(batch))
        super().on_batch(batch)

    @handles(Add)
    def add(self, message: Add) -> int:
        self.thread = threading.current_thread().name
        self.total += message.number
        return self.total

    @handles(Later)
    def later(self, _message: Later) -> int:
        self.let.wait()
        return self.total

    @handles(Secret)
    def keep_secret(self, _message: Secret) -> int:
        return self.total

    @handles(Refuse)
    def say_no(self, _message: Refuse) -> None:
        raise BadRequest("no")

    @handles(Break)
    def broken(self, _message: Break) -> None:
        raise ZeroDivisionError("a bug")

    def on_stop(self) -> None:
        self.ended = True


ACTORS = (OnLoop, OnThread)
each = pytest.mark.parametrize("actor", ACTORS)


def actor_of(ref: Any) -> Any:
    return ref._actor_weakref()


@each
@on_both
async def test_replies_come_in_order_and_messages_are_never_skipped(kind: str, actor: Any) -> None:
    ref = actor.start(Failures().runtime(kind))
    tell(ref, Add(1))
    replies = await asyncio.gather(*(ask(ref, Add(1)) for _ in range(4)))
    assert replies == [2, 3, 4, 5]
    await stop(ref)


@each
@on_both
async def test_who_waits_holds_nothing_of_what_it_has_handled(kind: str, actor: Any) -> None:
    """It may be a password."""
    ref = actor.start(Failures().runtime(kind))
    secret = Secret()
    gone = weakref.ref(secret)
    asked = ask(ref, secret)
    del secret
    assert await asked == 0
    del asked
    await until(lambda: gone() is None)
    await stop(ref)


@each
@on_both
async def test_a_refusal_is_a_reply_and_the_actor_goes_on(kind: str, actor: Any) -> None:
    failures = Failures()
    ref = actor.start(failures.runtime(kind))
    with pytest.raises(BadRequest):
        await ask(ref, Refuse())
    assert await ask(ref, Add(1)) == 1
    await stop(ref)
    assert not failures.failed
    assert not failures.noticed


@each
@on_both
async def test_a_bug_is_told_to_the_asker_and_to_the_node(
    kind: str, actor: Any, logbook: Logbook
) -> None:
    logbook.allow("handler failed")
    failures = Failures()
    ref = actor.start(failures.runtime(kind))
    with pytest.raises(ZeroDivisionError):
        await ask(ref, Break())
    with pytest.raises(TypeError, match="does not handle Strange"):
        await ask(ref, Strange())
    assert await ask(ref, Add(1)) == 1
    assert [type(error) for error in failures.noticed] == [ZeroDivisionError, TypeError]
    await stop(ref)


@each
@on_both
async def test_a_bug_that_nobody_asked_for_fails_the_actor(
    kind: str, actor: Any, logbook: Logbook
) -> None:
    logbook.allow("actor failed")
    failures = Failures()
    ref = actor.start(failures.runtime(kind))
    tell(ref, Break())
    late = await outcome(ask(ref, Add(1)))
    assert isinstance(late, Draining)
    await until(lambda: bool(failures.failed))
    assert [(type(who), type(why)) for who, why in failures.failed] == [(actor, ZeroDivisionError)]
    assert not ref.is_alive()
    await stop(ref)  # harmless, and joins the thread


@each
@on_both
async def test_stop_comes_after_what_was_sent_before_and_refuses_what_comes_later(
    kind: str, actor: Any
) -> None:
    ref = actor.start(Failures().runtime(kind))
    before = ask(ref, Add(1))
    stopping = asyncio.ensure_future(stop(ref))
    await asyncio.sleep(0)
    after = await outcome(ask(ref, Add(1)))
    assert await before == 1
    await stopping
    assert isinstance(after, (Draining, int))
    assert isinstance(await outcome(ask(ref, Add(1))), Draining)
    assert actor_of(ref) is None or actor_of(ref).ended
    assert pykka.ActorRegistry.get_all() == []


class Ticking(LoopActor):
    """Looks at something again and again."""

    ticks = 0

    def on_start(self) -> None:
        self._tick()

    def _tick(self) -> None:
        self.ticks += 1
        self.after(0.001, self._tick)
        tell(self.actor_ref, Add(1))

    @handles(Add)
    def add(self, _message: Add) -> None:
        pass

    @handles(Break)
    def break_(self, _message: Break) -> None:
        self.after(0.001, self._tick)
        raise ZeroDivisionError


@pytest.mark.parametrize("ending", ["stop", "failure"])
@on_both
async def test_no_timer_fires_after_its_actor_has_ended(
    kind: str, ending: str, logbook: Logbook
) -> None:
    logbook.allow("actor failed")
    ref = Ticking.start(Failures().runtime(kind))
    actor: Any = actor_of(ref)
    await until(lambda: actor.ticks > 3)
    if ending == "failure":
        tell(ref, Break())
        await until(lambda: not ref.is_alive())
    else:
        await stop(ref)
    ticks = actor.ticks
    actor.after(0, actor._tick)  # what was under way may set another
    await asyncio.sleep(0.02)
    assert actor.ticks == ticks


class GivesWay(OnThread):
    low_priority = True


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere threads have no niceness")
async def test_a_thread_that_gives_way_is_nicer_than_the_loop() -> None:
    runtime = Runtime(SystemScheduler(), SystemClock(), lambda *_: None, lambda _: None)
    refs = [kind.start(runtime) for kind in (OnThread, GivesWay)]
    threads = [actor_of(ref)._thread for ref in refs]
    for ref in refs:
        await ask(ref, Add(1))  # it has begun
    own = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    found = [os.getpriority(os.PRIO_PROCESS, thread.native_id) for thread in threads]
    assert found == [own, min(own + NICE, 19)]
    for ref in refs:
        await stop(ref)


async def test_a_full_mailbox_refuses_what_is_asked_and_takes_what_is_told_and_stop() -> None:
    ref = OnThread.start(Failures().runtime("real"))
    held = actor_of(ref)
    waiting = ask(ref, Later())
    await until(lambda: bool(held.batches))
    replies = [ask(ref, Add(1)) for _ in range(5)]
    with pytest.raises(Busy, match="OnThread has 5 messages waiting"):
        ask(ref, Add(1))
    tell(ref, Add(1))
    stopping = asyncio.ensure_future(stop(ref))
    await asyncio.sleep(0)
    held.let.set()
    await stopping
    assert await waiting == 0
    assert await asyncio.gather(*replies) == [1, 2, 3, 4, 5]
    assert held.total == 6


@on_both
async def test_a_full_mailbox_of_a_loop_actor(kind: str) -> None:
    ref = OnLoop.start(Failures().runtime(kind))
    replies = [ask(ref, Add(1)) for _ in range(5)]
    with pytest.raises(Busy):
        ask(ref, Add(1))
    tell(ref, Add(1))
    actor = actor_of(ref)
    stopping = asyncio.ensure_future(stop(ref))
    assert await asyncio.gather(*replies) == [1, 2, 3, 4, 5]
    await stopping
    assert actor.total == 6


@on_both
async def test_a_handler_that_waits_holds_nobody_up_and_its_asker_hears_of_the_end(
    kind: str,
) -> None:
    ref = OnLoop.start(Failures().runtime(kind))
    held = actor_of(ref)
    first, second = ask(ref, Later()), ask(ref, Later())
    assert await ask(ref, Add(7)) == 7
    held.let.set()
    assert await first == 7
    assert await second == 7
    held.let.clear()
    third = ask(ref, Later())
    assert await ask(ref, Add(1)) == 8
    await stop(ref)
    assert isinstance(await outcome(third), UnknownOutcome), "it was under way"


async def test_blocking_for_a_reply_on_the_loop_is_an_error() -> None:
    ref = OnLoop.start(Failures().runtime("real"))
    with pytest.raises(RuntimeError, match="would stop the loop"):
        ref.ask(Add(1))
    with pytest.raises(RuntimeError, match="would stop the loop"):
        ref.stop(block=True)
    await until(lambda: not ref.is_alive())


async def test_a_thread_actor_sees_all_that_waits_as_one_batch() -> None:
    ref = OnThread.start(Failures().runtime("real"))
    held = actor_of(ref)
    first = ask(ref, Later())
    await until(lambda: bool(held.batches))
    replies = [ask(ref, Add(1)) for _ in range(4)]
    held.let.set()
    await first
    await asyncio.gather(*replies)
    assert held.batches == [1, 4]
    assert held.thread == "OnThread"
    await stop(ref)


@on_both
async def test_a_long_mailbox_is_drained_in_slices(kind: str) -> None:
    class Patient(OnLoop):
        mailbox_limit = 1000

    ref = Patient.start(Failures().runtime(kind))
    await ask(ref, Add(0))
    replies = [ask(ref, Add(1)) for _ in range(3 * limits.MAILBOX_SLICE)]
    await asyncio.sleep(0)
    seen = actor_of(ref).total
    assert 0 < seen <= 2 * limits.MAILBOX_SLICE, "others get their turn in between"
    await asyncio.gather(*replies)
    await stop(ref)


@on_both
async def test_a_place_is_filled_again_but_not_for_ever(kind: str, logbook: Logbook) -> None:
    logbook.allow("actor failed")
    failures = Failures()
    runtime = failures.runtime(kind)
    place: Supervised[OnLoop] = Supervised(lambda: OnLoop.start(runtime), refoldable=True)
    for count in range(1, Supervised.RESTARTS + 1):
        tell(place.ref, Break())
        await until(lambda count=count: len(failures.failed) == count)  # type: ignore[misc]
        assert place.restart(now_us=1)
        assert await ask(place.ref, Add(3)) == 3
    assert not place.restart(now_us=2)
    assert place.restart(now_us=2 + Supervised.WITHIN_US)
    await place.stop()
    assert not place.restart(now_us=2 + 2 * Supervised.WITHIN_US)
    one: Supervised[OnLoop] = Supervised(lambda: OnLoop.start(runtime), refoldable=False)
    assert not one.restart(now_us=0)
    for ref in pykka.ActorRegistry.get_all():
        await stop(ref)


class Ends(OnThread):
    """Its thread ends as by `sys.exit`."""

    def on_batch(self, batch: list[Envelope[Any]]) -> None:
        raise SystemExit("enough")


class EndsAtOnce(Ends):
    def on_start(self) -> None:
        raise SystemExit("enough")


class EndsBetween(Ends):
    """There is no memory for what comes."""

    @staticmethod
    def _create_actor_inbox() -> Any:
        class NoMemory(ThreadInbox):
            def wait(self) -> list[Envelope[Any]]:
                super().wait()
                raise MemoryError("enough")

        return NoMemory()


@pytest.mark.parametrize(
    ("kind", "actor"),
    [*((kind, ends) for kind in KINDS for ends in (Ends, EndsAtOnce)), ("real", EndsBetween)],
)
def test_a_thread_that_ends_in_whatever_way_fails_its_actor(
    kind: str, actor: Any, logbook: Logbook
) -> None:
    logbook.allow("actor failed")

    async def main() -> None:
        failures = Failures()
        ref = actor.start(failures.runtime(kind))
        asked = asyncio.ensure_future(outcome(ask(ref, Add(1))))
        await until(lambda: bool(failures.failed))
        ((who, why),) = failures.failed
        assert (type(who), str(why)) == (actor, "enough")
        if actor is not EndsBetween:  # what was taken is lost there
            assert isinstance(await asked, Draining)
        asked.cancel()
        assert not ref.is_alive()
        await stop(ref)

    play(kind, main)


async def test_an_actor_that_can_not_begin_has_failed(logbook: Logbook) -> None:
    logbook.allow("actor failed")

    class Stillborn(OnLoop):
        def on_start(self) -> None:
            raise OSError("no")

    failures = Failures()
    ref = Stillborn.start(failures.runtime("real"))
    assert isinstance(await outcome(ask(ref, Add(1))), Draining)
    await until(lambda: bool(failures.failed))
    actor: Actor = failures.failed[0][0]
    assert isinstance(actor, Stillborn)
