"""Trainings of the lists of a VECTOR index, as the state has them; without their centroids.

`centroids.py` writes them. This module imports no numpy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from protocol import binary
from storage.indexes.entries import Index
from storage.search.segments import Get

DIGEST_BYTES: Final = 8
NO_LISTS: Final = bytes(DIGEST_BYTES)
"""In the place of the digest of centroids: there is one list."""


@dataclass(frozen=True, slots=True)
class Training:
    """Facts of a training."""

    generation: int
    lists: int
    vectors: int
    """Number of vectors at that time."""
    digest: bytes


def trainings(get: Get, index: Index) -> list[Training]:
    """Return the trainings whose centroids are kept, the newest last."""
    value = get(index.centroids)
    if value is None:
        return []
    rows: Any = binary.unpack(value)
    return [Training(*row) for row in rows]


def lists_of(get: Get, index: Index) -> bytes:
    """Return the digest of the lists that an index has now."""
    known = trainings(get, index)
    return known[-1].digest if known else NO_LISTS
