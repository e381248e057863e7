"""What an index holds of a record, and how that is kept exact.

`Keeper.keep` is called by `records.py` for every record that is made, changed or removed, and by
nothing else; a table without indexes has no keeper. What an index holds of a record depends on the
record alone, so an entry is put or deleted without looking at what is there, in any order and as
often as one likes: that is what lets an index be built while records are written.

An entry's key is the prefix of its index, one byte for its side, the values of the indexed fields
and the record's id; its value says how long the id is. Sides:

| side | what it holds of each record |
|---|---|
| 0 | one entry with the fields' values as they are, absent ones as NONE |
| 1 | one entry for each different element, where a field is an array |
| 2 | a mark: a value was too long for a key and was cut short (`order.shortened`) |
| 3 | a mark: a path leads over a record link, so the record has no entries |

In a UNIQUE index an entry without NONE, NULL or an empty array among its values, and on side 0
without any array, is a *claim*: the id stands in its value and not in its key, so no two records
can have it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from operator import attrgetter, itemgetter
from typing import Any, Final, NamedTuple

from protocol import limits, order
from protocol.binary import fits_slot, shape_decoder, slots, unpack_object
from protocol.errors import Duplicate, TooLarge
from protocol.paths import EACH, Path
from protocol.text import brief, format_record
from protocol.values import NONE, NoneValue, RecordId, Tick
from storage import keys
from storage.effects import SEQUENCE_BYTES
from storage.engine import Pair
from storage.index_steps import let_others
from storage.transactions import Transaction

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
    """All but FAILED ones are kept; READY and REBUILDING ones are read."""
    problem: str | None = None
    """Why it is FAILED."""
    anew: int | None = None
    """The number of the one that is being built to take its place, while it is REBUILDING."""
    key: bytes = field(default=b"", repr=False, compare=False)
    """Where it is declared."""
    entries: bytes = field(default=b"", repr=False, compare=False)
    """What the keys of its entries begin with."""
    build: bytes = field(default=b"", repr=False, compare=False)
    """Where it is kept how far it is built."""

    @property
    def most(self) -> int:
        """The longest encoding of one of its values, see `order.shortened`."""
        return limits.INDEX_VALUES_BYTES // len(self.paths)

    @property
    def usable(self) -> bool:
        """Whether it holds what it should of every record."""
        return self.state in (READY, REBUILDING)

    @property
    def follows_links(self) -> bool:
        """Whether a path of it could lead over a record link."""
        return any(len(path) > 1 for path in self.paths)


_PARTED: Final = frozenset({list, dict})
_CLAIMS_NOTHING: Final = frozenset({NoneValue, type(None)})
_unstamped: Final = itemgetter(slice(SEQUENCE_BYTES, None))
"""A record's fields, packed, of its value as it is stored."""
_LENGTHS: Final = [b"", *(bytes((length - 1,)) for length in range(1, limits.RECORD_ID_BYTES + 1))]
"""The value of an entry whose key ends with an id of so many bytes."""


class _Linked(Exception):
    """A path leads over a record link."""


def _check_count(parts: int) -> None:
    if parts > limits.INDEX_ELEMENTS:
        raise _too_many()


def _too_many() -> TooLarge:
    return TooLarge(
        f"a value has at most {limits.INDEX_ELEMENTS} parts where a field is indexed",
        limit=limits.INDEX_ELEMENTS,
    )


def value_at(value: Any, path: Path) -> Any:
    """What a path leads to, as an expression of the language says, NONE where that would refuse.

    :raises TooLarge: an array on the way has too many items
    :raises _Linked: an expression would read another record on the way
    """
    for at, step in enumerate(path):
        kind = type(value)
        if kind is RecordId and type(step) is not int:
            if step != "id":
                raise _Linked
        elif step is EACH:
            if kind is not list and kind is not dict:
                return NONE
            value = list(value.values()) if kind is dict else value
            if at + 1 < len(path):
                return _of_every(value, path[at + 1 :])
        elif type(step) is str:
            if kind is list:
                return _of_every(value, path[at:])
            value = value.get(step, NONE) if kind is dict else NONE
        elif kind is list:
            assert type(step) is int
            value = value[step] if -len(value) <= step < len(value) else NONE
        else:
            value = NONE
    return value


def _of_every(items: list[Any], path: Path) -> list[Any]:
    _check_count(len(items))
    return [value_at(item, path) for item in items]


class Rows:
    """Reads the indexed fields, and no others, of fields and of packed fields."""

    def __init__(self, indexes: Sequence[Index]) -> None:
        heads = sorted({str(path[0]) for index in indexes for path in index.paths})
        self.heads = tuple(heads)
        self._decode: Callable[[bytes], Any] | None = None
        if all(map(fits_slot, heads)):
            self._decode = shape_decoder(slots(self.heads))
        self._slots = [f"f{number}" for number in range(len(heads))]
        self._reads = [attrgetter(slot) for slot in self._slots]

    def of_fields(self, fields: dict[str, Any]) -> list[Any]:
        """The values of `heads`."""
        return [fields.get(name, NONE) for name in self.heads]

    def of_many(self, rows: Sequence[dict[str, Any]]) -> list[list[Any]]:
        """For each of `heads` its value in every row."""
        return [[fields.get(name, NONE) for fields in rows] for name in self.heads]

    def of_packed(self, raw: bytes) -> list[Any]:
        """The same of a record as it is stored."""
        if self._decode is None:
            return self.of_fields(unpack_object(raw))
        row = self._decode(raw)
        return [getattr(row, slot) for slot in self._slots]

    def of_stored(self, values: Sequence[bytes]) -> list[list[Any]]:
        """For each of `heads` its value in every record, of their values as they are stored."""
        if self._decode is None:
            return self.of_many([unpack_object(value[SEQUENCE_BYTES:]) for value in values])
        rows = list(map(self._decode, map(_unstamped, values)))
        return [list(map(read, rows)) for read in self._reads]


class Entries:
    """Makes the entries of one index."""

    def __init__(self, index: Index, heads: tuple[str, ...]) -> None:
        self.index = index
        self._parts = [(heads.index(str(path[0])), path[1:]) for path in index.paths]
        self._most = index.most
        self._kept = order.kept_bytes(index.most)
        self._whole = index.entries + WHOLE
        self._elements = index.entries + ELEMENTS

    def of(self, row: list[Any], id: bytes) -> dict[bytes, bytes]:
        """Keys and values of what the index holds of a record.

        :param row: the values that `Rows` reads
        :param id: the record's id, encoded
        :raises TooLarge: its values have too many parts, or its arrays make too many entries
        """
        length = bytes((len(id) - 1,))
        try:
            values = self._values(row)
            if not all(map(order.fits_index, values)):
                raise _too_many()
        except _Linked:
            return {self.index.entries + NOT_HELD + id: length}
        except TooLarge as refusal:
            refusal.detail["index"] = self.index.name
            raise
        encoded = list(map(order.encode, values))
        kept = [order.shortened(one, self._most) for one in encoded]
        arrays = list in map(type, values)
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
        """What `of` says of each of many records, and how many entries that was: there are fewer
        when two of the records have the same claim.

        :param columns: as `Rows.of_many` reads them
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
        """As `of_many`, all in one go where the records are simple, else one after the other."""
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
        """As `of_many`, of records that are simple enough to be looked at column by column; None
        where one of them has to be looked at by itself, or is refused."""
        try:
            found = [
                [value_at(value, rest) for value in columns[head]] if rest else columns[head]
                for head, rest in self._parts
            ]
        except (_Linked, TooLarge):
            return None
        return self._of_plain(found, ids)

    def _of_plain(
        self, columns: list[list[Any]], ids: list[bytes]
    ) -> tuple[dict[bytes, bytes], int] | None:
        """As `of_many`, of the fields' values. None when one of them needs a closer look."""
        kinds = {kind for column in columns for kind in map(type, column)}
        if dict in kinds:
            return None
        if list in kinds:
            single = len(columns) == 1 and not self.index.unique
            return self._of_arrays(columns[0], ids) if single else None
        encoded = list(map(order.encode_all, columns))
        if any(max(map(len, column)) > self._kept for column in encoded):
            return None
        parts = encoded[0] if len(encoded) == 1 else map(b"".join, zip(*encoded, strict=True))
        whole = self._whole
        if not self.index.unique:
            entries = [whole + part + id for part, id in zip(parts, ids, strict=True)]
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
        """As `_of_plain`, of one field with arrays among its values, where nothing is claimed."""
        whole, elements, encode = self._whole, self._elements, order.encode
        found: dict[bytes, bytes] = {}
        for value, id in zip(column, ids, strict=True):
            length = _LENGTHS[len(id)]
            if type(value) is list:
                if len(value) > limits.INDEX_ELEMENTS or not _PARTED.isdisjoint(map(type, value)):
                    return None
                parts = list(map(encode, value))
                encoded = order.array_of(parts)
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
        """Every choice of one element of each array among the values: its encoding and itself."""
        choices, count = [], 1
        for value in values:
            # An empty array stands for itself, so that the elements beside it have their entries.
            items = value if type(value) is list and value else [value]
            different = {order.shortened(order.encode(item), self._most): item for item in items}
            choices.append(list(different.items()))
            count *= len(different)
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
        """The refusal of a record whose claim another one has.

        :param stored: the id of a record that was there before the index, encoded
        """
        index, values = self.index, tuple(self._values(row))
        if claim.startswith(self._elements):
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
    """Whether UNIQUE means this value of a field."""
    return value is not NONE and value is not None and value != []


def holder(tx: Transaction, index: Index, value: Any) -> bytes | None:
    """The encoded id of the record that holds a value in a UNIQUE index over one field, empty when
    none does. None: not every record with such a value has an entry that is found by it alone."""
    if type(value) in _PARTED or not can_claim(value):
        return None
    encoded = order.encode(value)
    if len(encoded) > order.kept_bytes(index.most):
        return None  # cut short in the index: others may begin alike
    return tx.get(index.entries + WHOLE + encoded) or b""


class Keeper:
    """Keeps the indexes of one table. Made with the table, for those that are not FAILED."""

    def __init__(self, indexes: Sequence[Index]) -> None:
        self._rows = Rows(indexes)
        self._all = [Entries(index, self._rows.heads) for index in indexes]

    def keep(
        self,
        tx: Transaction,
        key: bytes,
        before: bytes | None,
        after: dict[str, Any] | None,
        tick: Tick | None = None,
    ) -> None:
        """Follow a record from one state to another; None where there is none.

        Everything is checked before the first entry is written.

        :param key: the record's own
        :param before: its fields as they were, packed
        :param tick: called where it makes many entries, of which each index may hold 10 000; None:
            nobody else has a turn meanwhile
        :raises Duplicate: a UNIQUE index holds the new values of another record
        :raises TooLarge:
        """
        id = key[keys.RECORD_PREFIX_BYTES :]
        old_row = None if before is None else self._rows.of_packed(before)
        new_row = None if after is None else self._rows.of_fields(after)
        moves = self._moves(id, old_row, new_row, tick)
        if new_row is not None:
            _check_moves(tx, moves, new_row, id, tick)
        _leave(tx, moves, tick)
        _enter(tx, moves, tick)

    def leave(
        self, tx: Transaction, key: bytes, before: bytes, after: bytes, tick: Tick
    ) -> list[Move]:
        """The first half of what `keep` does, for records that change together: take away what the
        record will not have any more. When all of them have left, each `enter`s.

        :param before: its fields, packed; `after` too
        :raises TooLarge:
        """
        rows = self._rows
        moves = self._moves(
            key[keys.RECORD_PREFIX_BYTES :], rows.of_packed(before), rows.of_packed(after), tick
        )
        _leave(tx, moves, tick)
        return [move for move in moves if move.entered]

    def enter(
        self, tx: Transaction, key: bytes, after: bytes, moves: list[Move] | None, tick: Tick
    ) -> None:
        """The second half: put what the record has now. Checked before the first entry is put.

        :param moves: what `leave` answered; None: the record is new
        :raises Duplicate: a UNIQUE index holds the values of another record, as it is by now
        :raises TooLarge:
        """
        id, row = key[keys.RECORD_PREFIX_BYTES :], self._rows.of_packed(after)
        if moves is None:
            moves = self._moves(id, None, row, tick)
        _check_moves(tx, moves, row, id, tick)
        _enter(tx, moves, tick)

    def _moves(
        self, id: bytes, old_row: list[Any] | None, new_row: list[Any] | None, tick: Tick | None
    ) -> list[Move]:
        moves = []
        for entries in self._all:
            old = {} if old_row is None else entries.of(old_row, id)
            new = {} if new_row is None else entries.of(new_row, id)
            let_others(tick, old, new)
            if old != new:
                left = {entry: value for entry, value in old.items() if entry not in new}
                entered = {entry: value for entry, value in new.items() if entry not in old}
                moves.append(Move(entries, left, entered))
        return moves

    def of_new(
        self,
        tx: Transaction,
        ids: list[bytes],
        rows: Sequence[dict[str, Any]],
        tick: Tick | None = None,
    ) -> dict[bytes, bytes] | None:
        """The entries of records that are to be made, all in one go. None when `keep` has to be
        asked of each: one of them is refused, or its claim may be another one's.

        :param ids: encoded
        """
        columns = self._rows.of_many(rows)
        found: dict[bytes, bytes] = {}
        for entries in self._all:
            try:
                new, count = entries.of_many(columns, ids)
            except TooLarge:
                return None
            if entries.index.unique:
                claims = [entry for entry, value in new.items() if len(value) > 1]
                if len(new) < count or (claims and not tx.none_of(claims)):
                    return None
            let_others(tick, new)
            found.update(new)
        return found

    def check_new(self, tx: Transaction, key: bytes, fields: dict[str, Any], tick: Tick) -> None:
        """:param tick: as of `keep`
        :raises Duplicate: a UNIQUE index holds the values of a record that is to be made"""
        id = key[keys.RECORD_PREFIX_BYTES :]
        row = self._rows.of_fields(fields)
        for entries in self._all:
            if entries.index.unique:
                claims = entries.of(row, id)
                let_others(tick, claims)
                check_claims(tx, entries, row, claims, id)


class Move(NamedTuple):
    """What one index has no more, and has instead, as a record goes from one state to another."""

    entries: Entries
    left: dict[bytes, bytes]
    entered: dict[bytes, bytes]


def _check_moves(
    tx: Transaction, moves: list[Move], row: list[Any], id: bytes, tick: Tick | None
) -> None:
    """:raises Duplicate: what a record is to have in a UNIQUE index is another one's"""
    for move in moves:
        let_others(tick, move.entered)
        if move.entries.index.unique:
            check_claims(tx, move.entries, row, move.entered, id)


def _leave(tx: Transaction, moves: list[Move], tick: Tick | None) -> None:
    for move in moves:
        let_others(tick, move.left)
        for entry, value in move.left.items():
            if _may_delete(tx, move.entries.index, entry, value):
                tx.delete(entry)


def _enter(tx: Transaction, moves: list[Move], tick: Tick | None) -> None:
    for move in moves:
        let_others(tick, move.entered)
        for entry, value in move.entered.items():
            tx.put(entry, value)


def check_claims(
    tx: Transaction,
    entries: Entries,
    row: list[Any],
    found: dict[bytes, bytes],
    id: bytes,
    *,
    stored: bool = False,
) -> None:
    """Look at the claims among the entries of a record.

    :param stored: the record was there before the index
    :raises Duplicate: one is another record's
    """
    for entry, value in found.items():
        if len(value) > 1:
            holder = tx.get(entry)
            if holder is not None and holder != id:
                raise entries.duplicate(row, entry, holder, id if stored else None)


def _may_delete(tx: Transaction, index: Index, entry: bytes, value: bytes) -> bool:
    """While an index is being built a record may have values that another one has claimed: the
    build has not come to it, or it would have found them."""
    return index.state != BUILDING or len(value) == 1 or tx.get(entry) == value


def keeper(indexes: Sequence[Index]) -> Keeper | None:
    """What keeps these indexes, those that are to take their place among them; None when there is
    nothing to keep."""
    kept = [index for index in indexes if index.state != FAILED]
    return Keeper(kept) if kept else None


# --- reading --------------------------------------------------------------------------------------


def entry_id(pair: Pair) -> bytes:
    """The encoded id of the record that an entry is of."""
    key, value = pair
    return value if len(value) > 1 else key[-1 - value[0] :]


def entry_values(pair: Pair) -> bytes:
    """An entry's key up to the id: the same for records that are equal in the indexed fields."""
    key, value = pair
    return key if len(value) > 1 else key[: -1 - value[0]]


def claimant(tx: Transaction, index: Index, values: bytes) -> bytes | None:
    """The encoded id of the record that claims these values, encoded, in a UNIQUE index."""
    return tx.get(index.entries + WHOLE + values)


def entries(
    tx: Transaction, index: Index, start: bytes, end: bytes, reverse: bool = False
) -> Iterator[list[Pair]]:
    """The entries of an index between two of its keys, in lists that are never empty."""
    assert start.startswith(index.entries), "an index is read within its own keys"
    return tx.scan(start, end, reverse)


def any_mark(tx: Transaction, index: Index, side: bytes) -> bool:
    """Whether any record has a mark on this side."""
    return next(tx.scan(*keys.within(index.entries + side)), None) is not None
