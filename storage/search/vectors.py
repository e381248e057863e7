"""Segments of VECTOR indexes: vectors by list, and the distances of all vectors of a part.

Keys, after the prefix of the index's entries, beside the ids that every segment has:

| side | then | value |
|---|---|---|
| 6 | segment (4) list (2) part (2) | vectors of a list, at most 64 KiB |
| 8 | segment (4) | lists (2 each) that have vectors, then their numbers of vectors (4 each) |

A part begins with the numbers (2 each) of its records. Vectors of F32 are floats. Those of I8 are
bytes, behind the float of which they are multiples. With COSINE each has the length 1. Imports
numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from storage.engine.engine import Engine
from storage.indexes.entries import Index
from storage.indexes.vector_options import VectorOptions
from storage.search.segments import LENGTHS, POSTINGS, Segment, SegmentBuilder, heads

VECTORS: Final = POSTINGS
LISTS: Final = LENGTHS
PART_BYTES: Final = 64 * 1024
"""Size of a part, at most."""
JOINED_BYTES: Final = 1024 * 1024
"""Size of a list, at most, whose parts are joined in memory: each call of numpy takes microseconds.
"""
FORMAT: Final = b"1"
"""Form of the segments: those of another form are read by nobody."""
RERANKED: Final = 4
"""Records that are compared exactly for each wanted one, with I8."""
_BATCH: Final = 64
"""Vectors that are assigned to lists in one step."""

Floats = npt.NDArray[np.float32]
Exact = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]
Assign = Callable[[Floats], Iterator[Numbers]]
"""Yields the lists of some vectors, a few at a time."""


def form_digest(options: VectorOptions) -> bytes:
    """Return the digest of all that the parts of a segment depend on, but for the lists."""
    form = f"{options.dimension} {options.distance} {options.type} ".encode()
    return blake2b(FORMAT + form, digest_size=8).digest()


def float_vector(value: Sequence[Any], options: VectorOptions) -> Floats:
    """Return a vector as it is compared: float32, with COSINE of length 1."""
    found = np.array(value, np.float64)
    if options.distance == "COSINE":
        # Scaled first: the squares of very large numbers are out of range.
        found /= np.abs(found).max()
        found /= np.sqrt(found @ found)
    with np.errstate(over="ignore"):
        return found.astype(np.float32)


def finite_numbers(vector: Floats) -> list[float]:
    """Return the numbers of a vector; those out of the range of float32 are its largest."""
    found: list[float] = np.nan_to_num(vector).tolist()
    return found


def read_vectors(raw: bytes, options: VectorOptions) -> Floats:
    """Return vectors that are kept as floats."""
    return np.frombuffer(raw, "<f4").reshape(-1, options.dimension)


# --- writing --------------------------------------------------------------------------------------


class VectorBuilder(SegmentBuilder):
    """Collects the vectors of records.

    :param assign: returns the lists of vectors; None: there is one list
    """

    def __init__(self, options: VectorOptions, assign: Assign | None = None) -> None:
        super().__init__(1)
        self._options, self._assign = options, assign
        self._rows: list[Floats] = []
        self._lists: list[Numbers] = []

    def add(self, id: bytes, value: Sequence[Any]) -> None:
        """Add a record with its vector."""
        self._number(id)
        self._rows.append(float_vector(value, self._options))
        self._words[0] += len(value)
        self.size += len(value)

    def finish(self) -> Iterator[None]:
        """Find the list of each vector, in steps."""
        if self._assign is None:
            self._lists.append(np.zeros(len(self._rows), np.int64))
            return
        for at in range(0, len(self._rows), _BATCH):
            for some in self._assign(np.stack(self._rows[at : at + _BATCH])):
                self._lists.append(some)
                yield

    def _parts(self) -> Iterator[tuple[bytes, bytes, bytes]]:
        lists = np.concatenate(self._lists) if self._lists else np.zeros(0, np.int64)
        order = np.argsort(lists, kind="stable")
        known, starts = np.unique(lists[order], return_index=True)
        ends = [*starts[1:].tolist(), len(order)]
        counts = np.diff([*starts.tolist(), len(order)])
        size = 2 + self._options.dimension * (4 if self._options.type == "F32" else 1)
        most = max(PART_BYTES // size, 1)
        for number, start, end in zip(known.tolist(), starts.tolist(), ends, strict=True):
            for part, at in enumerate(range(start, end, most)):
                some = order[at : min(at + most, end)]
                key = number.to_bytes(2, "big") + part.to_bytes(2, "big")
                rows = np.stack([self._rows[one] for one in some.tolist()])
                yield VECTORS, key, some.astype("<u2").tobytes() + self._packed(rows)
        yield LISTS, b"", known.astype("<u2").tobytes() + counts.astype("<u4").tobytes()

    def _packed(self, rows: Floats) -> bytes:
        if self._options.type == "F32":
            return rows.astype("<f4").tobytes()
        rows = np.nan_to_num(rows)
        scale = np.float32(max(np.abs(rows).max() / 127, np.finfo(np.float32).tiny))
        packed: bytes = scale.astype("<f4").tobytes()
        packed += np.rint(rows / scale).astype(np.int8).tobytes()
        return packed


# --- reading --------------------------------------------------------------------------------------


class VectorPart(NamedTuple):
    """Some vectors of a list."""

    numbers: Numbers
    """Numbers of their records in the segment."""
    rows: Any
    """Array of the vectors, float32 or int8."""
    scale: float
    """Float of which they are multiples."""

    @property
    def floats(self) -> Floats:
        """The vectors as float32."""
        if self.rows.dtype == np.int8:
            found: Floats = self.rows.astype(np.float32) * np.float32(self.scale)
            return found
        return self.rows  # type: ignore[no-any-return]


class VectorSegment:
    """Vectors of one segment."""

    def __init__(self, segment: Segment, options: VectorOptions) -> None:
        self.segment, self._options = segment, options
        self._lists: dict[int, int] | None = None

    def lists(self) -> dict[int, int]:
        """Return the lists that have vectors, with their numbers of vectors."""
        if self._lists is not None:
            return self._lists

        def decode() -> tuple[dict[int, int], int]:
            raw = self.segment.get(LISTS, b"")
            size = len(raw) // 6
            known = np.frombuffer(raw, "<u2", size).tolist()
            counts = np.frombuffer(raw, "<u4", size, 2 * size).tolist()
            return dict(zip(known, counts, strict=True)), 100 * size

        self._lists = self.segment.kept((LISTS,), decode)
        return self._lists

    def parts(self, number: int) -> Iterator[VectorPart]:
        """Yield the vectors of a list, which is one part if that is small."""
        options, count = self._options, self.lists().get(number, 0)
        # Not with I8: each part of I8 has a scale of its own.
        if options.type == "F32" and PART_BYTES < 4 * count * options.dimension <= JOINED_BYTES:
            yield self.segment.kept((VECTORS, number), partial(self._joined, number))
        else:
            yield from self._parts(number, self._kept_part)

    def _joined(self, number: int) -> tuple[VectorPart, int]:
        parts = list(self._parts(number, lambda key: self._part(key)[0]))
        if not parts:
            return read_part(b"", self._options), 0
        rows = np.concatenate([part.rows for part in parts])
        numbers = np.concatenate([part.numbers for part in parts])
        return VectorPart(numbers, rows, 1.0), numbers.nbytes + rows.nbytes

    def _parts(self, number: int, read: Callable[[bytes], VectorPart]) -> Iterator[VectorPart]:
        left, part = self.lists().get(number, 0), 0
        while left > 0:
            found = read(number.to_bytes(2, "big") + part.to_bytes(2, "big"))
            if not len(found.numbers):
                return
            yield found
            left -= len(found.numbers)
            part += 1

    def _kept_part(self, key: bytes) -> VectorPart:
        return self.segment.kept((VECTORS, key), partial(self._part, key))

    def _part(self, key: bytes) -> tuple[VectorPart, int]:
        raw = self.segment.get(VECTORS, key)
        return read_part(raw, self._options), len(raw) * 2 if raw else 0


def read_part(raw: bytes, options: VectorOptions) -> VectorPart:
    """Return the vectors of a part."""
    size, scale = options.dimension, 1.0
    head = 0 if options.type == "F32" else 4
    width = 2 + size * (4 if options.type == "F32" else 1)
    count = max(len(raw) - head, 0) // width
    numbers = np.frombuffer(raw, "<u2", count).astype(np.int64)
    if options.type == "F32":
        # Copied: the floats of a part need not be aligned.
        rows: Any = np.frombuffer(raw[2 * count :], "<f4", count * size)
    else:
        if count:
            scale = float(np.frombuffer(raw[2 * count : 2 * count + 4], "<f4")[0])
        rows = np.frombuffer(raw, np.int8, count * size, 2 * count + head if count else 0)
    return VectorPart(numbers, rows.reshape(count, size), scale)


def vectors_of(engine: Engine, index: Index, step: int) -> Iterator[Floats]:
    """Yield every vector of so many, in parts, from one state."""
    assert index.vector is not None
    view, past = engine.snapshot(), 0
    try:
        for head in heads(view.scan, index.entries):
            segment = Segment(view.get, view.scan, index.entries, head)
            vectors = VectorSegment(segment, index.vector)
            for number in vectors.lists():
                for part in vectors.parts(number):
                    yield part.floats[-past % step :: step]
                    past += len(part.numbers)
    finally:
        view.close()


# --- distances ------------------------------------------------------------------------------------

_UNIT: Final = 1.01 * 2.0**-24
"""Relative error of one float32 operation, and a little more for the errors of errors."""
_ANY: Final = 1e300
"""Error of a distance of which nothing is known."""
_TINY: Final = 1e-44
"""Absolute error of an operation on numbers near the smallest."""


class Compared:
    """Distances of vectors from one, in float32, with bounds of their error."""

    def __init__(self, options: VectorOptions, value: Sequence[Any]) -> None:
        self._options = options
        self.vector = float_vector(value, options)
        exact = self.vector.astype(np.float64)
        self._length = float(np.sqrt(exact @ exact))

    def distances(self, rows: Floats) -> tuple[Exact, Exact]:
        """Return the distances of vectors, as `DistanceTo`, and the bounds of their errors.

        The bounds hold in any order of additions, so for every library of matrix products.
        """
        size = self._options.dimension + 4
        with np.errstate(all="ignore"):
            if self._options.distance == "EUCLIDEAN":
                apart = rows - self.vector
                squares = np.einsum("ij,ij->i", apart, apart).astype(np.float64)
                found = np.sqrt(squares)
                # Near 0 the root is steeper than its error.
                error = found * (size * _UNIT) + self._error(rows, 2) + size * 1e-22
            else:
                found = -(rows @ self.vector).astype(np.float64)
                if self._options.distance == "COSINE":
                    return found, np.full(len(found), size * _UNIT)
                error = self._error(rows, size * self._length)
                error += size * _TINY * (1 + self._length)
        # Numbers out of the range of float32 may have any distance.
        wild = ~(np.isfinite(found) & np.isfinite(error))
        found[wild], error[wild] = 0.0, _ANY
        return found, error

    def _error(self, rows: Floats, factor: float) -> Exact:
        lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
        found: Exact = _UNIT * factor * (lengths + 1e-22)
        if self._options.distance == "EUCLIDEAN":
            found += _UNIT * factor * self._length
        return found


class Bounds:
    """Vectors that may be among the k nearest of many, by the bounds of their distances."""

    def __init__(self, k: int) -> None:
        self._k = k
        self._ids: list[bytes] = []
        self._least: Exact = np.zeros(0)
        self._largest: Exact = np.zeros(0)

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, ids: list[bytes], distances: Exact, error: Exact) -> None:
        """Add vectors. :param ids: of their records"""
        self._ids += ids
        self._least = np.concatenate([self._least, distances - error])
        self._largest = np.concatenate([self._largest, distances + error])
        if len(self._ids) > 4 * self._k + _KEPT:
            kth = np.partition(self._largest, self._k - 1)[self._k - 1]
            (kept,) = (self._least <= kth).nonzero()
            self._ids = [self._ids[one] for one in kept.tolist()]
            self._least, self._largest = self._least[kept], self._largest[kept]

    def candidates(self) -> Iterator[tuple[float, bytes]]:
        """Yield the ids of these vectors, each with its least distance."""
        return zip(self._least.tolist(), self._ids, strict=True)


_KEPT: Final = 1_024
"""Vectors that are kept beside some times k, until those too far away are removed."""


def joined(arrays: list[Any]) -> Any:
    """Return the values of several arrays as one."""
    return np.concatenate(arrays)


def stacked(rows: list[Floats]) -> Floats:
    """Return vectors as the rows of an array."""
    return np.stack(rows)
