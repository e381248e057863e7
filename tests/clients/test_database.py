"""A database handle, pages of rows, and what a client tells of itself and of bad parameters."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import text, values
from storeclient import (
    NONE,
    AsyncClient,
    AsyncDatabase,
    Client,
    ConnectionEvent,
    RecordId,
    errors,
    into,
    json_default,
)
from storeclient.pages import Pages
from storeclient.texts import duration_text
from tests.clients.real import real_node
from tests.nodes import PASSWORD
from tests.surfaces.wire.peers import until

ids = st.recursive(
    st.text(min_size=1, max_size=8) | st.integers(-(2**63), 2**63 - 1) | st.uuids(),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1


@dataclass
class Size:
    width: int
    height: float = 1.0


@dataclass
class Item:
    id: RecordId
    name: str
    colour: Colour
    sizes: list[Size] = field(default_factory=list)
    level: Level = Level.LOW
    note: str | None = None
    tags: dict[str, Size] = field(default_factory=dict)


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[AsyncClient]:
    async with real_node(tmp_path / "store") as node, node.client() as client:
        yield client


@pytest.fixture
def db(client: AsyncClient) -> AsyncDatabase:
    return client.database("shop", "main")


# --- records as text ------------------------------------------------------------------------------


@given(st.text(min_size=1, max_size=8), ids)
def test_a_record_is_the_nodes_text_and_comes_back(table: str, id: Any) -> None:
    record = RecordId(table, id)
    assert str(record) == text.format_record(values.RecordId(table, id))
    assert RecordId.parse(str(record)) == record


@pytest.mark.parametrize(
    "said, id",
    [
        ("a:1", 1), ("a:-7", -7), ("a:b_c", "b_c"), ("`x y`:`b c`", "b c"), ("a:u1", "u1"),
        ('a:[ "x" , 1 ]', ["x", 1]), ("a:[]", []), (r"a:`\`\u{41}`", "`A"),
        ("a:u'018f0000-0000-7000-8000-000000000001'", UUID("018f0000-0000-7000-8000-000000000001")),
    ],
)  # fmt: skip
def test_texts_of_records(said: str, id: Any) -> None:
    assert RecordId.parse(said).id == id


@pytest.mark.parametrize(
    "wrong", ["", "a", "a:", ":1", "a:1x", "a:b-c", "a:[1", "a:[1 2]", "a:`x", "a:1 ", "a:{}",
              "a:u'x'", "a:1..2", r"a:`\u{D800}`", "a:" + "[" * 80]
)  # fmt: skip
def test_what_is_no_record(wrong: str) -> None:
    with pytest.raises(ValueError):
        RecordId.parse(wrong)


@given(st.timedeltas(timedelta(days=-(10**6)), timedelta(days=10**6)))
def test_durations_are_the_nodes_text(span: timedelta) -> None:
    assert duration_text(span) == text.format_duration(span)


# --- objects --------------------------------------------------------------------------------------


async def test_dataclasses_and_enums_go_out_and_come_in(db: AsyncDatabase) -> None:
    item = Item(RecordId("item", 1), "lamp", Colour.BLUE, [Size(1, 2.5)], tags={"a": Size(3)})
    await db.run("DEFINE TABLE item; CREATE item CONTENT $item", {"item": item})
    (row,) = await db.query("SELECT * FROM item WHERE colour = $c", {"c": Colour.BLUE})
    assert row["colour"] == "blue" and row["sizes"] == [{"width": 1, "height": 2.5}]
    assert into(Item, row) == item
    assert into(list[Item], [row | {"more": 1}]) == [item]


@pytest.mark.parametrize(
    "more, said",
    [
        ({"name": 1}, "Item.name is a str, not a int"),
        ({"colour": "green"}, "Item.colour is a Colour"),
        ({"sizes": [{"width": True}]}, r"Item.sizes\[0\].width is a int, not a bool"),
        ({"sizes": [{}]}, r"Item.sizes\[0\] has no width"),
        ({"note": 5}, "Item.note is a str"),
    ],
)
def test_what_is_not_of_the_type_is_named(more: dict[str, Any], said: str) -> None:
    row = {"id": RecordId("item", 1), "name": "lamp", "colour": "red"}
    assert into(Item, row).note is None
    with pytest.raises(TypeError, match=said):
        into(Item, row | more)


def test_rows_as_json() -> None:
    row = {
        "id": RecordId("item", "a b"), "at": datetime(2026, 1, 2, 3, tzinfo=UTC), "none": NONE,
        "price": Decimal("12.30"), "for": timedelta(minutes=90), "raw": b"x", "colour": Colour.RED,
    }  # fmt: skip
    assert json.loads(json.dumps(row, default=json_default)) == {
        "id": "item:`a b`", "at": "2026-01-02T03:00:00Z", "none": None, "price": "12.30",
        "for": "1h30m", "raw": "eA==", "colour": "red",
    }  # fmt: skip
    with pytest.raises(TypeError, match="object is not a type"):
        json.dumps(object(), default=json_default)


# --- parameters -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value, kind, way",
    [
        (datetime(2026, 1, 1), ValueError, "$v: "),
        ({"a": [1, {"b": object()}]}, TypeError, r"$v.a[1].b: "),
        ([2**64], ValueError, "$v[0]: "),
        (Size(1, {1, 2}), TypeError, "$v.height: "),  # type: ignore[arg-type]
        ("\ud800", ValueError, "$v: "),
        ({"a": [float("nan")]}, ValueError, "$v.a[0]: "),
        ({"a": {1: 2}}, errors.Refused, "$v.a[1]: "),
    ],
)
async def test_a_refused_parameter_is_named(
    db: AsyncDatabase, value: Any, kind: type[Exception], way: str
) -> None:
    with pytest.raises(kind) as refused:
        await db.run("RETURN $v", {"good": 1, "v": value})
    assert way in str(refused.value)
    assert await db.query("RETURN 1") == 1


async def test_so_is_an_argument(db: AsyncDatabase) -> None:
    await db.run("DEFINE TOPIC t; DEFINE SPACE s")
    with pytest.raises(TypeError, match=r"value\.a"):
        await db.topic("t").publish({"a": object()})
    with pytest.raises(TypeError, match=r"value"):
        await db.cache("s").set("k", object())


# --- one database ---------------------------------------------------------------------------------


async def test_ns_and_db_are_said_once(client: AsyncClient, db: AsyncDatabase) -> None:
    await db.run("DEFINE TABLE item; DEFINE SPACE s; DEFINE TOPIC t; CREATE item:1")
    assert (client.ns, client.db) == (None, None)
    await db.cache("s").set("k", 1)
    assert (await db.topic("t").publish(1)).position == 1
    assert await db.query("SELECT VALUE id FROM item") == [RecordId("item", 1)]
    with pytest.raises(ValueError):
        client.database("no name", "main")
    for handle, name in (
        (db, "shop.main"), (db.cache("s"), "shop.main.s"), (db.topic("t"), "t"),
        (db.topic("t").group("g"), "g on t"), (db.topic("t").reader("r"), "r on t"),
        (db.topic("t").group("g").messages(), "g on t"), (client, "root@127.0.0.1"),
    ):  # fmt: skip
        assert name in repr(handle) and PASSWORD not in repr(handle)


async def test_rows_come_page_by_page_in_the_order_of_their_ids(db: AsyncDatabase) -> None:
    every = [*range(25), *(f"k{n:02}" for n in range(10))]
    rows = [{"id": id, "n": at, "order": at} for at, id in enumerate(every)]
    await db.run("DEFINE TABLE item; INSERT INTO item $rows RETURN NONE", {"rows": rows})
    for page in (1, 7, 35, 1000):
        found = [row["id"].id async for row in db.rows("SELECT * FROM item", page=page)]
        assert found == every
    select = "SELECT id, n FROM item WHERE n < $least OR order = 20 -- or so"
    found = [row["n"] async for row in db.rows(select, {"least": 3}, page=2)]
    assert found == [0, 1, 2, 20]
    assert [row async for row in db.rows("SELECT * FROM item WHERE n > 99")] == []


async def test_rows_of_one_moment(db: AsyncDatabase) -> None:
    rows = [{"id": n, "n": 0} for n in range(20)]
    await db.run("DEFINE TABLE item; INSERT INTO item $rows RETURN NONE", {"rows": rows})
    for consistent in (True, False):
        found: list[dict[str, Any]] = []
        async for row in db.rows("SELECT * FROM item", page=6, consistent=consistent):
            if not found:
                await db.run("UPDATE item SET n += 1; DELETE item:19; UPSERT item:30 SET n = 9")
            found.append(row)
        ids = [row["id"].id for row in found]
        if consistent:
            assert ids == list(range(20)) and {row["n"] for row in found} == {0}
        else:
            assert ids == [*range(19), 30] and {row["n"] for row in found} == {1, 2, 9}


async def test_what_is_to_be_kept(db: AsyncDatabase, client: AsyncClient) -> None:
    await client.run("RETURN 'kept'", record=True, reason="why not")
    await client.run("RETURN 'not kept'")
    (kept,) = (await client.query("INFO FOR STATEMENTS LIMIT 1"),)
    assert [(each["statement"], each["reason"]) for each in kept] == [("RETURN 'kept'", "why not")]


async def test_a_moment(db: AsyncDatabase, client: AsyncClient) -> None:
    await db.run("DEFINE TABLE item; CREATE item:1 SET n = 1")
    moment = db.moment(keep=30)
    with pytest.raises(ValueError, match="inside its `with`"):
        await moment.query("RETURN 1")
    async with moment as then:
        await db.run("CREATE item:2; UPDATE item:1 SET n = 2")
        assert client._nodes.connection is not None
        client._nodes.connection.abort()
        answer = await then.run("SELECT VALUE n FROM item WHERE n < $most", {"most": 9})
        assert (answer.value, answer.seq) == ([1], then.seq) and "item" not in repr(then)
        assert [row["n"] async for row in then.rows("SELECT * FROM item")] == [1]
        with pytest.raises(errors.BadRequest):
            await then.query("CREATE item:3")
        name = answer.moment
    with pytest.raises(errors.Unknown) as told:
        await client.run("RETURN 1", moment=name)
    assert told.value.detail["moment"] == name
    async with db.moment() as then:
        await client.run("DEFINE USER eve ROLE owner PASSWORD 'a password of hers'")
        with pytest.raises(errors.Unknown):
            await then.query("RETURN item:1")


@pytest.mark.parametrize(
    "select",
    [
        "SELECT * FROM item LIMIT 5", "SELECT * FROM item WHERE n > 1 ORDER BY n", "DELETE item",
        "SELECT VALUE id FROM item", "SELECT * FROM ONLY item:1", "SELECT 1",
        "SELECT * FROM item SPLIT tags", "SELECT n FROM item GROUP BY n", "SELECT * FROM item; x",
        "SELECT * FROM item TIMEOUT 5s", "SELECT DISTINCT n FROM item", "",
    ],
)  # fmt: skip
def test_what_has_no_pages(select: str) -> None:
    with pytest.raises(ValueError):
        Pages(select, None, 10)


async def test_rows_without_an_id_have_no_pages(db: AsyncDatabase) -> None:
    await db.run("DEFINE TABLE item; CREATE item:1 SET n = 1")
    with pytest.raises(ValueError, match="`id` among"):
        [row async for row in db.rows("SELECT n FROM item")]
    with pytest.raises(ValueError, match="storeclient_after"):
        Pages("SELECT * FROM item", {"storeclient_after": 1}, 10)


# --- events ---------------------------------------------------------------------------------------


async def test_a_reconnection_is_told(tmp_path: Path) -> None:
    told: list[ConnectionEvent] = []
    async with real_node(tmp_path / "store") as node:
        client = node.client(on_connection=told.append)
        async with client:
            await client.ping()
            assert client._nodes.connection is not None
            client._nodes.connection.abort()
            await until(lambda: len(told) == 2)
            await client.ping()
            await until(lambda: len(told) == 3)
        await asyncio.sleep(0)
    assert [event.change for event in told] == ["connected", "lost", "reconnected"]
    assert {event.address for event in told} == {node.address} and told[0].version is not None


async def test_the_blocking_twin(client: AsyncClient) -> None:
    address = client._nodes.where
    told: list[ConnectionEvent] = []

    def work() -> None:
        with Client(address, user="root", password=PASSWORD, on_connection=told.append) as blocking:
            db = blocking.database("shop", "main")
            db.run("DEFINE TABLE item; DEFINE SPACE s; DEFINE TOPIC t; INSERT INTO item [{id: 1}]")
            assert [row["id"].id for row in db.rows("SELECT * FROM item", page=1)] == [1]
            assert db.query("RETURN 1") == 1
            with db.moment() as then:
                db.run("CREATE item:2")
                assert len(then.query("SELECT VALUE id FROM item")) == 1
                assert [row["id"].id for row in then.rows("SELECT * FROM item", page=1)] == [1]
                assert then.run("RETURN 1").seq == then.seq > 0 and "Async" not in repr(then)
            found = [row["id"].id for row in db.rows("SELECT * FROM item", consistent=True)]
            assert found == [1, 2]
            db.cache("s").set("k", 1)
            db.topic("t").publish(1)
            for handle in (db, blocking, db.cache("s"), db.topic("t").group("g")):
                assert "Async" not in repr(handle) and PASSWORD not in repr(handle)

    await asyncio.to_thread(work)
    assert [event.change for event in told] == ["connected"]
