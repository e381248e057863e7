"""What waits on a node that follows is woken by what its leader commits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from actors.runtime import ask
from actors.topics import Waits
from protocol.errors import NotWritable, SessionEnded, Unknown
from protocol.requests import Caller, ScriptAnswer, SignIn
from tests.actors.cluster.whole import Machine, Trio, cluster
from tests.actors.nodes import ANA, run
from tests.actors.parts import outcome
from tests.logbook import Logbook
from tests.simulation import loop as stepped

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.fixture
def quiet(logbook: Logbook) -> None:
    """What operators hear of when nodes die."""
    logbook.allow("leads no more|nobody leads|was not renewed|follows no more|were not kept")


def played(main: Callable[[Trio], Coroutine[Any, Any, None]], **more: Any) -> None:
    async def whole() -> None:
        async with cluster(**more) as trio:
            await main(trio)

    stepped.run(whole(), 1)


async def begun(machine: Machine, script: str, caller: Caller = ANA) -> asyncio.Task[ScriptAnswer]:
    """A script that waits for messages on a node by now."""
    node = machine.runs
    before = len(node.topics.waits)
    waiting = asyncio.ensure_future(run(node, script, caller=caller))
    await machine.trio.until(lambda: len(node.topics.waits) > before)
    return waiting


def values(answer: ScriptAnswer) -> list[Any]:
    """Of the messages that a script has read."""
    found: Any = answer.results[-1].value
    return [message["value"] for message in found]


async def shown(trio: Trio, machine: Machine) -> None:
    """Wait until a node shows all that its leader does."""
    leader = await trio.led()
    await trio.until(
        lambda: (
            machine.runs.committer.released_upto >= leader.runs.committer.released_upto
            and not leader.runs.committer.ledger.flight.layers
        )
    )


def test_a_read_that_waits_on_a_follower_hears_of_messages_when_they_are_shown() -> None:
    async def main(trio: Trio) -> None:
        leader, other = await trio.led(), trio.named("b")
        await leader.value("DEFINE TOPIC q; DEFINE TOPIC of_others; PUBLISH INTO q VALUE 1")
        await shown(trio, other)
        waiting = await begun(other, "READ FROM q AFTER 1 WAIT 1m")
        later = await begun(other, "READ FROM q AFTER 2 WAIT 1m")
        await leader.value("PUBLISH INTO of_others VALUE 0; CREATE t:1")
        await shown(trio, other)
        assert not waiting.done()
        began = asyncio.get_running_loop().time()
        await leader.value("PUBLISH INTO q VALUE 2")
        assert values(await waiting) == [2] and not later.done()
        await leader.value("BEGIN; PUBLISH INTO q VALUES [3, 4]; CREATE t:2; COMMIT")
        assert values(await later) == [3, 4]
        assert asyncio.get_running_loop().time() - began < 10, "long before its own time was over"
        assert other.runs.committer.ledger.heard is None

    played(main)


def test_a_planted_follower_that_wakes_nobody_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above would wait for its minute."""
    monkeypatch.setattr(Waits, "heard", lambda _self, _layer: None)

    async def main(trio: Trio) -> None:
        leader, other = await trio.led(), trio.named("b")
        await leader.value("DEFINE TOPIC q")
        await shown(trio, other)
        waiting = await begun(other, "READ FROM q AFTER 0 WAIT 1m")
        await leader.value("PUBLISH INTO q VALUE 1")
        await shown(trio, other)
        await asyncio.sleep(30)
        assert not waiting.done()
        assert values(await waiting) == [1], "it looks when its time is over"

    played(main)


def test_who_waits_for_what_is_dropped_elsewhere_is_told() -> None:
    async def main(trio: Trio) -> None:
        leader, other = await trio.led(), trio.named("b")
        await leader.value("DEFINE TOPIC q; DEFINE TOPIC r")
        await shown(trio, other)
        dropped = await begun(other, "READ FROM q AFTER 0 WAIT 1m")
        stays = await begun(other, "READ FROM r AFTER 0 WAIT 1m")
        await leader.value("DROP TOPIC q")
        assert isinstance((await dropped).refusal, Unknown)
        assert not stays.done()
        await leader.value("DROP DATABASE a.b")
        assert isinstance((await stays).refusal, Unknown)

    played(main)


def test_taking_is_the_leaders() -> None:
    """It hands out, which is a change; and who waits for it where the lead is lost is told so."""

    async def main(trio: Trio) -> None:
        leader, other = await trio.led(), trio.named("b")
        await leader.value("DEFINE TOPIC q; DEFINE GROUP g ON q DEADLINE 1m")
        await shown(trio, other)
        refused = await outcome(other.value("TAKE FROM q AS g WAIT 1m"))
        assert isinstance(refused, NotWritable)
        assert refused.detail["leader"] == ["a.example:8001"]
        waiting = await begun(leader, "TAKE FROM q AS g WAIT 1m")
        reading = await begun(leader, "READ FROM q AFTER 0 WAIT 1m")
        leader.cut()
        await trio.until(lambda: trio.leader not in (None, leader))
        new = trio.leader
        assert new is not None
        leader.mend()
        assert isinstance((await waiting).refusal, NotWritable)
        await new.value("PUBLISH INTO q VALUE 1")
        assert values(await reading) == [1], "it goes on waiting where it was asked"

    played(main)


def test_a_wait_ends_with_its_user_whichever_node_has_dropped_it() -> None:
    async def main(trio: Trio) -> None:
        leader, other = await trio.led(), trio.named("b")
        await leader.value(
            "DEFINE TOPIC q; DEFINE USER eve ROLE viewer PASSWORD 'correct horse';"
            "DEFINE USER ben ROLE viewer PASSWORD 'correct horse'"
        )
        await shown(trio, other)
        eve, ben = await signed_in(other, "eve"), await signed_in(other, "ben")
        assert len(other.runs._open_sessions) == 2
        script = "READ FROM q AFTER 0 WAIT 1m"
        hers, his = await begun(other, script, eve), await begun(other, script, ben)
        await leader.value("ALTER USER eve SET PASSWORD 'battery staple'")
        assert isinstance((await hers).refusal, SessionEnded)
        assert not his.done() and len(other.runs._open_sessions) == 1
        await leader.value("DROP USER ben")
        assert isinstance((await his).refusal, SessionEnded)

    played(main)


async def signed_in(machine: Machine, user: str) -> Caller:
    signed = await ask(machine.runs.sessions, SignIn(user, "correct horse", "wire", "192.0.2.7:1"))
    caller: Caller = signed.caller
    return caller
