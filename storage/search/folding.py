"""Folds and merges: fresh records become a segment, and several segments become one.

A fold reads a view of the engine, takes the content of records in slices, and writes the keys of a
new segment straight to the engine, without a commit. Nobody sees them before the head is there. The
batch with the head also marks these records deleted in older segments, or removes the segments of a
merge. It removes the markers that the view has, but those that commits have put since
(`storage/txn/marked_records.py`).

Invariant: a record without a marker has at most one live entry in all segments, which holds its
present content. It survives a crash after any batch: a segment without a head is removed by the
next fold, which finds all markers as they were.

A fold may not begin while a large commit is applied in parts: its markers are in the engine before
its records are, and would be removed for the old records.

The markers go by one deletion of their range, from its very start, and those that stay are put
again. A scan steps over each key that was deleted alone, and seeks at each range that was deleted;
deletions of the same range count as one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from storage.engine.engine import Engine, EngineSnapshot
from storage.formats import keys
from storage.formats.keys import SEQUENCE_BYTES
from storage.indexes import index_rows
from storage.indexes.entries import FAILED, Index
from storage.indexes.fresh_markers import FRESH
from storage.search.contents import FOLD_SIZE, Content
from storage.search.segments import (
    RECORDS,
    Get,
    Head,
    Segment,
    SegmentBuilder,
    fresh_ids,
    heads,
    ranges,
)
from storage.txn.marked_records import IndexMarks, MarkedRecords

BATCH_BYTES: Final = 32 * 1024
"""Bytes written to the engine in one step."""
STEP_RECORDS: Final = 8
"""Records whose content is taken in one step."""
_LOOKED: Final = 128
"""Records looked up in one step."""
FOLD_RECORDS: Final = 16_384
"""Most records of one fold; a larger backlog takes several."""
MERGED: Final = 8
"""Segments of similar size that become one."""

Contents = Callable[[Index, Get], Content]
WAITS: Final = object()
"""Said by a step that has done nothing, because the engine takes no write now."""
Step = Iterator[object]
"""Work in slices: the engine may change between two of them."""


@dataclass(slots=True)
class Fold:
    """Folds and merges of one store.

    :ivar marked: markers that the ledger notes
    :ivar kind: `fold` or `merge`, of the work that was returned last
    :ivar may_write: True if the engine takes a batch now, and no commit is applied in part
    """

    engine: Engine
    marked: MarkedRecords
    contents: Contents
    may_write: Callable[[], bool]
    kind: str | None = None

    def declared(self) -> Iterator[list[bytes]]:
        """Yield the keys of the declarations of indexes made of segments, a few at a
        time."""
        found: list[bytes] = []
        for pairs in self.engine.scan(*keys.all_indexes()):
            for number, (key, value) in enumerate(pairs):
                if index_rows.read(key, value).segmented:
                    found.append(key)
                if number % _LOOKED == _LOOKED - 1:
                    yield found
                    found = []
        yield found

    def work(self, key: bytes) -> Step | None:
        """Return the next work on an index, in slices; None: there is none.

        :param key: of its declaration
        """
        index = self._index(key)
        if index is None:
            return None
        content = self.contents(index, self.engine.get)
        prefix = index.entries
        found = heads(self.engine.scan, prefix)
        group = _to_merge(found, content)
        if group:
            self.kind = "merge"
            return self._merge(index, content, found, group)
        marks = self.marked.of(prefix + FRESH)
        if marks.keys is None and next(fresh_ids(self.engine.scan, prefix), None) is None:
            marks.know(())
        if marks.keys == {}:
            return None
        self.kind = "fold"
        return self._fold(index, content, found)

    def _index(self, key: bytes) -> Index | None:
        """Return a declared index of segments that is maintained, from the applied state."""
        value = self.engine.get(key)
        index = None if value is None else index_rows.read(key, value)
        if index is None or not index.segmented or index.state == FAILED:
            return None
        return index

    def _still(self, index: Index) -> bool:
        """True if an index has not been dropped or rebuilt."""
        found = self._index(index.key)
        return found is not None and found.entries == index.entries

    # --- two ways to a segment --------------------------------------------------------------------

    def _fold(self, index: Index, content: Content, known: list[Head]) -> Step:
        while not self.may_write():
            yield WAITS
        # Nothing is applied between the two.
        view, marks = self.engine.snapshot(), self.marked.of(index.entries + FRESH)
        marks.begin_fold()
        try:
            ids: list[bytes] = []
            for some in fresh_ids(view.scan, index.entries):
                ids += some
                if len(ids) > FOLD_RECORDS:
                    break
                yield None
            builder, taken = yield from self._added(index, content, view, ids[:FOLD_RECORDS])
            if taken < len(ids):
                marks.limit_fold(marks.prefix + ids[taken])
                ids = ids[:taken]
            left: list[Head] = []
            for head in known:
                segment = Segment(view.get, view.scan, index.entries, head)
                older: list[int] = []
                for at in range(0, len(ids), _LOOKED):
                    older += segment.numbers(ids[at : at + _LOOKED])
                    yield None
                if older:
                    left.append(head.without(older))
                    yield None
            view.close()
            yield from self._written(index, content, builder, known, left, [], marks)
        finally:
            view.close()
            marks.end_fold()

    def _merge(self, index: Index, content: Content, known: list[Head], group: list[Head]) -> Step:
        view = self.engine.snapshot()
        try:
            ids: list[bytes] = []
            for head in group:
                segment = Segment(view.get, view.scan, index.entries, head)
                for id in segment.live_ids():
                    ids.append(id)
                    if len(ids) % STEP_RECORDS == 0:
                        yield None
            ids.sort()
            builder, taken = yield from self._added(index, content, view, ids, whole=True)
            assert taken == len(ids)
        finally:
            view.close()
        yield from self._written(index, content, builder, known, [], group, None)

    def _added(
        self,
        index: Index,
        content: Content,
        view: EngineSnapshot,
        ids: Sequence[bytes],
        *,
        whole: bool = False,
    ) -> Any:
        """Return a builder with the records of ids that exist and have content, and the number of
        ids that were taken. A generator.

        :param whole: True: all ids are taken; else as many as a fold holds in memory
        """
        builder, taken = content.builder(), len(ids)
        for number, id in enumerate(ids):
            if not whole and builder.size > FOLD_SIZE:
                taken = number
                break
            value = view.get(_record(index, id))
            if value is not None:
                yield from content.add(builder, id, value[SEQUENCE_BYTES:])
            if number % STEP_RECORDS == STEP_RECORDS - 1:
                yield None
        yield from builder.finish()
        return builder, taken

    # --- writing ----------------------------------------------------------------------------------

    def _written(
        self,
        index: Index,
        content: Content,
        builder: SegmentBuilder,
        known: list[Head],
        changed: list[Head],
        gone: list[Head],
        marks: IndexMarks | None,
    ) -> Step:
        """Write a segment and then its head, with changed heads of others and without those that
        are gone. :param marks: markers of the fold; None: it is a merge"""
        prefix, number = index.entries, max((head.number for head in known), default=0) + 1
        batch, size = self.engine.batch(), 0
        # What a crash may have left of a segment that got no head.
        for start, end in ranges(prefix, number):
            batch.delete_range(start, end)
        for key, value in builder.pairs(prefix, number) if len(builder) else ():
            batch.put(key, value)
            size += len(key) + len(value)
            if size > BATCH_BYTES:
                if not (yield from self._write(index, batch)):
                    return
                batch, size = self.engine.batch(), 0
        if not (yield from self._write(index, batch)):
            return
        if not (yield from self._writable(index)):
            return
        if marks is not None and self.marked.of(marks.prefix) is not marks:
            return
        batch = self.engine.batch()
        if len(builder):
            head = builder.head(number, content.digest)
            batch.put(_head_key(prefix, number), head.pack())
        for head in changed:
            batch.put(_head_key(prefix, head.number), head.pack())
        for head in gone:
            for start, end in ranges(prefix, head.number):
                batch.delete_range(start, end)
        if marks is not None:
            batch.delete_range(marks.prefix, marks.end)
            for key in marks.late or ():
                batch.put(key, b"")
        self.engine.write(batch, self.engine.applied)
        if marks is not None:
            marks.remove()
        self.marked.changed(self.marked.of(prefix + FRESH))

    def _write(self, index: Index, batch: Any) -> Any:
        """Write a batch when the engine takes it. Return False if the index is gone."""
        if not (yield from self._writable(index)):
            return False
        self.engine.write(batch, self.engine.applied)
        yield None
        return True

    def _writable(self, index: Index) -> Any:
        """Wait until the engine takes a batch. Return False if the index is gone."""
        while not self.may_write():
            yield WAITS
        return self._still(index)


def _to_merge(known: list[Head], content: Content) -> list[Head]:
    """Return the segments to make one of: many of a size, or one with a fifth deleted or of another
    form."""
    for head in known:
        if head.digest != content.digest or head.live * 5 < head.records * 4:
            return [head]
    by_size: dict[int, list[Head]] = {}
    for head in known:
        by_size.setdefault(head.records.bit_length() // 3, []).append(head)
    for group in by_size.values():
        if len(group) >= MERGED:
            some = group[:MERGED]
            while some and (
                sum(head.live for head in some) > RECORDS
                or sum(sum(head.words) for head in some) > content.merged
            ):
                some.pop()
            if len(some) > 1:
                return some
    return []


def _record(index: Index, id: bytes) -> bytes:
    return keys.record_prefix(*keys.index_table(index.key)) + id


def _head_key(prefix: bytes, number: int) -> bytes:
    return ranges(prefix, number)[0][0]
