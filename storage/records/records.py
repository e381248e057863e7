"""Records: read, create, change, delete, count.

A record's value is the sequence of the commit that last changed it (8 bytes), then its fields as
one msgpack object. Its id is only in its key. Callers pass and get the packed object. Only this
module updates a table's index entries, through the table's `IndexMaintainer`.

A statement reads the state as of its start. Therefore a statement that writes several records
computes all of them before it writes the first, and collects them in `RecordChanges`. Until its
`write`, reads of the statement see none of its changes.

UNIQUE is checked against the state after the statement. All changed records leave their index
entries before the first one enters its new ones. So one record may take over a value that another
gives up, in any order. A `write` that fails may have been applied in part; the transaction ends
then, as after any refused statement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple
from uuid import UUID

from protocol import binary, limits, order, text
from protocol.errors import AlreadyExists, Duplicate, Refusal, TooLarge
from protocol.values import NONE, RecordId, Tick, is_large, is_low, paced, ticking
from storage.catalog.places import Database
from storage.catalog.tables import Table
from storage.engine.engine import BATCH_BYTES
from storage.formats import keys
from storage.formats.keys import SEQUENCE_BYTES, Pair
from storage.indexes.entries import EntryMove
from storage.records.change_notes import note
from storage.txn.transaction import Transaction, too_large


class Stored(NamedTuple):
    """Stored record."""

    sequence: int
    """Sequence of the commit that last changed it; 0 if only the current transaction has created
    it."""
    raw: bytes
    """Packed fields."""


def read(tx: Transaction, table: Table, id: Any) -> bytes | None:
    """Return the packed fields of a record; None if there is none."""
    value = tx.get(keys.record(table.prefix, id))
    return None if value is None else value[SEQUENCE_BYTES:]


def stored(tx: Transaction, table: Table, id: Any) -> Stored | None:
    """Return a record with the sequence of its last change; None if there is none."""
    return stored_at(tx, keys.record(table.prefix, id))


def stored_at(tx: Transaction, key: bytes) -> Stored | None:
    """Return the record under a key as `stored` does."""
    value = tx.get(key)
    return None if value is None else _parsed(value)


def _parsed(value: bytes) -> Stored:
    # Directly: the constructor would take longer than all the rest.
    return _made(Stored, (int.from_bytes(value[:SEQUENCE_BYTES], "big"), value[SEQUENCE_BYTES:]))


_made: Final = tuple.__new__


def stored_together(
    tx: Transaction, table: Table, ids: Sequence[Any], scanned: Scanned
) -> list[tuple[bytes, Stored | None]]:
    """Return several records with their keys, as `stored` does for each.

    :param scanned: records that a scan of the same state has read
    """
    found: list[tuple[bytes, Stored | None]] = []
    known = scanned.values.get
    for key in keys.all_records(table.prefix, ids):
        value = known(key)
        found.append((key, stored_at(tx, key) if value is None else _parsed(value)))
    return found


class Scanned:
    """Records that a statement has read to find those that it writes: it need not read them again.
    Holds the first ones, up to `SCANNED_BYTES`."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        """Stored values, by key."""
        self.room = SCANNED_BYTES

    def add(self, pairs: list[Pair]) -> None:
        """Keep some records, while there is room."""
        if self.room > 0:
            self.values.update(pairs)
            self.room -= sum(map(len, map(_value, pairs))) + SCANNED_OVERHEAD * len(pairs)


SCANNED_BYTES: Final = 8 * limits.MIB
SCANNED_OVERHEAD: Final = 200
"""Memory of a kept record beside its value, about (bytes)."""
_value: Final = itemgetter(1)


def last_change(tx: Transaction, table: Table, id: Any) -> int:
    """Return the sequence of the commit that last changed a record; 0 if there is none.

    A record that the current transaction has deleted counts as it was before. The transaction's own
    writes are no commit yet.
    """
    found = stored(tx, table, id)
    if found is not None:
        return found.sequence
    return tx.deleted(keys.record(table.prefix, id))


def new_id(tx: Transaction, nth: int) -> UUID:
    """Make a time-ordered UUID (version 7): milliseconds, their fraction, `nth`, random bits.

    :param nth: number of ids that the transaction made before, so that its ids sort in order
    """
    # RFC 9562 §6.2, method 3: a fraction of the millisecond in the 12 bits behind the version.
    milliseconds, rest = divmod(tx.now_us, 1000)
    fraction = rest * 4096 // 1000
    chance = int.from_bytes(tx.rng.bytes(5), "big")
    # 22 bits of counter and 40 of chance fill the 62 bits behind the variant.
    tail = ((nth & 0x3FFFFF) << 40) | chance
    return UUID(int=milliseconds << 80 | 0x7 << 76 | fraction << 64 | 0b10 << 62 | tail)


def create(
    tx: Transaction, table: Table, id: Any, fields: dict[str, Any], tick: Tick | None = None
) -> None:
    """Create a record that must not exist yet.

    :param fields: validated values, without the id
    :param tick: as `IndexMaintainer.keep`
    :raises AlreadyExists: the record exists
    :raises Duplicate: a UNIQUE index has its values for another record; nothing is written
    :raises TooLarge: the record, its id or the transaction is over its limit
    """
    key = keys.record(table.prefix, id)
    check_absent(tx, table, key)
    raw = pack_record(fields, tick)
    if table.keeper is not None:
        table.keeper.keep(tx, key, None, fields, tick)
    tx.put_record(key, raw, 0)
    note(tx, table, key, None, raw)
    # An increment reads nothing, so commits that create records in a table do not conflict.
    tx.add(table.count_key, 1)


def create_together(
    tx: Transaction,
    table: Table,
    ids: list[bytes],
    rows: Sequence[dict[str, Any]] | dict[str, list[Any]],
    tick: Tick | None = None,
    links: binary.EncodedLinks | None = None,
) -> int:
    """Create several records in bulk, as far as none needs `create`.

    Return the number created, which are the first ones.

    0 means that nothing was written and `create` must be called for each: a record may exist, may
    be refused, or holds NONE.

    :param ids: encoded ids, at least one
    :param rows: validated values, without their ids; or those of each field, NONE where it is
        absent
    :param links: kept from call to call
    :raises TooLarge: the transaction is over its limit
    """
    keys_made = [table.prefix + id for id in ids]
    if len(set(keys_made)) < len(keys_made) or max(map(len, ids)) > limits.RECORD_ID_BYTES:
        return 0
    # One look-up for all. It proves only absence, so otherwise each is checked by itself.
    if not tx.none_of(keys_made):
        return 0
    try:
        # Perhaps only the first ones: the caller makes the rest its next batch.
        if isinstance(rows, dict):
            links = binary.EncodedLinks() if links is None else links
            raw = binary.pack_columns(rows, TOGETHER_BYTES, links)
        else:
            raw = binary.pack_some(rows, TOGETHER_BYTES)
    except binary.HoldsNone:
        return 0
    if max(map(len, raw)) > limits.RECORD_BYTES:
        return 0
    made = len(raw)
    if table.keeper is not None:
        entries = table.keeper.of_new(tx, ids[:made], rows, tick)
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
"""Bytes that `create_together` packs before it yields to others."""


def check_new(tx: Transaction, table: Table, id: Any, fields: dict[str, Any], tick: Tick) -> None:
    """Check that `create` would find no existing record or index entry in its way.

    :param tick: as in `create`
    :raises AlreadyExists, Duplicate:
    """
    key = keys.record(table.prefix, id)
    check_absent(tx, table, key)
    if table.keeper is not None:
        table.keeper.check_new(tx, key, fields, tick)


def check_absent(tx: Transaction, table: Table, key: bytes) -> None:
    """Check that a table has no record under a key.

    :raises AlreadyExists:
    """
    if tx.get(key) is not None:
        name = text.format_record(record_id(table)(key))
        raise AlreadyExists(f"record {name} exists", kind="record", name=name)


def delete(
    tx: Transaction, table: Table, id: Any, before: Stored, tick: Tick | None = None
) -> None:
    """Delete an existing record.

    :param before: the record as `stored` returned it
    :param tick: as in `create`
    :raises TooLarge:
    """
    key = keys.record(table.prefix, id)
    if table.keeper is not None:
        table.keeper.keep(tx, key, before.raw, None, tick)
    tx.delete_record(key, before.sequence)
    note(tx, table, key, before.raw, None)
    tx.add(table.count_key, -1)


def delete_together(
    tx: Transaction, table: Table, keys_of: Sequence[bytes], before: Sequence[Stored], tick: Tick
) -> None:
    """Delete several existing records, as `delete` does for each.

    :param keys_of: their keys, at least one; all differ
    :param before: the records as `stored` returned them
    :raises TooLarge:
    """
    if table.keeper is not None:
        table.keeper.delete_together(tx, keys_of, [one.raw for one in before], tick)
    tx.delete_records(keys_of, [one.sequence for one in before])
    if table.on_change is not None:
        for key, one in zip(keys_of, before, strict=True):
            note(tx, table, key, one.raw, None)
    tx.add(table.count_key, -len(keys_of))


def count(tx: Transaction, table: Table) -> int:
    """Return the number of records in a table."""
    return keys.unpack_counter(tx.get(table.count_key))


def counts(tx: Transaction, database: Database, tick: Tick) -> Counter[int]:
    """Return the numbers of records of a database's tables, by table id.

    :param tick: called for each table
    """
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
    """Scan keys and packed fields of a table's records by id, in lists that are never empty.

    :param low: lowest id; None: from the first record on
    :param high: highest id; None: to the last record
    :param low_open: exclude `low` itself
    :param high_open: exclude `high` itself
    """
    start, end = bounds(table, low, high, low_open=low_open, high_open=high_open)
    return _without_sequences(tx, tx.scan(start, end, reverse))


def bounds(
    table: Table, low: Any = None, high: Any = None, *, low_open: bool, high_open: bool
) -> keys.Range:
    """Return the key range that `scan` covers."""
    start, end = keys.within(table.prefix)
    # Encoded ids are prefix-free, so an id plus a zero byte sorts behind it and before the next.
    if low is not None:
        start = keys.record(table.prefix, low) + (b"\0" if low_open else b"")
    if high is not None:
        end = keys.record(table.prefix, high) + (b"" if high_open else b"\0")
    return start, end


def scan_keys(
    tx: Transaction, start: bytes, end: bytes, reverse: bool = False
) -> Iterator[list[Pair]]:
    """Scan between two keys of `bounds`, as `scan` does."""
    return _without_sequences(tx, tx.scan(start, end, reverse))


def fetch(
    tx: Transaction, table: Table, ids: Sequence[bytes], at: int, most: int
) -> tuple[list[Pair], int]:
    """Fetch keys and packed fields of existing records, in the order of the ids.

    Return them, with the index of the id to continue with.

    :param ids: encoded ids
    :param at: index of the first id
    :param most: largest number of ids; fewer if the records reach BATCH_BYTES
    """
    found = []
    prefix, get, room = table.prefix, tx.get, BATCH_BYTES
    end = min(at + most, len(ids))
    # The room is checked before a read, so one record comes whatever its size.
    while at < end and room > 0:
        key = prefix + ids[at]
        at += 1
        value = get(key)
        if value is not None:
            found.append((key, value))
            room -= len(value)
    if tx.scanned is not None:
        tx.scanned.add(found)
    return _without_sequence(found), at


def about(tx: Transaction, table: Table) -> int:
    """Return the approximate number of records in a table; see `Transaction.hint`."""
    return keys.unpack_counter(tx.hint(table.count_key))


def record_id(table: Table) -> Callable[[bytes], RecordId]:
    """Return a function that decodes a record's address from its key."""
    name, at, decode = table.name, keys.RECORD_PREFIX_BYTES, order.decode_id

    def address(key: bytes) -> RecordId:
        return RecordId(name, decode(key, at))

    return address


def _without_sequences(tx: Transaction, scan: Iterator[list[Pair]]) -> Iterator[list[Pair]]:
    scanned = tx.scanned
    if scanned is None:
        return map(_without_sequence, scan)
    return map(_without_sequence, _noted(scan, scanned))


def _noted(scan: Iterator[list[Pair]], scanned: Any) -> Iterator[list[Pair]]:
    for pairs in scan:
        scanned.add(pairs)
        yield pairs


def _without_sequence(pairs: list[Pair]) -> list[Pair]:
    return [(key, value[SEQUENCE_BYTES:]) for key, value in pairs]


def pack_record(fields: dict[str, Any], tick: Tick | None = None) -> bytes:
    """Pack a record's fields.

    :param tick: called now and then while a large record is packed
    :raises TooLarge: over `limits.RECORD_BYTES`
    """
    # `is_low` is the fast path for most records: it looks at a few values only.
    if tick is None or is_low(fields) or not is_large(fields):
        found = binary.pack(fields)
    else:
        parts = bytearray()  # a list of a hundred thousand would be freed in one go
        binary.pack_in_steps(fields, tick, parts.extend)
        found = bytes(parts)
    if len(found) > limits.RECORD_BYTES:
        raise TooLarge(
            f"a record takes at most {limits.RECORD_BYTES} bytes, this one takes {len(found)}",
            limit=limits.RECORD_BYTES,
            size=len(found),
        )
    return found


class _RecordWrite(NamedTuple):
    """A record to write; `before` None: it is new."""

    number: int
    key: bytes
    packed: bytes
    before: Stored | None
    moves: bool
    """False if its index entries stay as they are."""


_TOGETHER: Final = 64
"""Records that are written in one step."""


class _RefusedRecord(NamedTuple):
    """An invalid new record. Its refusal is reported unless the record exists already."""

    id: Any
    fields: dict[str, Any]
    refusal: Refusal


IsPassed = Callable[[AlreadyExists | Duplicate], bool]
"""Predicate: skip a new record that was refused with this error."""


def _is_same(
    before: bytes, known: dict[str, Any], after: bytes, fields: dict[str, Any], tick: Tick | None
) -> bool:
    """True if the fields are bitwise equal in any order; 0.0 differs from -0.0."""
    if before == after:
        return True
    # Fast path for most changes. Values equal in Python may still differ, as 1 and True do.
    if len(before) != len(after) or known != fields:
        return False
    # Decode again: `known` may share nested objects with `fields`, which hides a change.
    kept = _ordered(binary.unpack(before), tick)
    return binary.pack(kept) == binary.pack(_ordered(fields, tick))


def _ordered(value: Any, tick: Tick | None) -> Any:
    """Return a value with the fields of all nested objects sorted by name."""
    if type(value) is dict:
        names = ticking(sorted(value), len(value), tick)
        return {name: _ordered(value[name], tick) for name in names}
    if type(value) is list:
        return [_ordered(item, tick) for item in ticking(value, len(value), tick)]
    return value


class RecordChanges:
    """The records of one table that a statement creates and changes, each at most once.

    :param skips_same: skip records whose fields do not change. Only for callers that may read them:
        the absence of a commit reveals their values
    """

    def __init__(self, tx: Transaction, table: Table, *, skips_same: bool = False) -> None:
        self._tx = tx
        self._table = table
        self._skips_same = skips_same
        self._bytes = 0
        self._count = 0
        self._collected: list[_RecordWrite | _RefusedRecord] = []
        self._only_changes = True
        """True if all collected records exist, and are to be replaced."""
        self._moves: dict[int, list[EntryMove]] = {}

    def put(
        self,
        id: Any,
        fields: dict[str, Any],
        before: Stored | None,
        known: dict[str, Any] | None = None,
        tick: Tick | None = None,
    ) -> int:
        """Collect a record to create or replace.

        :param fields: checked values, without the id
        :param before: result of `stored`; None: the record is new
        :param known: decoded fields of `before`, to find what stays the same
        :returns: bytes held in memory for it until `write`
        :raises TooLarge: the record, or all of them together, exceed their limit
        """
        packed = pack_record(fields, tick)
        if (
            self._skips_same
            and before is not None
            and known is not None
            and _is_same(before.raw, known, packed, fields, tick)
        ):
            # Counted although it is left out: `write` names records by their place among all.
            self._count += 1
            return 0
        key = keys.record(self._table.prefix, id)
        size = len(key) + len(packed)
        self._bytes += size
        # Fail early: each is a different record, so the transaction could not take them all.
        if self._bytes > limits.TRANSACTION_BYTES:
            raise too_large()
        keeper = self._table.keeper
        moves = keeper is not None and (known is None or not keeper.is_untouched(known, fields))
        self._only_changes = self._only_changes and before is not None
        self._collected.append(_RecordWrite(self._count, key, packed, before, moves))
        self._count += 1
        return size if before is None else size + len(before.raw)

    def put_together(
        self,
        found: list[tuple[RecordId, bytes, Stored]],
        rows: list[dict[str, Any]],
        known: list[dict[str, Any]],
        tick: Tick,
    ) -> int | None:
        """Collect existing records to replace, as `put` does for each. Return None, with nothing
        collected, if `put` must be called for each.

        :param found: their addresses, keys and stored forms
        :param rows: their new fields
        :param known: their decoded fields before
        :raises HoldsNone: one of them holds NONE
        """
        packed = binary.pack_some(rows, TOGETHER_BYTES)
        if len(packed) < len(found) or max(map(len, packed)) > limits.RECORD_BYTES:
            return None
        sizes = sum(map(len, packed)) + sum([len(key) for _, key, _ in found])
        if self._bytes + sizes > limits.TRANSACTION_BYTES:
            return None
        held = 0
        heads = () if self._table.keeper is None else self._table.keeper.heads
        for at, (_, key, before) in enumerate(found):
            fields, old, new = rows[at], known[at], packed[at]
            number = self._count
            self._count += 1
            if self._skips_same and _is_same(before.raw, old, new, fields, tick):
                continue
            moves = False
            for name in heads:
                if old.get(name, NONE) is not fields.get(name, NONE):
                    moves = True
                    break
            self._collected.append(_RecordWrite(number, key, new, before, moves))
            size = len(key) + len(new)
            self._bytes += size
            held += size + len(before.raw)
        return held

    def refuse(self, id: Any, fields: dict[str, Any], refusal: Refusal) -> None:
        """Collect a refused new record; `write` raises the refusal unless the record exists by
        then."""
        self._only_changes = False
        self._collected.append(_RefusedRecord(id, fields, refusal))

    def write(self, tick: Tick, is_passed: IsPassed = lambda taken: False) -> set[int]:
        """Write the collected records in order.

        :param is_passed: decides about a new record that exists already, or whose UNIQUE values are
            taken
        :returns: the indexes of the skipped records among those that were `put`, from 0
        :raises AlreadyExists, Duplicate: a new record exists, or its UNIQUE values are taken
        :raises Duplicate: two records would have the same UNIQUE values
        :raises Refusal: a refusal given to `refuse`
        :raises TooLarge: the transaction exceeds its limit
        """
        collected = self._collected
        # All leave before the first one enters: claims may pass between them in any order.
        self._leave(tick)
        collected.reverse()
        if not self._moves and self._only_changes:
            self._change_all(tick)
            return set()
        passed: set[int] = set()
        while collected:
            tick()
            change = collected.pop()  # freeing a million at once would block the loop
            if isinstance(change, _RefusedRecord):
                self._refuse(change, is_passed, tick)
            elif change.before is not None:
                self._change(change, change.before, tick)
            elif not self._make(change, is_passed, tick):
                passed.add(change.number)
        return passed

    def _leave(self, tick: Tick) -> None:
        """Remove the index entries that the changed records lose."""
        keeper = self._table.keeper
        if keeper is None:
            return
        for change in paced(self._collected, tick):
            if isinstance(change, _RecordWrite) and change.before is not None and change.moves:
                tick()
                moves = keeper.leave(self._tx, change.key, change.before.raw, change.packed, tick)
                if moves:
                    self._moves[change.number] = moves

    def _change_all(self, tick: Tick) -> None:
        """Write the collected records, all of which exist and gain no index entries."""
        tx, table, collected = self._tx, self._table, self._collected
        while collected:
            tick()
            some = collected[: -_TOGETHER - 1 : -1]
            del collected[-_TOGETHER:]  # freeing a million at once would block the loop
            rows = {change.key: change.packed for change in some}  # type: ignore[union-attr]
            tx.put_records(rows, [change.before.sequence for change in some])  # type: ignore[union-attr]
            for change in some if table.on_change is not None else ():
                note(tx, table, change.key, change.before.raw, change.packed)  # type: ignore[union-attr]

    def _change(self, change: _RecordWrite, before: Stored, tick: Tick) -> None:
        moves = self._moves.pop(change.number, None)
        # No moves: nothing is gained. As an argument of `enter`, None would mean a new record.
        if moves is not None and self._table.keeper is not None:
            self._table.keeper.enter(self._tx, change.key, change.packed, moves, tick)
        self._tx.put_record(change.key, change.packed, before.sequence)
        note(self._tx, self._table, change.key, before.raw, change.packed)

    def _make(self, change: _RecordWrite, is_passed: IsPassed, tick: Tick) -> bool:
        tx, table = self._tx, self._table
        try:
            # At the write: an earlier record of the statement may have taken the id or the values.
            check_absent(tx, table, change.key)
            if table.keeper is not None:
                table.keeper.enter(tx, change.key, change.packed, None, tick)
        except (AlreadyExists, Duplicate) as taken:
            # All checks come before the first write, so a skipped record has left nothing.
            if is_passed(taken):
                return False
            raise
        tx.put_record(change.key, change.packed, 0)
        note(tx, table, change.key, None, change.packed)
        tx.add(table.count_key, 1)
        return True

    def _refuse(self, refused: _RefusedRecord, is_passed: IsPassed, tick: Tick) -> None:
        try:
            check_new(self._tx, self._table, refused.id, refused.fields, tick)
        except (AlreadyExists, Duplicate) as taken:
            if is_passed(taken):
                return
            raise
        raise refused.refusal
