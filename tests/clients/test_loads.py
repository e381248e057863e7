"""Bulk loads of the Python client, against a real node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from storeclient import NONE, AsyncDatabase, Client, LoadFailed, RecordId, errors
from storeclient.answers import Answer
from storeclient.loads import Load, batches_of
from tests.clients.real import real_node
from tests.nodes import PASSWORD

AT = datetime(2026, 1, 2, tzinfo=UTC)
NAMES = ("id", "at", "price")


@dataclass
class Sale:
    id: int
    at: datetime
    price: Decimal


class SaleRow(NamedTuple):
    id: int
    at: datetime
    price: Decimal


class Series(list[Any]):
    def to_list(self) -> list[Any]:
        return list(self)


class Frame:
    """What of a DataFrame of pandas is used; a missing number is NaN in it."""

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self.columns = list(columns)
        self._values = columns
        self.iloc = self

    def __len__(self) -> int:
        return len(self._values[self.columns[0]])

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return Frame({name: values[at] for name, values in self._values.items()})
        return Series(self._values[at])


def price(number: int) -> Decimal:
    return Decimal(number) / 4


KINDS: dict[str, Any] = {
    "dict": lambda n: {"id": n, "at": AT, "price": price(n)},
    "dataclass": lambda n: Sale(n, AT, price(n)),
    "named tuple": lambda n: SaleRow(n, AT, price(n)),
    "tuple": lambda n: (n, AT, price(n)),
    "list": lambda n: [n, AT, price(n)],
    "nested": lambda n: {"id": n, "at": AT, "price": price(n), "x": {"y": [n, {"z": [[n]]}]}},
    "mixed": lambda n: {"id": n, "at": AT, "price": price(n), **({"x": 1} if n % 3 else {})},
}


@pytest.fixture
async def db(tmp_path: Path) -> AsyncIterator[AsyncDatabase]:
    async with real_node(tmp_path / "store") as node, node.client() as client:
        await client.query(
            "DEFINE NAMESPACE IF NOT EXISTS shop; DEFINE DATABASE IF NOT EXISTS shop.main"
        )
        db = client.database("shop", "main")
        await db.query(
            "DEFINE TABLE sale; DEFINE FIELD at ON sale TYPE datetime;"
            " DEFINE FIELD price ON sale TYPE decimal; DEFINE TABLE free"
        )
        yield db


async def held(db: AsyncDatabase, table: str = "sale") -> list[int]:
    return [row["id"].id for row in await db.query(f"SELECT id FROM {table}")]


async def test_rows_of_every_kind_are_loaded(db: AsyncDatabase) -> None:
    for kind, make in KINDS.items():
        steps: list[int] = []
        rows = (make(number) for number in range(25))
        columns = NAMES if kind in ("tuple", "list") else None
        made = await db.load("sale", rows, columns=columns, batch=10, progress=steps.append)
        assert (made, steps) == (25, [10, 20, 25]), kind
        found = await db.query("SELECT at, price FROM sale:24; DELETE sale RETURN price")
        assert len(found) == 25 and found[-1]["price"] == price(24), kind


async def test_a_frame_is_loaded_by_its_columns(db: AsyncDatabase) -> None:
    values: dict[str, list[Any]] = {
        "id": [1, 2, 3],
        "n": [0.5, float("nan"), 2.0],
        "at": [AT, None, AT],
    }
    assert await db.load("free", Frame(values), batch=2) == 3
    found = await db.query("SELECT * FROM free")
    assert found == [
        {"id": RecordId("free", 1), "n": 0.5, "at": AT},
        {"id": RecordId("free", 2)},
        {"id": RecordId("free", 3), "n": 2.0, "at": AT},
    ]


async def test_a_load_may_be_empty_or_repeated(db: AsyncDatabase) -> None:
    assert await db.load("sale", []) == 0
    rows = [KINDS["dict"](number) for number in range(5)]
    assert await db.load("sale", rows[:2]) == 2
    assert await db.load("sale", rows, ignore=True, batch=2) == 3
    assert await held(db) == [0, 1, 2, 3, 4]


async def test_a_failure_tells_which_rows_are_written(db: AsyncDatabase) -> None:
    rows = [KINDS["dict"](number) for number in range(200)]
    rows[23]["price"] = "dear"
    with pytest.raises(LoadFailed, match=r"takes decimal.* row 23 was refused") as caught:
        await db.load("sale", rows, batch=10)
    failed = caught.value
    assert isinstance(failed.__cause__, errors.TypeRefused)
    assert failed.row == 23 and not failed.unknown
    assert [row for rows in failed.written for row in rows] == await held(db)
    assert failed.written[0] == range(20) and failed.written[-1].stop < 60


async def test_rows_that_cannot_be_read_end_a_load(db: AsyncDatabase) -> None:
    def rows() -> Iterator[Any]:
        yield from (KINDS["dict"](number) for number in range(25))
        raise OSError("the disk is gone")

    with pytest.raises(LoadFailed, match="the disk is gone; 20 rows are written") as caught:
        await db.load("sale", rows(), batch=10)
    assert caught.value.written == (range(20),) and caught.value.row is None
    with pytest.raises(LoadFailed, match="a row is a dict, a dataclass or a tuple"):
        await db.load("sale", [5])
    with pytest.raises(LoadFailed, match="need `columns`"):
        await db.load("sale", [(1, 2)])
    with pytest.raises(LoadFailed, match="a row has 2 items: id, a"):
        await db.load("sale", [(1, 2), (1,)], columns=["id", "a"])
    with pytest.raises(LoadFailed, match="of one type, not of dict, tuple"):
        await db.load("sale", [{}, ()])


async def test_rows_of_an_unknown_outcome_are_told(db: AsyncDatabase) -> None:
    """A batch whose answer is lost, between one that is written and one that is not."""
    answers: list[Any] = [None, errors.OutcomeUnknown("cut"), *[errors.Unreachable("gone")] * 2]

    async def send(script: str, params: Any, repeatable: bool) -> Answer:
        error = answers.pop(0)
        if error is not None:
            raise error
        return await db.run(script, params)

    rows = ({"id": number} for number in range(1_000))
    with pytest.raises(LoadFailed, match="cut; 10 rows are written, of 10 it is unknown") as caught:
        await Load(send, "free", False, None).run(batches_of(rows, None, 10))
    assert (caught.value.written, caught.value.unknown) == ((range(10),), (range(10, 20),))


async def test_long_texts_make_shorter_batches(db: AsyncDatabase) -> None:
    rows = [{"id": number, "text": "x" * 1_000_000, "n": [b"y"]} for number in range(20)]
    steps: list[int] = []
    assert await db.load("free", rows, progress=steps.append) == 20
    assert len(steps) > 4


def test_the_blocking_client_loads_too(tmp_path: Path) -> None:
    started: list[str] = []

    async def serve(ready: asyncio.Event, done: asyncio.Event) -> None:
        async with real_node(tmp_path / "store") as node:
            started.append(node.address)
            ready.set()
            await done.wait()

    async def both() -> None:
        ready, done = asyncio.Event(), asyncio.Event()
        task = asyncio.create_task(serve(ready, done))
        await ready.wait()
        try:
            await asyncio.to_thread(work)
        finally:
            done.set()
            await task

    def work() -> None:
        with Client(started[0], user="root", password=PASSWORD) as client:
            client.query(
                "DEFINE NAMESPACE IF NOT EXISTS shop; DEFINE DATABASE IF NOT EXISTS shop.main"
            )
            db = client.database("shop", "main")
            db.query("DEFINE TABLE t")
            rows = [{"id": number, "a": NONE} for number in range(7)]
            assert db.load("t", rows, batch=3) == 7
            with pytest.raises(LoadFailed, match=r"exists \(row 1\).*; 0 rows are written"):
                db.load("t", rows, batch=10)

    asyncio.run(both())
