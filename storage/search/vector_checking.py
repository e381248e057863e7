"""Comparison of a VECTOR index with all records: CHECK INDEX.

Each vector is compared as it is stored: with I8, by the multiples that its part holds. Imports
numpy.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from protocol.values import Tick
from storage.indexes.check import IndexCheck
from storage.indexes.entries import Index
from storage.search.comparison import Hold, compare, current_and_fresh
from storage.search.contents import VectorReader
from storage.search.postings import live_records
from storage.search.segments import Segment
from storage.search.vectors import Floats, VectorPart, VectorSegment, float_vector, form_digest
from storage.txn.transaction import Transaction

Held = tuple[Floats, float]
"""Vector, and the largest difference by which it may be off."""


def check_vectors(
    tx: Transaction, table_prefix: bytes, index: Index, tick: Tick, hold: Hold
) -> IndexCheck:
    """Compare a VECTOR index with the records of its table."""
    assert index.vector is not None
    options, read = index.vector, VectorReader(index)
    form = form_digest(options)
    current, fresh = current_and_fresh(
        tx, index, lambda head: head.digest[: len(form)] == form, tick, hold
    )
    segments = [Segment(tx.value_over, tx.scan, index.entries, head) for head in current]
    entries = [_entries(VectorSegment(one, options), tick, hold) for one in segments]

    def content(raw: bytes) -> Floats | None:
        vector = read(raw)
        return None if vector is None else float_vector(vector, options)

    return compare(tx, table_prefix, entries, fresh, content, _is_same, tick)


def _is_same(entry: Held, wanted: Floats) -> bool:
    held, error = entry
    if not error:
        return np.array_equal(held, wanted)
    # Numbers out of the range of float32 are held as the largest.
    return bool((np.abs(held - np.nan_to_num(wanted)) <= error).all())


def _entries(vectors: VectorSegment, tick: Tick, hold: Hold) -> Iterator[tuple[bytes, Held]]:
    """Yield the ids of a segment's live records with their vectors."""
    segment = vectors.segment
    parts: list[VectorPart] = []
    # Of each record its part, and its place in that.
    part_of = np.full(segment.head.records, -1, np.int32)
    place_of = np.zeros(segment.head.records, np.int32)
    for number in vectors.lists():
        for part in vectors.parts(number):
            hold(part.rows.nbytes)
            part_of[part.numbers] = len(parts)
            place_of[part.numbers] = np.arange(len(part.numbers))
            parts.append(part)
            tick()
    live = live_records(segment.head).nonzero()[0].tolist()
    for number, id in zip(live, segment.ids(live), strict=True):
        # A record whose vector is lost has no entry.
        if part_of[number] >= 0:
            part = parts[part_of[number]]
            row, error = part.rows[place_of[number]], 0.0
            if row.dtype == np.int8:
                row, error = row * np.float32(part.scale), part.scale * 0.51
            yield id, (row, error)
