"""Arrays of a segment: `language.search.retrieval.Source`.

Imports numpy, so it is imported where an index is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt

from storage.search.segments import (
    COUNTS,
    LARGE,
    LARGE_COUNT,
    LENGTHS,
    POSITIONS,
    POSTINGS,
    Head,
    TextSegment,
)

Numbers = npt.NDArray[np.int64]
Hits = tuple[Numbers, Numbers]
_TOTALS_BYTES: Final = 200
"""Memory of the totals of a field."""


def live_records(head: Head) -> npt.NDArray[np.bool_]:
    """Return True for each record of a segment that is not deleted."""
    if not head.deleted:
        return np.ones(head.records, np.bool_)
    bits = head.deleted.to_bytes((head.records + 7) // 8, "little")
    deleted = np.unpackbits(np.frombuffer(bits, np.uint8), count=head.records, bitorder="little")
    found: npt.NDArray[np.bool_] = deleted == 0
    return found


def live_numbers(head: Head, step: int) -> list[int]:
    """Return the numbers of each `step`-th record of a segment that is not deleted."""
    found: list[int] = np.flatnonzero(live_records(head))[::step].tolist()
    return found


class SegmentArrays:
    """Postings, positions and lengths of one segment."""

    def __init__(self, segment: TextSegment) -> None:
        self.segment = segment
        self._lengths: dict[int, Numbers] = {}

    @property
    def records(self) -> int:
        """Number of its records, deleted ones included."""
        return self.segment.head.records

    def hits(self, field: int, term: str) -> Hits | None:
        """Return the records that have a term in a field, and its occurrences in each."""
        raw = self.segment.value(POSTINGS, field, term)
        return self._hits(field, term, raw) if raw else None

    def _hits(self, field: int, term: str, raw: bytes) -> Hits:
        size = len(raw) // 3
        numbers = np.frombuffer(raw, "<u2", size).astype(np.int64)
        counts = np.frombuffer(raw, np.uint8, size, 2 * size).astype(np.int64)
        if counts.max() == LARGE_COUNT:
            exact = self.segment.value(COUNTS, field, term)
            counts = np.frombuffer(exact, "<u4").astype(np.int64)
        return numbers, counts

    def positions(self, field: int, term: str) -> Numbers:
        """Return all positions of a term, by record, in order."""
        raw = self.segment.value(POSITIONS, field, term)
        return np.frombuffer(raw, "<u2").astype(np.int64)

    def terms(self, field: int, start: str) -> Iterator[tuple[str, Callable[[], Hits]]]:
        """Yield the terms of a field that begin with a text, each with its records."""
        for term, raw in self.segment.terms(field, start):
            yield term, partial(self._hits, field, term, raw)

    def lengths(self, field: int) -> Numbers:
        """Return the number of words of each record in a field."""
        found = self._lengths.get(field)
        if found is None:
            found = self._lengths[field] = self.segment.kept(
                (LENGTHS, field), partial(self._read_lengths, field)
            )
        return found

    def totals(self, field: int) -> tuple[int, int]:
        """Return the number of all records with words in a field, and of all their words."""
        return self.segment.kept((LENGTHS, field, "totals"), partial(self._read_totals, field))

    def _read_totals(self, field: int) -> tuple[tuple[int, int], int]:
        lengths = self.lengths(field)
        # Of an index that was dropped in between there are none.
        return (int(np.count_nonzero(lengths)), int(lengths.sum())), _TOTALS_BYTES * len(
            lengths[:1]
        )

    def _read_lengths(self, field: int) -> tuple[Numbers, int]:
        raw = self.segment.value(LENGTHS, field)
        size = self.records
        found = np.frombuffer(raw, "<u2", size).astype(np.int64)
        if len(raw) > 2 * size:
            found[found == LARGE] = np.frombuffer(raw, "<u4", -1, 2 * size)
        found.flags.writeable = False
        return found, found.nbytes
