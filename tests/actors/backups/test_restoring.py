"""RESTORE SCRIPT FROM: places are made wholly, or not at all; nothing else is touched."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from actors.scripts import restoring
from protocol.requests import Caller
from storage import keys, restores
from tests.actors.backups.scripts import EVERYTHING, sealed, statements, written
from tests.nodes import Running, running

HEAD = "DEFINE NAMESPACE IF NOT EXISTS n;\nDEFINE DATABASE IF NOT EXISTS n.d;\nUSE n.d;\n"
TABLE = HEAD + "DEFINE TABLE t;\nDEFINE TOPIC q;\nDEFINE SPACE s;\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "folder"
    path.mkdir()
    return path


@pytest.fixture
async def node(tmp_path: Path, folder: Path) -> AsyncIterator[Running]:
    async with running(tmp_path / "store", settings={"backup_dir": str(folder)}) as here:
        await here.values("DEFINE TABLE mine; CREATE mine:1 SET secret = 'canary'")
        yield here


def contents(here: Running) -> dict[bytes, bytes]:
    """All that the store holds, but for ids that were given out and what is kept of statements."""
    with here.node.committer.begin() as tx:
        tags = (keys.ALLOCATOR, keys.STATEMENT, keys.AUDIT)
        return {
            key: value
            for span in keys.LOGGED
            for pairs in tx.scan(*span)
            for key, value in pairs
            if key[keys.TAG_AT] not in tags
        }


def put(folder: Path, body: str, name: str = "x") -> None:
    count = len(re.findall(r";\n", body))
    (folder / name).write_bytes(sealed(body, statements=count))


async def refused(here: Running, script: str = "RESTORE SCRIPT FROM 'x'", **more: Any) -> Any:
    answer = await here.answer(script, **more)
    assert answer.refusal is not None, script
    return answer.refusal


# --- made -----------------------------------------------------------------------------------------


async def test_places_come_back_beside_what_is_there(
    node: Running, folder: Path, tmp_path: Path
) -> None:
    async with running(tmp_path / "from") as there:
        assert (await there.answer(EVERYTHING)).refusal is None
        script = written(there.node, [("bakery",), ("shop", "main")])
    script = script.replace(b"shop", b"mart")
    body = statements(script)
    put(folder, body)
    before = contents(node)
    check = await node.value("RESTORE SCRIPT FROM 'x' CHECK")
    assert contents(node) == before
    answer = await node.value("RESTORE SCRIPT FROM 'x'")
    assert answer == check
    assert answer["path"] == "x"
    assert answer["databases"] == ["bakery.main", "mart.main"]
    assert statements(written(node.node, [("bakery",), ("mart", "main")])) == body
    after = contents(node)
    assert all(after[key] == value for key, value in before.items())
    with node.node.committer.begin() as tx:
        assert restores.marks(tx) == []
    again = await refused(node)
    assert (again.code, again.detail["name"]) == ("RestoreTargetExists", "bakery.main")
    assert (await refused(node, "RESTORE SCRIPT FROM 'x' CHECK")).code == "RestoreTargetExists"


async def test_a_namespace_that_is_there_is_reused(node: Running, folder: Path) -> None:
    put(folder, TABLE.replace("n.d", "shop.other").replace("EXISTS n;", "EXISTS shop COMMENT 'x';"))
    assert (await node.value("RESTORE SCRIPT FROM 'x'"))["databases"] == ["shop.other"]
    told = await node.value("INFO FOR NAMESPACE shop")
    assert told["comment"] is None
    assert [one["name"] for one in told["databases"]] == ["main", "other"]


async def test_several_commits_are_one_restore(
    node: Running, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restoring, "COMMIT_BYTES", 200)
    rows = "".join(f"CREATE t:{number} SET v = '{'x' * 50}';\n" for number in range(60))
    put(folder, TABLE + rows + "DEFINE FIELD v ON t TYPE string UNCHECKED;\n")
    before = (await node.value("INFO FOR STORE"))["sequence"]
    assert (await node.value("RESTORE SCRIPT FROM 'x'"))["statements"] == 67
    assert (await node.value("INFO FOR STORE"))["sequence"] > before + 10
    answer = await node.answer("SELECT count() AS n FROM t GROUP ALL", place=("n", "d"))
    assert answer.results[0].value == [{"n": 60}]


# --- refused --------------------------------------------------------------------------------------

HOSTILE = r"""
DELETE t
DELETE t:1
UPDATE t SET a = 1
UPSERT t:1 SET a = 1
SELECT * FROM t
DROP TABLE t
DROP DATABASE n.d
DROP NAMESPACE shop
DROP DATABASE shop.main
DROP TOPIC q
DROP SPACE s
DROP KEYS IN s PREFIX 'a'
DROP USER root
DROP FIELD f ON t
ALTER TABLE t SET SCHEMAFULL
ALTER TABLE t SET ON CHANGE PUBLISH INTO q
ALTER TOPIC q SET KEEP 1d
ALTER USER root SET ROLE viewer
ALTER FIELD f ON t SET READONLY
DEFINE USER eve ROLE owner PASSWORD 'correct horse battery'
GRANT READ ON NODE TO root
REVOKE READ ON NODE FROM root
DEFINE NODE ROLES NONE
KILL 'x'
INFO FOR STORE
INFO FOR USERS
INFO FOR AUDIT
INFO FOR HISTORY OF mine:1
EXPLAIN SELECT * FROM t
LET $x = 1
RETURN 1
THROW 'x'
1 + 1
time::now()
IF true { CREATE t:1 }
FOR $i IN 0..9 { CREATE t:1 }
BEGIN
COMMIT
CANCEL
REBUILD INDEX i ON t
BACKUP
BACKUP TO 'y'
RESTORE SCRIPT FROM 'x'
RESTORE SCRIPT FROM 'y' CHECK
USE shop.main
USE NAMESPACE shop
USE NAMESPACE n
USE DATABASE main
USE n.other
USE NAMESPACE shop DATABASE main
USE DATABASE d
DEFINE NAMESPACE OVERWRITE shop COMMENT 'x'
DEFINE DATABASE OVERWRITE shop.main
DEFINE DATABASE OVERWRITE n.d COMMENT 'x'
DEFINE DATABASE e
CREATE t
CREATE t SET a = 1
CREATE $x
CREATE u:1
CREATE mine:2
CREATE t:[$a]
CREATE t:1 CONTENT $x
CREATE t:1 SET a = $auth
CREATE t:1 SET a = time::now()
CREATE t:1 SET a = (SELECT * FROM t)
CREATE t:1 SET a = mine:1.secret
CREATE t:1 SET a = 1 + 1
CREATE t:1 SET a += 1
CREATE t:1 SET a = -(1)
CREATE t:1 SET a = [1, [array::len([])]]
CREATE t:1 CONTENT { a: { b: $c } }
CREATE t:1 SET a = 1..5
CREATE t:1 RETURN a
CREATE t:1 RETURN AFTER
CREATE t:1 RETURN BEFORE
CREATE t:1 TIMEOUT 1s
CREATE t:1 RETURN (SELECT * FROM mine)
CREATE t:1 SET a = IF true { 1 } ELSE { 2 }
CREATE t:1 SET a = CASE 1 WHEN 1 THEN 2 END
CREATE t:1 SET a = fn::f(1)
INSERT INTO t { a: 1 }
INSERT INTO t [{ id: 1 }, { a: 1 }]
INSERT INTO t $rows
INSERT INTO t [{ id: 1, a: $x }]
INSERT INTO t [{ id: 1 }] IGNORE
INSERT INTO u { id: 1 }
INSERT INTO t { id: 1 } ON DUPLICATE UPDATE SET a = 1
INSERT INTO t (SELECT * FROM mine)
INSERT INTO t [{ id: 1 }] RETURN id
INSERT INTO t [1]
INSERT INTO t m'kgGhYQ=='
INSERT INTO t [mine:1]
INSERT INTO t { id: array::len([]) }
INSERT INTO mine { id: 1 }
PUBLISH INTO q VALUE $x
PUBLISH INTO u VALUE 1
PUBLISH INTO q VALUE 1 EXPECT 0
PUBLISH INTO q VALUE 1 KEY $k
PUBLISH INTO q VALUES (SELECT * FROM mine)
PUBLISH INTO q VALUE 1 AT time::now()
PUBLISH INTO q VALUE 1 DELAY $d
PUBLISH INTO q VALUE 1 HEADERS { a: $b }
PUBLISH INTO q VALUE 1 ID $i
READ FROM q AFTER 0
TRIM TOPIC q BEFORE 1
TAKE FROM q AS g
REDRIVE FROM q TO q
ACK q AS g RECEIPTS []
COMMIT READER r ON q AT 0
DROP READER r ON q
DEFINE READER r ON u
DEFINE READER r ON q AT $x
DEFINE READER r ON q AT 1 + 1
DEFINE GROUP g ON u DEADLINE 1s
DEFINE GROUP g ON q DEADLINE 1s DEAD LETTER u
DEFINE GROUP g ON q DEADLINE 1s AT TIME time::now()
SET 'k' IN s VALUE $x
SET 'k' IN u VALUE 1
SET 'k' IN s VALUE 1 IF ABSENT
SET 'k' IN s VALUE 1 KEEP
SET $k IN s VALUE 1
SET 'k' IN s VALUE 1 EXPIRE $d
SET 'k' IN s VALUE 1 EXPIRE AT time::now()
GET 'k' FROM s
DELETE 'k' FROM s
INCR 'k' IN s
SWAP 'k' IN s EXPECT 1 VALUE 2
LOCK 'k' IN s HOLDER 'h' EXPIRE 1s
KEYS FROM s
PERSIST 'k' IN s
UNLOCK 'k' IN s HOLDER 'h'
EXPIRE 'k' IN s 1s
DEFINE FIELD f ON u TYPE int
DEFINE INDEX i ON u FIELDS a
DEFINE INDEX i ON mine FIELDS a
DEFINE TABLE v ON CHANGE PUBLISH INTO nowhere
DEFINE FIELD f ON mine TYPE int
""".strip().split("\n")
"""Statements that no script may hold, each behind one that makes a table, a topic and a space."""


async def test_hostile_scripts_are_refused_and_nothing_is_written(
    node: Running, folder: Path
) -> None:
    before = contents(node)
    assert len(set(HOSTILE)) > 125
    for statement in HOSTILE:
        put(folder, f"{TABLE}CREATE t:0;\n{statement};\nCREATE t:9;\n")
        for form in ("RESTORE SCRIPT FROM 'x'", "RESTORE SCRIPT FROM 'x' CHECK"):
            refusal = await refused(node, form)
            assert refusal.code in ("RestoreRefused", "UnexpectedToken", "Unknown"), statement
            assert refusal.detail["restored"]["statement"] == 8, statement
            if refusal.code == "RestoreRefused":
                first = re.split(r"\W", statement)[0]
                assert first in refusal.detail["found"], statement
                assert first in refusal.message, statement
        assert contents(node) == before, statement
    assert sum(statement.startswith("CREATE") for statement in HOSTILE) > 20


async def test_before_any_database_is_made_nothing_stands_in_one(
    node: Running, folder: Path
) -> None:
    for statement in ("DEFINE TABLE t", "CREATE mine:5", "DEFINE FUNCTION f() { 1 }"):
        put(folder, f"{statement};\n")
        refusal = await refused(node, place=("shop", "main"))
        assert refusal.code == "RestoreRefused", statement


async def test_what_is_not_all_there_is_refused_before_anything_is_written(
    node: Running, folder: Path
) -> None:
    put(folder, TABLE + "CREATE t:1;\n")
    whole = (folder / "x").read_bytes()
    before = contents(node)
    for content, code in (
        (whole[:-50], "BackupCut"),
        (whole.replace(b"t:1", b"t:2"), "BackupCorrupt"),
        (b"CREATE t:1;\n", "BackupCorrupt"),
        (sealed(TABLE, statements=99), "BackupCorrupt"),
        (sealed(TABLE + "CREATE t:1 SET a = ;\n", 7), "UnexpectedToken"),
    ):
        (folder / "x").write_bytes(content)
        assert (await refused(node)).code == code
        assert contents(node) == before
    for name, code in (
        ("../x", "BackupNameRefused"), ("/etc/passwd", "BackupNameRefused"), ("no", "Unknown"),
    ):  # fmt: skip
        assert (await refused(node, f"RESTORE SCRIPT FROM '{name}'")).code == code


async def test_it_stands_alone_and_needs_an_owner_of_the_store(node: Running, folder: Path) -> None:
    put(folder, TABLE)
    before = contents(node)
    for script in (
        "BEGIN; RESTORE SCRIPT FROM 'x'; COMMIT",
        "IF true { RESTORE SCRIPT FROM 'x' }",
        "BEGIN; RESTORE SCRIPT FROM 'x' CHECK; COMMIT",
    ):
        assert (await refused(node, script)).code == "RestoreRefused"
    await node.values(
        "DEFINE USER spaced ROLE owner ON NAMESPACE shop PASSWORD 'correct horse battery';"
        "DEFINE USER editor ROLE editor PASSWORD 'correct horse battery'"
    )
    for name, space in (("spaced", "shop"), ("editor", None)):
        caller = Caller(name, "owner", space, None, "http", "127.0.0.1:1")
        refusal = await refused(node, caller=caller)
        assert (refusal.code, refusal.detail["needs"]) == ("NotAllowed", "OWNER OF STORE")
    users = {key for key in contents(node) if key[keys.TAG_AT] == keys.USER}
    assert {k: v for k, v in contents(node).items() if k not in users} == {
        k: v for k, v in before.items() if k not in users
    }


# --- given up -------------------------------------------------------------------------------------


async def test_what_is_refused_while_it_is_filled_leaves_nothing(
    node: Running, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At any statement: each is its own commit here."""
    monkeypatch.setattr(restoring, "COMMIT_BYTES", 1)
    good = [f"CREATE t:{number} SET v = {number};\n" for number in range(6)]
    before = contents(node)
    for at in range(len(good) + 1):
        body = TABLE + "".join([*good[:at], "CREATE t:0;\nCREATE t:0;\n", *good[at:]])
        put(folder, body)
        refusal = await refused(node)
        assert refusal.code == "AlreadyExists"
        assert contents(node) == before
    put(folder, TABLE + "DEFINE FIELD v ON t TYPE int;\nCREATE t:1 SET v = 'x';\n")
    refusal = await refused(node)
    assert (refusal.code, refusal.detail["restored"]["statement"]) == ("TypeRefused", 8)
    assert contents(node) == before


async def test_what_somebody_else_puts_into_the_namespace_stays(
    node: Running, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restoring, "COMMIT_BYTES", 1)
    put(folder, TABLE + "CREATE t:1;\nCREATE t:1;\n")
    filled = restoring.Restore._fill
    done: list[Any] = []

    def fill(self: Any) -> Any:
        if not done:
            done.append(node.node.runtime.loop.create_task(
                node.answer("DEFINE DATABASE n.other", place=(None, None))))  # fmt: skip
            self._run.turn.wait(done[0])
        return filled(self)

    monkeypatch.setattr(restoring.Restore, "_fill", fill)
    assert (await refused(node)).code == "AlreadyExists"
    told = await node.value("INFO FOR NAMESPACE n")
    assert [one["name"] for one in told["databases"]] == ["other"]
    with node.node.committer.begin() as tx:
        assert restores.marks(tx) == []


async def test_a_node_that_ended_meanwhile_drops_it_at_its_next_start(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a kill leaves it: nobody was there to give it up."""
    settings = {"backup_dir": str(folder)}
    put(folder, TABLE + "CREATE t:1;\nCREATE t:1;\n")
    monkeypatch.setattr(restoring, "COMMIT_BYTES", 1)
    async with running(tmp_path / "store", settings=settings) as here:
        before = contents(here)
        monkeypatch.setattr(restoring.Restore, "leave", lambda self: self._file.close())
        assert (await refused(here)).code == "AlreadyExists"
        assert contents(here) != before
        assert b"n.d" not in written(here.node).split(b"-- not carried")[-1]
        assert b"-- left out, since it was being restored: n.d\n" in written(here.node)
    async with running(tmp_path / "store", settings=settings) as here:
        assert contents(here) == before


async def test_one_that_is_killed_leaves_nothing(
    node: Running, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restoring, "COMMIT_BYTES", 1)
    put(folder, TABLE + "".join(f"CREATE t:{number};\n" for number in range(2_000)))
    before = contents(node)
    asked = node.node.runtime.loop.create_task(node.answer("RESTORE SCRIPT FROM 'x'"))
    while True:
        there = await node.answer("SELECT VALUE count() FROM ONLY t GROUP ALL", place=("n", "d"))
        if there.refusal is None and there.results[0].value:
            break
    (mine,) = [one for one in await node.value("INFO FOR RUNNING") if "RESTORE" in str(one["text"])]
    await node.value("KILL $id", {"id": mine["id"]})
    answer = await asked
    assert answer.refusal is not None and answer.refusal.code == "Cancelled"
    assert contents(node) == before
    assert (await node.value("RESTORE SCRIPT FROM 'x'"))["statements"] == 2_006
