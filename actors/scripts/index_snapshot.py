"""Snapshot of an index made of segments: its segments, and the records that are read themselves.

The segments less their deleted and fresh records, plus the fresh records themselves, are the whole
table, whatever folds have done. While the index is built, every record is fresh. Imports numpy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property
from sys import maxsize
from typing import Final

from language.search.retrieval import Mask
from language.sizing import WorkingMemory
from protocol.values import paced
from storage.catalog.tables import Table
from storage.formats import keys
from storage.indexes.entries import FAILED, Index
from storage.records import records
from storage.search import segments
from storage.search.postings import live_records
from storage.search.segments import Head, Segment
from storage.txn.transaction import Transaction

ID_BYTES: Final = 128
"""Memory of an id with its score, about."""
FRESH_MOST: Final = 20_000
"""Most marked records that are read beside an index; with more, a scan reads the table."""
_FRESH_PART: Final = 2
"""A scan is as good if more than this part of the table is marked."""
_LOOKED: Final = 512


class IndexSnapshot(ABC):
    """Segments and fresh records of an index, in one table, as a transaction sees them.

    :param memory: account that what it keeps counts in
    :param tick: see `language.env.Env`
    """

    def __init__(
        self,
        tx: Transaction,
        memory: WorkingMemory,
        tick: Callable[..., None],
        table: Table,
        index: Index,
    ) -> None:
        self.tx, self.memory, self.tick = tx, memory, tick
        self.table, self.index = table, index
        self._marked: list[bytes] | None = None

    @abstractmethod
    def is_current(self, head: Head) -> bool:
        """True if a segment has the form of this index."""

    @property
    def _is_built(self) -> bool:
        return self.index.is_complete and self.index.state != FAILED

    @cached_property
    def _heads(self) -> list[Head]:
        if not self._is_built:
            return []
        return segments.heads_of(self.tx, self.index.entries)

    def _segment(self, head: Head) -> Segment:
        tx = self.tx
        # Parts never change, and no commit writes them: the read set does without their keys.
        return Segment(tx.value_over, tx.scan, self.index.entries, head, keeps=True)

    def has_few_fresh(self) -> bool:
        """True if the index is built, and few of its records have to be read themselves."""
        if not self.index.is_complete:
            return False
        most = max(records.about(self.tx, self.table) // _FRESH_PART, 64)
        return self._find_marked(min(most, FRESH_MOST))

    def _find_marked(self, most: int) -> bool:
        """Find the marked records. Return False if there are more than `most`."""
        marked: list[bytes] = []
        for ids in segments.marked_ids(self.tx, self.index.entries):
            marked += ids
            if len(marked) > most:
                return False
            self.tick()
        self._marked = marked
        return True

    @cached_property
    def fresh(self) -> list[bytes]:
        """Ids of the records that are read themselves, in order."""
        tx, tick = self.tx, self.tick
        found: list[bytes] = []
        if not self._is_built:
            prefix = self.table.prefix
            for pairs in records.scan_keys(tx, *keys.within(prefix)):
                found += [key[len(prefix) :] for key, _ in pairs]
                tick()
        else:
            if self._marked is None:
                self._find_marked(maxsize)
            found = list(self._marked or [])
            marked = set(found)
            for head in self._heads:
                # A segment of another form says nothing: each of its records is looked at.
                if not self.is_current(head):
                    ids = self._segment(head).live_ids()
                    found += [id for id in paced(ids, tick) if id not in marked]
            found.sort()
        self.memory.held += len(found) * ID_BYTES
        return found

    def live(self, segment: Segment) -> Mask:
        """Return the records of a segment that are neither deleted nor fresh."""
        found = live_records(segment.head)
        for at in range(0, len(self.fresh), _LOOKED):
            found[list(segment.numbers(self.fresh[at : at + _LOOKED]))] = False
            self.tick()
        return found

    def current(self) -> Iterator[Head]:
        """Yield the heads of the segments that are read."""
        return filter(self.is_current, self._heads)

    @property
    def segment_count(self) -> int:
        """Number of segments."""
        return len(self._heads)

    @property
    def fresh_count(self) -> int:
        """Number of records that are read themselves."""
        return len(self.fresh)
