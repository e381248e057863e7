"""The rules of records."""

from __future__ import annotations

from functools import cmp_to_key
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import binary, limits, order
from protocol.errors import AlreadyExists, TooLarge
from protocol.values import NONE, PACE, compare
from storage.catalog import places, tables
from storage.catalog.tables import Table
from storage.engine.state_hash import state_hash
from storage.formats import effects, keys
from storage.records import records
from storage.records.records import Stored
from storage.txn.transaction import Transaction
from tests.storage.books import Book, put


@pytest.fixture
def book() -> Book:
    return Book()


@pytest.fixture
def table(book: Book) -> Table:
    with book.begin_transaction() as tx:
        namespace = places.define_namespace(tx, "shop")
        made = tables.define_table(tx, places.define_database(tx, namespace, "main"), "order")
        book.commit(tx)
    return made


def create(book: Book, table: Table, *ids: Any) -> int:
    tx = book.begin_transaction()
    for id in ids:
        records.create(tx, table, id, {"n": id})
    return book.commit(tx)


def ids(tx: Transaction, table: Table, **how: Any) -> list[Any]:
    address = records.record_id(table)
    return [address(key).id for step in records.scan(tx, table, **how) for key, _ in step]


def test_create_and_read(book: Book, table: Table) -> None:
    tx = book.begin_transaction()
    records.create(tx, table, "ana", {"age": 30, "nested": {"a": [1, 2]}})
    raw = records.read(tx, table, "ana")
    assert raw is not None
    assert binary.unpack(raw) == {"age": 30, "nested": {"a": [1, 2]}}
    assert records.stored(tx, table, "ana") == Stored(0, raw)
    sequence = book.commit(tx)
    assert records.stored(book.begin_transaction(), table, "ana") == Stored(sequence, raw)
    book.durable()
    assert records.stored(book.begin_transaction(), table, "ana") == Stored(sequence, raw)
    assert records.read(book.begin_transaction(), table, "bob") is None
    assert records.stored(book.begin_transaction(), table, "bob") is None


def test_created_twice(book: Book, table: Table) -> None:
    create(book, table, 1)
    for _ in range(2):
        tx = book.begin_transaction()
        with pytest.raises(AlreadyExists, match="order:1"):
            records.create(tx, table, 1, {})
        tx.release()
        book.durable()
    tx = book.begin_transaction()
    records.create(tx, table, 2, {})
    with pytest.raises(AlreadyExists):
        records.create(tx, table, 2, {})
    tx.release()


def test_the_log_tells_the_change_before(book: Book, table: Table) -> None:
    """Following `previous` from the newest change reaches every change of a record's life."""
    sequences = [create(book, table, 7)]
    for n in range(3):
        tx = book.begin_transaction()
        before = records.stored(tx, table, 7)
        put(tx, table, 7, {"n": n}, before)
        put(tx, table, 7, {"n": n, "again": True}, records.stored(tx, table, 7))
        sequences.append(book.commit(tx))
    tx = book.begin_transaction()
    before = records.stored(tx, table, 7)
    assert before is not None
    records.delete(tx, table, 7, before)
    sequences.append(book.commit(tx))
    key, chain, at = keys.record(table.prefix, 7), [], sequences[-1]
    while at:
        chain.append(at)
        (effect,) = [one for one in book.effects(at) if one[1] == key]
        at = effect[-1]
    assert chain == sequences[::-1]


def test_deleted_and_made_anew_in_one_commit_is_a_change(book: Book, table: Table) -> None:
    first = create(book, table, 1)
    tx = book.begin_transaction()
    before = records.stored(tx, table, 1)
    assert before is not None
    records.delete(tx, table, 1, before)
    assert records.stored(tx, table, 1) is None
    records.create(tx, table, 1, {"new": True})
    second = book.commit(tx)
    (put,) = [one for one in book.effects(second) if one[0] == effects.PUT_RECORD]
    assert put[-1] == first
    assert records.count(book.begin_transaction(), table) == 1


@pytest.mark.parametrize("beside", ["nothing", "committed", "paused", "by itself", "deleted"])
def test_records_made_together_are_those_made_one_by_one(
    book: Book, table: Table, beside: str
) -> None:
    rows = [{"n": n, "tags": ["a"] * n, "deep": {"x": None}} for n in range(5)]
    many, each = Book(), Book()
    hashes = []
    for here in (many, each):
        with here.begin_transaction() as tx:
            namespace = places.define_namespace(tx, "shop")
            made = tables.define_table(tx, places.define_database(tx, namespace, "m"), "order")
            here.commit(tx)
        if beside == "committed":
            create(here, made, 3)
        tx = here.begin_transaction()
        if beside == "paused":
            tx.pause()
        if beside in ("by itself", "deleted"):
            records.create(tx, made, 2, {})
        if beside == "deleted":
            records.delete(tx, made, 2, Stored(0, b""))
        ids = [order.encode(n) for n in range(5)]
        count = records.create_together(tx, made, ids, rows) if here is many else 0
        assert count == (5 if here is many and beside in ("nothing", "paused", "deleted") else 0)
        for n in range(count, 5):
            if records.stored(tx, made, n) is None:
                records.create(tx, made, n, rows[n])
        here.commit(tx)
        here.durable()
        hashes.append(state_hash(here.engine))
    assert hashes[0] == hashes[1]


def test_records_made_together_stop_where_one_is_refused_or_enough_is_packed(
    book: Book, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [order.encode(n) for n in range(4)]
    tx = book.begin_transaction()
    for odd in ({"a": NONE}, {"a": [1, {"b": NONE}]}):
        assert records.create_together(tx, table, ids[:2], [{"a": 1}, odd]) == 0
    assert records.create_together(tx, table, [ids[0], ids[0]], [{}, {}]) == 0
    assert records.create_together(tx, table, [order.encode("x" * 300)], [{}]) == 0
    monkeypatch.setattr(limits, "RECORD_BYTES", 1_000)
    assert records.create_together(tx, table, ids[:2], [{}, {"x": "y" * 1_000}]) == 0
    assert records.count(tx, table) == 0 and not tx.own.writes
    monkeypatch.setattr(records, "TOGETHER_BYTES", 1_200)
    assert records.create_together(tx, table, ids, [{"x": "y" * 900}] * 4) == 2
    assert records.count(tx, table) == 2
    monkeypatch.setattr(limits, "TRANSACTION_BYTES", 2_000)
    with pytest.raises(TooLarge):
        records.create_together(tx, table, ids[2:], [{"x": "y" * 900}] * 2)


@pytest.mark.parametrize(
    "how, wanted",
    [
        ({}, [1, 2, 3, 4, 5]), ({"reverse": True}, [5, 4, 3, 2, 1]),
        ({"low": 2, "high": 4}, [2, 3]), ({"low": 2, "high": 4, "high_open": False}, [2, 3, 4]),
        ({"low": 2, "high": 4, "low_open": True}, [3]),
        ({"low": 2, "high": 4, "low_open": True, "high_open": False, "reverse": True}, [4, 3]),
        ({"low": 3}, [3, 4, 5]), ({"high": 3}, [1, 2]), ({"low": 4, "high": 2}, []),
        ({"low": "a"}, []), ({"high": "a"}, [1, 2, 3, 4, 5]),
    ],
)  # fmt: skip
def test_ranges(book: Book, table: Table, how: dict[str, Any], wanted: list[int]) -> None:
    create(book, table, 1, 3, 5)
    book.durable()
    create(book, table, 2)
    tx = book.begin_transaction()
    records.create(tx, table, 4, {})
    assert ids(tx, table, **how) == wanted
    tx.release()


record_ids = st.recursive(
    st.text(st.characters(codec="utf-8"), max_size=8)
    | st.integers(limits.INT_MIN, limits.INT_MAX)
    | st.uuids(),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)


@given(some=st.lists(record_ids, max_size=12))
def test_ids_come_back_in_the_order_of_values(some: list[Any]) -> None:
    book = Book()
    with book.begin_transaction() as tx:
        namespace = places.define_namespace(tx, "n")
        table = tables.define_table(tx, places.define_database(tx, namespace, "d"), "t")
        for id in some:
            if records.stored(tx, table, id) is None:
                records.create(tx, table, id, {})
        unique = list({repr(id): id for id in some}.values())
        assert ids(tx, table) == sorted(unique, key=cmp_to_key(compare))
        assert records.count(tx, table) == len(unique)


def test_too_large(book: Book, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    tx = book.begin_transaction()
    with pytest.raises(TooLarge, match="record id"):
        records.create(tx, table, "x" * 300, {})
    monkeypatch.setattr(limits, "RECORD_BYTES", 1_000)
    with pytest.raises(TooLarge, match="1000 bytes"):
        records.create(tx, table, 1, {"x": "y" * 1_000})
    records.create(tx, table, 1, {"x": "y" * 900})
    monkeypatch.setattr(limits, "TRANSACTION_BYTES", 3_000)
    records.create(tx, table, 2, {"x": "y" * 900})
    records.create(tx, table, 3, {"x": "y" * 900})
    with pytest.raises(TooLarge, match="transaction"):
        records.create(tx, table, 4, {"x": "y" * 900})
    tx.release()


def test_a_large_record_is_packed_in_steps() -> None:
    ticks = 0

    def tick() -> None:
        nonlocal ticks
        ticks += 1

    fields = {"a": {f"f{n}": {"n": n} for n in range(10 * PACE)}}
    assert records.pack_record(fields, tick) == binary.pack(fields)
    assert ticks >= 10


def test_what_a_scan_has_read_is_not_read_again(
    book: Book, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(book, table, 1, 2, 3)
    tx = book.begin_transaction()
    records.create(tx, table, 4, {"own": True})
    keys_of = [keys.record(table.prefix, id) for id in (1, 2, 3, 4)]
    expected = [records.stored_at(tx, key) for key in keys_of]
    for scan in (True, False):
        tx.scanned = scanned = records.Scanned()
        if scan:
            ids(tx, table)
        else:
            records.fetch(tx, table, [order.encode(id) for id in (1, 2, 3, 4)], 0, 4)
        tx.scanned = None
        assert scanned.room < records.SCANNED_BYTES
        with monkeypatch.context() as patch:
            patch.setattr(Transaction, "get", None)
            there = records.stored_together(tx, table, [1, 2, 3, 4], scanned)
            assert there == list(zip(keys_of, expected, strict=True))
    assert ids(tx, table, low=4) == [4] and len(scanned.values) == 4
    scanned.room = 0
    scanned.add([(b"key", b"value")])
    assert len(scanned.values) == 4
    assert records.stored_together(tx, table, [9], scanned) == [
        (keys.record(table.prefix, 9), None)
    ]
    with pytest.raises(TooLarge):
        records.stored_together(tx, table, [1, "x" * 300], scanned)
