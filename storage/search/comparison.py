"""Comparison of the entries in segments with all records, at one snapshot: CHECK INDEX.

Both come in the order of ids, so that little is held. Fresh records have no entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from operator import itemgetter
from typing import Final, TypeVar

from protocol.values import Tick, paced
from storage.formats import keys
from storage.formats.keys import SEQUENCE_BYTES
from storage.indexes.check import IndexCheck
from storage.indexes.entries import Index
from storage.search.segments import Head, Segment, heads_of, marked_ids
from storage.txn.transaction import Transaction

_PACE: Final = 64
_ID_BYTES: Final = 128
"""Memory of the id of a fresh record, about."""
Hold = Callable[[int], None]
"""Counts bytes against the memory of the statement."""
Held = TypeVar("Held")
Wanted = TypeVar("Wanted")


def current_and_fresh(
    tx: Transaction, index: Index, is_current: Callable[[Head], bool], tick: Tick, hold: Hold
) -> tuple[list[Head], set[bytes]]:
    """Return the segments that are read, and the ids of all records that are fresh or in others."""
    fresh: set[bytes] = set()
    for ids in marked_ids(tx, index.entries):
        hold(len(ids) * _ID_BYTES)
        fresh.update(ids)
        tick()
    current = []
    for head in heads_of(tx, index.entries):
        if is_current(head):
            current.append(head)
        else:
            hold(head.live * _ID_BYTES)
            segment = Segment(tx.value_over, tx.scan, index.entries, head)
            fresh.update(paced(segment.live_ids(), tick))
    return current, fresh


def compare(
    tx: Transaction,
    table_prefix: bytes,
    segments: Iterable[Iterator[tuple[bytes, Held]]],
    fresh: set[bytes],
    content: Callable[[bytes], Wanted | None],
    is_same: Callable[[Held, Wanted], bool],
    tick: Tick,
) -> IndexCheck:
    """Compare the entries of some segments with the records of a table.

    :param segments: of each its ids, and what it holds of them
    :param content: returns what an entry has to hold of a record; None: it has no entry
    """
    found = IndexCheck()
    entries = merge(*segments, key=itemgetter(0))
    entry = next(entries, None)
    for pairs in tx.scan(*keys.within(table_prefix)):
        for number, (key, value) in enumerate(pairs):
            if number % _PACE == _PACE - 1:
                tick()
            id = key[len(table_prefix) :]
            found.records += 1
            held: list[Held] = []
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
            wanted = content(value[SEQUENCE_BYTES:])
            for _ in held[0 if wanted is None else 1 :]:
                found.exceeds(id)
            if wanted is not None and not (held and is_same(held[0], wanted)):
                found.lacks(id)
        tick()
    while entry is not None:
        if entry[0] not in fresh:
            found.entries += 1
            found.exceeds(entry[0])
        entry = next(entries, None)
    return found
