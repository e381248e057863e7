"""Centroids of a VECTOR index: each of its lists holds the vectors that are nearest to one.

The leader trains them, and a commit puts them into the state, so that all nodes have the same
lists. Those of the training before stay until the next one: segments that were made with them are
made again in the background. Keys, after the prefix of the index's centroids:

| then | value |
|---|---|
| nothing | msgpack: the trainings, of each generation, lists, vectors, digest |
| generation (4) part (2) | centroids, as floats, at most 64 KiB |

Imports numpy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from math import isqrt, sqrt
from typing import Final

import numpy as np
import numpy.typing as npt

from protocol import binary
from protocol.bounded_cache import BoundedCache
from storage.formats import keys
from storage.indexes.entries import Index
from storage.indexes.vector_options import VectorOptions
from storage.search.caches import search_cache
from storage.search.segments import KEPT_BYTES, Get
from storage.search.trainings import DIGEST_BYTES, Training, trainings
from storage.txn.transaction import Transaction

AGAIN: Final = 4
"""Lists are trained again when there are so many times as many vectors."""
BYTES: Final = 16 * 1024 * 1024
"""Most bytes of the centroids of an index."""
SAMPLE: Final = 32
"""Vectors of the sample for each list."""
NUMBERS: Final = 8_000_000
"""Most numbers of all vectors of the sample."""
_PART_BYTES: Final = 64 * 1024
_PRODUCTS: Final = 4_000_000
"""Products of numbers in one step of an assignment."""

Floats = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Centroids:
    """Centroids of one training."""

    training: Training
    rows: Floats
    halves: npt.NDArray[np.float32]
    """Half of the square of each one's length."""

    def assign(self, rows: Floats) -> Iterator[Numbers]:
        """Yield the lists of vectors, a few at a time."""
        step = max(_PRODUCTS // self.rows.size, 1)
        finite = np.nan_to_num(rows)
        for at in range(0, len(rows), step):
            some = finite[at : at + step]
            yield np.argmax(some @ self.rows.T - self.halves, axis=1)

    def order(self, vector: Floats, options: VectorOptions) -> Numbers:
        """Return all lists, those with the nearest centroids first."""
        products = self.rows @ np.nan_to_num(vector)
        if options.distance == "EUCLIDEAN":
            products -= self.halves
        return np.argsort(-products, kind="stable")


def lists_for(vectors: int, options: VectorOptions) -> int:
    """Return the number of lists for a number of vectors."""
    most = BYTES // (4 * options.dimension)
    return max(min(4 * isqrt(vectors), most, 65_535), 1)


def default_probes(lists: int, recall: float) -> int:
    """Return the number of lists to read for a recall that was never measured."""
    root = sqrt(lists)
    known = ((0.0, 0.0), (0.9, root), (0.95, 2 * root), (0.98, 5 * root), (1.0, float(lists)))
    for (low, few), (high, many) in pairwise(known):
        if recall <= high:
            found = few + (many - few) * (recall - low) / (high - low)
            return max(min(round(found), lists), 1)
    return lists


# --- the state ------------------------------------------------------------------------------------


def put(tx: Transaction, index: Index, rows: Floats, vectors: int) -> None:
    """Write centroids, and remove those of the training before the last."""
    known = trainings(tx.get, index)
    for old in known[:-1]:
        tx.delete_range(*keys.within(_prefix(index, old)))
    raw = rows.astype("<f4").tobytes()
    digest = blake2b(raw, digest_size=DIGEST_BYTES).digest()
    generation = known[-1].generation + 1 if known else 1
    made = Training(generation, len(rows), vectors, digest)
    kept = [[one.generation, one.lists, one.vectors, one.digest] for one in (*known[-1:], made)]
    tx.put(index.centroids, binary.pack(kept))
    for part, at in enumerate(range(0, len(raw), _PART_BYTES)):
        tx.put(_prefix(index, made) + part.to_bytes(2, "big"), raw[at : at + _PART_BYTES])


def _prefix(index: Index, training: Training) -> bytes:
    return index.centroids + training.generation.to_bytes(4, "big")


def load(get: Get, index: Index) -> list[Centroids]:
    """Return the centroids that are kept, the newest last."""
    assert index.vector is not None
    found: list[Centroids] = []
    for training in trainings(get, index):
        name = index.centroids, training.digest
        known = _kept.get(name)
        if known is None:
            size = 4 * training.lists * index.vector.dimension
            parts = range(-(-size // _PART_BYTES))
            prefix = _prefix(index, training)
            raw = b"".join([get(prefix + part.to_bytes(2, "big")) or b"" for part in parts])
            rows = np.frombuffer(raw, "<f4").reshape(training.lists, index.vector.dimension)
            halves = np.einsum("ij,ij->i", rows, rows) / np.float32(2)
            known = Centroids(training, rows, halves)
            _kept.keep(name, known, len(raw))
        found.append(known)
    return found


def wants_training(get: Get, index: Index, vectors: int) -> bool:
    """True if an index with so many vectors should get new lists."""
    known = trainings(get, index)
    return not known or vectors >= AGAIN * known[-1].vectors


_kept: Final[BoundedCache[Centroids]] = search_cache(KEPT_BYTES, large_part=2)
"""Centroids, by their index and digest."""
