"""The rules of records: read, created, deleted, counted; what changes them is `changes.py`.

A record's value is the sequence of the commit that last changed it (8 bytes), then its fields as
one msgpack object. Its id is in its key alone. What callers get and give here is the object's
bytes. What a table's indexes hold of it is kept from here and from nowhere else, by its
`indexes.Keeper`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from protocol import binary, limits, order, text
from protocol.errors import AlreadyExists, TooLarge
from protocol.values import RecordId, Tick
from storage import keys
from storage.announcing import note
from storage.catalog import Database, Table
from storage.effects import SEQUENCE_BYTES
from storage.engine import BATCH_BYTES, Pair
from storage.transactions import Transaction


class Stored(NamedTuple):
    """A record as it stands."""

    sequence: int
    """The commit that last changed it; 0 when only the transaction that asks has created it."""
    raw: bytes
    """Its fields, packed."""


def read(tx: Transaction, table: Table, id: Any) -> bytes | None:
    """The packed fields of a record, None when there is none."""
    value = tx.get(keys.record(table.prefix, id))
    return None if value is None else value[SEQUENCE_BYTES:]


def stored(tx: Transaction, table: Table, id: Any) -> Stored | None:
    """A record with the sequence of its last change, None when there is none."""
    value = tx.get(keys.record(table.prefix, id))
    if value is None:
        return None
    return Stored(int.from_bytes(value[:SEQUENCE_BYTES], "big"), value[SEQUENCE_BYTES:])


def last_change(tx: Transaction, table: Table, id: Any) -> int:
    """The commit that last changed a record which is there, or was before this transaction deleted
    it; 0: there is none. What the transaction itself has written is no commit yet."""
    found = stored(tx, table, id)
    if found is not None:
        return found.sequence
    return tx.deleted(keys.record(table.prefix, id))


def new_id(tx: Transaction, nth: int) -> UUID:
    """A time-ordered uuid (version 7): milliseconds, then their fraction, then `nth`, then chance.

    :param nth: how many ids the transaction has made before, so that they sort as they were made
    """
    milliseconds, rest = divmod(tx.now_us, 1000)
    fraction = rest * 4096 // 1000
    chance = int.from_bytes(tx.rng.bytes(5), "big")
    tail = ((nth & 0x3FFFFF) << 40) | chance
    return UUID(int=milliseconds << 80 | 0x7 << 76 | fraction << 64 | 0b10 << 62 | tail)


def create(
    tx: Transaction, table: Table, id: Any, fields: dict[str, Any], tick: Tick | None = None
) -> None:
    """Make a record that must not exist yet.

    :param fields: checked values, without the id
    :param tick: as `Keeper.keep`
    :raises AlreadyExists: it exists
    :raises Duplicate: a UNIQUE index holds its values of another record; nothing is written
    :raises TooLarge: the record, its id or the transaction is over its limit
    """
    key = keys.record(table.prefix, id)
    check_absent(tx, table, key)
    raw = packed(fields)
    if table.keeper is not None:
        table.keeper.keep(tx, key, None, fields, tick)
    tx.put_record(key, raw, 0)
    note(tx, table, key, None, raw)
    tx.add(table.count_key, 1)


def create_together(
    tx: Transaction,
    table: Table,
    ids: list[bytes],
    rows: Sequence[dict[str, Any]],
    tick: Tick | None = None,
) -> int:
    """Make the first of some records, as `create` makes one by one, as far as nothing stands in
    the way. Answers how many were made.

    It is 0, and nothing was written, when `create` has to be asked: one of them may be there or
    not, or is refused, or holds NONE.

    :param ids: encoded, at least one
    :param rows: checked values, without their ids
    :raises TooLarge: the transaction is over its limit
    """
    keys_made = [table.prefix + id for id in ids]
    if len(set(keys_made)) < len(keys_made) or max(map(len, ids)) > limits.RECORD_ID_BYTES:
        return 0
    if not tx.none_of(keys_made):
        return 0
    try:
        raw = binary.pack_some(rows, TOGETHER_BYTES)
    except binary.HoldsNone:
        return 0
    if max(map(len, raw)) > limits.RECORD_BYTES:
        return 0
    made = len(raw)
    if table.keeper is not None:
        entries = table.keeper.of_new(tx, ids[:made], rows[:made], tick)
        if entries is None:
            return 0
        tx.put_all(entries)
    tx.put_new_records(dict(zip(keys_made, raw, strict=False)))
    if table.on_change is not None:
        for key, one in zip(keys_made, raw, strict=False):
            note(tx, table, key, None, one)
    tx.add(table.count_key, made)
    return made


TOGETHER_BYTES: Final = 64 * limits.KIB
"""Packed by `create_together` before it lets somebody else go on."""


def check_new(tx: Transaction, table: Table, id: Any, fields: dict[str, Any], tick: Tick) -> None:
    """What `create` would refuse for what is there already, `tick` as there.
    :raises AlreadyExists, Duplicate:"""
    key = keys.record(table.prefix, id)
    check_absent(tx, table, key)
    if table.keeper is not None:
        table.keeper.check_new(tx, key, fields, tick)


def check_absent(tx: Transaction, table: Table, key: bytes) -> None:
    """:raises AlreadyExists: a table has a record with that key"""
    if tx.get(key) is not None:
        name = text.format_record(record_id(table)(key))
        raise AlreadyExists(f"record {name} exists", kind="record", name=name)


def delete(
    tx: Transaction, table: Table, id: Any, before: Stored, tick: Tick | None = None
) -> None:
    """Remove a record that exists. `before` is what `stored` said of it, `tick` as of `create`.
    :raises TooLarge:"""
    key = keys.record(table.prefix, id)
    if table.keeper is not None:
        table.keeper.keep(tx, key, before.raw, None, tick)
    tx.delete_record(key, before.sequence)
    note(tx, table, key, before.raw, None)
    tx.add(table.count_key, -1)


def count(tx: Transaction, table: Table) -> int:
    """How many records a table holds."""
    return keys.unpack_counter(tx.get(table.count_key))


def counts(tx: Transaction, database: Database, tick: Tick) -> Counter[int]:
    """How many records the tables of a database hold, by the table's id. :param tick: called for
    each"""
    rows = tx.rows(*keys.of_all(keys.COUNT, database.namespace.id, database.id), tick)
    return Counter({keys.third(key): keys.unpack_counter(value) for key, value in rows})


def scan(
    tx: Transaction,
    table: Table,
    low: Any = None,
    high: Any = None,
    *,
    low_open: bool = False,
    high_open: bool = True,
    reverse: bool = False,
) -> Iterator[list[Pair]]:
    """Keys and packed fields of a table's records by id, in lists that are never empty.

    :param low: the lowest id; None: from the first record on
    :param high: the highest id; None: to the last record
    :param low_open: without `low` itself
    :param high_open: without `high` itself
    """
    start, end = bounds(table, low, high, low_open=low_open, high_open=high_open)
    return map(_without_sequence, tx.scan(start, end, reverse))


def bounds(
    table: Table, low: Any = None, high: Any = None, *, low_open: bool, high_open: bool
) -> keys.Range:
    """The range of keys of the records that `scan` answers."""
    start, end = keys.within(table.prefix)
    # No encoding of an id begins with that of another: a byte more is past it and before the next.
    if low is not None:
        start = keys.record(table.prefix, low) + (b"\0" if low_open else b"")
    if high is not None:
        end = keys.record(table.prefix, high) + (b"" if high_open else b"\0")
    return start, end


def scan_keys(
    tx: Transaction, start: bytes, end: bytes, reverse: bool = False
) -> Iterator[list[Pair]]:
    """As `scan`, between two keys that `bounds` has given."""
    return map(_without_sequence, tx.scan(start, end, reverse))


def fetch(
    tx: Transaction, table: Table, ids: Sequence[bytes], at: int, most: int
) -> tuple[list[Pair], int]:
    """Return keys and packed fields of those of some records that are there, in the order of the
    ids, which are encoded; and the number of the id to go on with.

    :param at: the number of the first id
    :param most: how many are looked up at most: fewer where these have BATCH_BYTES
    """
    found = []
    prefix, get, room = table.prefix, tx.get, BATCH_BYTES
    end = min(at + most, len(ids))
    while at < end and room > 0:
        key = prefix + ids[at]
        at += 1
        value = get(key)
        if value is not None:
            found.append((key, value[SEQUENCE_BYTES:]))
            room -= len(value)
    return found, at


def about(tx: Transaction, table: Table) -> int:
    """About how many records a table holds; see `Transaction.hint`."""
    return keys.unpack_counter(tx.hint(table.count_key))


def record_id(table: Table) -> Callable[[bytes], RecordId]:
    """What makes a record's address of its key."""
    name, at, decode = table.name, keys.RECORD_PREFIX_BYTES, order.decode_id

    def address(key: bytes) -> RecordId:
        return RecordId(name, decode(key, at))

    return address


def _without_sequence(pairs: list[Pair]) -> list[Pair]:
    return [(key, value[SEQUENCE_BYTES:]) for key, value in pairs]


def packed(fields: dict[str, Any]) -> bytes:
    """A record's fields as they are kept. :raises TooLarge: over `limits.RECORD_BYTES`"""
    found = binary.pack(fields)
    if len(found) > limits.RECORD_BYTES:
        raise TooLarge(
            f"a record takes at most {limits.RECORD_BYTES} bytes, this one {len(found)}",
            limit=limits.RECORD_BYTES,
            size=len(found),
        )
    return found
