"""VECTOR indexes in the life of a node: folds, lists, restarts, rights, and lazy imports."""

from __future__ import annotations

import asyncio
import math
import threading
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from actors.backups.restoring import RestoreOptions, restore
from actors.environment import system_environment
from actors.indexes import actor, recall_renewal, vector_training
from actors.indexes.actor import IndexesActor
from actors.scripts import arrays
from protocol.errors import NotAllowed
from storage.backups.state_builder import no_progress
from tests.callers import declare
from tests.nodes import Running, running

SIZE = 1_200
RNG = Random(7)
ROWS: list[dict[str, Any]] = [
    {"id": n, "n": n % 100, "v": [RNG.gauss(n % 7, 1) for _ in range(4)]} for n in range(SIZE)
]
SETUP = """
DEFINE TABLE doc; DEFINE INDEX emb ON doc FIELDS v VECTOR DIMENSION 4 DISTANCE EUCLIDEAN;
INSERT INTO doc $rows RETURN NONE
"""
TO = [3.5, 3, 2, 4]
NEAR = f"SELECT VALUE record::id(id) FROM doc WHERE v NEAREST 10 TO {TO}"


def nearest(k: int = 10, **wanted: int) -> list[int]:
    """Brute force."""
    rows = [row for row in ROWS if all(row[name] == value for name, value in wanted.items())]
    far = sorted(
        (sum((a - b) ** 2 for a, b in zip(row["v"], TO, strict=True)), row["id"]) for row in rows
    )
    return [id for _, id in far[:k]]


async def until(node: Running, **wanted: Any) -> dict[str, Any]:
    """INFO of the index, once it has some values."""
    while True:
        info = await node.value("INFO FOR INDEX emb ON doc")
        if all(info[name] == value for name, value in wanted.items()):
            return info  # type: ignore[no-any-return]
        await asyncio.sleep(0.02)


async def trained(node: Running) -> dict[str, Any]:
    """INFO of the index, once its records are in the lists of a training."""
    while True:
        info = await until(node, fresh=0, lists=136)
        if info["largest_list"] <= SIZE // 8:
            return info
        await asyncio.sleep(0.02)


async def explained(node: Running, query: str) -> dict[str, Any]:
    """The source that EXPLAIN shows for a query."""
    return (await node.value(f"EXPLAIN {query}"))["sources"][0]  # type: ignore[no-any-return]


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_training, "ONE_LIST", 1_000)


async def test_one_list_is_exact(node: Running) -> None:
    await node.answer(SETUP, {"rows": ROWS})
    assert await node.value(NEAR) == nearest()
    info = await until(node, fresh=0)
    assert (info["records"], info["lists"], info["largest_list"]) == (SIZE, 1, SIZE)
    assert await node.value(NEAR) == nearest()
    assert await node.value(f"{NEAR} AND n = 3") == nearest(n=3)
    await node.values(f"UPDATE doc:{nearest()[0]} SET v = [90, 90, 90, 90] RETURN NONE")
    assert await node.value(NEAR) == nearest(11)[1:]
    assert (await explained(node, NEAR))["fresh"] == 1
    await node.values(
        f"DELETE doc WHERE id IN {[f'doc:{id}' for id in nearest(3)]!r}".replace("'", "")
    )
    assert await node.value(NEAR) == nearest(13)[3:]


async def test_what_never_fitted_an_index_can_be_deleted_while_that_is_built(
    node: Running,
) -> None:
    await node.answer(
        "DEFINE TABLE doc; INSERT INTO doc $rows RETURN NONE",
        {"rows": [*ROWS, {"id": SIZE, "v": [1]}, {"id": SIZE + 1, "v": "none"}]},
    )
    await node.values(
        "BEGIN; DEFINE INDEX emb ON doc FIELDS v VECTOR DIMENSION 4 DISTANCE EUCLIDEAN;"
        f"DELETE doc WHERE id >= doc:{SIZE}; COMMIT"
    )
    info = await until(node, fresh=0)
    assert (info["state"], info["records"]) == ("ready", SIZE)


@pytest.mark.usefixtures("_small")
async def test_lists_are_trained_and_stay(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as node:
        await node.answer(SETUP, {"rows": ROWS})
        info = await trained(node)
        assert info["probes"] == 23
        way = await explained(node, NEAR)
        assert (way["way"], way["probes"]) == ("lists", 23) and way["looked_at"] < SIZE
        found = await node.value(NEAR)
        assert len(set(found) & set(nearest())) >= 8
        assert await node.value(f"{NEAR} PROBES 1000") == nearest()
        assert (await explained(node, f"{NEAR} PROBES 1000"))["way"] == "all"
        # Few pass: more lists are read.
        assert await node.value(f"{NEAR} PROBES 2 AND n = 3") == nearest(n=3)
        way = await explained(node, f"{NEAR} PROBES 2 AND n = 3")
        assert way["widened"] > 0 if way["way"] == "lists" else way["looked_at"] == SIZE
        check = await node.value("CHECK INDEX emb ON doc")
        assert check == {"records": SIZE, "entries": SIZE, "missing": 0, "surplus": 0}
    async with running(tmp_path / "store") as node:
        assert await node.value(NEAR) == found
        await node.values("REBUILD INDEX emb ON doc")
        assert await node.value(NEAR) == nearest()
        await until(node, fresh=0, lists=136)


@pytest.mark.usefixtures("_small")
async def test_lists_are_trained_while_folds_never_rest(
    node: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under load, some record is fresh again whenever a fold ends."""
    real = IndexesActor._fold_slice
    monkeypatch.setattr(IndexesActor, "_fold_slice", lambda self: real(self) and 0.0)
    monkeypatch.setattr(actor, "LOOK_US", 1_000)
    await node.answer(SETUP, {"rows": ROWS})
    await until(node, lists=136)


@pytest.mark.usefixtures("_small")
async def test_a_training_that_was_killed_is_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process has ended when the node has stopped."""
    asked, create = asyncio.Event(), asyncio.create_subprocess_exec

    async def heard(*words: Any, **more: Any) -> asyncio.subprocess.Process:
        process = await create(*words, **more)
        asked.set()
        return process

    with monkeypatch.context() as hindered:
        hindered.setattr(asyncio, "create_subprocess_exec", heard)
        async with running(tmp_path / "store") as node:
            await node.answer(SETUP, {"rows": ROWS})
            await asked.wait()
            assert await node.value(NEAR) == nearest()
    async with running(tmp_path / "store") as node:
        await until(node, fresh=0, lists=136)


@pytest.mark.usefixtures("_small")
async def test_recall_is_measured_and_sets_the_lists(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as node:
        await node.answer(SETUP, {"rows": ROWS})
        assert (await trained(node))["recall"] == "unmeasured"
        assert (await explained(node, NEAR))["recall"] == "unmeasured"
        given = [[RNG.gauss(n % 7, 1) for _ in range(4)] for n in range(80)]
        found = (await node.answer("MEASURE INDEX emb ON doc WITH $v", {"v": given})).results[0]
        told: Any = found.value
        kind = told["state"], told["of"], told["queries"], told["k"]
        assert kind == ("measured", "given", 80, 10)
        assert told["low"] >= 0.95 and told["low"] <= told["value"] <= told["high"]
        assert [one["of"] for one in told["others"]] == ["stored"]
        info = await until(node)
        assert info["recall"] == told and info["probes"] == told["probes"] < 136
        way = await explained(node, f"{NEAR} AND n < 99")
        assert way["recall"] == {
            "k": 10, "value": told["value"], "low": told["low"], "of": "given",
            "filtered": "unmeasured",
        }  # fmt: skip
        for _ in range(50):
            await node.value(NEAR)
        told = await node.value("MEASURE INDEX emb ON doc QUERIES 30 K 3 PROBES 2")
        assert (told["of"], told["probes"], told["k"]) == ("live", 2, 3)
        assert (await until(node))["probes"] == 2
    folder = tmp_path / "folder"
    folder.mkdir()
    async with running(tmp_path / "store", settings={"backup_dir": str(folder)}) as node:
        assert (await until(node))["recall"] == told
        await node.value("BACKUP LOG TO 'log'")
        await node.values("UPDATE doc SET v = [1, 2, 3, n] WHERE n < 20 RETURN NONE")
        changed = (await until(node))["recall"]
        assert changed["state"] == "stale" and 0.1 < changed["changed"] < 0.3
        await node.values("REBUILD INDEX emb ON doc")
        assert (await until(node))["recall"] == "unmeasured"
    environment, wanted = system_environment(), RestoreOptions(str(tmp_path / "restored"))
    with closing(environment.fs.open_read(str(folder / "log"))) as file:
        list(restore(environment, file, wanted, no_progress))
    async with running(tmp_path / "restored") as node:
        assert (await until(node, lists=136))["recall"] == "unmeasured"


@pytest.mark.usefixtures("_small")
async def test_recall_of_queries_with_a_filter(node: Running) -> None:
    await node.answer(SETUP, {"rows": ROWS})
    await trained(node)
    given = [[RNG.gauss(n % 7, 1) for _ in range(4)] for n in range(30)]
    over = {"v": given, "most": 30}
    script = "MEASURE INDEX emb ON doc WITH $v PROBES 3 WHERE"
    told: Any = (await node.answer(f"{script} n < $most", over)).results[0].value
    (found,) = (one for one in told["others"] if "filter" in one)
    assert (found["filter"], found["of"], found["probes"]) == ("n < $most", "given", 3)
    # As searches find, and brute force.
    hits = 0
    for vector in given:
        near = "SELECT VALUE record::id(id) FROM doc WHERE v NEAREST 10 TO $v PROBES 3 AND n < 30"
        rows = {row["id"]: row["v"] for row in ROWS if row["n"] < 30}
        truth = sorted(rows, key=lambda id: math.dist(rows[id], vector))[:10]
        ids: Any = (await node.answer(near, {"v": vector})).results[0].value
        hits += len({*truth} & {*ids})
    assert found["value"] == pytest.approx(hits / 300) and 0.2 < found["value"] < 1
    told = (await node.answer(f"{script} n = 7 OR n = 8", over)).results[0].value
    filters = [one["filter"] for one in told["others"] if "filter" in one]
    assert filters == ["n < $most", "n = 7 OR n = 8"]
    for condition, shown in (
        ("n < $most", {"k": 10, "value": found["value"], "low": found["low"], "of": "given"}),
        ("n < 30", "unmeasured"),
    ):
        query = f"EXPLAIN SELECT * FROM doc WHERE v NEAREST 10 TO {TO} AND {condition}"
        plan: Any = (await node.answer(query, over)).results[0].value
        assert plan["sources"][0]["recall"]["filtered"] == shown, condition
    part = f"SELECT * FROM doc:1..900 WHERE v NEAREST 10 TO {TO} PROBES 9 AND n < 30"
    assert (await explained(node, part)).get("recall", {}).get("filtered") in (None, "unmeasured")


async def test_what_was_deleted_before_has_not_changed(node: Running) -> None:
    """Too few of a segment are deleted for a merge, and more than a stale figure needs."""
    await node.answer(SETUP, {"rows": ROWS})
    await until(node, fresh=0)
    await node.values("DELETE doc WHERE n < 15 RETURN NONE")
    await until(node, fresh=0)
    await node.value("MEASURE INDEX emb ON doc")
    found = (await until(node))["recall"]
    assert (found["state"], found["changed"]) == ("measured", 0.0)


async def test_a_measurement_meets_no_conflict(node: Running) -> None:
    await node.answer(SETUP, {"rows": ROWS})
    measured, before = asyncio.Event(), node.node.committer.conflicts

    async def write() -> None:
        number = 0
        while not measured.is_set():
            number += 1
            await node.answer(f"UPSERT doc:{SIZE + number % 9} SET v = [{number}, 1, 2, 3]")

    writer = asyncio.create_task(write())
    told = await node.value("MEASURE INDEX emb ON doc WHERE n < 50")
    measured.set()
    await writer
    assert told["state"] == "measured" and node.node.committer.conflicts == before
    # In a block it is of the records of that transaction.
    block = "BEGIN; UPDATE doc:1 SET v = [9, 9, 9, 9] RETURN NONE; MEASURE INDEX emb ON doc; COMMIT"
    assert (await node.values(block))[2]["state"] == "measured"


async def recall_of(node: Running, **wanted: Any) -> dict[str, Any]:
    """Recall of the index in INFO, once it has some values."""
    while True:
        found = (await node.value("INFO FOR INDEX emb ON doc"))["recall"]
        if isinstance(found, dict) and all(found[name] == value for name, value in wanted.items()):
            return found
        await asyncio.sleep(0.02)


@pytest.mark.usefixtures("_small")
async def test_the_leader_measures_after_a_rebuild_and_what_is_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recall_renewal, "REST_US", 0)
    monkeypatch.setattr(recall_renewal, "_RESTS", 0)
    given = [[RNG.gauss(n % 7, 1) for _ in range(4)] for n in range(20)]
    folder = tmp_path / "folder"
    folder.mkdir()
    async with running(tmp_path / "store") as node:
        await node.answer(SETUP, {"rows": ROWS})
        await trained(node)
        script = "REBUILD INDEX emb ON doc MEASURE WITH $v K 3 WHERE n < $most WAIT"
        await node.answer(script, {"v": given, "most": 30})
        assert (await until(node))["recall"] == "unmeasured"
    # A kill in between: the next start goes on with it.
    async with running(tmp_path / "store", settings={"backup_dir": str(folder)}) as node:
        told = await recall_of(node, k=3, of="given", queries=20)
        assert (await until(node))["lists"] == 136
        assert [one["filter"] for one in told["others"] if "filter" in one] == ["n < $most"]
        await node.values("UPDATE doc SET v = [1, 2, 3, n] WHERE n < 20 RETURN NONE")
        again = await recall_of(node, state="measured", changed=0.0)
        assert again["seq"] > told["seq"] and (again["of"], again["k"]) == ("given", 3)
        # Another target sets other lists.
        await node.values(
            "DEFINE INDEX OVERWRITE emb ON doc FIELDS v VECTOR DIMENSION 4 DISTANCE EUCLIDEAN"
            " RECALL 0.5"
        )
        few = await recall_of(node, target=0.5)
        assert few["probes"] < again["probes"]
        await node.value("BACKUP LOG TO 'log'")
        await node.values("REBUILD INDEX emb ON doc")
        assert (await until(node, fresh=0))["recall"] == "unmeasured"
    environment, wanted = system_environment(), RestoreOptions(str(tmp_path / "restored"))
    with closing(environment.fs.open_read(str(folder / "log"))) as file:
        list(restore(environment, file, wanted, no_progress))
    async with running(tmp_path / "restored") as node:
        await until(node, lists=136, fresh=0)
        assert (await until(node))["recall"] == "unmeasured"


async def test_a_measurement_of_the_leader_ends_with_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asyncio.Event()

    def endless(reading: Any, *_: Any) -> None:
        asked.set()
        while True:
            reading.tick()

    with monkeypatch.context() as hindered:
        hindered.setattr(recall_renewal, "_found", endless)
        async with running(tmp_path / "store") as node:
            await node.answer(SETUP, {"rows": ROWS})
            await node.value("REBUILD INDEX emb ON doc MEASURE QUERIES 20")
            await asked.wait()
            assert await node.value(NEAR) == nearest()
    async with running(tmp_path / "store") as node:
        assert (await recall_of(node))["queries"] == 20


async def test_what_can_not_be_measured(node: Running) -> None:
    await node.answer(SETUP, {"rows": ROWS[:9]})
    await node.values("DEFINE INDEX n ON doc FIELDS n")
    for script, wrong in (
        ("MEASURE INDEX emb ON doc", "too few vectors"),
        ("MEASURE INDEX n ON doc", "no VECTOR index"),
        ("MEASURE INDEX emb ON doc QUERIES 9", "QUERIES takes 10 to 2000"),
        ("MEASURE INDEX emb ON doc K 0", "K takes 1 to 1000"),
        ("MEASURE INDEX emb ON doc WITH [[1, 2, 3, 4]]", "10 to 2000 vectors"),
        ("MEASURE INDEX emb ON doc WITH 7", "an array of vectors, not int"),
        ("MEASURE INDEX emb ON doc WITH array::map(0..10, |$n| [$n])", "not array of 1"),
        ("MEASURE INDEX emb ON doc WHERE n = $none", "$none"),
        ("MEASURE INDEX emb ON doc WHERE n IN (SELECT VALUE n FROM doc)", "has a SELECT"),
        ("MEASURE INDEX emb ON doc WHERE n > rand::int(0, 9)", "WHERE of MEASURE calls rand"),
        ("REBUILD INDEX n ON doc MEASURE", "no VECTOR index"),
        ("REBUILD INDEX emb ON doc MEASURE K 0", "K takes 1 to 1000"),
    ):
        refusal = (await node.answer(script)).refusal
        assert refusal is not None and wrong in refusal.message, script


async def test_rights(node: Running) -> None:
    await node.answer(SETUP, {"rows": ROWS[:20]})
    eve = await declare(node.node, "eve", "member")
    answer = await node.answer(NEAR, caller=eve)
    assert answer.refusal is not None and answer.refusal.code in ("Unknown", "NotAllowed")
    viewer = await declare(node.node, "vic", "viewer")
    assert len((await node.answer(NEAR, caller=viewer)).results[0].value) == 10  # type: ignore[arg-type]
    answer = await node.answer("DEFINE INDEX i ON doc FIELDS w VECTOR DIMENSION 2", caller=viewer)
    assert type(answer.refusal) is NotAllowed


async def test_libraries_for_arrays_are_imported_by_a_thread(
    node: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By each statement that may be the first to need them."""
    await node.answer(SETUP, {"rows": ROWS[:50]})
    await node.values(
        "DEFINE ANALYZER plain TOKENIZERS class;"
        "DEFINE INDEX t ON doc FIELDS s FULLTEXT ANALYZER plain"
    )
    by: list[int] = []
    monkeypatch.setattr(arrays, "import_module", lambda name: by.append(threading.get_ident()))
    for script in (
        NEAR,
        f"SELECT * FROM doc ORDER BY vector::euclidean(v, {TO}) LIMIT 3",
        "SELECT * FROM doc WHERE s @@ 'one'",
        "INFO FOR INDEX emb ON doc",
        "CHECK INDEX emb ON doc",
        "CHECK INDEX t ON doc",
        "MEASURE INDEX emb ON doc",
    ):
        monkeypatch.setattr(arrays, "_LOADED", threading.Event())
        by.clear()
        answer = await node.answer(script)
        assert answer.refusal is None, script
        assert by and threading.get_ident() not in by, script
