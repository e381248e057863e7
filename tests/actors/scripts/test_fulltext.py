"""FULLTEXT indexes in the life of a node: folds, restarts, rights, and lazy imports."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from language.search.matching import matches
from protocol.errors import BadRequest, NotAllowed, StillHeld
from storage.records import index_builds
from tests.callers import declare
from tests.nodes import Running, running

SETUP = """
DEFINE ANALYZER en TOKENIZERS class FILTERS lowercase, snowball(english); DEFINE TABLE ore;
DEFINE INDEX text ON ore FIELDS title, body FULLTEXT ANALYZER en BOOST title 2;
INSERT INTO ore (array::map(0..1500, |$n| { id: $n, title: IF $n % 3 = 0 { 'Tin mines' } ELSE
    { 'Copper' }, body: ['ores', 'of', IF $n % 2 = 0 { 'zinc' } ELSE { 'tin' }] })) RETURN NONE
"""
TIN = "SELECT VALUE record::id(id) FROM ore WHERE [title, body] @@ 'tin -mine'"


async def folded(node: Running) -> dict[str, Any]:
    """INFO of the index, once no record is fresh."""
    while True:
        info = await node.value("INFO FOR INDEX text ON ore")
        if info["state"] == "ready" and not info["fresh"]["records"]:
            return info  # type: ignore[no-any-return]
        await asyncio.sleep(0.02)


async def explained(node: Running, query: str) -> dict[str, Any]:
    """The source that EXPLAIN shows for a query."""
    plan = await node.value(f"EXPLAIN SELECT * FROM ore WHERE [title, body] @@ {query}")
    return plan["sources"][0]  # type: ignore[no-any-return]


async def test_records_are_folded_and_found_as_before(node: Running) -> None:
    await node.values(SETUP)
    before = await node.value(TIN)
    info = await folded(node)
    assert info["segments"] >= 1 and info["records"] == 1500
    # tin mine copper, and of ore zinc tin in the other field.
    assert (info["terms"], info["tokens"]) == (7 * info["segments"], 2_000 + 4_500)
    assert 10_000 < info["bytes"] < 1_000_000 and info["fresh"]["bytes"] == 0
    assert await node.value(TIN) == before and len(before) == 500
    way = await explained(node, "'tin -mine'")
    assert (way["access"], way["index"], way["entries"]) == ("fulltext", "text", 500)
    assert way["fresh"] == 0 and way["segments"] == info["segments"]
    assert way["terms"] == [
        {"term": "tin", "records": 1000}, {"term": "mine", "records": 500, "not": True},
    ]  # fmt: skip
    await node.values(
        "UPDATE ore:1 SET body = 'lead'; DELETE ore:5; CREATE ore:x SET title = 'tin'"
    )
    marked = (await node.value("INFO FOR INDEX text ON ore"))["fresh"]
    assert marked["records"] == 3 and 40 < marked["bytes"] < 400
    after = await node.value(TIN)
    assert set(after) == set(before) - {1, 5} | {"x"}
    await folded(node)
    assert await node.value(TIN) == after


COLUMNS = """
SELECT VALUE id FROM ore WHERE [title, body] @@ 'tin -mine' AND n >= 10;
SELECT n % 2 AS odd, count() AS c FROM ore WHERE [title, body] @@ 'zinc' GROUP BY odd ORDER BY odd;
SELECT n, [title, body] @@ 'tin' AS tin FROM ore WHERE n > 1490 ORDER BY n DESC LIMIT 3;
SELECT count() AS c FROM ore WHERE [title, body] @@ '"tin mines" zinc' OR n = 4 GROUP ALL;
SELECT VALUE n FROM ore WHERE [title, body] @@ '"tin mines" ores zinc' ORDER BY n DESC LIMIT 2
"""


async def test_columns_leave_matches_alone(node: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    await node.values(SETUP + "; UPDATE ore SET n = record::id(id)")
    with monkeypatch.context() as hindered:
        hindered.setattr(index_builds, "build_slice", lambda tx, key, over: True)
        await node.values("REBUILD INDEX text ON ore")
        assert (await node.value("INFO FOR INDEX text ON ore"))["state"] == "building"
        before = await node.values(COLUMNS)
        way = await explained(node, "'tin -mine' AND n >= 10")
        assert way["access"] == "scan" and "blocks" not in way
        assert way["unused"] == [{"index": "text", "why": "its state is building"}]
    await node.values("REBUILD INDEX text ON ore")
    await folded(node)
    assert await node.values(COLUMNS) == before
    assert (await explained(node, "'tin -mine' AND n >= 10"))["access"] == "fulltext"
    assert [row["n"] for row in before[2]] == [1499, 1498, 1497]
    assert before[3:] == [[{"c": 251}], [1494, 1488]]


async def test_the_index_answers_without_the_texts(
    node: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.values(SETUP)
    await folded(node)
    await node.values("UPDATE ore:7 SET title = 'Tin mines'")
    looked: list[Any] = []

    def looks(query: Any, fields: Any, tick: Any) -> bool:
        looked.append(fields)
        return matches(query, fields, tick)

    monkeypatch.setattr("actors.scripts.text_index.matches", looks)
    monkeypatch.setattr("actors.scripts.text_search.text_matches", None)
    found = await node.value("SELECT VALUE id FROM ore WHERE [title, body] @@ 'mine' AND body != 1")
    assert len(found) == 501
    # Only the fresh record was read for it.
    assert len(looked) <= 1


SCORED = """
SELECT record::id(id) AS id, search::score() AS score, search::highlight(title) AS title FROM ore
    WHERE [title, body] @@ 'mine OR zinc' AND n != 6 ORDER BY search::score() DESC LIMIT 7;
SELECT id, search::score(body) AS score FROM ore WHERE [title, body] @@ '"tin mines"' OR n = 1;
"""


async def test_scores_stay_through_folds_and_restarts(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as node:
        await node.values(SETUP + "; UPDATE ore SET n = record::id(id)")
        before = await node.values(SCORED)
        await folded(node)
        assert await node.values(SCORED) == before
    async with running(tmp_path / "store") as node:
        assert await node.values(SCORED) == before
    best, others = before
    assert [row["id"] for row in best] == [0, 12, 18, 24, 30, 36, 42]
    assert best[0]["title"] == "Tin <b>mines</b>" and best[0]["score"] > 1
    assert len(others) == 501


async def test_the_best_are_found_without_reading_all(node: Running) -> None:
    await node.values(SETUP + "; UPDATE ore SET n = record::id(id)")
    await folded(node)
    plan = await node.value(
        "EXPLAIN ANALYZE SELECT id FROM ore WHERE [title, body] @@ 'tin'"
        " ORDER BY search::score() DESC LIMIT 5"
    )
    assert plan["rows"] == 5 and plan["rows_read"] <= 32 and plan["order"] == "as read"
    assert plan["sources"][0]["entries"] == 1000


async def test_a_restart_keeps_segments(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as node:
        await node.values(SETUP)
        before = await node.value(TIN)
        info = await folded(node)
    async with running(tmp_path / "store") as node:
        assert await node.value(TIN) == before
        assert await folded(node) == info
        await node.values("DEFINE ANALYZER OVERWRITE en TOKENIZERS class FILTERS lowercase")
        assert await node.value(TIN) == await node.value(
            "SELECT VALUE record::id(id) FROM ore"
            " WHERE search::matches(array::flatten([[title], body]), 'tin -mine', 'en')"
        )
        await folded(node)


async def test_rights(node: Running) -> None:
    await node.values(SETUP)
    eve = await declare(node.node, "eve", "member")
    answer = await node.answer(TIN, caller=eve)
    assert answer.refusal is not None and answer.refusal.code in ("Unknown", "NotAllowed")
    viewer = await declare(node.node, "vic", "viewer")
    assert len((await node.answer(TIN, caller=viewer)).results[0].value) == 500  # type: ignore[arg-type]
    answer = await node.answer("DEFINE INDEX i ON ore FIELDS a FULLTEXT ANALYZER en", caller=viewer)
    assert type(answer.refusal) is NotAllowed


async def test_what_uses_an_analyzer(node: Running) -> None:
    await node.values(SETUP)
    refusal = (await node.answer("DROP ANALYZER en")).refusal
    assert type(refusal) is StillHeld and refusal.detail["used_by"] == ["index text on ore"]
    assert (await node.value("INFO FOR ANALYZER en"))["used_by"] == ["index text on ore"]
    await node.values("DROP INDEX text ON ore; DROP ANALYZER en")
    assert type((await node.answer(TIN)).refusal) is BadRequest


def test_a_node_without_a_search_imports_no_library_for_it() -> None:
    code = """
import sys, actors.node
sys.exit(not {"Stemmer", "rapidfuzz", "numpy"}.isdisjoint(sys.modules))"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
