"""Comparison of a VECTOR index with all records, at one snapshot: CHECK INDEX.

The vectors of segments come in the order of ids, like the records. Each is compared as it is
stored: with I8, by the multiples that its part holds. Imports numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import merge
from typing import Final

import numpy as np

from protocol.values import Tick, paced
from storage.formats import keys
from storage.formats.keys import SEQUENCE_BYTES
from storage.indexes.check import IndexCheck
from storage.indexes.entries import Index
from storage.search.contents import VectorReader
from storage.search.postings import live_records
from storage.search.segments import Segment, fresh_ids, heads
from storage.search.vectors import Floats, Part, VectorSegment, float_vector, form_digest
from storage.txn.transaction import Transaction

_PACE: Final = 64
_ID_BYTES: Final = 128
"""Memory of the id of a fresh record, about."""
Entry = tuple[bytes, Floats, float]
"""Id, vector, and the largest difference by which it may be off."""


def check_vectors(
    tx: Transaction,
    table_prefix: bytes,
    index: Index,
    tick: Tick,
    hold: Callable[[int], None],
) -> IndexCheck:
    """Compare a VECTOR index with the records of its table. Fresh records have no entries.

    :param hold: counts bytes against the memory of the statement
    """
    assert index.vector is not None
    options, found = index.vector, IndexCheck()
    form = form_digest(options)
    fresh: set[bytes] = set()
    for ids in fresh_ids(tx.scan, index.entries):
        hold(len(ids) * _ID_BYTES)
        fresh.update(ids)
        tick()
    current = []
    for head in heads(tx.scan, index.entries):
        segment = Segment(tx.value_over, tx.scan, index.entries, head)
        if head.digest[: len(form)] == form:
            current.append(_entries(VectorSegment(segment, options), tick, hold))
        else:
            hold(head.live * _ID_BYTES)
            fresh.update(paced(segment.live_ids(), tick))
    entries = merge(*current, key=lambda entry: entry[0])
    entry = next(entries, None)
    read = VectorReader(index)
    for pairs in tx.scan(*keys.within(table_prefix)):
        for number, (key, value) in enumerate(pairs):
            if number % _PACE == _PACE - 1:
                tick()
            id = key[len(table_prefix) :]
            found.records += 1
            held: list[Entry] = []
            while entry is not None and entry[0] <= id:
                if entry[0] not in fresh:
                    found.entries += 1
                    if entry[0] == id:
                        held.append(entry)
                    else:
                        found.exceeds(entry[0])
                entry = next(entries, None)
            if id in fresh:
                continue
            vector = read(value[SEQUENCE_BYTES:])
            for _ in held[0 if vector is None else 1 :]:
                found.exceeds(id)
            if vector is not None and not (
                held and _is_same(held[0], float_vector(vector, options))
            ):
                found.lacks(id)
        tick()
    while entry is not None:
        if entry[0] not in fresh:
            found.entries += 1
            found.exceeds(entry[0])
        entry = next(entries, None)
    return found


def _is_same(entry: Entry, wanted: Floats) -> bool:
    _, held, error = entry
    if not error:
        return np.array_equal(held, wanted)
    # Numbers out of the range of float32 are held as the largest.
    return bool((np.abs(held - np.nan_to_num(wanted)) <= error).all())


def _entries(vectors: VectorSegment, tick: Tick, hold: Callable[[int], None]) -> Iterator[Entry]:
    """Yield the ids of a segment's live records with their vectors."""
    segment = vectors.segment
    parts: list[Part] = []
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
            yield id, row, error
