"""Folds and merges: fresh records become a segment, and several segments become one.

A fold reads a view of the engine, takes the content of records in slices, and writes the keys of a
new segment straight to the engine, without a commit. Nobody sees them before the head is there. The
batch with the head also marks these records deleted in older segments, or removes the segments of a
merge. Markers go afterwards, each only if its record has not changed since the view. A record with
a marker is read itself, so in between it counts once.

Invariant: a record without a marker has at most one live entry in all segments, which holds its
present content. It survives a crash after any batch, since the engine keeps batches in their order:
a segment without a head is removed by the next fold, markers that stayed are folded again.

A fold may not write while a large commit is applied in parts: its markers are in the engine before
its records are, and would be removed for the old records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
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

    :ivar may_write: True if the engine takes a batch now, and no commit is applied in part
    """

    engine: Engine
    contents: Contents
    may_write: Callable[[], bool]

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
            return self._merge(index, content, found, group)
        if next(fresh_ids(self.engine.scan, prefix), None) is not None:
            return self._fold(index, content, found)
        return None

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
        view = self.engine.snapshot()
        try:
            marked = (id for ids in fresh_ids(view.scan, index.entries) for id in ids)
            ids: list[bytes] = []
            stamps: list[bytes | None] = []
            for id in islice(marked, FOLD_RECORDS):
                ids.append(id)
                stamps.append(_stamp(view.get(_record(index, id))))
                if len(ids) % _LOOKED == 0:
                    yield None
            builder, taken = yield from self._added(index, content, view, ids)
            ids = ids[:taken]
            older: dict[int, list[int]] = {}
            for head in known:
                segment = Segment(view.get, view.scan, index.entries, head)
                for at in range(0, len(ids), _LOOKED):
                    numbers = segment.numbers(ids[at : at + _LOOKED])
                    older.setdefault(head.number, []).extend(numbers)
                    yield None
        finally:
            view.close()
        left = [head.without(older[head.number]) for head in known if older.get(head.number)]
        yield from self._written(index, content, builder, known, left, [])
        yield from self._unmark(index, ids, stamps)

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
        yield from self._written(index, content, builder, known, [], group)

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
    ) -> Step:
        """Write a segment and then its head, with changed heads of others and without those that
        are gone."""
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
        batch = self.engine.batch()
        if len(builder):
            head = builder.head(number, content.digest)
            batch.put(_head_key(prefix, number), head.pack())
        for head in changed:
            batch.put(_head_key(prefix, head.number), head.pack())
        for head in gone:
            for start, end in ranges(prefix, head.number):
                batch.delete_range(start, end)
        yield from self._write(index, batch)

    def _unmark(self, index: Index, ids: Sequence[bytes], stamps: Sequence[bytes | None]) -> Step:
        """Remove the markers of records that are as they were read."""
        prefix = index.entries + FRESH
        for at in range(0, len(ids), _LOOKED):
            while not self.may_write():
                yield WAITS
            batch = self.engine.batch()
            some = ids[at : at + _LOOKED]
            # Read and written without a pause between: no commit is applied meanwhile.
            kept = [
                _stamp(self.engine.get(_record(index, id))) == stamp
                for id, stamp in zip(some, stamps[at:], strict=False)
            ]
            start, end = prefix + some[0], prefix + some[-1] + b"\0"
            between = sum(len(pairs) for pairs in self.engine.scan(start, end))
            # One deletion for all: a scan of the markers passes over each that was deleted alone.
            if all(kept) and between == len(some):
                batch.delete_range(start, end)
            else:
                for id, is_same in zip(some, kept, strict=True):
                    if is_same:
                        batch.delete(prefix + id)
            if not self._still(index):
                return
            self.engine.write(batch, self.engine.applied)
            yield None

    def _write(self, index: Index, batch: Any) -> Any:
        """Write a batch when the engine takes it. Return False if the index is gone."""
        while not self.may_write():
            yield WAITS
        if not self._still(index):
            return False
        self.engine.write(batch, self.engine.applied)
        yield None
        return True


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


def _stamp(value: bytes | None) -> bytes | None:
    return None if value is None else value[:SEQUENCE_BYTES]


def _head_key(prefix: bytes, number: int) -> bytes:
    return ranges(prefix, number)[0][0]
