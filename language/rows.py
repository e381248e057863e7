"""Rows: records as expressions read them, decoded by projection.

A statement's *shape* is the set of top-level fields that its expressions read. Only these are
decoded from a stored record, into a msgspec Struct with one slot each. That costs a tenth of
decoding the whole record. A `whole` shape decodes everything, into an object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from protocol.binary import fits_slot, shape_decoder, slots, unpack
from protocol.values import NONE, RecordId

_SAMPLED: Final = 64
"""Sampling interval, in records, for estimating the size of a batch."""
SLOTS: Final = 256
"""Maximum number of fields with slots: the row class is created without yielding, about 10 µs for
each slot."""
Row = Any
"""A Struct with the shape's slots, or an object if the shape is whole."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Stored records: keys, and fields packed as one msgpack object."""

    pairs: list[tuple[bytes, bytes]]
    record_id: Callable[[bytes], RecordId]
    """Maps a key to its record id."""

    @property
    def size(self) -> int:
        """Bytes of the packed fields, estimated from a sample."""
        some = self.pairs[::_SAMPLED]
        return sum([len(raw) for _, raw in some]) * len(self.pairs) // max(1, len(some))

    def record(self, number: int) -> RecordId | None:
        """Return the id of a record by its number in the batch."""
        return self.record_id(self.pairs[number][0])


@dataclass(frozen=True, slots=True)
class Objects:
    """Values in memory: objects, or any other items of an array."""

    values: list[Any]

    def record(self, number: int) -> RecordId | None:
        """Return the record id in the fields of a value, or None."""
        value = self.values[number]
        id = value.get("id") if type(value) is dict else None
        return id if type(id) is RecordId else None


Batch = Pairs | Objects


class Bare(dict[str, Any]):
    """A row that is not an object: it has no fields, and `*` yields the value itself."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


class Shape:
    """The set of fields that rows have slots for. The slot of `id` is filled from the key."""

    def __init__(self, names: Iterable[str], whole: bool = False) -> None:
        self.names = () if whole else tuple(sorted(set(names)))
        self.whole = whole
        self.slots: dict[str, str] = {}
        """Attribute name of each field."""
        if not whole:
            self._build()

    def _build(self) -> None:
        self.slots = {name: f"f{number}" for number, name in enumerate(self.names)}
        self._struct = slots(self.names)
        self._decode = shape_decoder(self._struct)
        self._id = self.slots.get("id")

    def from_pairs(self, batch: Pairs) -> list[Row]:
        """Decode stored records to rows."""
        if self.whole:
            return [whole(key, raw, batch.record_id) for key, raw in batch.pairs]
        decode = self._decode
        rows = [decode(raw) for _, raw in batch.pairs]
        if self._id is not None:
            slot, record_id = self._id, batch.record_id
            for row, (key, _) in zip(rows, batch.pairs, strict=True):
                setattr(row, slot, record_id(key))
        return rows

    def from_objects(self, values: Iterable[Any]) -> list[Row]:
        """Convert values in memory to rows."""
        if self.whole:
            return [value if type(value) is dict else Bare(value) for value in values]
        make, names = self._struct, self.names
        return [
            make(*[value.get(name, NONE) for name in names]) if type(value) is dict else make()
            for value in values
        ]

    def rows(self, batch: Batch) -> list[Row]:
        """Return the rows of a batch."""
        if isinstance(batch, Pairs):
            return self.from_pairs(batch)
        return self.from_objects(batch.values)

    def make(self, values: Iterable[Any]) -> Row:
        """Build a row from a value for each of `names`, in their order."""
        return self._struct(*values)


def whole(key: bytes, raw: bytes, record_id: Callable[[bytes], RecordId]) -> dict[str, Any]:
    """Decode a whole record: its id and all its fields."""
    row: dict[str, Any] = {"id": record_id(key)}
    fields = unpack(raw)
    assert type(fields) is dict
    row.update(fields)
    return row


def item_value(row: dict[str, Any]) -> Any:
    """Return the value of `*` for a whole row."""
    return row.value if type(row) is Bare else row


WHOLE: Final = Shape((), whole=True)
NO_FIELDS: Final = Shape(())


def shape(names: Iterable[str]) -> Shape:
    """Return the shape with slots for these fields.

    Returns the whole shape if a name does not fit a slot, or there are more than `SLOTS` names.
    """
    wanted = tuple(names)
    return Shape(wanted) if len(wanted) <= SLOTS and all(map(fits_slot, wanted)) else WHOLE
