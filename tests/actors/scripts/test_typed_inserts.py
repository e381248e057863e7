"""INSERT of many rows into a table with a schema does what inserting them one by one does."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any
from uuid import UUID

import pytest

from language.schema import Schema
from protocol.values import NONE, RecordId, identical
from tests.actors.scripts.test_inserts import Both
from tests.nodes import Running
from tests.storage.index_entries import wrong_entries
from tests.sweeps import share

SCHEMAS = (
    # Only types.
    "DEFINE FIELD at ON t TYPE datetime; DEFINE FIELD price ON t TYPE decimal;"
    " DEFINE FIELD n ON t TYPE int; DEFINE FIELD rate ON t TYPE float;"
    " DEFINE FIELD word ON t TYPE string; DEFINE FIELD link ON t TYPE record<u>",
    # Clauses that look at no other field.
    "ALTER TABLE t SET SCHEMAFULL; DEFINE FIELD at ON t TYPE datetime DEFAULT time::now();"
    " DEFINE FIELD price ON t TYPE option<decimal> ASSERT $value > 0;"
    " DEFINE FIELD n ON t TYPE int READONLY ASSERT $value >= 0 AND $value != 13;"
    " DEFINE FIELD rate ON t TYPE float | string | null;"
    " DEFINE FIELD word ON t TYPE 'one' | 'two' | 'w' DEFAULT 'one';"
    " DEFINE FIELD link ON t TYPE option<record<u | v>>;"
    " DEFINE FIELD tags ON t TYPE array<float> DEFAULT [1.5];"
    " DEFINE FIELD more ON t TYPE any; DEFINE FIELD id2 ON t TYPE option<uuid>",
    # Clauses that do, and fields below fields.
    "DEFINE FIELD n ON t TYPE int ASSERT $value < 1000 OR word = 'w';"
    " DEFINE FIELD price ON t TYPE decimal DEFAULT n * 2;"
    " DEFINE FIELD rate ON t TYPE number VALUE n / 2;"
    " DEFINE FIELD more.x ON t TYPE option<int>; DEFINE FIELD tags[*] ON t TYPE float",
)  # fmt: skip
INDEXES = (
    "DEFINE INDEX by_word ON t FIELDS word; DEFINE INDEX by_n ON t FIELDS n UNIQUE",
    "",
    "DEFINE INDEX by_tag ON t FIELDS tags",
)
ENDS = (
    "", "", "", "RETURN NONE", "RETURN n, at", "IGNORE", "IGNORE RETURN NONE",
    "ON DUPLICATE UPDATE SET word = 'two'", "ON DUPLICATE UPDATE SET n = $input.n RETURN NONE",
)  # fmt: skip
ODD: tuple[Any, ...] = (
    NONE, None, True, 13, -1, 2**53 + 1, 0.5, Decimal("1.5"), "two", b"x", timedelta(1), [],
    [1, "x"], [NONE], {"x": "y"}, {"x": 1, "z": NONE}, RecordId("t", 1), RecordId("v", 1),
    UUID(int=1), 10**6,
)  # fmt: skip


def row(rng: Random, number: int) -> dict[str, Any]:
    """A row that every one of the schemas takes."""
    made = {
        "id": number,
        "at": datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=number),
        "price": Decimal(number + 1) / 4,
        "n": 100 + number % 800 + (number % 800 == 13),
        "rate": number / 3,
        "word": "w",
        "link": RecordId("u", number % 5),
        "tags": [1.5, 2.0],
        "more": {"x": 3},
    }
    if rng.random() < 0.2:
        made["rate"] = number  # an int, for a float
    if rng.random() < 0.1:
        made["price"] = number + 1
    if rng.random() < 0.1:
        made["tags"] = [1, 2.5]
    return made


def batch(rng: Random) -> list[Any]:
    """Rows of one INSERT; in half of the batches one has a fault, or meets another."""
    start = rng.randrange(1_000_000)
    rows: list[Any] = [row(rng, start + at) for at in range(rng.choice([1, 5, 70, 200]))]
    for one in rows if rng.random() < 0.3 else ():
        one.pop(rng.choice(["at", "word", "tags", "more", "price", "link"]), None)
    for _ in range(rng.choice([0, 0, 0, 1, 2])):
        one, fault = rng.choice(rows), rng.random()
        if fault < 0.6:
            one[rng.choice(list(one))] = rng.choice(ODD)
        elif fault < 0.7:
            one.pop(rng.choice(list(one)), None)
        elif fault < 0.8:
            one[rng.choice(["other", "x y"])] = rng.choice(ODD)
        else:
            one["id"] = rng.choice([start, start + 3, 7, -3, "text"])
    return rows


def columns_of(rows: list[Any]) -> dict[str, list[Any]]:
    """The arrays of INSERT COLUMNS for some rows."""
    names = dict.fromkeys(name for one in rows for name in one)
    return {name: [one.get(name, NONE) for one in rows] for name in names}


async def compared(
    node: Running, patch: pytest.MonkeyPatch, seeds: range, at: int
) -> tuple[int, int]:
    """Insert generated batches both ways. Return the rows written together, and the refusals."""
    both = Both(node, patch)
    await node.values("DEFINE DATABASE shop.many; DEFINE DATABASE shop.each")
    assert (await both.ask(f"DEFINE TABLE t; {SCHEMAS[at]}; {INDEXES[at]}"))[0][0] is None
    refused = 0
    for seed in seeds:
        rng = Random(f"{at} {seed}")
        script = f"INSERT INTO t $rows {rng.choice(ENDS)}"
        if rng.random() < 0.2:
            script = f"BEGIN; INSERT INTO t $first; {script}; COMMIT"
        first, rows = row(rng, 7), batch(rng)
        if rng.random() < 0.5:
            script = script.replace("INTO t $rows", "INTO t COLUMNS $columns")
        given = {"rows": rows, "columns": columns_of(rows)}
        many, each = await both.ask(script, **given, first=first)
        many, each = _comparable(many, at), _comparable(each, at)
        assert identical(list(many), list(each)), f"schema {at}, seed {seed}: {script}"
        refused += many[0] is not None
    many, each = await both.ask("SELECT * OMIT at FROM t; SELECT count() FROM t GROUP ALL")
    many, each = _comparable(many, at), _comparable(each, at)
    assert identical(list(many), list(each))
    for place in ("many", "each"):
        assert await wrong_entries(node.node, place) == []
    return both.together, refused


def _comparable(found: tuple[Any, Any], at: int) -> tuple[Any, Any]:
    """Replace what each database makes by itself: generated ids, and the times of schema `at`."""
    refused, values = found
    for value in values:
        for one in value if type(value) is list else ():
            if type(one) is not dict:
                continue
            if "now()" in SCHEMAS[at]:
                one.pop("at", None)
            record = one.get("id")
            if type(record) is RecordId and type(record.id) is UUID and record.id.version == 7:
                one["id"] = RecordId(record.table, "generated")
    return refused, values


@pytest.mark.parametrize("at", range(len(SCHEMAS)))
@pytest.mark.parametrize(
    "rounds", [12, pytest.param(len(share(range(2_000), 5)), marks=pytest.mark.hard)]
)
async def test_typed_rows_are_inserted_as_one_by_one(
    node: Running,
    monkeypatch: pytest.MonkeyPatch,
    figure: Callable[[str, object], None],
    at: int,
    rounds: int,
) -> None:
    together, refused = await compared(node, monkeypatch, range(rounds), at)
    figure(f"typed rows inserted together, schema {at}", f"{together}, {refused} refused")
    assert together > 200
    assert refused > 1


COLUMN_FAULTS = ("takes what does not fit", "leaves an int as it is", "drops a default")


@pytest.mark.parametrize("fault", COLUMN_FAULTS)
async def test_a_fault_in_the_checks_of_columns_is_seen(
    node: Running, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    real: Any = Schema._fitted

    def wrong(self: Schema, node: Any, ids: Any, given: Any, checks: Any, env: Any) -> Any:
        found = real(self, node, ids, given, checks, env)
        if fault == COLUMN_FAULTS[0]:
            return given if found is None else found
        if fault == COLUMN_FAULTS[2] and node.rule.default is None:
            return found
        return found and given

    monkeypatch.setattr(Schema, "_fitted", wrong)
    with pytest.raises(AssertionError, match="seed"):
        await compared(node, monkeypatch, range(60), 1)


FAULTS = ("takes what does not fit", "leaves an int as it is", "drops a default")


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_in_the_checks_by_column_is_seen(
    node: Running, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    real: Any = Schema.conform_new

    def wrong(self: Schema, ids: list[Any], rows: list[dict[str, Any]], env: Any) -> bool:
        given = [fields.copy() for fields in rows]
        fits = bool(real(self, ids, rows, env))
        if fault == FAULTS[0]:
            return True
        for fields, before in zip(rows, given, strict=True):
            if fault == FAULTS[1]:
                fields.update({name: before[name] for name in before if name in fields})
            else:
                for name in fields.keys() - before.keys():
                    del fields[name]
        return fits

    monkeypatch.setattr(Schema, "conform_new", wrong)
    with pytest.raises(AssertionError, match="schema 1, seed"):
        await compared(node, monkeypatch, range(40), 1)
