"""A store as a script: what is in it comes back, and nothing else is in it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from actors.backups import contents
from actors.backups.scripts import About, StoreScript
from actors.passwords import Cost
from language.splitting import Splitter
from protocol import limits
from protocol.errors import BackupCorrupt, BackupCut, Refusal, TooLarge
from protocol.values import RecordId, identical, unpaced
from storage.engine.memory import MemoryEngine
from storage.txn.transaction import Transaction
from tests.actors import nodes
from tests.actors.backups.scripts import (
    EVERYTHING,
    Operated,
    loaded,
    pieces_of,
    sealed,
    statements,
    written,
)
from tests.language.trees import LABELS, NAMES, SCALARS, TEXT
from tests.nodes import Running, running
from tests.simulation.disk import SimulatedDisk
from tests.tables import case

PEOPLE = {"password_cost": Cost()}
"""Hashes that a script may bring."""


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The script of a store with everything in it."""

    async def write() -> bytes:
        directory = tmp_path_factory.mktemp("everything")
        async with running(directory / "store", settings=PEOPLE) as here:
            answer = await here.answer(EVERYTHING)
            assert answer.refusal is None, answer.refusal
            return written(here.node)

    return asyncio.run(write())


# --- there and back -------------------------------------------------------------------------------


async def test_a_script_brings_back_what_it_was_made_of(everything: bytes, tmp_path: Path) -> None:
    node, done = await loaded(everything, tmp_path / "store")
    try:
        assert done.refusal is None, (done.refusal, done.refusal.detail)
        assert f"-- end {done.statements} ".encode() in everything
        assert statements(written(node)) == statements(everything)
    finally:
        await node.stop()


async def test_what_does_not_come_back_is_what_the_head_says(
    everything: bytes, tmp_path: Path
) -> None:
    head = [line for line in everything.decode().splitlines() if line.startswith("-- not carried")]
    assert len(head) == len(set(head)) == 8
    node, _ = await loaded(everything, tmp_path / "store")
    try:
        here = Operated(node)
        told = await here.value("INFO FOR TOPIC plain")
        # It had four messages, of which the first was trimmed: now it has three, from 1 on.
        assert (told["first_position"], told["last_position"], told["messages"]) == (1, 3, 3)
        assert [(one["name"], one["position"], one["lag"]) for one in told["readers"]] == [
            ("r", 2, 1)
        ]
        assert told["groups"][0]["lag"] == 2
        assert await here.value("KEYS FROM counters") == {"keys": ["hits", "none"]}
        assert await here.value("GET 'hits' FROM counters") == {"value": 41, "ttl": None}
        dead = await here.value("INFO FOR USER bo")
        assert dead["comment"] == "helps"
        assert await here.value("INFO FOR STATEMENTS") != []
        roles = (await here.value("INFO FOR NODE"))["endpoints"]
        assert roles == []
    finally:
        await node.stop()


VALUES = st.recursive(
    SCALARS | st.builds(RecordId, NAMES, st.integers(-5, 5) | LABELS),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(VALUES, min_size=1, max_size=40))
def test_every_value_comes_back_exactly(values: list[Any]) -> None:
    async def play() -> None:
        environment = nodes.simulated_environment("real", SimulatedDisk(), MemoryEngine())
        async with nodes.running(environment, nodes.settings()) as node:
            here = Operated(node)
            await nodes.prepare(node)
            place = ("a", "b")
            answer = await here.answer(
                "DEFINE TOPIC q; DEFINE SPACE s;"
                "FOR $v IN $values { CREATE t SET v = $v; PUBLISH INTO q VALUE { v: $v };"
                " SET 'k' IN s VALUE { v: $v } }",
                {"values": values},
                place=place,
            )
            assert answer.refusal is None, answer.refusal
            script = written(node, [("a",)])
            before = await read_all(here)
        environment = nodes.simulated_environment("real", SimulatedDisk(), MemoryEngine())
        async with nodes.running(environment, nodes.settings()) as node:
            here = Operated(node)
            answer = await here.answer(script.decode(), place=(None, None))
            assert answer.refusal is None, answer.refusal
            after = await read_all(here)
            assert identical(before, after)
            assert statements(written(node, [("a",)])) == statements(script)

    asyncio.run(play())


async def read_all(here: Running) -> list[Any]:
    answer = await here.answer(
        "SELECT * FROM t; LET $m = READ FROM q AFTER 0 LIMIT 1000; SELECT value FROM $m;"
        " GET 'k' FROM s",
        place=("a", "b"),
    )
    assert answer.refusal is None, answer.refusal
    return [result.value for result in answer.results]


async def test_ids_of_all_kinds_come_back_in_records_large_and_small(tmp_path: Path) -> None:
    ids = ["1", "true", "id; --", "`", 0, -1, ["a", [1, "b"]], "s" * 200, "é"]
    large = "x" * (contents.READABLE_BYTES + 1)
    async with running(tmp_path / "from") as here:
        await here.values("DEFINE TABLE small; DEFINE TABLE large")
        await here.values("INSERT INTO small $rows", {"rows": [{"id": id} for id in ids]})
        rows = [{"id": id, "v": large} for id in ids]
        await here.values("INSERT INTO large $rows RETURN NONE", {"rows": rows})
        script = written(here.node, [("shop",)])
        records = await here.values("SELECT * FROM small; SELECT * FROM large")
    assert script.count(b"CREATE large:") == len(ids)
    node, done = await loaded(script, tmp_path / "to")
    try:
        assert done.refusal is None, done.refusal
        assert await Operated(node).values("SELECT * FROM small; SELECT * FROM large") == records
    finally:
        await node.stop()


# --- large, deep, many ----------------------------------------------------------------------------


def _deep(levels: int) -> Any:
    value: Any = 1
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


@pytest.mark.hard
async def test_what_no_text_could_bring_comes_back(tmp_path: Path) -> None:
    """As deep, as large and as many as the store takes."""
    rows = [
        {"id": 1, "v": _deep(limits.DEPTH - 1)},
        {"id": 2, "v": "'" * (limits.RECORD_BYTES - 100)},
        {"id": 3, "v": list(range(100)) * 10_000},
        {"id": 4, "v": b"\xff" * (limits.RECORD_BYTES - 100)},
    ]
    async with running(tmp_path / "from") as here:
        await here.values("DEFINE TABLE t; DEFINE TOPIC q; DEFINE SPACE s")
        for row in rows:
            await here.values("INSERT INTO t $row RETURN NONE", {"row": row})
            await here.values("PUBLISH INTO q VALUE $v KEY 'k'", {"v": row["v"]})
        await here.values("SET 'k' IN s VALUE $v", {"v": rows[2]["v"][:400_000]})
        script = written(here.node, [("shop", "main")])
        with here.node.committer.begin_transaction() as tx:
            sizes = [len(chunk) for chunk in sliced(tx)]
        assert max(sizes) < 512 * limits.KIB
        before = await here.values("SELECT * FROM t; GET 'k' FROM s")
    assert len(script) > 2 * limits.SCRIPT_BYTES
    node, done = await loaded(script, tmp_path / "to")
    try:
        assert done.refusal is None, done.refusal
        there = Operated(node)
        assert identical(await there.values("SELECT * FROM t; GET 'k' FROM s"), before)
        for position, row in enumerate(rows):
            (message,) = await there.value(f"READ FROM q AFTER {position} LIMIT 1")
            assert message["value"] == row["v"] and message["key"] == "k"
    finally:
        await node.stop()


def sliced(tx: Transaction) -> Iterator[bytes]:
    yield from StoreScript(tx, About("store", 1), unpaced).chunks()


async def test_what_no_script_can_bring_is_said_and_not_written(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as here:
        await here.values(
            "DEFINE TABLE t; CREATE t:many SET v = $a RETURN NONE",
            {"a": [[n] for n in range(limits.CONTAINERS + 1)]},
        )
        with pytest.raises(TooLarge, match=r"record shop\.main\.t:many holds more"):
            written(here.node)


async def test_a_script_is_of_one_moment(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as here:
        await here.values("DEFINE TABLE t; DEFINE TABLE u")
        rows = [{"id": number, "v": "x" * 900} for number in range(2_000)]
        await here.values("INSERT INTO t $rows RETURN NONE", {"rows": rows})
        with here.node.committer.begin_transaction() as tx:
            before = b"".join(sliced(tx))
        with here.node.committer.begin_transaction() as tx:
            chunks = sliced(tx)
            got = [next(chunks)]
            tx.pause()
            await here.values("DELETE t WHERE id IN [t:1999]; CREATE u:late; DROP TABLE t")
            got += chunks
        assert statements(b"".join(got)) == statements(before)


# --- places ---------------------------------------------------------------------------------------


async def test_a_script_of_a_place_holds_nothing_of_another(tmp_path: Path) -> None:
    canary = "canary-{}"
    fill = """
        DEFINE NAMESPACE {ns}; DEFINE DATABASE {ns}.{db} COMMENT '{c}'; USE {ns}.{db};
        DEFINE TABLE t_{db}; CREATE t_{db}:{ns} SET v = '{c}'; DEFINE TOPIC q_{db};
        PUBLISH INTO q_{db} VALUE '{c}' KEY '{c}'; DEFINE SPACE s_{db};
        SET '{c}' IN s_{db} VALUE '{c}'; DEFINE FUNCTION f_{db}() {{ '{c}' }};
        DEFINE INDEX i_{db} ON t_{db} FIELDS v COMMENT '{c}';
        DEFINE FIELD v ON t_{db} TYPE string DEFAULT '{c}';
        DEFINE READER r_{db} ON q_{db}; DEFINE GROUP g_{db} ON q_{db} DEADLINE 1s;
        DEFINE USER u_{ns}_{db} ROLE owner ON DATABASE {ns}.{db} PASSWORD 'correct horse battery'
    """
    async with running(tmp_path / "store") as here:
        for ns, db in (("one", "a"), ("one", "b"), ("two", "c")):
            text = fill.format(ns=ns, db=db, c=canary.format(db))
            text = text.replace(f"DEFINE NAMESPACE {ns}", f"DEFINE NAMESPACE IF NOT EXISTS {ns}")
            answer = await here.answer(text, place=(None, None))
            assert answer.refusal is None, answer.refusal
        for places, inside in (
            ([("one", "a")], "a"),
            ([("one",)], "ab"),
            ([("two",), ("one", "b")], "cb"),
            ([("one",), ("one", "a")], "ab"),
        ):
            script = written(here.node, places).decode()
            for db in "abc":
                assert (canary.format(db) in script) == (db in inside)
                assert (f"_{db}" in script) == (db in inside)
            assert "USER" not in script and "GRANT" not in script and "root" not in script
            assert script.count("DEFINE DATABASE") == len(inside)
        whole = written(here.node).decode()
        assert whole.count("DEFINE USER") == 4


# --- cut and corrupt ------------------------------------------------------------------------------


def test_a_cut_script_is_told_wherever_it_is_cut(everything: bytes) -> None:
    for end in [0, 1, 18, 19, 100, *range(200, len(everything), 97), len(everything) - 1]:
        cut = everything[:end]
        if end == len(everything) - 1:
            assert len(list(pieces_of(cut))) == 62  # only the last line's own end is missing
            continue
        with pytest.raises((BackupCut, BackupCorrupt)):
            list(pieces_of(cut))
    for end in range(len(everything) - 90, len(everything) - 1):
        with pytest.raises(BackupCut):
            list(pieces_of(everything[:end]))


def test_any_changed_byte_is_told(everything: bytes) -> None:
    for at in range(0, len(everything), 53):
        changed = bytearray(everything)
        changed[at] ^= 1
        with pytest.raises(Refusal) as refused:
            list(pieces_of(bytes(changed)))
        assert refused.value.code in ("BackupCut", "BackupCorrupt")


def test_the_count_of_statements_is_held_against_what_is_there() -> None:
    assert len(list(pieces_of(sealed("DEFINE NAMESPACE a;\n")))) == 1
    with pytest.raises(BackupCorrupt, match="holds 1 statements, but its last line counts 2"):
        list(pieces_of(sealed("DEFINE NAMESPACE a;\n", statements=2)))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1000])
def test_statements_are_split_alike_wherever_the_text_is_cut(everything: bytes, size: int) -> None:
    text = everything.decode() + '; /* a ; */ \'b;\' "c\\";" `d;` -- e;\n // f;\n # g;\n - / ;'
    whole = list(Splitter().feed(text))
    splitter = Splitter()
    some = [
        piece for at in range(0, len(text), size) for piece in splitter.feed(text[at : at + size])
    ]
    assert some == whole
    assert "".join(piece.text for piece in some).count("\n") <= text.count("\n")
    lines = text.split("\n")
    for piece in some:
        first = piece.text.split("\n")[0]
        assert first in lines[piece.line - 1]


def test_a_statement_that_never_ends_is_refused_and_not_held() -> None:
    splitter = Splitter()
    with pytest.raises(TooLarge):
        for _ in range(20):
            list(splitter.feed("x" * limits.MIB))


# --- left out -------------------------------------------------------------------------------------


async def test_an_index_that_failed_is_left_out_and_named(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as here:
        await here.values("DEFINE TABLE t")
        rows = [{"id": number, "v": 1} for number in range(limits.INDEX_AT_ONCE + 1)]
        await here.values("INSERT INTO t $rows RETURN NONE", {"rows": rows})
        await here.values("DEFINE INDEX one ON t FIELDS v UNIQUE")
        while (await here.value("INFO FOR INDEX one ON t"))["state"] == "building":
            await asyncio.sleep(0)
        script = written(here.node, [("shop",)]).decode()
        assert "-- left out, because it failed: index one on t\n" in script
        assert "DEFINE INDEX" not in script


async def test_dead_letters_past_the_bounds_of_their_topic_come_back(tmp_path: Path) -> None:
    headers = {f"h{number}": "v" for number in range(limits.HEADERS)}
    async with running(tmp_path / "from") as here:
        await here.values(
            "DEFINE TOPIC dead BYTES 40; DEFINE TOPIC q;"
            "DEFINE GROUP g ON q DEADLINE 1h DELIVERIES 1 DEAD LETTER dead;"
            "PUBLISH INTO q VALUE 'poison' KEY 'k' HEADERS $headers;"
            "LET $got = TAKE FROM q AS g; GIVE UP q AS g RECEIPTS [$got[0].receipt] ERROR 'no'",
            {"headers": headers},
        )
        script = written(here.node, [("shop",)])
    assert b"-- left out, because the newest message is larger: BYTES of dead\n" in script
    node, done = await loaded(script, tmp_path / "to")
    try:
        assert done.refusal is None, done.refusal
        (letter,) = await Operated(node).value("READ FROM dead AFTER 0")
        assert (letter["value"], letter["key"], letter["headers"]) == ("poison", "k", headers)
    finally:
        await node.stop()


# --- as a statement -------------------------------------------------------------------------------


async def test_a_node_that_serves_takes_one(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    settings = {"backup_dir": str(tmp_path / "folder")}
    async with running(tmp_path / "from", settings=settings) as here:
        await here.values("DEFINE TABLE t; CREATE t:1 SET v = 1")
        answer = await here.value("BACKUP SCRIPT OF NAMESPACE shop TO 'a.storeql'")
        script = (tmp_path / "folder" / "a.storeql").read_bytes()
        assert answer == {"path": "a.storeql", "bytes": len(script), "form": "script"}
        (listed,) = await here.value("INFO FOR BACKUPS")
        assert (listed["form"], listed["verifies"], listed["problem"]) == ("script", True, None)
        assert statements(script) == statements(written(here.node, [("shop",)]))
        (tmp_path / "folder" / "b.storeql").write_bytes(script[:-10])
        cut = (await here.value("INFO FOR BACKUPS"))[1]
        assert (cut["verifies"], cut["problem"][:24]) == (False, "the script is truncated:")
        with pytest.raises(Refusal, match="there is no database shop"):
            await here.value("BACKUP SCRIPT OF shop.nothing")
        assert statements(await here.value("BACKUP SCRIPT")).count("DEFINE USER") == 1
    node, done = await loaded(script, tmp_path / "to")
    assert done.refusal is None
    await node.stop()


# --- restored beside what is there ----------------------------------------------------------------

BY_HAND = "DEFINE DATABASE shop.hand;\nUSE shop.hand;\nDEFINE TABLE t;\n"

REFUSED: list[tuple[str, str, int | None, int | None]] = [
    (f"-- mine\n{BY_HAND}\nDROP TABLE t;", "RestoreRefused", 4, 6),
    (f"{BY_HAND}/* a\nb */ DELETE t:1", "RestoreRefused", 4, 5),
    (f"{BY_HAND}\n\nALTER TOPIC q SET KEEP 1d;", "RestoreRefused", 4, 6),
    (f"{BY_HAND} GRANT INFO ON TABLE t TO somebody;", "RestoreRefused", 4, 4),
    (f"{BY_HAND}\nCREATE t:1 SET v =\n;", "UnexpectedToken", 4, 6),
    (f"{BY_HAND}CREATE t:1;\n\n\nCREATE t:1;", "AlreadyExists", 5, 7),
    ("\nDEFINE DATABASE\n  nowhere.d;", "Unknown", 1, 2),
    ("DEFINE NAMESPACE n;\n\nDEFINE DATABASE shop.main;", "RestoreTargetExists", 2, 3),
    (f"{BY_HAND}-- end 3 {'0' * 64}\n", "BackupCorrupt", None, None),
    (f"-- storenode script 1\n{BY_HAND}", "BackupCut", None, None),
    ("-- storen", "BackupCut", None, None),
    ("STORSNAP", "BackupCorrupt", None, None),
]
"""A file, and what it is refused as: the code, and the statement and its line."""


async def test_a_script_that_was_written_by_hand_only_creates(tmp_path: Path) -> None:
    """In a namespace that is there, with or without IF NOT EXISTS."""
    file = tmp_path / "x"
    async with running(tmp_path / "store", settings={"backup_dir": str(tmp_path)}) as here:
        for text, code, statement, line in REFUSED:
            with case(text):
                file.write_text(text)
                refusal = (await here.answer("INFO FOR NODE;\n\n  RESTORE SCRIPT FROM 'x'")).refusal
                assert refusal is not None and refusal.code == code
                at = None if line is None else {"statement": statement, "line": line}
                assert refusal.detail.get("restored") == at, refusal
                assert (refusal.detail["statement"], refusal.detail["line"]) == (2, 3)
                assert line is None or refusal.message.endswith(f"at line {line})")
                assert "column" not in refusal.message
                assert "hand" not in str(await here.value("INFO FOR NAMESPACE shop"))
        for number, exists in enumerate(("", "IF NOT EXISTS ")):
            text = f"DEFINE NAMESPACE {exists}shop; {BY_HAND} CREATE t:1 SET v = 1"
            file.write_text(text.replace("hand", f"hand{number}"))
            for check in (" CHECK", ""):
                answer = await here.value(f"RESTORE SCRIPT FROM 'x'{check}")
                assert (answer["statements"], answer["databases"]) == (5, [f"shop.hand{number}"])
            assert (await here.values(f"USE shop.hand{number}; SELECT * FROM t"))[-1][0]["v"] == 1
        file.write_text(REFUSED[6][0])
        checked = (await here.answer("RESTORE SCRIPT FROM 'x' CHECK")).refusal
        assert checked is not None and checked.code == "Unknown"
