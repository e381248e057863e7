"""INFO FOR HISTORY OF: what became of a record, whatever else the log holds."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pytest

from actors.checkpoints import CheckpointNow
from actors.runtime import ask
from protocol import limits
from protocol.values import RecordId
from storage.formats import effects, keys
from storage.formats.frames import SEGMENT_HEADER_BYTES
from storage.log.log import Log
from storage.log.state import LogSizes
from storage.records import history
from tests.logbook import Logbook
from tests.nodes import OWNER, Running
from tests.tables import case

NEW: Final = "PASSWORD 'correct horse battery'"
FIELDS: Final = {"seq", "at", "by", "action", "value", "changed", "reason"}


async def history_of(node: Running, what: str = "thing:1", clauses: str = "") -> dict[str, Any]:
    found: dict[str, Any] = await node.value(f"INFO FOR HISTORY OF {what} {clauses}")
    assert set(found) == {"record", "entries", "complete", "stopped", "next", "begins"}
    for entry in found["entries"]:
        assert set(entry) == FIELDS
    seqs = [entry["seq"] for entry in found["entries"]]
    assert seqs == sorted(set(seqs), reverse=True)
    assert found["complete"] == (found["stopped"] is None)
    assert (found["next"] is None) == (found["stopped"] in (None, "pruned"))
    return found


def many(statements: str, count: int, first: int = 1) -> str:
    """The same statements so often, each a transaction of its own."""
    return "; ".join(statements.replace("$n", str(n)) for n in range(first, first + count))


async def singly(node: Running, statement: str, count: int) -> None:
    """The same, each durable before the next: none shares a segment's last write with others."""
    for number in range(1, count + 1):
        await node.values(statement.replace("$n", str(number)))


def short(found: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [(entry["action"], entry["value"], entry["changed"]) for entry in found["entries"]]


async def refusal(node: Running, script: str, **more: Any) -> Any:
    answer = await node.answer(script, **more)
    assert answer.refusal is not None, script
    return answer.refusal


async def small_segments(node: Running) -> Log:
    """A log that begins a segment with every fourth frame, and keeps nothing in memory."""
    log = node.node.store.log
    assert log is not None
    log.state.sizes = LogSizes(segment_frames=4)
    return log


async def prune(node: Running, monkeypatch: pytest.MonkeyPatch, kept: int) -> int:
    """Let the log begin so many frames before its end, about. Answers where it does."""
    with monkeypatch.context() as told:
        told.setattr(limits, "LOG_FRAMES_KEPT", kept)
        return await ask(node.node.checkpoints, CheckpointNow())


async def test_a_record_from_its_creation_on(node: Running) -> None:
    assert (await history_of(node)) == {
        "record": RecordId("thing", 1),
        "entries": [],
        "complete": True,
        "stopped": None,
        "next": None,
        "begins": 1,
    }
    await node.values(
        "CREATE thing:1 SET a = 1, b = 2; UPDATE thing:1 SET b = 3; UPDATE thing:1 UNSET a;"
        "UPDATE thing:1 CONTENT { b: 3dec, c: [1] }"
    )
    found = await history_of(node)
    assert short(found) == [
        ("update", {"b": 3, "c": [1]}, ["b", "c"]),
        ("update", {"b": 3}, ["a"]),
        ("update", {"a": 1, "b": 3}, ["b"]),
        ("create", {"a": 1, "b": 2}, ["a", "b"]),
    ]
    assert found["complete"]
    assert {entry["by"] for entry in found["entries"]} == {"root"}
    assert all(type(entry["at"]) is datetime for entry in found["entries"])


async def test_a_write_that_changes_nothing_is_no_commit(node: Running) -> None:
    await node.values("CREATE thing:1 SET a = 1, o = { b: 1, c: 2 }")
    found, sequence = await history_of(node), node.node.committer.committed
    same = await node.values(
        "UPDATE thing:1 SET a = a; UPDATE thing:1 SET o = { c: 2, b: 1 };"
        "UPDATE thing MERGE { a: 1 };"
        "UPSERT thing:1 CONTENT { o: { b: 1, c: 2 }, a: 1 };"
        "INSERT INTO thing [{ id: 1, a: 1 }] ON DUPLICATE UPDATE SET a = 1"
    )
    assert [[row["a"] for row in rows] for rows in same] == [[1]] * 5
    assert await history_of(node) == found and node.node.committer.committed == sequence
    await node.values("BEGIN; UPDATE thing:1 SET a = a; CREATE thing:2 SET a = 1; COMMIT")
    assert await history_of(node) == found and node.node.committer.committed == sequence + 1
    for number, a in enumerate(("1.0", "-0.0", "0.0", "1dec", "1.0dec", "true", "1"), sequence + 2):
        with case(a):
            await node.values(f"UPDATE thing:1 SET a = {a}")
            assert (await history_of(node))["entries"][0]["seq"] == number
            assert node.node.committer.committed == number


async def test_a_record_that_is_no_more_is_searched_for(node: Running) -> None:
    await node.values("CREATE thing:1 SET a = 1; UPDATE thing:1 SET a = 2; DELETE thing:1")
    await node.values(many("CREATE thing SET n = $n", 300))
    found = await history_of(node)
    assert short(found) == [
        ("delete", None, ["a"]),
        ("update", {"a": 2}, ["a"]),
        ("create", {"a": 1}, ["a"]),
    ]
    assert found["complete"]


async def test_a_record_that_was_made_anew_has_all_its_lives(node: Running) -> None:
    await node.values(
        "CREATE thing:1 SET a = 1; DELETE thing:1; CREATE thing:2; CREATE thing:1 SET b = 1;"
        "UPDATE thing:1 SET b = 2"
    )
    found = await history_of(node)
    assert short(found) == [
        ("update", {"b": 2}, ["b"]),
        ("create", {"b": 1}, ["b"]),
        ("delete", None, ["a"]),
        ("create", {"a": 1}, ["a"]),
    ]
    assert found["complete"]
    page = await history_of(node, clauses="LIMIT 2")
    assert (page["entries"], page["stopped"]) == (found["entries"][:2], "limit")
    rest = await history_of(node, clauses=f"BEFORE {page['next']}")
    assert (rest["entries"], rest["complete"]) == (found["entries"][2:], True)


@pytest.mark.parametrize("gone", [False, True])
async def test_pages_are_the_whole(node: Running, gone: bool) -> None:
    await node.values("CREATE thing:1 SET n = 0")
    await node.values(many("UPDATE thing:1 SET n = $n; CREATE thing", 99))
    if gone:
        await node.values("DELETE thing:1; CREATE thing")
    whole = await history_of(node, clauses="LIMIT 1000")
    assert len(whole["entries"]) == 100 + gone
    for limit in (1, 2, 7, 99, 100, 101, 1000):
        with case(limit):
            found: list[Any] = []
            clauses = f"LIMIT {limit}"
            while True:
                page = await history_of(node, clauses=clauses)
                found += page["entries"]
                if page["complete"]:
                    break
                assert (page["stopped"], len(page["entries"])) == ("limit", limit)
                clauses = f"BEFORE {page['next']} LIMIT {limit}"
            assert found == whole["entries"]


async def test_a_script_sees_what_it_has_done_and_no_transaction_what_it_is_doing(
    node: Running,
) -> None:
    results = await node.values(
        "CREATE thing:1 SET a = 1; INFO FOR HISTORY OF thing:1; DELETE thing:1;"
        "INFO FOR HISTORY OF thing:1; CREATE thing:1 SET a = 2;"
    )
    assert [len(results[at]["entries"]) for at in (1, 3)] == [1, 2]
    inside = await node.values(
        "BEGIN; UPDATE thing:1 SET a = 3; INFO FOR HISTORY OF thing:1; DELETE thing:1;"
        "INFO FOR HISTORY OF thing:1; CREATE thing:1; INFO FOR HISTORY OF thing:1;"
        "CREATE thing:9; INFO FOR HISTORY OF thing:9; COMMIT"
    )
    told = [one for one in inside if isinstance(one, dict) and "entries" in one]
    assert [len(one["entries"]) for one in told] == [3, 3, 3, 0]
    assert [entry["action"] for entry in (await history_of(node))["entries"]] == [
        "update",
        "create",
        "delete",
        "create",
    ]


async def test_a_place_and_a_table_have_none(node: Running) -> None:
    for what in ("thing", "TABLE nothing", "shop.main", "DATABASE shop.main", "NAMESPACE shop"):
        found = await refusal(node, f"INFO FOR HISTORY OF {what}")
        assert (found.code, found.status) == ("NoHistory", 400)


async def test_what_makes_no_sense(node: Running) -> None:
    for script, code in [
        ("INFO FOR HISTORY OF 1", "BadRequest"),
        ("INFO FOR HISTORY OF [thing:1]", "BadRequest"),
        ("INFO FOR HISTORY OF nothing:1", "Unknown"),
        ("INFO FOR HISTORY OF thing:1 LIMIT 0", "BadRequest"),
        ("INFO FOR HISTORY OF thing:1 LIMIT 1001", "BadRequest"),
        ("INFO FOR HISTORY OF thing:1 LIMIT 'a'", "TypeRefused"),
        ("INFO FOR HISTORY OF thing:1 BEFORE -1", "BadRequest"),
        ("INFO FOR HISTORY OF thing:1 BEFORE 1.5", "TypeRefused"),
    ]:
        with case(script, code):
            assert (await refusal(node, script)).code == code


async def test_who_and_why_is_for_those_with_info(node: Running) -> None:
    await node.values("DEFINE TABLE gone; CREATE thing:1")
    await node.values("BEGIN; UPDATE thing:1 SET a = 1; DROP TABLE gone REASON 'moved'; COMMIT")
    await node.values(
        f"DEFINE USER mem ROLE member ON DATABASE shop.main {NEW};"
        f"DEFINE USER vic ROLE viewer ON DATABASE shop.main {NEW};"
        "GRANT READ ON TABLE thing TO mem"
    )
    mem, vic = (replace(OWNER, user=name, role="?", space="?") for name in ("mem", "vic"))
    for caller, shown in (
        (mem, (None, None)),
        (vic, ("root", "moved")),
        (OWNER, ("root", "moved")),
    ):
        answer = await node.answer("INFO FOR HISTORY OF thing:1", caller=caller)
        assert answer.refusal is None
        found: Any = answer.results[0].value
        entry = found["entries"][0]
        assert (entry["by"], entry["reason"], entry["value"]) == (*shown, {"a": 1})
    await node.values(
        "REVOKE READ ON TABLE thing FROM mem; GRANT WRITE, INFO ON TABLE thing TO mem"
    )
    found = await refusal(node, "INFO FOR HISTORY OF thing:1", caller=mem)
    assert (found.code, found.detail["needs"]) == ("NotAllowed", "READ ON TABLE shop.main.thing")


async def test_what_was_pruned_is_said(node: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    await small_segments(node)
    await node.values("CREATE thing:1 SET n = 0, same = 1; CREATE thing:2; DELETE thing:2")
    await singly(node, "UPDATE thing:1 SET n = $n", 40)
    whole = (await history_of(node))["entries"]
    begins = await prune(node, monkeypatch, 10)
    assert begins > 20
    found = await history_of(node)
    assert (found["stopped"], found["begins"]) == ("pruned", begins)
    kept = [entry for entry in whole if entry["seq"] >= begins]
    assert found["entries"][:-1] == kept[:-1]
    assert found["entries"][-1] == {**kept[-1], "changed": None}, "of what, nobody knows"
    exactly = await history_of(node, clauses=f"LIMIT {len(kept)}")
    assert (exactly["stopped"], exactly["entries"]) == ("pruned", found["entries"])
    one_less = await history_of(node, clauses=f"LIMIT {len(kept) - 1}")
    assert (one_less["stopped"], one_less["next"]) == ("limit", kept[-1]["seq"] + 1)
    for record in ("thing:2", "thing:never"):
        gone = await history_of(node, record)
        assert (gone["stopped"], gone["entries"]) == ("pruned", [])
    before = await history_of(node, clauses=f"BEFORE {begins}")
    assert (before["stopped"], before["entries"]) == ("pruned", [])


async def test_a_search_stops_at_its_budget_and_goes_on(
    node: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.values("CREATE thing:1 SET a = 1; DELETE thing:1")
    await node.values(many("CREATE thing", 500))
    monkeypatch.setattr(limits, "HISTORY_FRAMES", 100)
    monkeypatch.setattr(history, "PART_FRAMES", 50)
    for record, wanted in (("thing:1", ["delete", "create"]), ("thing:none", [])):
        found, asked = await history_of(node, record), 1
        while not found["entries"] and not found["complete"]:
            assert found["stopped"] == "budget"
            following = await history_of(node, record, f"BEFORE {found['next']}")
            assert (following["next"] or 0) < found["next"], "no further"
            found, asked = following, asked + 1
        assert [entry["action"] for entry in found["entries"]] == wanted
        assert asked > 2


@pytest.mark.parametrize(
    ("limit", "value"),
    [("HISTORY_READ_BYTES", 5_000), ("HISTORY_BYTES", 5_000), ("HISTORY_SECONDS", 0)],
)
async def test_a_chain_stops_at_its_budget_and_goes_on(
    node: Running, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(history, "PART_CHANGES", 2)
    await node.values("CREATE thing:1 SET n = 0")
    await node.values(many("UPDATE thing:1 SET n = $n, t = $t", 20), {"t": "x" * 2_000})
    whole = (await history_of(node))["entries"]
    monkeypatch.setattr(limits, limit, value)
    found, clauses = list[Any](), ""
    while True:
        page = await history_of(node, clauses=clauses)
        assert 1 <= len(page["entries"]) <= 5
        found += page["entries"]
        if page["complete"]:
            break
        assert page["stopped"] == "budget"
        clauses = f"BEFORE {page['next']}"
    assert found == whole


async def test_a_value_that_looks_like_an_effect_is_none(node: Running) -> None:
    """Whoever may write anything into a record must not be able to write another's history."""
    await node.values("CREATE thing:1 SET a = 1")
    [seq] = [entry["seq"] for entry in (await history_of(node))["entries"]]
    log = node.node.store.log
    assert log is not None
    [effect, *_] = [
        one
        for one in effects.decode(log.reader.frame(seq).body).effects
        if one[0] == effects.PUT_RECORD
    ]
    forged = effects.encode_some([(effects.PUT_RECORD, effect[1], b"\x81\xa1a\x63", seq)])[1]
    assert effect[1][keys.TAG_AT] == keys.RECORD
    await node.values("CREATE thing:2 SET t = $t, u = $u", {"t": forged, "u": effect[1] + b"x"})
    await node.values("DELETE thing:1; UPDATE thing:2 SET n = 1", {})
    found = await history_of(node)
    assert short(found) == [("delete", None, ["a"]), ("create", {"a": 1}, ["a"])]


@pytest.mark.parametrize("size", [300_000, 3_000_000])
async def test_large_transactions_are_read_in_steps(node: Running, size: int) -> None:
    rows = [{"id": number, "t": "x" * 500} for number in range(size // 500)]
    await node.values("INSERT INTO thing $rows", {"rows": rows})
    await node.values("UPDATE thing SET t = 'y' WHERE true")
    await node.values("DELETE thing:7")
    found = await history_of(node, "thing:7")
    assert [entry["action"] for entry in found["entries"]] == ["delete", "update", "create"]
    assert found["entries"][1]["changed"] == ["t"]
    assert {entry["by"] for entry in found["entries"]} == {"root"}


async def test_damage_that_is_met_is_said(
    node: Running, monkeypatch: pytest.MonkeyPatch, logbook: Logbook
) -> None:
    logbook.allow("the log is damaged")
    log = await small_segments(node)
    await node.values("CREATE thing:1 SET a = 1; CREATE thing; DELETE thing:1")
    await singly(node, "CREATE thing", 20)
    await node.values("CREATE thing:1 SET a = 2")
    segment = next(one for one in log.state.segments if one.first > log.state.last - 14)
    path = Path(segment.path)
    content = bytearray(path.read_bytes())
    content[SEGMENT_HEADER_BYTES + 100] ^= 1
    path.write_bytes(content)
    alive = await history_of(node)
    assert len(alive["entries"]) == 1, "which is not on the way"
    found = await refusal(node, f"INFO FOR HISTORY OF thing:1 BEFORE {alive['entries'][0]['seq']}")
    assert (found.code, found.detail["sequence"]) == ("Failed", segment.first)
    assert not node.node.failed.is_set()


async def test_it_is_ended_by_kill_and_by_time(
    node: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.values(many("CREATE thing", 300))
    monkeypatch.setattr(history, "PART_FRAMES", 1)
    monkeypatch.setattr(history, "STRIDE", 1)
    reads = node.node.reads
    search, asked, held = reads.search, 0, asyncio.Event()

    async def slow(*given: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked == 3:
            await held.wait()
        return await search(*given)

    monkeypatch.setattr(reads, "search", slow)
    running_one = asyncio.ensure_future(node.answer("INFO FOR HISTORY OF thing:none"))
    while asked < 3:
        await asyncio.sleep(0)
    [run] = [one for one in await node.value("INFO FOR RUNNING") if "HISTORY" in one["text"]]
    await node.values("KILL $id", {"id": run["id"]})
    held.set()
    answer = await running_one
    assert answer.refusal is not None
    assert (answer.refusal.code, asked) == ("Cancelled", 3)
    late = await refusal(node, "INFO FOR HISTORY OF thing:none", timeout_us=1)
    assert late.code == "StatementTimeout"
