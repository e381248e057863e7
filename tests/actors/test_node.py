"""A whole node: start, ready, drain, stop, and what ends it early."""

from __future__ import annotations

import asyncio
import errno
import random
import shutil
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pykka
import pytest

from actors.node import GENERATED_OWNER, Node, PartFailed, start
from actors.runtime import ask, tell
from protocol.errors import BadRequest, DiskFull, Failed, UnknownOutcome
from protocol.requests import SignIn
from storage.engine.engine import Batch, EngineFailed
from storage.engine.memory import MemoryEngine
from storage.engine.state_hash import state_hash
from storage.faults import ClockRefused, LogDamaged, StoreLocked
from tests.actors.nodes import (
    OWNER,
    prepare,
    real_environment,
    run,
    running,
    settings,
    simulated_environment,
    value,
)
from tests.actors.parts import KINDS, SOMEBODY, on_both, outcome, play, until
from tests.logbook import Logbook
from tests.simulation.disk import Fault, SimulatedDisk
from tests.simulation.environment import START_US, LoopClock

both = pytest.mark.parametrize("kind", KINDS)


def in_log(path: str) -> bool:
    return path.endswith(".storelog")


async def sign_in(node: Node, user: str, password: str) -> Any:
    return await outcome(ask(node.sessions, SignIn(user, password, "http", "192.0.2.1:1")))


@both
def test_the_first_start_makes_the_owner_it_is_given(kind: str) -> None:
    disk, engine = SimulatedDisk(), MemoryEngine()

    async def first() -> None:
        async with running(simulated_environment(kind, disk, engine)) as node:
            assert node.generated_owner is None
            assert (await sign_in(node, "ana", "correct horse")).caller.role == "owner"

    async def second() -> None:
        told = settings(first_owner=None)
        async with running(simulated_environment(kind, disk, engine), told) as node:
            assert node.generated_owner is None, "there is one already"
            assert (await sign_in(node, "ana", "correct horse")).caller.user == "ana"

    play(kind, first)
    play(kind, second)


@on_both
async def test_without_one_a_node_that_serves_makes_one_up(kind: str) -> None:
    environment = simulated_environment(kind, SimulatedDisk(), MemoryEngine())
    async with running(environment, settings(first_owner=None)) as node:
        owner = node.generated_owner
        assert owner is not None
        assert owner.name == GENERATED_OWNER
        assert len(owner.password) == 24
        assert owner.password not in repr(owner)
        assert (await sign_in(node, "root", owner.password)).caller.role == "owner"


@on_both
async def test_a_node_that_serves_nobody_makes_no_owner(kind: str) -> None:
    environment = simulated_environment(kind, SimulatedDisk(), MemoryEngine())
    async with running(environment, settings(first_owner=None, serves=False)) as node:
        assert node.generated_owner is None
        assert node.status().sequence == 0


@on_both
async def test_an_owner_that_is_refused_leaves_nothing_running(kind: str) -> None:
    disk = SimulatedDisk()
    short = settings(first_owner=type(OWNER)("ana", "short"))
    with pytest.raises(BadRequest):
        await start(short, simulated_environment(kind, disk, MemoryEngine()))
    assert pykka.ActorRegistry.get_all() == []
    assert not disk.locks
    assert not disk.open_files


def test_every_failing_step_of_a_start_leaves_nothing_running(logbook: Logbook) -> None:
    """Each change to the disk during a start, in turn, is refused."""
    logbook.allow("actor failed|node failed|handler failed")

    async def attempt(step: int) -> bool:
        disk = SimulatedDisk()
        disk.plan = lambda _operation, _path: Fault(errno.EIO) if disk.operations == step else None
        failed = True
        try:
            node = await start(settings(), simulated_environment("stepped", disk, MemoryEngine()))
            failed = node.failure is not None
            await node.stop()
        except Exception:
            failed = True
        assert pykka.ActorRegistry.get_all() == []
        assert not disk.open_files
        return failed

    failures = [play("stepped", partial(attempt, step)) for step in range(1, 120)]
    assert failures[0]
    assert sum(failures) > 10
    assert not failures[-1], "the sweep reaches beyond the start"


async def test_a_second_node_on_the_same_store_leaves(tmp_path: Path) -> None:
    path = str(tmp_path / "store")
    async with running(real_environment(), settings(path)):
        with pytest.raises(StoreLocked):
            await start(settings(path), real_environment())


@on_both
async def test_status_from_start_to_stop(kind: str) -> None:
    environment = simulated_environment(kind, SimulatedDisk(), MemoryEngine())
    unopened = Node(settings(), environment).status()
    assert (unopened.health, unopened.reason, unopened.roles) == ("well", "opening", ())
    node = await start(settings(), environment)
    status = node.status()
    assert (status.health, status.reason) == ("well", None)
    assert status.roles == ("serving", "writable")
    assert status.sequence == 1
    assert status.log_begins == 1
    assert len(status.store_id) == len(status.node_id) == 36
    await node.roles.define([], None)
    assert str(node.status().reason) == "no_roles"
    node.not_ready()
    assert (node.status().health, str(node.status().reason)) == ("closing", "draining")
    await node.stop()
    assert pykka.ActorRegistry.get_all() == []


async def test_no_actor_and_no_thread_is_alive_after_stop(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    async with running(real_environment(), settings(str(tmp_path / "store"))) as node:
        await prepare(node)
        assert len(set(threading.enumerate()) - before) >= 4
        assert len(pykka.ActorRegistry.get_all()) >= 8
    assert pykka.ActorRegistry.get_all() == []
    left = [one.name for one in set(threading.enumerate()) - before]
    assert left == []


@on_both
async def test_a_drain_lets_a_script_finish(kind: str) -> None:
    environment = simulated_environment(kind, SimulatedDisk(), MemoryEngine())
    async with running(environment) as node:
        await prepare(node)
        slow = asyncio.ensure_future(
            value(node, "FOR $i IN 1..=20000 { LET $x = $i; }; CREATE t:1 SET done = true;")
        )
        await until(lambda: bool(node.registry.unfinished) or slow.done())
        await node.drain()
        assert node.status().reason == "draining"
        await slow
        assert await value(node, "SELECT VALUE done FROM t:1;") == [True]


@both
def test_a_log_that_fails_ends_the_node(kind: str, logbook: Logbook) -> None:
    logbook.allow("actor failed|node failed")
    disk, engine = SimulatedDisk(), MemoryEngine()

    async def main() -> None:
        node = await start(settings(), simulated_environment(kind, disk, engine))
        await prepare(node)
        await value(node, "CREATE t:1 SET a = 1;")
        disk.plan = lambda operation, path: (
            Fault(errno.EIO) if operation == "sync" and in_log(path) else None
        )
        lost = await outcome(run(node, "CREATE t:2 SET a = 1;"))
        assert isinstance(lost, UnknownOutcome)
        await node.failed.wait()
        status = node.status()
        assert (status.health, status.reason) == ("failed", "failed")
        after = await outcome(value(node, "CREATE t:3 SET a = 1;"))
        assert isinstance(after, Failed)
        disk.plan = None
        await node.stop()
        assert pykka.ActorRegistry.get_all() == []

    async def again() -> None:
        async with running(simulated_environment(kind, disk, engine)) as node:
            assert (await value(node, "SELECT VALUE a FROM t:1;")) == [1]
            await value(node, "CREATE t:9 SET a = 1;")

    play(kind, main)
    disk.kill()
    engine.crash()
    play(kind, again)


class Unwritable(MemoryEngine):
    """Refuses writes when told to."""

    broken = False

    def write(self, batch: Batch, applied: int) -> None:
        if self.broken:
            raise EngineFailed("the state can't be written")
        super().write(batch, applied)

    def get(self, key: bytes) -> bytes | None:
        if self.broken:
            raise EngineFailed("the state can't be read")
        return super().get(key)


@on_both
async def test_an_engine_that_can_not_be_written_ends_the_node(kind: str, logbook: Logbook) -> None:
    logbook.allow("actor failed|node failed|handler failed|script failed")
    disk, engine = SimulatedDisk(), Unwritable()
    node = await start(settings(), simulated_environment(kind, disk, engine))
    await prepare(node)
    with node.committer.begin_transaction() as tx:
        tx.put(b"\0\1\xf0a", b"1")
        engine.broken = True
        ticket = node.committer.commit(tx, SOMEBODY)
    waiting = node.committer.released(ticket)
    assert await outcome(waiting) is None  # it is in the log
    await node.failed.wait()
    engine.broken = False
    await node.stop()
    node = await start(settings(), simulated_environment(kind, disk, engine))
    with node.committer.begin_transaction() as tx:
        assert tx.get(b"\0\1\xf0a") == b"1"
    await node.stop()


@on_both
async def test_an_engine_that_can_not_be_read_ends_the_node(kind: str, logbook: Logbook) -> None:
    logbook.allow("actor failed|node failed|handler failed|script failed")
    engine = Unwritable()
    node = await start(settings(), simulated_environment(kind, SimulatedDisk(), engine))
    await prepare(node)
    await value(node, "CREATE t:1 SET a = 1;")
    engine.broken = True
    found = await outcome(value(node, "SELECT * FROM t:77;"))
    assert isinstance(found, (Failed, EngineFailed))
    await node.failed.wait()
    engine.broken = False
    await node.stop()


@on_both
async def test_actors_that_hold_nothing_of_their_own_are_replaced(
    kind: str, logbook: Logbook
) -> None:
    logbook.allow("actor failed")
    environment = simulated_environment(kind, SimulatedDisk(), MemoryEngine())
    async with running(environment) as node:
        await prepare(node)
        for place in ("scripts", "sessions"):
            before = getattr(node, place)
            tell(before, "no message of theirs")
            while getattr(node, place) is before:
                await asyncio.sleep(0.001)
        assert node.failure is None
        assert await value(node, "RETURN 1;") == 1
        assert (await sign_in(node, "ana", "correct horse")).caller.user == "ana"


@on_both
async def test_an_actor_that_fails_while_the_node_stops_is_not_replaced(
    kind: str, logbook: Logbook
) -> None:
    """Its failure is heard of when its place was emptied already: an actor in it would be left
    behind, which every test is looked through for."""
    logbook.allow("actor failed|node failed")
    environment = simulated_environment(kind, SimulatedDisk(), MemoryEngine())
    node = await start(settings(), environment)
    node.fail(RuntimeError("the disk is gone"))
    tell(node.scripts, "no message of theirs")
    await node.stop()


async def test_scripts_of_a_failed_actor_are_ended_and_forgotten(logbook: Logbook) -> None:
    logbook.allow("actor failed")
    environment = simulated_environment("real", SimulatedDisk(), MemoryEngine())
    async with running(environment) as node:
        await prepare(node)
        endless = "FOR $i IN 1..=900000 { LET $x = $i; }; CREATE t:1 SET a = 1;"
        slow = asyncio.ensure_future(outcome(value(node, endless)))
        await until(lambda: node.registry.unfinished == 1)
        tell(node.scripts, "no message of theirs")
        assert isinstance(await slow, UnknownOutcome)
        await until(lambda: node.registry.unfinished == 0)
        assert await value(node, "SELECT * FROM t:1;") == []


async def test_a_part_that_fails_while_a_node_opens_ends_its_start(
    logbook: Logbook, monkeypatch: pytest.MonkeyPatch
) -> None:
    logbook.allow("actor failed|node failed")
    environment = simulated_environment("real", SimulatedDisk(), MemoryEngine())

    def refused() -> None:
        raise RuntimeError("no other priority")

    monkeypatch.setattr(environment.scheduler, "lower_priority", refused)
    with pytest.raises(PartFailed, match="Actor: no other priority"):
        await start(settings(), environment)


@on_both
async def test_an_actor_that_fails_too_often_ends_the_node(kind: str, logbook: Logbook) -> None:
    logbook.allow("actor failed|node failed")
    environment = simulated_environment(kind, SimulatedDisk(), MemoryEngine())
    async with running(environment) as node:
        for _ in range(6):
            before = node.scripts
            tell(before, "no message of theirs")
            while node.scripts is before and not node.failed.is_set():
                await asyncio.sleep(0.001)
        assert node.failed.is_set()
        assert node.status().health == "failed"


@on_both
async def test_a_full_disk_refuses_writes_and_resumes_by_itself(kind: str) -> None:
    disk = SimulatedDisk()
    async with running(simulated_environment(kind, disk, MemoryEngine())) as node:
        await prepare(node)
        await value(node, "CREATE t:1 SET a = 1;")
        disk.plan = lambda operation, path: (
            Fault(errno.ENOSPC) if operation == "append" and in_log(path) else None
        )
        assert isinstance(await outcome(value(node, "UPDATE t:1 SET a = 2;")), DiskFull)
        assert await value(node, "SELECT VALUE a FROM t:1;") == [1]
        assert node.status().health == "well"
        disk.plan = None
        await value(node, "UPDATE t:1 SET a = 3;")
        assert await value(node, "SELECT VALUE a FROM t:1;") == [3]


async def live_through(node: Node, rng: random.Random, steps: int) -> None:
    """A random history."""
    for _ in range(steps):
        number = rng.randrange(40)
        script = rng.choice(
            [
                f"UPSERT t:{number} SET a = {rng.randrange(1000)}, b = 'x' * 3;",
                f"UPDATE t:{number} SET a = 5;",
                f"DELETE t:{number};",
                f"CREATE u SET at = time::now(), r = rand::int(0, 100), n = {number};",
                "BEGIN; CREATE v SET a = 1; UPSERT t:1 SET a = 2; COMMIT;",
                "BEGIN; CREATE v SET a = 1; THROW 'no'; COMMIT;",
                f"DEFINE TABLE IF NOT EXISTS w{number % 5};",
                f"CREATE w{number % 5} SET a = 1;",
                f"DROP TABLE w{number % 5};",
                "DELETE u WHERE n < 5;",
            ]
        )
        await outcome(value(node, script))


def hash_of(node: Node) -> tuple[int, str]:
    ledger = node.committer.ledger
    assert ledger.state.committed == ledger.synced_seq
    return ledger.synced_seq, state_hash(ledger.state.engine)


def test_the_live_state_is_the_replayed_state(tmp_path: Path) -> None:
    """state/ is deleted, and a part of it is lost: what is folded from the log is the same."""
    path = tmp_path / "store"

    async def live() -> tuple[int, str]:
        async with running(real_environment(), settings(str(path))) as node:
            await prepare(node)
            await live_through(node, random.Random(1), 400)
            await node.committer.released(node.committer.ticket(node.committer.committed))
            return hash_of(node)

    async def reopened() -> tuple[int, str]:
        async with running(real_environment(), settings(str(path))) as node:
            return hash_of(node)

    before = play("real", live)
    assert before[0] > 100
    assert play("real", reopened) == before
    shutil.rmtree(path / "state")
    assert play("real", reopened) == before
    assert play("real", reopened) == before


@both
def test_a_state_ahead_of_its_log_is_refused(kind: str) -> None:
    engine = MemoryEngine()

    async def first() -> None:
        async with running(simulated_environment(kind, SimulatedDisk(), engine)):
            pass

    async def other() -> None:
        with pytest.raises(LogDamaged, match="the state has applied frames up to 1"):
            await start(settings(), simulated_environment(kind, SimulatedDisk(), engine))

    play(kind, first)
    play(kind, other)


DAY = 86_400_000_000


@pytest.mark.parametrize(("ahead", "fine"), [(365 * DAY, True), (400 * DAY, False)])
def test_a_clock_that_jumped_is_not_followed_by_itself(
    ahead: int, fine: bool, logbook: Logbook
) -> None:
    disk, engine = SimulatedDisk(), MemoryEngine()

    async def life(wall_us: int, **told: Any) -> int:
        clock = LoopClock(asyncio.get_running_loop(), wall_us)
        environment = simulated_environment("stepped", disk, engine, clock=clock)
        async with running(environment, settings(**told)) as node:
            await value(node, "DEFINE NAMESPACE OVERWRITE n;")
            return node.committer.ledger.log_time()

    play("stepped", lambda: life(START_US))
    later = START_US + ahead
    if not fine:
        before = disk.image()
        with pytest.raises(ClockRefused, match="--accept-clock-jump"):
            play("stepped", lambda: life(later))
        after = disk.image()
        assert {path: after[path] for path in before if "/log/0" in path} == {
            path: before[path] for path in before if "/log/0" in path
        }, "nothing was written by that clock"
        assert play("stepped", lambda: life(START_US + DAY)) < START_US + 2 * DAY
        play("stepped", lambda: life(later, accept_clock_jump=True))
        assert "a jump of the clock was accepted" in logbook.names()
    assert play("stepped", lambda: life(later)) >= later
