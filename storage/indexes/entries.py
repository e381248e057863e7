"""Secondary indexes: the entries of a record, and their maintenance.

`records.py` calls the `IndexMaintainer` of a table for every record that it creates, changes or
deletes. Nothing else does; a table without indexes has no maintainer. The entries of a
record depend on that record alone. So they can be written or deleted without a read, in any order
and repeatedly. This allows building an index while records are written.

An entry's key is: the prefix of its index, one byte for its side, the values of the indexed fields,
the record's id. Its value holds the length of the id. Sides:

| side | entries of each record |
|---|---|
| 0 | one entry with the fields' values as they are, absent ones as NONE |
| 1 | one entry for each distinct element, if a field is an array |
| 2 | a mark: a value was too long for a key and was truncated (`order.shortened`) |
| 3 | a mark: a path leads over a record link, so the record has no entries |

In a UNIQUE index, an entry is a *claim* if its values include no NONE, NULL or empty array, and on
side 0 no array at all. A claim has the id in its value instead of its key, so no two records can
have it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import product
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from protocol import limits, order
from protocol.binary import fits_slot, shape_decoder, slots, unpack_object
from protocol.errors import Duplicate, TooLarge
from protocol.paths import Path
from protocol.text import brief, format_record
from protocol.values import NONE, NoneValue, RecordId, Tick
from storage.formats import keys
from storage.formats.keys import SEQUENCE_BYTES, Pair
from storage.indexes.field_values import Linked, too_many, value_at
from storage.indexes.fresh_markers import FreshMarkers, SegmentedIndex
from storage.indexes.text_markers import TextMarkers
from storage.indexes.text_options import TextOptions
from storage.indexes.vector_markers import VectorMarkers
from storage.indexes.vector_options import VectorOptions
from storage.txn.steps import yield_to_others

if TYPE_CHECKING:
    from storage.txn.transaction import Transaction

# Sides of entries, see the table above. Their bytes are on the disk.
WHOLE: Final = b"\0"
ELEMENTS: Final = b"\1"
CUT_SHORT: Final = b"\2"
NOT_HELD: Final = b"\3"

BUILDING: Final = "building"
READY: Final = "ready"
REBUILDING: Final = "rebuilding"
FAILED: Final = "failed"


@dataclass(frozen=True, slots=True)
class Index:
    """A declared index."""

    id: int
    name: str
    table: str
    paths: tuple[Path, ...]
    unique: bool = False
    comment: str | None = None
    state: str = READY
    """Indexes in any state but FAILED are maintained; READY and REBUILDING ones are read."""
    problem: str | None = None
    """Reason for FAILED: error code and message."""
    anew: int | None = None
    """Id of the successor under construction, while it is REBUILDING."""
    text: TextOptions | None = None
    """Options of a FULLTEXT index; None: it is another one."""
    vector: VectorOptions | None = None
    """Options of a VECTOR index; None: it is another one."""
    key: bytes = field(default=b"", repr=False, compare=False)
    """Key of its declaration."""
    entries: bytes = field(default=b"", repr=False, compare=False)
    """Key prefix of its entries."""
    build: bytes = field(default=b"", repr=False, compare=False)
    """Key of its build progress."""
    centroids: bytes = field(default=b"", repr=False, compare=False)
    """Key prefix of the centroids of a VECTOR index."""
    recall: bytes = field(default=b"", repr=False, compare=False)
    """Key of its measured recall."""

    @property
    def most(self) -> int:
        """Maximum encoded size in bytes of one of its values, see `order.shortened`."""
        return limits.INDEX_VALUES_BYTES // len(self.paths)

    @property
    def usable(self) -> bool:
        """True if it is complete for every record and may be read by its values."""
        return not self.segmented and self.is_complete

    @property
    def segmented(self) -> bool:
        """True if it is made of segments: a FULLTEXT or VECTOR index."""
        return self.text is not None or self.vector is not None

    @property
    def is_complete(self) -> bool:
        """True if it covers every record of the table."""
        return self.state in (READY, REBUILDING)

    @property
    def follows_links(self) -> bool:
        """True if one of its paths could lead over a record link."""
        return any(len(path) > 1 for path in self.paths)


_PARTED: Final = frozenset({list, dict})
_EXACT: Final = frozenset({type(None), NoneValue, bool, int, str, bytes, datetime, UUID})
"""Types whose equal values have equal entries. Equal decimals may differ, as 0.0 and -0.0 do."""
_CLAIMS_NOTHING: Final = frozenset({NoneValue, type(None)})
_unstamped: Final = itemgetter(slice(SEQUENCE_BYTES, None))
"""Packed fields of a record, from its stored value."""
# Less by one, so that the longest length, 256, fits a byte.
_LENGTHS: Final = [b"", *(bytes((length - 1,)) for length in range(1, limits.RECORD_ID_BYTES + 1))]
"""Values of entries whose keys end with an id, indexed by the id's length in bytes."""


class IndexedFields:
    """Reads the indexed fields, and no others, of decoded or packed records."""

    def __init__(self, indexes: Sequence[Index]) -> None:
        heads = sorted({str(path[0]) for index in indexes for path in index.paths})
        self.heads = tuple(heads)
        self._decode: Callable[[bytes], Any] | None = None
        # With a name that fits no slot, whole records are decoded.
        if all(map(fits_slot, heads)):
            self._decode = shape_decoder(slots(self.heads))
        self._slots = [f"f{number}" for number in range(len(heads))]
        self._reads = [attrgetter(slot) for slot in self._slots]

    def of_fields(self, fields: dict[str, Any]) -> list[Any]:
        """Return the values of `heads` from decoded fields."""
        return [fields.get(name, NONE) for name in self.heads]

    def of_new(
        self, rows: Sequence[dict[str, Any]] | dict[str, list[Any]], count: int
    ) -> list[list[Any]]:
        """Return columns: for each of `heads` its value in the first `count` rows.

        :param rows: decoded fields, or their columns
        """
        if not isinstance(rows, dict):
            return self.of_many(rows[:count])
        absent = [NONE] * count
        return [rows.get(name, absent)[:count] for name in self.heads]

    def of_many(self, rows: Sequence[dict[str, Any]]) -> list[list[Any]]:
        """Return columns: for each of `heads` its value in every row of decoded fields."""
        return [[fields.get(name, NONE) for fields in rows] for name in self.heads]

    def of_packed(self, raw: bytes) -> list[Any]:
        """Return the values of `heads` from packed fields."""
        if self._decode is None:
            return self.of_fields(unpack_object(raw))
        row = self._decode(raw)
        return [getattr(row, slot) for slot in self._slots]

    def of_stored(self, values: Sequence[bytes]) -> list[list[Any]]:
        """Return columns: for each of `heads` its value in every record, from stored values."""
        return self.of_all_packed(list(map(_unstamped, values)))

    def of_all_packed(self, packed: Sequence[bytes]) -> list[list[Any]]:
        """Do the same from packed fields."""
        if self._decode is None:
            return self.of_many(list(map(unpack_object, packed)))
        rows = list(map(self._decode, packed))
        return [list(map(read, rows)) for read in self._reads]


class IndexEntries:
    """Computes the entries of one index."""

    def __init__(self, index: Index, heads: tuple[str, ...]) -> None:
        self.index = index
        self._parts = [(heads.index(str(path[0])), path[1:]) for path in index.paths]
        self._most = index.most
        self._kept = order.kept_bytes(index.most)
        self._whole = index.entries + WHOLE
        self._elements = index.entries + ELEMENTS

    def is_same(self, old: list[Any], new: list[Any]) -> bool:
        """True if two versions of a record have the same values, so that no entry changes. False
        for values that are to be encoded first.

        :param old: values from `IndexedFields`, like `new`
        """
        for head, _ in self._parts:
            before, after = old[head], new[head]
            kind = type(before)
            if kind is not type(after) or kind not in _EXACT or before != after:
                return False
        return True

    def of(self, row: list[Any], id: bytes) -> dict[bytes, bytes]:
        """Return the keys and values of a record's entries.

        :param row: values from `IndexedFields`
        :param id: encoded record id
        :raises TooLarge: its values have too many parts, or its arrays make too many entries
        """
        length = bytes((len(id) - 1,))
        try:
            values = self._values(row)
            # Before the encoding, which does not yield: a large value would block the loop.
            if not all(map(order.fits_index, values)):
                raise too_many()
        except Linked:
            return {self.index.entries + NOT_HELD + id: length}
        except TooLarge as refusal:
            refusal.detail["index"] = self.index.name
            raise
        encoded = list(map(order.encode, values))
        kept = [order.shortened(one, self._most) for one in encoded]
        arrays = list in map(type, values)
        # A claim has no id in its key, so two records with these values meet in one key.
        if self.index.unique and not arrays and all(map(can_claim, values)):
            found = {self._whole + b"".join(kept): id}
        else:
            found = {b"".join((self._whole, *kept, id)): length}
        if kept != encoded:
            found[self.index.entries + CUT_SHORT + id] = length
        if arrays:
            for part, combination in self._combinations(values):
                if self.index.unique and all(map(can_claim, combination)):
                    found[self._elements + part] = id
                else:
                    found[self._elements + part + id] = length
        return found

    def of_many(self, columns: list[list[Any]], ids: list[bytes]) -> tuple[dict[bytes, bytes], int]:
        """Return the entries of many records, and their number with repetition. Fewer distinct ones
        mean that two of the records have the same claim.

        :param columns: values from `IndexedFields.of_many`
        :raises TooLarge: as `of`
        """
        entries: dict[bytes, bytes] = {}
        count = 0
        for some, made in self.in_steps(columns, ids):
            count += made
            entries.update(some)
        return entries, count

    def in_steps(
        self, columns: list[list[Any]], ids: list[bytes]
    ) -> Iterator[tuple[dict[bytes, bytes], int]]:
        """Yield the results of `of_many`: in one step for simple records, else record by record."""
        if not ids:
            return
        alike = self.of_alike(columns, ids)
        if alike is not None:
            yield alike
            return
        for number, id in enumerate(ids):
            one = self.of([column[number] for column in columns], id)
            yield one, len(one)

    def of_alike(
        self, columns: list[list[Any]], ids: list[bytes]
    ) -> tuple[dict[bytes, bytes], int] | None:
        """Compute `of_many` column by column, for simple records. Return None if one of them needs
        separate treatment or would be refused."""
        try:
            found = [
                [value_at(value, rest) for value in columns[head]] if rest else columns[head]
                for head, rest in self._parts
            ]
        # Record by record, `of` makes the mark or the error that belongs to one of them.
        except (Linked, TooLarge):
            return None
        return self._of_plain(found, ids)

    def _of_plain(
        self, columns: list[list[Any]], ids: list[bytes]
    ) -> tuple[dict[bytes, bytes], int] | None:
        """Compute `of_many` from the final field values. Return None if one needs separate
        treatment."""
        kinds = {kind for column in columns for kind in map(type, column)}
        # Objects may have very many parts, which `of` counts before it encodes them.
        if dict in kinds:
            return None
        if list in kinds:
            single = len(columns) == 1 and not self.index.unique
            return self._of_arrays(columns[0], ids) if single else None
        encoded = list(map(order.encode_all, columns))
        if any(max(map(len, column)) > self._kept for column in encoded):
            return None  # a truncated value needs a mark beside its entry
        parts = encoded[0] if len(encoded) == 1 else map(b"".join, zip(*encoded, strict=True))
        whole = self._whole
        if not self.index.unique:
            entries = [whole + part + id for part, id in zip(parts, ids, strict=True)]
            # Ids of one length, as UUIDs are, need one value for all entries.
            lengths = set(map(len, ids))
            if len(lengths) == 1:
                return dict.fromkeys(entries, _LENGTHS[lengths.pop()]), len(ids)
            found = dict(zip(entries, map(_LENGTHS.__getitem__, map(len, ids)), strict=True))
        elif _CLAIMS_NOTHING.isdisjoint(kinds):
            found = {whole + part: id for part, id in zip(parts, ids, strict=True)}
        else:
            return None
        return found, len(ids)

    def _of_arrays(
        self, column: list[Any], ids: list[bytes]
    ) -> tuple[dict[bytes, bytes], int] | None:
        """Compute `_of_plain` for a single field with arrays among its values, in an index without
        claims."""
        whole, elements, encode = self._whole, self._elements, order.encode
        found: dict[bytes, bytes] = {}
        for value, id in zip(column, ids, strict=True):
            length = _LENGTHS[len(id)]
            if type(value) is list:
                # Only `of` counts the parts of nested values.
                if len(value) > limits.INDEX_ELEMENTS or not _PARTED.isdisjoint(map(type, value)):
                    return None
                parts = list(map(encode, value))
                encoded = order.array_of(parts)
                # An empty array counts as one element, as in `_combinations`.
                for part in parts or (encoded,):
                    found[elements + part + id] = length
            else:
                encoded = encode(value)
            if len(encoded) > self._kept:
                return None
            found[whole + encoded + id] = length
        return found, len(found)

    def _values(self, row: list[Any]) -> list[Any]:
        return [value_at(row[head], rest) if rest else row[head] for head, rest in self._parts]

    def _combinations(self, values: list[Any]) -> Iterator[tuple[bytes, tuple[Any, ...]]]:
        """Yield every combination of one element per array, each encoded and decoded."""
        choices, count = [], 1
        for value in values:
            # An empty array counts as one element, else the product would be empty and the
            # elements of the other arrays would have no entries.
            items = value if type(value) is list and value else [value]
            different = {order.shortened(order.encode(item), self._most): item for item in items}
            choices.append(list(different.items()))
            count *= len(different)
            # Counted before the product is made: eight arrays may have billions of combinations.
            if count > limits.INDEX_ELEMENTS:
                raise TooLarge(
                    f"the arrays of one record make at most {limits.INDEX_ELEMENTS} entries in"
                    f" index {self.index.name}",
                    limit=limits.INDEX_ELEMENTS,
                    index=self.index.name,
                )
        for combination in product(*choices):
            yield b"".join(part for part, _ in combination), tuple(item for _, item in combination)

    def duplicate(
        self, row: list[Any], claim: bytes, holder: bytes, stored: bytes | None = None
    ) -> Duplicate:
        """Return the error for a record whose claim another record holds.

        :param claim: key of the entry
        :param holder: encoded id of the record that holds it
        :param stored: encoded id of a record older than the index; None: the record is being
            written
        """
        index, values = self.index, tuple(self._values(row))
        if claim.startswith(self._elements):
            # The key may hold truncated values, so its combination is found by encoding all again.
            suffix = claim[len(self._elements) :]
            values = next(
                found for part, found in self._combinations(list(values)) if part == suffix
            )
        record = RecordId(index.table, order.decode_id(holder))
        told = ", ".join(brief(value, 80) for value in values)
        if stored is not None:
            other = RecordId(index.table, order.decode_id(stored))
            return Duplicate(
                f"index {index.name} of table {index.table} can't hold {told} of two records:"
                f" {format_record(record)} and {format_record(other)}",
                index=index.name,
                table=index.table,
                values=list(values),
                record=record,
                other=other,
            )
        return Duplicate(
            f"index {index.name} of table {index.table} holds {told} already:"
            f" {format_record(record)}",
            index=index.name,
            table=index.table,
            values=list(values),
            record=record,
        )


def can_claim(value: Any) -> bool:
    """True if UNIQUE applies to this value of a field."""
    return value is not NONE and value is not None and value != []


def holder(tx: Transaction, index: Index, value: Any) -> bytes | None:
    """Return the encoded id of the record that holds a value in a UNIQUE index over one field;
    empty if none does. None: the index can't tell, as not every record with such a value has a
    claim."""
    if type(value) in _PARTED or not can_claim(value):
        return None
    encoded = order.encode(value)
    if len(encoded) > order.kept_bytes(index.most):
        return None  # truncated in the index: other values may share the prefix
    # The key joins the read set, so a claim that another commit makes meanwhile is a conflict.
    return tx.get(index.entries + WHOLE + encoded) or b""


def entries_of(index: Index, heads: tuple[str, ...]) -> IndexEntries | FreshMarkers:
    """Return what computes the entries of an index. :param heads: of its `IndexedFields`"""
    if index.vector is not None:
        return VectorMarkers(index, index.vector, heads)
    return IndexEntries(index, heads) if index.text is None else TextMarkers(index, heads)


class IndexMaintainer:
    """Maintains the indexes of one table, except FAILED ones. Created with the table object."""

    def __init__(self, indexes: Sequence[Index]) -> None:
        self._rows = IndexedFields(indexes)
        self.heads = self._rows.heads
        """Names of the indexed fields, or of those that hold them."""
        self._all = [entries_of(index, self.heads) for index in indexes]

    def keep(
        self,
        tx: Transaction,
        key: bytes,
        before: bytes | None,
        after: dict[str, Any] | None,
        tick: Tick | None = None,
    ) -> None:
        """Update the entries of a record that changes; None for an absent version. Everything is
        checked before the first entry is written.

        :param key: key of the record
        :param before: packed fields before the change
        :param after: decoded fields after it
        :param tick: called if there are many entries; each index may hold 10 000 of a record. None:
            do not yield
        :raises Duplicate: another record holds the new values in a UNIQUE index
        :raises TooLarge: a record has too many entries
        """
        id = key[keys.RECORD_PREFIX_BYTES :]
        old_row = None if before is None else self._rows.of_packed(before)
        new_row = None if after is None else self._rows.of_fields(after)
        moves = self._moves(id, old_row, new_row, tick)
        if new_row is not None:
            _check_moves(tx, moves, new_row, id, tick)
        _leave(tx, moves, tick)
        _enter(tx, moves, tick)

    def is_untouched(self, known: dict[str, Any], fields: dict[str, Any]) -> bool:
        """True if a changed record has the very values of before in every indexed field, so that no
        entry changes. False proves nothing.

        :param known: decoded fields before the change
        :param fields: decoded fields after it
        """
        return all(known.get(name, NONE) is fields.get(name, NONE) for name in self.heads)

    def delete_together(
        self, tx: Transaction, keys_of: Sequence[bytes], packed: Sequence[bytes], tick: Tick
    ) -> None:
        """Update the entries of records that are deleted together.

        :param keys_of: keys of the records, at least one
        :param packed: their packed fields
        :raises TooLarge: as `keep`
        """
        ids = [key[keys.RECORD_PREFIX_BYTES :] for key in keys_of]
        columns = self._rows.of_all_packed(packed)
        gone: list[bytes] = []
        marked: dict[bytes, bytes] = {}
        for entries in self._all:
            if isinstance(entries, FreshMarkers):
                # A text or vector that is deleted is marked like one that is new.
                for number, id in enumerate(ids):
                    row = [column[number] for column in columns]
                    marked.update(entries.moved(row, None, id))
                yield_to_others(tick, marked)
                continue
            old, _ = entries.of_many(columns, ids)
            yield_to_others(tick, old)
            index = entries.index
            if index.unique and index.state == BUILDING:
                old = {
                    entry: value
                    for entry, value in old.items()
                    if _may_delete(tx, index, entry, value)
                }
            gone += old
        tx.delete_all(gone)
        tx.put_all(marked)

    def leave(
        self, tx: Transaction, key: bytes, before: bytes, after: bytes, tick: Tick
    ) -> list[EntryMove]:
        """Delete the entries that a record loses: the first half of `keep`, for records that change
        together. After all of them have left, call `enter` for each.

        :param before: packed fields before the change
        :param after: packed fields after it
        :returns: the moves whose new entries `enter` writes
        :raises TooLarge: a record has too many entries
        """
        rows = self._rows
        moves = self._moves(
            key[keys.RECORD_PREFIX_BYTES :], rows.of_packed(before), rows.of_packed(after), tick
        )
        _leave(tx, moves, tick)
        return [move for move in moves if move.entered]

    def enter(
        self, tx: Transaction, key: bytes, after: bytes, moves: list[EntryMove] | None, tick: Tick
    ) -> None:
        """Write the entries that a record gains: the second half of `keep`. Everything is checked
        first.

        :param moves: result of `leave`; None: the record is new
        :raises Duplicate: another record holds the values in a UNIQUE index by now
        :raises TooLarge: a record has too many entries
        """
        id, row = key[keys.RECORD_PREFIX_BYTES :], self._rows.of_packed(after)
        if moves is None:
            moves = self._moves(id, None, row, tick)
        _check_moves(tx, moves, row, id, tick)
        _enter(tx, moves, tick)

    def _moves(
        self, id: bytes, old_row: list[Any] | None, new_row: list[Any] | None, tick: Tick | None
    ) -> list[EntryMove]:
        moves = []
        for entries in self._all:
            if isinstance(entries, FreshMarkers):
                marker = entries.moved(old_row, new_row, id, written=True)
                if marker:
                    moves.append(EntryMove(entries, {}, marker))
                continue
            # Most updates leave most indexed fields as they are.
            if old_row is not None and new_row is not None and entries.is_same(old_row, new_row):
                continue
            old = {} if old_row is None else entries.of(old_row, id)
            new = {} if new_row is None else entries.of(new_row, id)
            yield_to_others(tick, old, new)
            if old != new:
                # Entries in both versions stay: a claim that is kept is never free in between.
                left = {entry: value for entry, value in old.items() if entry not in new}
                entered = {entry: value for entry, value in new.items() if entry not in old}
                moves.append(EntryMove(entries, left, entered))
        return moves

    def of_new(
        self,
        tx: Transaction,
        ids: list[bytes],
        rows: Sequence[dict[str, Any]] | dict[str, list[Any]],
        tick: Tick | None = None,
    ) -> dict[bytes, bytes] | None:
        """Return the entries of new records, computed together. None if `keep` must handle each:
        one of them is refused, or its claim may be taken.

        :param ids: encoded
        :param rows: decoded fields of at least as many records, or their columns
        """
        columns = self._rows.of_new(rows, len(ids))
        found: dict[bytes, bytes] = {}
        for entries in self._all:
            try:
                new, count = entries.of_many(columns, ids)
            except TooLarge:
                return None
            if isinstance(entries, IndexEntries) and entries.index.unique:
                claims = [entry for entry, value in new.items() if len(value) > 1]
                # Fewer keys: two of the records have one claim. `none_of` proves only absence, and
                # then has all claims in the read set.
                if len(new) < count or (claims and not tx.none_of(claims)):
                    return None
            yield_to_others(tick, new)
            found.update(new)
        return found

    def check_new(self, tx: Transaction, key: bytes, fields: dict[str, Any], tick: Tick) -> None:
        """Check the claims of a new record without writing.

        :param tick: as of `keep`
        :raises Duplicate: another record holds its values in a UNIQUE index
        """
        id = key[keys.RECORD_PREFIX_BYTES :]
        row = self._rows.of_fields(fields)
        for entries in self._all:
            if isinstance(entries, IndexEntries) and entries.index.unique:
                claims = entries.of(row, id)
                yield_to_others(tick, claims)
                check_claims(tx, entries, row, claims, id)


class EntryMove(NamedTuple):
    """Entries of one index that a changed record loses and gains."""

    entries: IndexEntries | FreshMarkers
    left: dict[bytes, bytes]
    entered: dict[bytes, bytes]


def _check_moves(
    tx: Transaction, moves: list[EntryMove], row: list[Any], id: bytes, tick: Tick | None
) -> None:
    """Check the claims that a record gains. :raises Duplicate: another record holds one"""
    for move in moves:
        yield_to_others(tick, move.entered)
        if isinstance(move.entries, IndexEntries) and move.entries.index.unique:
            check_claims(tx, move.entries, row, move.entered, id)


def _leave(tx: Transaction, moves: list[EntryMove], tick: Tick | None) -> None:
    for move in moves:
        yield_to_others(tick, move.left)
        for entry, value in move.left.items():
            if _may_delete(tx, move.entries.index, entry, value):
                tx.delete(entry)


def _enter(tx: Transaction, moves: list[EntryMove], tick: Tick | None) -> None:
    for move in moves:
        yield_to_others(tick, move.entered)
        for entry, value in move.entered.items():
            tx.put(entry, value)


def check_claims(
    tx: Transaction,
    entries: IndexEntries,
    row: list[Any],
    found: dict[bytes, bytes],
    id: bytes,
    *,
    stored: bool = False,
) -> None:
    """Check the claims among the entries of a record.

    :param found: the entries
    :param stored: True: the record is older than the index
    :raises Duplicate: another record holds one
    """
    for entry, value in found.items():
        if len(value) > 1:
            # An absent claim joins the read set too: of two commits that take it, one conflicts.
            holder = tx.get(entry)
            if holder is not None and holder != id:
                raise entries.duplicate(row, entry, holder, id if stored else None)


def _may_delete(tx: Transaction, index: Index | SegmentedIndex, entry: bytes, value: bytes) -> bool:
    """Return True if a record may delete this entry. While an index is being built, another record
    may hold the claim to its values, because the build has not yet reached the conflict."""
    return index.state != BUILDING or len(value) == 1 or tx.get(entry) == value


def keeper(indexes: Sequence[Index]) -> IndexMaintainer | None:
    """Return a keeper for these indexes and successors; None if there is nothing to maintain."""
    kept = [index for index in indexes if index.state != FAILED]
    return IndexMaintainer(kept) if kept else None


# --- reading --------------------------------------------------------------------------------------


def entry_id(pair: Pair) -> bytes:
    """Return the encoded id of the record that an entry belongs to."""
    key, value = pair
    # A claim has the id as its value. Otherwise the value is the length of the id less one.
    return value if len(value) > 1 else key[-1 - value[0] :]


def entry_values(pair: Pair) -> bytes:
    """Return the key of an entry without the id: equal for records with equal indexed values."""
    key, value = pair
    return key if len(value) > 1 else key[: -1 - value[0]]


def claimant(tx: Transaction, index: Index, values: bytes) -> bytes | None:
    """Return the encoded id of the record that claims these encoded values in a UNIQUE index."""
    return tx.get(index.entries + WHOLE + values)


def entries(
    tx: Transaction, index: Index, start: bytes, end: bytes, reverse: bool = False
) -> Iterator[list[Pair]]:
    """Yield the entries of an index between two of its keys, in non-empty lists."""
    assert start.startswith(index.entries), "an index is read within its own keys"
    return tx.scan(start, end, reverse)


def any_mark(tx: Transaction, index: Index, side: bytes) -> bool:
    """Return True if any record has a mark on this side."""
    return next(tx.scan(*keys.within(index.entries + side)), None) is not None
