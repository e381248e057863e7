"""Rows: what a statement sees of the records that it reads.

A statement's *shape* is the set of top-level fields that its expressions look at. Of a stored
record only these are decoded, into a msgspec Struct with one slot for each, which costs a tenth of
decoding the whole. A shape that is `whole` decodes everything, into an object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from protocol.binary import fits_slot, shape_decoder, slots, unpack
from protocol.values import NONE, RecordId

_SAMPLED: Final = 64
"""Records of which one is measured for all of them."""
SLOTS: Final = 256
"""Fields that have slots: the class of a row is made in one go, some 10 µs for each."""
Row = Any
"""A Struct of the shape's slots, or an object when the shape is whole."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Records as they are stored: keys, and fields packed as one msgpack object."""

    pairs: list[tuple[bytes, bytes]]
    record_id: Callable[[bytes], RecordId]
    """The address of the record with such a key."""

    @property
    def size(self) -> int:
        """Bytes of the fields, by some of them."""
        some = self.pairs[::_SAMPLED]
        return sum([len(raw) for _, raw in some]) * len(self.pairs) // max(1, len(some))

    def record(self, number: int) -> RecordId | None:
        """Return the address of one of the records."""
        return self.record_id(self.pairs[number][0])


@dataclass(frozen=True, slots=True)
class Objects:
    """Values that are in memory already: objects, or anything else an array can hold."""

    values: list[Any]

    def record(self, number: int) -> RecordId | None:
        """Return the address in the fields of one of them; None: it has none."""
        value = self.values[number]
        id = value.get("id") if type(value) is dict else None
        return id if type(id) is RecordId else None


Batch = Pairs | Objects


class Bare(dict[str, Any]):
    """A row that is no object: it has no fields, and `*` of it is the value itself."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


class Shape:
    """The fields that rows have slots for. The slot of `id` is filled from the key."""

    def __init__(self, names: Iterable[str], whole: bool = False) -> None:
        self.names = () if whole else tuple(sorted(set(names)))
        self.whole = whole
        self.slots: dict[str, str] = {}
        """The attribute that holds each field."""
        if not whole:
            self._build()

    def _build(self) -> None:
        self.slots = {name: f"f{number}" for number, name in enumerate(self.names)}
        self._struct = slots(self.names)
        self._decode = shape_decoder(self._struct)
        self._id = self.slots.get("id")

    def from_pairs(self, batch: Pairs) -> list[Row]:
        """The rows of stored records."""
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
        """The rows of values in memory."""
        if self.whole:
            return [value if type(value) is dict else Bare(value) for value in values]
        make, names = self._struct, self.names
        return [
            make(*[value.get(name, NONE) for name in names]) if type(value) is dict else make()
            for value in values
        ]

    def rows(self, batch: Batch) -> list[Row]:
        """The rows of a batch."""
        if isinstance(batch, Pairs):
            return self.from_pairs(batch)
        return self.from_objects(batch.values)

    def make(self, values: Iterable[Any]) -> Row:
        """A row from a value for each of `names`, in their order."""
        return self._struct(*values)


def whole(key: bytes, raw: bytes, record_id: Callable[[bytes], RecordId]) -> dict[str, Any]:
    """All of a record: its id and its fields."""
    row: dict[str, Any] = {"id": record_id(key)}
    fields = unpack(raw)
    assert type(fields) is dict
    row.update(fields)
    return row


def item_value(row: dict[str, Any]) -> Any:
    """What `*` makes of a whole row."""
    return row.value if type(row) is Bare else row


WHOLE: Final = Shape((), whole=True)
NO_FIELDS: Final = Shape(())


def shape(names: Iterable[str]) -> Shape:
    """The shape with slots for these fields, or the whole one when a name does not allow it, or
    there are many."""
    wanted = tuple(names)
    return Shape(wanted) if len(wanted) <= SLOTS and all(map(fits_slot, wanted)) else WHOLE
