"""Comparison of a FULLTEXT index with all records, at one snapshot: CHECK INDEX.

Each record of a segment has a signature: a sum over its terms, of their counts and positions. Those
of a segment are made in one walk over its terms, those of records from their texts. Both come in
the order of ids, so that little is held. Imports numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from heapq import merge
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from protocol.values import Tick, paced
from storage.formats import keys
from storage.formats.keys import SEQUENCE_BYTES
from storage.indexes.check import IndexCheck
from storage.indexes.entries import Index, IndexedFields
from storage.indexes.text_markers import TextMarkers
from storage.search.postings import SegmentArrays
from storage.search.segments import LARGE, TextSegment, fresh_ids, heads
from storage.txn.transaction import Transaction

Field = tuple[Mapping[str, Sequence[int]], int]
_COUNT: Final = 0x9E3779B97F4A7C15
_PLACE: Final = 0xC2B2AE3D27D4EB4F
_WORDS: Final = 0x165667B19E3779F9
_MASK: Final = (1 << 64) - 1
_PACE: Final = 256
_ID_BYTES: Final = 128
"""Memory of the id of a fresh record, about."""


def check_text(
    tx: Transaction,
    table_prefix: bytes,
    index: Index,
    digest: bytes,
    postings: Callable[[Any], Field],
    tick: Tick,
    hold: Callable[[int], None],
) -> IndexCheck:
    """Compare a FULLTEXT index with the records of its table. Fresh records have no entries.

    :param digest: of its analyzer; segments of others are read by nobody
    :param postings: returns the terms of a text
    :param hold: counts bytes against the memory of the statement
    """
    found = IndexCheck()
    fresh: set[bytes] = set()
    for ids in fresh_ids(tx.scan, index.entries):
        hold(len(ids) * _ID_BYTES)
        fresh.update(ids)
        tick()
    known = [
        TextSegment(tx.value_over, tx.scan, index.entries, head)
        for head in heads(tx.scan, index.entries)
    ]
    entries = merge(*(_entries(one, index, tick) for one in known if one.head.digest == digest))
    for one in known:
        if one.head.digest != digest:
            hold(one.head.live * _ID_BYTES)
            fresh.update(paced(one.live_ids(), tick))
    rows = IndexedFields((index,))
    markers = TextMarkers(index, rows.heads)
    entry = next(entries, None)
    for pairs in tx.scan(*keys.within(table_prefix)):
        for number, (key, value) in enumerate(pairs):
            if number % _PACE == _PACE - 1:
                tick()
            id = key[len(table_prefix) :]
            found.records += 1
            held: list[int] = []
            while entry is not None and entry[0] <= id:
                if entry[0] not in fresh:
                    found.entries += 1
                    if entry[0] == id:
                        held.append(entry[1])
                    else:
                        found.exceeds(entry[0])
                entry = next(entries, None)
            if id in fresh:
                continue
            texts = markers.content(rows.of_packed(value[SEQUENCE_BYTES:]))
            wanted = [_signature(list(map(postings, texts)))] if any(texts) else []
            for _ in held[len(wanted) :]:
                found.exceeds(id)
            if held[:1] != wanted and wanted:
                found.lacks(id)
        tick()
    while entry is not None:
        if entry[0] not in fresh:
            found.entries += 1
            found.exceeds(entry[0])
        entry = next(entries, None)
    return found


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
    live = arrays.live().nonzero()[0].tolist()
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
