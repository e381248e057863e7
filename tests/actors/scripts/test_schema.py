"""Fields on a node: transactions, races, slices, restarts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from protocol import limits
from protocol.errors import (
    AssertFailed,
    FieldRefused,
    NotWritable,
    StatementTimeout,
    TooLarge,
    TypeRefused,
)
from protocol.values import RecordId
from tests.actors.live import running_scripts
from tests.nodes import Running, running

MANY = 5000


async def rows(node: Running, script: str = "SELECT * FROM thing") -> Any:
    return await node.value(script)


async def fill(node: Running, **fields: Any) -> None:
    made = [{"id": n, **fields} for n in range(MANY)]
    await node.values("INSERT INTO thing $rows RETURN NONE", {"rows": made})


async def begun(node: Running) -> None:
    """Wait until a script has handed the loop back: it is in the middle of something long."""
    while not sum(run.fiber.slices for run in running_scripts(node.node)):
        await asyncio.sleep(0)


# --- transactions ---------------------------------------------------------------------------------


async def test_a_row_that_does_not_fit_takes_the_transaction_back(node: Running) -> None:
    await node.values("DEFINE FIELD n ON thing TYPE int ASSERT $value > 0")
    for bad, error in (("'x'", TypeRefused), ("0", AssertFailed)):
        answer = await node.answer(
            f"BEGIN; CREATE thing:1 SET n = 1; UPDATE thing:1 SET n = {bad}; COMMIT"
        )
        assert type(answer.refusal) is error and answer.results == ()
        assert answer.refusal.detail["statement"] == 3
    answer = await node.answer("INSERT INTO thing [{ id: 1, n: 1 }, { id: 2, n: 0 }]")
    assert type(answer.refusal) is AssertFailed
    assert await rows(node) == []


async def test_a_definition_holds_for_the_rest_of_its_transaction(node: Running) -> None:
    answer = await node.answer(
        "BEGIN; DEFINE FIELD n ON thing TYPE int DEFAULT 1; CREATE thing:1;"
        "ALTER FIELD n ON thing SET DEFAULT 2; CREATE thing:2; COMMIT"
    )
    assert answer.refusal is None
    assert [one["n"] for one in await rows(node)] == [1, 2]


async def test_a_definition_that_is_refused_demands_nothing(node: Running) -> None:
    await node.values("CREATE thing:1 SET n = 'x'")
    answer = await node.answer("DEFINE FIELD n ON thing TYPE int")
    assert type(answer.refusal) is TypeRefused
    assert (await node.value("INFO FOR TABLE thing"))["fields"] == []
    await node.values("UPDATE thing:1 SET n = 'y'")


async def test_the_count_names_records_and_field(node: Running) -> None:
    await fill(node, n=1, tags=["a"])
    await node.values("UPDATE [thing:7, thing:9] SET n = 'x'; UPDATE thing:8 SET tags = ['a', 1]")
    answer = await node.answer("DEFINE FIELD n ON thing TYPE int")
    assert type(answer.refusal) is TypeRefused
    detail = answer.refusal.detail
    assert (detail["records"], detail["of"], detail["first"]) == (2, MANY, "thing:7")
    assert [detail[name] for name in ("table", "field", "wanted", "found")] == [
        "thing", "n", "int", "string",
    ]  # fmt: skip
    answer = await node.answer("DEFINE FIELD tags ON thing TYPE array<string>")
    assert answer.refusal is not None and answer.refusal.detail["field"] == "tags[1]"
    await node.values("DEFINE FIELD OVERWRITE n ON thing TYPE int")
    assert len(await rows(node, "SELECT VALUE id FROM thing WHERE type::of(n) = 'string'")) == 2


# --- races ----------------------------------------------------------------------------------------


async def test_64_clients_on_records_with_readonly_assert_and_default(node: Running) -> None:
    await node.values(
        "DEFINE FIELD n ON thing TYPE int DEFAULT 0 ASSERT $value <= 640;"
        "DEFINE FIELD first ON thing TYPE string READONLY;"
        "DEFINE FIELD seen ON thing TYPE datetime DEFAULT time::now() READONLY"
    )
    await node.values("CREATE thing:one SET first = 'a'")
    seen = await rows(node, "SELECT VALUE seen FROM thing")

    async def client(number: int) -> None:
        for _ in range(10):
            await node.values("UPDATE thing:one SET n = n + 1 RETURN NONE")
        answer = await node.answer(f"UPDATE thing:one SET n = n + 1, first = '{number}'")
        assert isinstance(answer.refusal, FieldRefused | AssertFailed)

    await asyncio.gather(*(client(number) for number in range(64)))
    expected = {"id": RecordId("thing", "one"), "n": 640, "first": "a", "seen": seen[0]}
    assert await rows(node) == [expected]
    answer = await node.answer("UPDATE thing:one SET n = n + 1")
    assert type(answer.refusal) is AssertFailed


async def test_a_long_write_obeys_what_was_defined_while_it_ran(node: Running) -> None:
    """It began without the field, so it loses its race, and runs again with it."""
    await fill(node, n=1)
    long = asyncio.ensure_future(node.answer("UPDATE thing SET n = 'x' RETURN NONE"))
    await begun(node)
    await node.values("DEFINE FIELD OVERWRITE n ON thing TYPE int")
    answer = await long
    assert type(answer.refusal) is TypeRefused
    assert await rows(node, "SELECT count() AS c FROM thing WHERE n = 1 GROUP ALL") == [{"c": MANY}]


async def test_a_record_written_while_others_are_counted_is_counted(node: Running) -> None:
    await fill(node, n=1)
    defining = asyncio.ensure_future(node.answer("DEFINE FIELD n ON thing TYPE int"))
    await begun(node)
    await node.values("UPDATE thing:0 SET n = 'x' RETURN NONE")
    answer = await defining
    assert type(answer.refusal) is TypeRefused
    assert (answer.refusal.detail["records"], answer.refusal.detail["first"]) == (1, "thing:0")


# --- long work ------------------------------------------------------------------------------------


async def test_counting_gives_others_their_turn(node: Running) -> None:
    await fill(node, n=1, rest="x" * 100)
    defining = asyncio.ensure_future(node.values("DEFINE FIELD n ON thing TYPE int ASSERT $value"))
    await begun(node)
    assert not defining.done()
    assert await node.value("1 + 1") == 2
    with pytest.raises(AssertFailed, match="a condition is a bool, not int") as refused:
        await defining
    assert refused.value.detail["wanted"] == "$value"


async def test_an_assert_that_takes_long_ends_with_the_statements_time(node: Running) -> None:
    await fill(node, n=1)
    await node.values(
        "DEFINE TABLE other; DEFINE FIELD n ON other TYPE int"
        " ASSERT array::len(array::sort(array::distinct(0..50000))) > $value"
    )
    answer = await node.answer("CREATE other:1 SET n = 1 TIMEOUT 1ms")
    assert type(answer.refusal) is StatementTimeout
    assert "ASSERT of" not in answer.refusal.message
    await node.values("CREATE other:1 SET n = 1")


@pytest.mark.parametrize("most", [30, pytest.param(limits.FIELDS, marks=pytest.mark.hard)])
async def test_as_many_fields_as_there_may_be(
    node: Running, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """And one more is refused."""
    monkeypatch.setattr(limits, "FIELDS", most)
    await node.values(
        "BEGIN;"
        + ";".join(f"DEFINE FIELD f{n} ON thing TYPE int DEFAULT {n} ASSERT $value < {most}"
                   for n in range(most))
        + "; COMMIT"
    )  # fmt: skip
    answer = await node.answer("DEFINE FIELD g ON thing TYPE int")
    assert type(answer.refusal) is TooLarge
    (row,) = await node.value("CREATE thing:1")
    assert row[f"f{most - 1}"] == most - 1 and len(row) == most + 1
    answer = await node.answer(f"UPDATE thing:1 SET f5 = {most}")
    assert type(answer.refusal) is AssertFailed
    assert len((await node.value("INFO FOR TABLE thing"))["fields"]) == most


# --- around ---------------------------------------------------------------------------------------


async def test_they_are_there_after_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as node:
        await node.values(
            "DEFINE TABLE thing SCHEMAFULL; DEFINE FIELD n ON thing TYPE option<int> DEFAULT 1"
            " ASSERT $value < 5 READONLY COMMENT 'c'; DEFINE FIELD a[*].b ON thing TYPE any"
        )
        before = await node.value("INFO FOR TABLE thing")
    async with running(tmp_path / "store") as node:
        assert await node.value("INFO FOR TABLE thing") == before
        assert await node.value("CREATE thing:1") == [{"id": RecordId("thing", 1), "n": 1}]
        assert type((await node.answer("CREATE thing:2 SET n = 5")).refusal) is AssertFailed
        assert type((await node.answer("CREATE thing:2 SET x = 5")).refusal) is FieldRefused


async def test_a_node_that_is_not_writable_defines_nothing(node: Running) -> None:
    await node.values("DEFINE FIELD n ON thing TYPE int")
    await node.values("DEFINE NODE ROLES serving")
    for script in (
        "DEFINE FIELD m ON thing TYPE int", "ALTER FIELD n ON thing SET TYPE float",
        "DROP FIELD n ON thing", "ALTER TABLE thing SET SCHEMAFULL",
    ):  # fmt: skip
        assert type((await node.answer(script)).refusal) is NotWritable
    await node.values("DEFINE NODE ROLES serving, writable")


async def test_a_default_that_would_grow_without_end(node: Running) -> None:
    """Doubled by every field after it, each text short."""
    await node.values("DEFINE FIELD b ON thing TYPE any DEFAULT [[a, a], [a, a]]")
    answer = await node.answer("CREATE thing:1 SET a = $a", {"a": "x" * (3 << 20)})
    assert type(answer.refusal) is TooLarge
    assert await rows(node) == []
