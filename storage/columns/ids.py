"""Ids of the records of a segment, packed: integers as offsets, others as one run of bytes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from protocol import order
from storage.columns.narrow import Ints, narrowed, widened

_INT_BYTES: Final = 10
"""Length of the encoding of an integer that is exact as a double."""
_SIGN: Final = np.uint64(1 << 63)
_ALL: Final = np.uint64((1 << 64) - 1)


class IntIds:
    """Integer ids."""

    __slots__ = ("_base", "_offsets")

    def __init__(self, values: Ints) -> None:
        self._offsets, self._base = narrowed(values)

    @property
    def values(self) -> Ints:
        """The ids."""
        return widened(self._offsets, self._base)

    @property
    def count(self) -> int:
        """Number of ids."""
        return len(self._offsets)

    @property
    def size(self) -> int:
        """Memory in bytes."""
        return int(self._offsets.nbytes)

    @property
    def last(self) -> bytes:
        """The greatest encoded id."""
        return self.encoded(self.count - 1)

    def encoded(self, at: int) -> bytes:
        """Return an encoded id by its position."""
        return order.encode(int(self._offsets[at]) + self._base)

    def find(self, id: bytes) -> tuple[int, bool]:
        """Return the position of an encoded id, or that of the next; and True if it is there."""
        if not self.count:
            return 0, False
        if id[0] != order.NUMBER:
            return (0 if id < bytes((order.NUMBER,)) else self.count), False
        value = order.decode_id(id)
        at = int(np.searchsorted(self.values, value))
        return at, at < self.count and int(self._offsets[at]) + self._base == value


class ByteIds:
    """Ids of any type, in their encodings."""

    __slots__ = ("_ends", "_packed")

    def __init__(self, ids: Sequence[bytes]) -> None:
        self._packed = b"".join(ids)
        self._ends = np.cumsum(np.fromiter(map(len, ids), np.uint32, len(ids)), dtype=np.uint32)

    @property
    def count(self) -> int:
        """Number of ids."""
        return len(self._ends)

    @property
    def size(self) -> int:
        """Memory in bytes."""
        return len(self._packed) + int(self._ends.nbytes)

    @property
    def last(self) -> bytes:
        """The greatest encoded id."""
        return self.encoded(self.count - 1)

    def encoded(self, at: int) -> bytes:
        """Return an encoded id by its position."""
        return self._packed[int(self._ends[at - 1]) if at else 0 : int(self._ends[at])]

    def find(self, id: bytes) -> tuple[int, bool]:
        """Return the position of an encoded id, or that of the next; and True if it is there."""
        at = bisect_left(range(self.count), id, key=self.encoded)
        return at, at < self.count and self.encoded(at) == id


Ids = IntIds | ByteIds


def make_ids(ids: Sequence[bytes]) -> Ids:
    """Pack sorted encoded ids."""
    packed = b"".join(ids)
    count = len(ids)
    # All integers have one tag, so the first and the last tell the type of all between.
    if count and ids[0][0] == ids[-1][0] == order.NUMBER and len(packed) == _INT_BYTES * count:
        found = _integers(packed, count)
        if found is not None:
            return IntIds(found)
    return ByteIds(ids)


def _integers(packed: bytes, count: int) -> Ints | None:
    rows = np.frombuffer(packed, np.uint8).reshape(count, _INT_BYTES)
    if not (rows[:, -1] == 1).all():
        return None
    bits = np.ascontiguousarray(rows[:, 1:9]).view(">u8").ravel().astype(np.uint64)
    doubles = np.where(bits & _SIGN, bits ^ _SIGN, bits ^ _ALL).view(np.float64)
    return doubles.astype(np.int64)


def merged(one: Ids, kept: Any, other: Sequence[bytes], take: Any) -> Ids:
    """Return the ids `kept` of one segment and others, put together in the order `take`."""
    if isinstance(one, IntIds):
        added = make_ids(other) if other else None
        if added is None or isinstance(added, IntIds):
            own = one.values[kept]
            both = own if added is None else np.concatenate([own, added.values])
            return IntIds(both[take])
    known = [one.encoded(at) for at in kept.tolist()] + list(other)
    return make_ids([known[at] for at in take.tolist()])
