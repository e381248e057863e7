"""What a script keeps and what it takes back."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from protocol.errors import (
    AlreadyExists,
    AnswerTooLarge,
    Conflict,
    NotInTransaction,
    Thrown,
    TooLarge,
    TypeRefused,
)
from protocol.values import NONE
from storage.txn.transaction import Transaction
from tests.actors.live import running_scripts
from tests.nodes import Running
from tests.tables import case


async def count(node: Running) -> int:
    rows = await node.value("SELECT count() AS n FROM thing GROUP ALL")
    return int(rows[0]["n"])


async def test_a_script_keeps_what_ran_before_a_refusal(node: Running) -> None:
    answer = await node.answer("CREATE thing:1; CREATE thing:1; CREATE thing:2")
    assert isinstance(answer.refusal, AlreadyExists)
    assert answer.refusal.detail["statement"] == 2
    assert (answer.refusal.detail["line"], answer.refusal.detail["column"]) == (1, 17)
    assert len(answer.results) == 1
    assert await count(node) == 1


async def test_a_transaction_that_fails_half_way_leaves_nothing(node: Running) -> None:
    answer = await node.answer("BEGIN; CREATE thing:1; CREATE thing:2; CREATE thing:1; COMMIT")
    assert isinstance(answer.refusal, AlreadyExists)
    assert answer.results == ()
    assert await count(node) == 0


async def test_a_transaction_is_one_commit(node: Running) -> None:
    before = node.node.committer.committed
    await node.values("BEGIN; CREATE thing:1; CREATE thing:2; UPDATE thing SET a = 1; COMMIT")
    assert node.node.committer.committed == before + 1


async def test_statements_of_a_transaction_see_what_it_wrote(node: Running) -> None:
    values = await node.values(
        "BEGIN; CREATE thing:1 SET n = 1; UPDATE thing:1 SET n = n + 1;"
        "SELECT VALUE n FROM thing; SELECT count() AS n FROM thing GROUP ALL; COMMIT"
    )
    assert values[3:5] == [[2], [{"n": 1}]]


async def test_a_write_answers_how_many_records_it_has_written(node: Running) -> None:
    """In every form, whatever it answers of them."""
    table: list[tuple[str, int | None]] = [
        ("CREATE thing:1 SET n = 1", 1),
        ("CREATE thing SET n = 1 RETURN NONE", 1),
        ("INSERT INTO thing [{ id: 2 }, { id: 3 }] RETURN NONE", 2),
        ("INSERT INTO thing [{ id: 3 }, { id: 4 }, { id: 4 }] IGNORE", 1),
        ("INSERT INTO thing [{ id: 4 }, { id: 5 }] ON DUPLICATE UPDATE SET n = 2", 2),
        ("INSERT INTO thing []", 0),
        ("UPSERT thing:1 SET n = 2 RETURN NONE", 1),
        ("UPSERT thing:6 CONTENT {}", 1),
        ("UPDATE thing:1 SET n = 2", 1),
        ("UPDATE thing:99 SET n = 2", 0),
        ("UPDATE thing SET n = 3 WHERE n = 2 RETURN NONE", 2),
        ("UPDATE [thing:1, thing:1, thing:99] SET n = 4", 1),
        ("UPDATE thing:2..4 SET n = 5 RETURN n", 2),
        ("DELETE thing:99", 0),
        ("DELETE thing:1", 1),
        ("DELETE thing:2..=3", 2),
        ("FOR $n IN [7, 8] { CREATE type::record('thing', $n) }", 2),
        ("IF true { DELETE thing:7; UPDATE thing:8 SET n = 1; SELECT * FROM thing }", 2),
        ("LET $x = (SELECT * FROM thing)", None),
        ("SELECT * FROM thing", None),
        ("DEFINE TABLE other", None),
        ("DELETE thing", 5),
        ("DELETE thing", 0),
        ("RETURN (SELECT * FROM thing)", None),
    ]
    for script, changed in table:
        with case(script):
            answer = await node.answer(script)
            assert answer.refusal is None
            assert answer.results[0].changed == changed
    answer = await node.answer(
        "BEGIN; CREATE thing:1; UPDATE thing SET n = 1; CANCEL; CREATE thing:1; DELETE thing"
    )
    assert [one.changed for one in answer.results] == [None] * 4 + [1, 1]
    await node.values(
        "DEFINE TABLE ruled; DEFINE FIELD n ON ruled TYPE int;"
        "DEFINE INDEX n ON ruled FIELDS n UNIQUE"
    )
    rows = "[{ id: 1, n: 1 }, { id: 2, n: 1 }, { id: 3, n: 2 }]"
    answer = await node.answer(f"INSERT INTO ruled {rows} IGNORE RETURN NONE")
    assert answer.results[0].changed == 2


async def test_cancel_takes_everything_back_and_answers_nothing(node: Running) -> None:
    values = await node.values("BEGIN; CREATE thing:1; CANCEL; CREATE thing:2")
    assert values[:3] == [NONE, NONE, NONE]
    assert await node.value("SELECT VALUE id.id FROM thing") is not None
    assert await count(node) == 1


async def test_return_inside_a_transaction_commits_it_and_ends_the_script(node: Running) -> None:
    values = await node.values(
        "BEGIN; CREATE thing:1; RETURN 'early'; CREATE thing:2; COMMIT; CREATE thing:3"
    )
    assert values[2:] == ["early"]
    assert await count(node) == 1


async def test_return_before_cancel_still_cancels(node: Running) -> None:
    await node.values("BEGIN; CREATE thing:1; RETURN 1; CANCEL")
    assert await count(node) == 0


async def test_return_ends_a_script(node: Running) -> None:
    assert await node.values("CREATE thing:1 RETURN NONE; RETURN 5; CREATE thing:2") == [[], 5]
    assert await count(node) == 1


@pytest.mark.parametrize(
    "script",
    ["BEGIN; CREATE thing:1", "COMMIT", "CANCEL", "BEGIN; BEGIN; COMMIT; COMMIT"],
)
async def test_unmatched_edges_run_nothing(node: Running, script: str) -> None:
    answer = await node.answer("CREATE thing:9; " + script)
    assert isinstance(answer.refusal, NotInTransaction)
    assert await count(node) == 0


async def test_a_loop_is_one_transaction(node: Running) -> None:
    answer = await node.answer(
        "FOR $n IN [1, 2, 3] { CREATE type::record('thing', $n); IF $n = 3 { THROW 'three' } }"
    )
    assert isinstance(answer.refusal, Thrown) and answer.refusal.message == "three"
    assert await count(node) == 0


async def test_insert_is_all_or_nothing(node: Running) -> None:
    answer = await node.answer("INSERT INTO thing [{ id: 1 }, { id: 2 }, { id: 1 }]")
    assert isinstance(answer.refusal, AlreadyExists)
    assert await count(node) == 0
    answer = await node.answer("INSERT INTO thing [{ id: 1 }, 5]")
    assert isinstance(answer.refusal, TypeRefused)
    assert await count(node) == 0


async def test_64_clients_that_increment_one_field_lose_nothing(node: Running) -> None:
    await node.values("CREATE thing:counter SET n = 0")

    async def client() -> None:
        for _ in range(10):
            await node.values("UPDATE thing:counter SET n = n + 1 RETURN NONE")

    await asyncio.gather(*(client() for _ in range(64)))
    assert await node.value("SELECT VALUE n FROM thing:counter") == [640]


async def test_a_statement_that_lost_its_race_is_run_again(node: Running) -> None:
    """The long update pauses again and again; a write to what it reads makes it start over."""
    await node.values("INSERT INTO thing $rows", {"rows": [{"id": n, "n": 0} for n in range(5000)]})
    long = asyncio.ensure_future(node.values("UPDATE thing SET n = n + 1 RETURN NONE"))
    while not sum(run.fiber.slices for run in running_scripts(node.node)):
        await asyncio.sleep(0)
    await node.values("UPDATE thing:4999 SET n = 10")
    await long
    assert await node.value("SELECT VALUE n FROM thing:4999") == [11]
    assert await node.value("SELECT VALUE n FROM thing:1") == [1]


async def test_what_is_run_again_is_measured_again(
    node: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its results may have grown since."""
    committer, given = node.node.committer, {"a": {"x": "few"}}
    commit, attempts = committer.commit, []

    def raced(*of: Any) -> Any:
        attempts.append(of)
        if len(attempts) > 1:
            return commit(*of)
        given["a"]["x"] = "many" * 1_000
        raise Conflict("a record was written meanwhile")

    monkeypatch.setattr(committer, "commit", raced)
    answer = await node.answer(
        "BEGIN; CREATE thing:1 RETURN NONE; RETURN $a; COMMIT", given, answer_bytes=1_000
    )
    assert isinstance(answer.refusal, AnswerTooLarge)
    assert len(attempts) == 1 and await count(node) == 0


async def test_one_that_loses_every_race_is_refused_as_a_conflict(
    node: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("protocol.limits.COMMIT_RETRIES", 2)
    await node.values("INSERT INTO thing $rows", {"rows": [{"id": n, "n": 0} for n in range(5000)]})
    stop = asyncio.Event()

    async def disturb() -> None:
        while not stop.is_set():
            await node.values("UPDATE thing:4999 SET n = n + 1 RETURN NONE")

    disturbing = asyncio.ensure_future(disturb())
    answer = await node.answer("UPDATE thing SET n = n + 1 RETURN NONE")
    stop.set()
    await disturbing
    assert isinstance(answer.refusal, Conflict) and answer.refusal.retry
    assert await node.value("SELECT VALUE n FROM thing:1") == [0]


async def test_a_script_has_so_many_variables_and_no_more(
    node: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("protocol.limits.VARIABLES", 4)
    assert await node.value("LET $a = 1; LET $b = 2; LET $a = 3; RETURN $a", {"c": 1, "d": 1}) == 3
    for script in (
        "LET $a = 1; LET $b = 2; LET $e = 3",
        "FOR $a IN [1] { FOR $b IN [1] { LET $e = 1 } }",
    ):
        answer = await node.answer(script, {"c": 1, "d": 1})
        assert isinstance(answer.refusal, TooLarge)
    answer = await node.answer("RETURN 1", dict.fromkeys("abcde", 1))
    assert isinstance(answer.refusal, TooLarge)


async def test_what_a_script_answers_is_bounded_as_a_whole(
    node: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.values("CREATE thing:1 SET a = $a RETURN NONE", {"a": "x" * 1_000_000})
    monkeypatch.setattr("actors.scripts.transactions.ANSWER_BYTES", 20_000_000)
    assert len(await node.values("SELECT * FROM thing;" * 19)) == 19
    answer = await node.answer("SELECT * FROM thing;" * 40)
    assert isinstance(answer.refusal, TooLarge) and len(answer.results) < 40


async def test_an_empty_script_stands_where_the_store_does(node: Running) -> None:
    await node.values("CREATE thing:1")
    assert (await node.answer("")).sequence == (await node.answer("RETURN 1")).sequence > 0


@pytest.mark.parametrize(
    "end", ["THROW 'no'", "RETURN 1 / 0", "CREATE thing:1", "CANCEL", "COMMIT"]
)
async def test_a_transaction_that_has_ended_is_freed_at_once(node: Running, end: str) -> None:
    """Not by the collector: that comes by seldom, and a transaction holds up to 64 MiB."""
    gc.collect()
    gc.disable()
    before = _held()  # by tests before this one, in the same process
    try:
        fill = "BEGIN; CREATE thing:1; FOR $i IN 2..300 { CREATE thing RETURN NONE };"
        await node.answer(f"{fill} {end}")
        assert _held() == before
    finally:
        gc.enable()


async def test_what_follows_a_commit_does_not_keep_it(node: Running) -> None:
    """Where a statement leaves something to do after the commit, that names the run itself."""
    await node.values("DEFINE SPACE c; DEFINE TOPIC t; DEFINE GROUP g ON t DEADLINE 1h")
    gc.collect()
    gc.disable()
    before = _held()
    try:
        await node.answer("FOR $i IN 0..150 { SET type::string($i) IN c VALUE $i EXPIRE 1h }")
        await node.answer("FOR $i IN 0..150 { PUBLISH INTO t VALUE $i }")
        await node.answer("LET $got = TAKE 100 FROM t AS g; ACK t AS g RECEIPTS [$got[0].receipt]")
        assert _held() == before
    finally:
        gc.enable()


def _held() -> list[int]:
    """How much each transaction has changed that is still in memory."""
    alive = [one for one in gc.get_objects() if type(one) is Transaction]
    return [len(one.own.writes) for one in alive if one.own.writes]
