"""Requests that come after a sequence: they wait until the node shows it, with nothing run."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from actors.execution.scheduler import FiberScheduler
from actors.node import Node
from actors.runtime import ask
from protocol import limits
from protocol.errors import (
    BadRequest,
    Busy,
    Cancelled,
    Draining,
    SessionEnded,
    StatementTimeout,
    UnexpectedToken,
)
from protocol.requests import (
    NEW_MOMENT,
    CancelScript,
    RunScript,
    ScriptAnswer,
    SignIn,
    SignOut,
)
from protocol.values import RecordId
from storage.engine.memory import MemoryEngine
from storage.files import cluster_file
from storage.files.cluster_file import ClusterState
from storage.files.directory import StoreDirectory
from tests.actors.nodes import (
    ANA,
    OWNER,
    leads_by_hand,
    prepare,
    running,
    simulated_environment,
    value,
)
from tests.actors.parts import Played, clock_of, on_stepped, play, until
from tests.actors.scripts.test_stalled_disk import Stall
from tests.simulation.disk import SimulatedDisk
from tests.simulation.environment import SeededRng

_names: Iterator[str] = (f"after-{number}" for number in itertools.count(1))


@asynccontextmanager
async def whole(_kind: str) -> AsyncIterator[tuple[Node, SimulatedDisk]]:
    """On a node whose time passes only while everybody waits."""
    disk = SimulatedDisk()
    async with running(simulated_environment("stepped", disk, MemoryEngine())) as node:
        await prepare(node)
        yield node, disk


played = Played(whole).stepped


def asked(node: Node, script: str, **fields: Any) -> asyncio.Future[ScriptAnswer]:
    """A script under way."""
    given: dict[str, Any] = {"caller": ANA, "namespace": "a", "database": "b"}
    given |= {"request": next(_names)} | fields
    return asyncio.ensure_future(ask(node.scripts, RunScript(script=script, **given)))


async def waiting(node: Node, count: int) -> None:
    """Until so many wait."""
    await until(lambda: len(node.committer.sequence_waiters) == count)


def shown(node: Node) -> int:
    return node.committer.commit_index


@played
async def test_what_is_shown_already_is_not_waited_for(node: Node, /) -> None:
    for after in (0, 1, shown(node)):
        answer = await asked(node, "RETURN 1", after=after)
        assert answer.refusal is None and answer.sequence >= after


@played
async def test_a_request_sees_the_commit_that_it_comes_after(node: Node, /) -> None:
    reading = asked(node, "SELECT VALUE n FROM t", after=shown(node) + 2)
    await waiting(node, 1)
    await value(node, "CREATE t:1 SET n = 1")
    assert not reading.done(), "that is the one before"
    await value(node, "CREATE t:2 SET n = 2")
    answer = await reading
    assert answer.results[0].value == [1, 2]
    assert answer.sequence == shown(node)
    assert not node.committer.sequence_waiters and node.registry.waiting("wire") == 0


@played
async def test_what_is_in_flight_is_waited_for(node: Node, /) -> None:
    """What a client has heard of is on that node's disk: here it may be on the way there yet."""
    stall = Stall(node)
    try:
        writing = asyncio.ensure_future(value(node, "CREATE t:1"))
        await until(lambda: node.committer.committed > shown(node))
        reading = asked(node, "RETURN 1", after=node.committer.committed)
        await asyncio.sleep(1)
        assert len(node.committer.sequence_waiters or ()) == 1, "it began before it was shown"
        assert not reading.done() and not writing.done()
    finally:
        stall.end()
    await writing
    assert (await reading).refusal is None


@played
async def test_what_comes_while_a_script_is_compiled_is_not_waited_for(
    node: Node, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FiberScheduler, "slice_us", 0)
    after = shown(node) + 1
    one = asked(node, ";".join(["RETURN 1"] * 5_000), after=after)
    await asked(node, "CREATE t:while")
    assert shown(node) == after and not one.done()
    assert (await one).refusal is None


@played
async def test_what_does_not_come_in_time_is_refused_and_nothing_is_run(node: Node, /) -> None:
    loop = asyncio.get_running_loop()
    for timeout_us, seconds in ((3_000_000, 3.0), (None, limits.AFTER_SECONDS)):
        now, after = loop.time(), shown(node) + 1
        answer = await asked(node, "CREATE t:1", after=after, timeout_us=timeout_us)
        refusal = answer.refusal
        assert type(refusal) is StatementTimeout and not answer.results
        assert refusal.detail == {"after": after, "seq": after - 1}
        assert "nothing was run" in refusal.message
        assert seconds <= loop.time() - now < seconds + 1, "in time of the node's clock"
    assert await value(node, "SELECT * FROM t") == []
    assert not node.committer.sequence_waiters and not node.registry.unfinished


@played
async def test_what_can_not_be_run_is_refused_before_it_waits(node: Node, /) -> None:
    for script, fields, kind in (
        ("SELEKT", {}, UnexpectedToken),
        ("RETURN 1", {"hands_over": ("STATE",)}, BadRequest),
    ):
        found = await asked(node, script, after=limits.SEQUENCE_MAX, **fields)
        assert type(found.refusal) is kind
    await value(node, "DEFINE NODE ROLES NONE")
    found = await asked(node, "RETURN 1", after=limits.SEQUENCE_MAX)
    assert type(found.refusal) is Draining
    await value(node, "DEFINE NODE ROLES serving, writable")


@played
async def test_who_waits_is_seen_and_can_be_ended(node: Node, /) -> None:
    far = shown(node) + 1_000
    cancelled = asked(node, "CREATE t:1", after=far, request="cancelled")
    killed = asked(node, "CREATE t:2", after=far, request="killed")
    await waiting(node, 2)
    listed = {one["id"]: one for one in await value(node, "INFO FOR RUNNING")}
    for name in ("cancelled", "killed"):
        assert listed[name]["waiting"] and listed[name]["statement"] is None
        assert listed[name]["left"] is not None
    assert node.registry.waiting("wire") == 2, "they take nobody's place among what runs"
    assert await ask(node.scripts, CancelScript("cancelled"))
    await value(node, "KILL 'killed'")
    for found in (await cancelled, await killed):
        assert type(found.refusal) is Cancelled and not found.results
    assert not node.committer.sequence_waiters and node.registry.waiting("wire") == 0


@played
async def test_who_waits_hears_of_the_end_of_its_session(node: Node, /) -> None:
    signed = SignIn(OWNER.name, OWNER.password, "wire", "192.0.2.1:1")
    session = await ask(node.sessions, signed)
    reading = asked(node, "RETURN 1", after=shown(node) + 99, caller=session.caller)
    await waiting(node, 1)
    await ask(node.sessions, SignOut(session.token))
    assert type((await reading).refusal) is SessionEnded
    late = await asked(node, "RETURN 1", after=shown(node) + 99, caller=session.caller)
    assert type(late.refusal) is SessionEnded, "nobody waits whose session is over already"


def test_who_waits_hears_that_the_node_stops() -> None:
    async def whole() -> ScriptAnswer:
        async with running(
            simulated_environment("stepped", SimulatedDisk(), MemoryEngine())
        ) as node:
            await prepare(node)
            reading = asked(node, "RETURN 1", after=shown(node) + 99, timeout_us=3_600_000_000)
            await waiting(node, 1)
        return await reading

    assert type(play("stepped", whole).refusal) is Draining


def test_as_many_wait_as_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WAITING", 3)

    async def main(node: Node, _disk: SimulatedDisk) -> None:
        after = shown(node) + 1
        several = [asked(node, "RETURN 1", after=after) for _ in range(3)]
        await waiting(node, 3)
        assert type((await asked(node, "RETURN 1", after=after)).refusal) is Busy
        assert len(node.committer.sequence_waiters) == 3
        await value(node, "CREATE t:1")
        assert [(await one).refusal for one in several] == [None] * 3

    played.run(main)


@on_stepped
async def test_a_follower_waits_for_what_is_released_where_it_is_written() -> None:
    """The frames are on its disk before it may show them."""
    disk = SimulatedDisk()
    async with running(simulated_environment("stepped", disk, MemoryEngine())) as node:
        await prepare(node)
    other = SimulatedDisk(disk.image())
    told = StoreDirectory.open("/store", disk, clock_of("stepped"), SeededRng(1), create=False)
    cluster_file.save(told, ClusterState(coordinating=True))
    told.close()
    environment = [simulated_environment("stepped", one, MemoryEngine()) for one in (other, disk)]
    async with running(environment[0]) as leader, running(environment[1]) as follower:
        await leads_by_hand(follower)
        at = leader.committer.commit_index
        assert follower.committer.follows and shown(follower) == at
        await value(leader, "CREATE t:1")
        after = shown(leader)
        reading = asked(follower, "SELECT VALUE id FROM t", after=after)
        await waiting(follower, 1)
        frames = list(leader.store.parts.log.reader.read(at + 1, after))
        assert await follower.committer.receive(frames, at) == after
        await asyncio.sleep(1)
        assert not reading.done() and shown(follower) == at, "nobody has released it"
        follower.committer.show(after)
        answer = await reading
        assert answer.refusal is None and answer.sequence == after
        assert answer.results[0].value == [RecordId("t", 1)]


@played
async def test_moments_and_what_they_come_after(node: Node, /) -> None:
    new = asked(node, "SELECT VALUE n FROM t", moment=NEW_MOMENT, after=shown(node) + 1)
    await waiting(node, 1)
    await value(node, "CREATE t:1 SET n = 1")
    answer = await new
    assert answer.results[0].value == [1], "it is made behind what it comes after"
    name, at = answer.moment, answer.sequence
    assert name is not None
    again = await asked(node, "SELECT VALUE n FROM t", moment=name, after=at)
    assert again.refusal is None
    await value(node, "CREATE t:2 SET n = 2")
    never = await asked(node, "SELECT VALUE n FROM t", moment=name, after=at + 1)
    assert type(never.refusal) is BadRequest and "never" in never.refusal.message
