"""Building indexes beside everything else."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from actors.indexes.service import IndexBuilderHandle
from actors.node import Node
from protocol import limits
from protocol.errors import (
    Cancelled,
    DiskFull,
    Draining,
    Duplicate,
    NotEnoughReplicas,
    NotInTransaction,
    NotWritable,
    StatementTimeout,
    Unknown,
    UnknownOutcome,
)
from protocol.requests import ScriptAnswer
from storage.engine.memory import MemoryEngine
from tests.actors import nodes
from tests.actors.nodes import simulated_environment, value
from tests.actors.parts import KINDS, play, until
from tests.logbook import Logbook
from tests.nodes import OWNER, Running, running
from tests.simulation.disk import NO_LIMIT, SimulatedDisk
from tests.storage.index_entries import wrong_entries
from tests.tables import case

ROWS = 6_000


async def fill(node: Running, count: int = ROWS, **more: Any) -> None:
    """Table `thing` with so many records."""
    rows = [
        {"id": n, "a": n % 10, "b": f"b{n}", "tags": [n % 3, "x"], **more} for n in range(count)
    ]
    await node.values("DEFINE TABLE thing; INSERT INTO thing $rows RETURN NONE", {"rows": rows})


async def built(node: Running, *names: str) -> list[dict[str, Any]]:
    """What is said of indexes once none is being built."""
    while True:
        found = [await node.value(f"INFO FOR INDEX {name} ON thing") for name in names]
        if all("building" not in each["state"] for each in found):
            return found
        await asyncio.sleep(0)


async def access(node: Running, select: str) -> Any:
    plan = await node.value(f"EXPLAIN {select}")
    return plan["sources"][0]["access"]


async def write_on(node: Running, writer: int, until: asyncio.Event) -> int:
    """Writes of every kind until told to end. What is UNIQUE is never another writer's."""
    rng = Random(writer)
    written = 0
    while not until.is_set():
        one = rng.randrange(ROWS + 500)
        script = rng.choice(
            [
                f"UPSERT thing:{one} SET a = {rng.randrange(10)}, b = 'n{writer}-{written}'",
                f"DELETE thing:{one}",
                f"UPDATE thing:{one} SET tags = [{one}, 'y'] RETURN NONE",
                f"BEGIN; UPSERT thing:{one} SET a = 77; UPDATE thing:{one + 1} SET a = 3; CANCEL",
                f"BEGIN; UPSERT thing:{one} SET b = 'm{writer}-{written}'; THROW 'no'; COMMIT",
            ]
        )
        await node.answer(script)
        written += 1
    return written


async def test_an_index_is_built_while_others_write(
    tmp_path: Path, figure: Callable[[str, object], None]
) -> None:
    async with running(tmp_path / "store") as node:
        await fill(node)
        ended = asyncio.Event()
        writers = [asyncio.create_task(write_on(node, n, ended)) for n in range(4)]
        await node.values(
            "DEFINE INDEX a ON thing FIELDS a, b; DEFINE INDEX tags ON thing FIELDS tags;"
            "DEFINE INDEX b ON thing FIELDS b UNIQUE"
        )
        seen: list[int] = []
        look = "BEGIN; INFO FOR INDEX a ON thing; EXPLAIN SELECT * FROM thing WHERE a = 1; COMMIT"
        while (found := await node.values(look))[1]["state"] == "building":
            _, info, plan, _ = found
            assert 0 <= info["visited"] <= info["records"] + ROWS
            seen.append(info["visited"])
            assert plan["sources"][0]["access"] in ("scan", "columns")
        states = [each["state"] for each in await built(node, "a", "tags", "b")]
        ended.set()
        written = sum(await asyncio.gather(*writers))
        assert states == ["ready"] * 3
        assert seen == sorted(seen)
        assert await wrong_entries(node.node, "main") == []
        assert await access(node, "SELECT * FROM thing WHERE a = 1 AND b = 'b1'") == "index"
    figure("writes beside three indexes being built", f"{written}, progress seen {len(seen)} times")


async def test_a_build_goes_on_from_the_log_of_a_node_that_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path / "store") as node:
        await fill(node)
        with monkeypatch.context() as slowly:
            slowly.setattr(limits, "INDEX_SLICE_BYTES", 500)
            await node.values(
                "DEFINE INDEX i ON thing FIELDS tags, a; DEFINE INDEX u ON thing FIELDS b UNIQUE"
            )
            while not (await node.value("INFO FOR INDEX i ON thing"))["visited"]:
                await asyncio.sleep(0)
            # What a kill at this moment leaves: the log as it is, and no state to trust.
            (tmp_path / "killed").mkdir(0o700)
            shutil.copytree(tmp_path / "store" / "log", tmp_path / "killed" / "log")
            shutil.copy(tmp_path / "store" / "STORE", tmp_path / "killed" / "STORE")
        await built(node, "i", "u")
    async with running(tmp_path / "killed") as node:
        assert [each["state"] for each in await built(node, "i", "u")] == ["ready", "ready"]
        assert await wrong_entries(node.node, "main") == []


async def test_a_unique_index_that_meets_duplicates_says_so_and_is_not_used(
    tmp_path: Path,
) -> None:
    async with running(tmp_path / "store") as node:
        await fill(node)
        await node.values(
            "UPDATE thing:5000 SET b = 'b17'; DEFINE INDEX u ON thing FIELDS b UNIQUE"
        )
        (info,) = await built(node, "u")
        assert info["state"] == "failed"
        assert info["problem"] == (
            "Duplicate: index u of table thing can't hold 'b17' of two records: thing:17 and"
            " thing:5000"
        )
        assert await access(node, "SELECT * FROM thing WHERE b = 'b1'") == "columns"
        await node.values("UPDATE thing:5000 SET b = 'own'; REBUILD INDEX u ON thing")
        assert (await built(node, "u"))[0]["state"] == "ready"
        assert await access(node, "SELECT * FROM thing WHERE b = 'b1'") == "index"
        answer = await node.answer("UPDATE thing:5000 SET b = 'b17'")
        assert isinstance(answer.refusal, Duplicate)
        assert await wrong_entries(node.node, "main") == []


async def test_who_waits_for_an_index_is_answered_once_it_is_built_or_refused(
    tmp_path: Path,
) -> None:
    async with running(tmp_path / "store") as node:
        await fill(node)
        look = "INFO FOR INDEX u ON thing"
        await node.values("DEFINE INDEX u ON thing FIELDS b UNIQUE WAIT TIMEOUT 1h")
        assert (await node.value(look))["state"] == "ready"
        await node.values("REBUILD INDEX u ON thing WAIT")
        assert (await node.value(look))["state"] == "ready"
        # One that another has declared, and one that needs no building.
        await node.values("DEFINE INDEX OVERWRITE u ON thing FIELDS a")
        await node.values("DEFINE INDEX IF NOT EXISTS u ON thing FIELDS a WAIT")
        assert (await node.value(look))["state"] == "ready"
        await node.values("DEFINE INDEX IF NOT EXISTS u ON thing FIELDS a WAIT")
        await node.values("UPDATE thing:5000 SET b = 'b17'; DROP INDEX u ON thing")
        for define in (
            "DEFINE INDEX u ON thing FIELDS b UNIQUE WAIT",
            "DEFINE INDEX IF NOT EXISTS u ON thing FIELDS b UNIQUE WAIT",
            "REBUILD INDEX u ON thing WAIT",
        ):
            refusal = (await node.answer(define)).refusal
            assert isinstance(refusal, Duplicate), define
            assert "'b17' of two records: thing:17 and thing:5000; index u" in refusal.message
            assert (refusal.detail["index"], refusal.detail["table"]) == ("u", "thing")
        assert (await node.value(look))["state"] == "failed"
        await node.values(
            "DEFINE USER def ROLE member PASSWORD 'a long password';"
            "GRANT DEFINE ON TABLE thing TO def"
        )
        caller = replace(OWNER, user="def", role="member")
        refusal = (await node.answer("REBUILD INDEX u ON thing WAIT", caller=caller)).refusal
        assert isinstance(refusal, Duplicate) and "b17" not in f"{refusal} {refusal.detail}"
        # A small one is built at once, and names two records as well.
        await node.values("DELETE thing; INSERT INTO thing [{ id: 1, b: 2 }, { id: 2, b: 2 }]")
        refusal = (await node.answer("DEFINE INDEX s ON thing FIELDS b UNIQUE WAIT")).refusal
        assert isinstance(refusal, Duplicate) and "thing:1 and thing:2" in refusal.message
        refusal = (
            await node.answer("BEGIN; DEFINE INDEX s ON thing FIELDS a WAIT; COMMIT")
        ).refusal
        assert isinstance(refusal, NotInTransaction)


async def test_what_ends_the_wait_for_an_index_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "INDEX_AT_ONCE", 1)
    monkeypatch.setattr(IndexBuilderHandle, "wake", lambda _builder: None)  # nothing is built
    rows = "INSERT INTO thing [{ id: 1 }, { id: 2 }]"
    define = "DEFINE INDEX i ON thing FIELDS a WAIT"
    async with running(tmp_path / "store") as node:

        async def waiting() -> asyncio.Task[ScriptAnswer]:
            await node.values(f"DEFINE TABLE IF NOT EXISTS thing; {rows} IGNORE RETURN NONE")
            await node.answer("DROP INDEX i ON thing")  # of the case before, if that left it
            task = asyncio.ensure_future(node.answer(define))
            while not len(node.node.topics.waits):
                assert not task.done(), task.result()
                await asyncio.sleep(0)
            return task

        table = {
            "DROP INDEX i ON thing": (Unknown, "index i of table shop.main.thing was dropped"),
            "DROP TABLE thing": (Unknown, "there is no table shop.main.thing"),
            "DROP INDEX i ON thing; DEFINE INDEX i ON thing FIELDS a": (
                Unknown,
                "rebuilt as another",
            ),
            "KILL": (Cancelled, ""),
            "DEFINE NODE ROLES serving": (NotWritable, ""),
        }
        for end, (kind, message) in table.items():
            with case(end):
                task = await waiting()
                if end == "KILL":
                    (one,) = [one for one in await node.value("INFO FOR RUNNING") if one["waiting"]]
                    end = f"KILL '{one['id']}'"
                await node.values(end)
                refusal = (await asyncio.wait_for(task, 30)).refusal
                assert type(refusal) is kind and message in refusal.message
                assert refusal.detail["committed"], "the index stays declared"
                await node.values("DEFINE NODE ROLES serving, writable")
        await node.values("DROP INDEX i ON thing")
        refusal = (await node.answer(f"{define} TIMEOUT 1ms")).refusal
        assert type(refusal) is StatementTimeout
        assert not len(node.node.topics.waits)
        task = await waiting()
        node.node.topics.drain()
        assert type((await asyncio.wait_for(task, 30)).refusal) is Draining


async def test_a_unique_index_is_in_force_and_used_while_it_is_rebuilt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "INDEX_SLICE_BYTES", 500)
    async with running(tmp_path / "store") as node:
        await fill(node)
        await node.values("DEFINE INDEX u ON thing FIELDS b UNIQUE")
        await built(node, "u")
        await node.values("REBUILD INDEX u ON thing")
        # The last record is the last one that is visited.
        last = f"b{ROWS - 1}"
        look = (
            f"BEGIN; INFO FOR INDEX u ON thing; EXPLAIN SELECT * FROM thing WHERE b = '{last}';"
            f"SELECT VALUE id FROM thing WHERE b = '{last}'; COMMIT"
        )
        seen = []
        while (found := await node.values(look))[1]["state"] == "rebuilding":
            seen.append(found[1]["visited"])
            assert found[2]["sources"][0]["access"] == "index" and len(found[3]) == 1
            answers = await asyncio.gather(
                *(node.answer(f"CREATE thing SET b = '{b}'") for b in (last, "b0", "b3000"))
            )
            assert [type(answer.refusal) for answer in answers] == [Duplicate] * 3
        assert len(seen) > 1 and seen == sorted(seen)
        assert found[1]["state"] == "ready"
        assert await wrong_entries(node.node, "main") == []


async def test_an_index_dropped_while_it_is_built_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "INDEX_SLICE_BYTES", 500)
    async with running(tmp_path / "store") as node:
        await fill(node)
        await node.values("DEFINE INDEX i ON thing FIELDS a; DEFINE INDEX j ON thing FIELDS b")
        while not (await node.value("INFO FOR INDEX i ON thing"))["visited"]:
            await asyncio.sleep(0)
        await node.values("DROP INDEX i ON thing")
        assert (await built(node, "j"))[0]["state"] == "ready"
        assert await wrong_entries(node.node, "main") == []
        await node.values("DROP TABLE thing; DEFINE TABLE thing")
        assert await wrong_entries(node.node, "main") == []


async def test_a_build_goes_on_when_the_node_takes_changes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actors.indexes.actor.AGAIN_SECONDS", 0.01)
    # So many slices that the roles change before the last.
    monkeypatch.setattr(limits, "INDEX_SLICE_BYTES", 1)
    async with running(tmp_path / "store") as node:
        await fill(node)
        await node.values("DEFINE INDEX a ON thing FIELDS a; DEFINE NODE ROLES serving")
        committer = node.node.committer
        await committer.released(committer.ticket(committer.committed))
        stopped = committer.committed
        tries, judge = list[int](), committer._check_declared

        def count() -> None:
            tries.append(committer.committed)
            judge()

        committer._check_declared = count
        while len(tries) < 5:
            await asyncio.sleep(0.001)
        assert set(tries) == {stopped}, "nothing is kept of a slice that was refused"
        assert (await node.value("INFO FOR INDEX a ON thing"))["state"] == "building"
        monkeypatch.setattr(limits, "INDEX_SLICE_BYTES", 500)
        await node.values("DEFINE NODE ROLES serving, writable")
        (found,) = await built(node, "a")
        assert found["state"] == "ready"
        assert await wrong_entries(node.node, "main") == []


async def test_a_build_waits_for_the_followers_of_its_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actors.indexes.actor.AGAIN_SECONDS", 0.01)
    async with running(tmp_path / "store") as node:
        await fill(node)
        tries, committer = list[None](), node.node.committer

        def too_few() -> None:
            tries.append(None)
            raise NotEnoughReplicas("too few would have it", followers=0, acks=1)

        await node.values("DEFINE INDEX a ON thing FIELDS a")
        committer.check_replicated = too_few
        while len(tries) < 5:
            await asyncio.sleep(0.001)
        assert (await node.value("INFO FOR INDEX a ON thing"))["state"] == "building"
        committer.check_replicated = node.node.member.check_replicated
        (found,) = await built(node, "a")
        assert found["state"] == "ready"


def used_bytes(disk: SimulatedDisk) -> int:
    """What the files of a disk hold."""
    return sum(len(content or b"") for content in disk.image().values())


async def held_up(node: Node) -> None:
    """The builder has tried to go on ten times in a row without getting any further."""
    committer, tries = node.committer, list[int]()
    judge = committer.check_replicated

    def count() -> None:
        tries.append(committer.commit_index)
        judge()

    committer.check_replicated = count
    await until(lambda: node.failed.is_set() or (len(tries) > 9 and tries[-1] == tries[-10]))
    committer.check_replicated = judge


async def still_reads(node: Node) -> None:
    """A build that is held up ends nothing."""
    await held_up(node)
    assert await value(node, "SELECT VALUE v FROM t:1") == ["000001"]
    assert (await value(node, "INFO FOR INDEX i ON t"))["state"] == "building"
    assert not node.failed.is_set()


async def goes_on(node: Node) -> None:
    """The build ends by itself."""
    state = ""
    while state != "ready":
        # Who reads beside a commit that is taken back hears of that.
        with contextlib.suppress(UnknownOutcome, DiskFull):
            state = (await value(node, "INFO FOR INDEX i ON t"))["state"]
        await asyncio.sleep(0.01)
    assert await wrong_entries(node, "b", namespace="a") == []


async def begun(node: Node) -> None:
    """An index that is to be built."""
    rows = [{"id": n, "v": f"{n:06}"} for n in range(ROWS)]
    await nodes.prepare(node)
    await value(node, "INSERT INTO t $rows RETURN NONE", {"rows": rows})
    await value(node, "DEFINE INDEX i ON t FIELDS v")


@pytest.mark.parametrize("kind", KINDS)
def test_a_full_disk_holds_a_build_up_and_ends_nothing(
    kind: str, monkeypatch: pytest.MonkeyPatch, logbook: Logbook
) -> None:
    logbook.allow("the next start replays more of the log")
    logbook.allow("the checkpoint waits for disk space")  # one may come while it is full
    monkeypatch.setattr("actors.indexes.actor.AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(limits, "INDEX_SLICE_BYTES", 2000)
    disk, engine = SimulatedDisk(), MemoryEngine()

    async def fills() -> None:
        async with nodes.running(simulated_environment(kind, disk, engine)) as node:
            await begun(node)
            disk.capacity = used_bytes(disk)
            await still_reads(node)

    async def starts_full() -> None:
        async with nodes.running(simulated_environment(kind, disk, engine)) as node:
            await still_reads(node)
            disk.capacity = NO_LIMIT
            await goes_on(node)

    play(kind, fills)
    disk.capacity = used_bytes(disk)
    play(kind, starts_full)
