"""Comparison of a FULLTEXT index with all records: CHECK INDEX.

Each record of a segment has a signature: a sum over its terms, of their counts and positions. Those
of a segment are made in one walk over its terms, those of records from their texts. Imports numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from operator import eq
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from protocol.values import Tick
from storage.indexes.check import IndexCheck
from storage.indexes.entries import Index, IndexedFields
from storage.indexes.text_markers import TextMarkers
from storage.search.comparison import Hold, compare, current_and_fresh
from storage.search.postings import SegmentArrays, live_records
from storage.search.segments import LARGE, TextSegment
from storage.txn.transaction import Transaction

Field = tuple[Mapping[str, Sequence[int]], int]
_COUNT: Final = 0x9E3779B97F4A7C15
_PLACE: Final = 0xC2B2AE3D27D4EB4F
_WORDS: Final = 0x165667B19E3779F9
_MASK: Final = (1 << 64) - 1
_PACE: Final = 256


def check_text(
    tx: Transaction,
    table_prefix: bytes,
    index: Index,
    digest: bytes,
    postings: Callable[[Any], Field],
    tick: Tick,
    hold: Hold,
) -> IndexCheck:
    """Compare a FULLTEXT index with the records of its table.

    :param digest: of its analyzer; segments of others are read by nobody
    :param postings: returns the terms of a text
    """
    current, fresh = current_and_fresh(tx, index, lambda head: head.digest == digest, tick, hold)
    segments = [TextSegment(tx.value_over, tx.scan, index.entries, head) for head in current]
    rows = IndexedFields((index,))
    markers = TextMarkers(index, rows.heads)

    def content(raw: bytes) -> int | None:
        texts = markers.content(rows.of_packed(raw))
        return _signature(list(map(postings, texts))) if any(texts) else None

    entries = [_entries(one, index, tick) for one in segments]
    return compare(tx, table_prefix, entries, fresh, content, eq, tick)


def _entries(segment: TextSegment, index: Index, tick: Tick) -> Iterator[tuple[bytes, int]]:
    """Yield the ids of a segment's live records with their signatures."""
    arrays = SegmentArrays(segment)
    sums = np.zeros(segment.records, np.uint64)
    for field in range(len(index.paths)):
        for number, (term, hits) in enumerate(arrays.terms(field, "")):
            if number % _PACE == _PACE - 1:
                tick()
            numbers, counts = hits()
            starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
            places = np.add.reduceat(arrays.positions(field, term), starts)
            sums[numbers] += _shares(_hashed(field, term), counts, places)
        lengths = arrays.lengths(field).astype(np.uint64)
        sums += lengths * np.uint64(_WORDS * (field + 1) & _MASK)
    live = live_records(segment.head).nonzero()[0].tolist()
    yield from zip(segment.ids(live), sums[live].tolist(), strict=True)


def _shares(hashed: int, counts: Any, places: Any) -> npt.NDArray[np.uint64]:
    each = counts.astype(np.uint64) * np.uint64(_COUNT) + places.astype(np.uint64) * np.uint64(
        _PLACE
    )
    found: npt.NDArray[np.uint64] = (each + np.uint64(1)) * np.uint64(hashed)
    return found


def _signature(fields: list[Field]) -> int:
    found = 0
    for number, (postings, words) in enumerate(fields):
        for term, positions in postings.items():
            places = sum(min(one, LARGE) for one in positions)
            found += _hashed(number, term) * (len(positions) * _COUNT + places * _PLACE + 1)
        found += words * _WORDS * (number + 1)
    return found & _MASK


def _hashed(field: int, term: str) -> int:
    encoded = bytes((field,)) + term.encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(encoded, digest_size=8).digest(), "big")
