"""Scan of a table by its column projection: captures segments, builds and patches them as it goes.

The scan sees the state of its transaction. It captures the segments, and the ids that may differ
from them: the overlay of the projection, pending commits, and the transaction's own writes. These
records are read from the transaction, and put into copies of the segments, before a segment is
used. Segments without a wanted column are built from their records. What was built or patched is
published for later scans; records of pending commits and own writes stay in the overlay then, so
every later scan reads them itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from language.rows import Batch, Pairs, Shape, shape
from protocol import limits
from storage.catalog.tables import Table
from storage.columns.projections import ColumnSegment, Projections, TableProjection, per_segment
from storage.formats import keys
from storage.formats.keys import SEQUENCE_BYTES
from storage.records import records

if TYPE_CHECKING:
    from actors.scripts.execution import Execution

CHANGED: Final = 8_192
"""Changed records that a scan puts into blocks; with more, the table is read by row."""
ROW_BYTES: Final = 8
"""Memory of a value in a block, at most about, to judge beforehand if columns fit their bound."""
_PATCHED: Final = 64
"""Cost of reading and patching a record, as `Env.tick` takes it."""

SMALL: Final = f"the table has at most {limits.COLUMN_ROWS} records"
OLDER: Final = "the columns stand for a newer state than this transaction reads"
MANY_CHANGES: Final = "too many changes are pending, or of this transaction"
TOO_WIDE: Final = "the columns would take more memory than all columns may"


class SegmentRows:
    """Segment as a scan sees it, with the keys that bound it."""

    __slots__ = ("end", "segment", "start")

    def __init__(self, segment: ColumnSegment, start: bytes, end: bytes) -> None:
        self.segment = segment
        self.start = start
        self.end = end

    @property
    def count(self) -> int:
        """Number of its records."""
        return self.segment.count

    def has(self, names: Iterable[str]) -> bool:
        """True if it has blocks with the values of these columns."""
        columns = self.segment.columns
        return all(name in columns and columns[name].kind != "mixed" for name in names)

    def column(self, name: str) -> Any:
        """Return the block of a column."""
        return self.segment.columns[name]

    def ids(self, positions: Sequence[int]) -> list[bytes]:
        """Return the encoded ids of some records, by their positions."""
        encoded = self.segment.ids.encoded
        return [encoded(at) for at in positions]


class ColumnScan:
    """Scan of all records of a table by some of its columns. Used once.

    :param names: fields to read, at least one
    """

    def __init__(self, run: Execution, table: Table, names: tuple[str, ...]) -> None:
        self.run = run
        self.table = table
        self.names = names
        self._transaction = run.transaction
        self._projections: Projections = run.transaction.projections
        self._range = keys.within(table.prefix)
        self._shapes: dict[tuple[str, ...], Shape] = {}

    # --- choosing ---------------------------------------------------------------------------------

    def about(self) -> int:
        """Return the approximate number of records."""
        return records.about(self._transaction, self.table)

    def is_small(self) -> bool:
        """True if the table has so few records that they are read by row."""
        return self.about() <= limits.COLUMN_ROWS

    def obstacle(self) -> str | None:
        """Return the reason why columns can't serve this scan; None if they can."""
        count = self.about()
        if count <= limits.COLUMN_ROWS:
            return SMALL
        if count * len(self.names) * ROW_BYTES > self._projections.most_bytes:
            return TOO_WIDE
        known = self._projections.tables.get(self.table.prefix)
        if known is not None and self._transaction.sequence < known.sequence:
            return OLDER
        changed = self._transaction.changed_over(*self._range, CHANGED)
        return MANY_CHANGES if changed is None else None

    def held(self) -> list[SegmentRows]:
        """Return the segments that hold all wanted columns already."""
        known = self._projections.tables.get(self.table.prefix)
        wanted = set(self.names)
        segments = known.segments if known else []
        return [SegmentRows(one, b"", b"") for one in segments if wanted <= one.columns.keys()]

    def changed(self) -> int:
        """Return the number of records to read by row and to put into blocks."""
        known = self._projections.tables.get(self.table.prefix)
        changed = self._transaction.changed_over(*self._range, CHANGED)
        return len(changed or ()) + (len(known.overlay) if known else 0)

    # --- scanning ---------------------------------------------------------------------------------

    def segments(self) -> Iterator[SegmentRows]:
        """Yield all segments in key order, each with all wanted columns."""
        if self.obstacle() is not None:
            # Other scans and commits have run since the access path was chosen.
            yield SegmentRows(ColumnSegment(b"", None, {}), *self._range)
            return
        table = self._projections.of(self.table.prefix)
        capture = _Capture(self, table)
        table.scans += 1
        try:
            for number, segment in enumerate(capture.segments):
                self.run.tick()
                end = capture.end(number)
                yield from self._current(capture, number, segment, end)
        finally:
            table.scans -= 1
            capture.publish()

    def rows(self, rows: SegmentRows) -> Iterator[Batch]:
        """Yield the records of a segment, by row."""
        record_id = records.record_id(self.table)
        for pairs in records.scan_keys(self._transaction, rows.start, rows.end):
            yield Pairs(pairs, record_id)
            self.run.tick()

    def fetch(self, ids: Sequence[bytes]) -> Iterator[Batch]:
        """Yield records by their encoded ids, in their order."""
        record_id = records.record_id(self.table)
        at = 0
        while at < len(ids):
            pairs, at = records.fetch(self._transaction, self.table, ids, at, _FETCHED)
            if pairs:
                yield Pairs(pairs, record_id)
            self.run.tick()

    def _current(
        self, capture: _Capture, number: int, segment: ColumnSegment, end: bytes
    ) -> Iterator[SegmentRows]:
        """Yield a segment as the transaction sees it, perhaps in several parts."""
        start = self.table.prefix + segment.start
        wanted = set(self.names)
        changed = capture.changed.get(number, ())
        if segment.ids is not None and wanted <= segment.columns.keys():
            if not changed:
                yield SegmentRows(segment, start, end)
                return
            parts = self._patched(capture, segment, changed)
            if all(wanted <= one.columns.keys() for one in parts):
                capture.replaced[number] = parts
                for at, part in enumerate(parts):
                    last = at + 1 == len(parts)
                    stop = end if last else self.table.prefix + parts[at + 1].start
                    yield SegmentRows(part, self.table.prefix + part.start, stop)
                return
            # A mixed block can't be patched.
        elif segment.ids is not None and not changed:
            part = self._widened(capture, segment, start, end)
            capture.replaced[number] = [part]
            yield SegmentRows(part, start, end)
            return
        yield from self._built(capture, number, segment, start, end)

    def _widened(
        self, capture: _Capture, segment: ColumnSegment, start: bytes, end: bytes
    ) -> ColumnSegment:
        """Return a segment with the wanted columns that it lacks."""
        names = tuple(name for name in self.names if name not in segment.columns)
        shape, record_id = self._shape(names), records.record_id(self.table)
        rows: list[Any] = []
        for pairs in records.scan_keys(self._transaction, start, end):
            rows += shape.from_pairs(Pairs(pairs, record_id))
            self.run.tick()
        assert len(rows) == segment.count, "a record changed without a note"
        blocks = self._blocks(capture, rows, names)
        return ColumnSegment(segment.start, segment.ids, {**segment.columns, **blocks})

    def _shape(self, names: tuple[str, ...]) -> Shape:
        found = self._shapes.get(names)
        if found is None:
            found = self._shapes[names] = shape(names)
        return found

    def _built(
        self, capture: _Capture, number: int, segment: ColumnSegment, start: bytes, end: bytes
    ) -> Iterator[SegmentRows]:
        """Build segments from the records between two keys."""
        from storage.columns.blocks import BLOCK_ROWS
        from storage.columns.ids import make_ids

        names = tuple(sorted({*self.names, *segment.columns}))
        shape, record_id = self._shape(names), records.record_id(self.table)
        prefix, skipped = self.table.prefix, len(self.table.prefix)
        rows: list[Any] = []
        ids: list[bytes] = []
        parts: list[ColumnSegment] = []
        capture.replaced[number] = parts
        first = segment.start
        capture.rest = (number, first)
        for pairs in records.scan_keys(self._transaction, start, end):
            rows += shape.from_pairs(Pairs(pairs, record_id))
            ids += [key[skipped:] for key, _ in pairs]
            self.run.tick()
            while len(ids) > BLOCK_ROWS:
                part = self._made(capture, first, ids[:BLOCK_ROWS], rows[:BLOCK_ROWS], names)
                rows, ids = rows[BLOCK_ROWS:], ids[BLOCK_ROWS:]
                parts.append(part)
                capture.rest = (number, ids[0])
                yield SegmentRows(part, prefix + first, prefix + ids[0])
                first = ids[0]
        last = self._made(capture, first, ids, rows, names) if ids else None
        parts.append(last or ColumnSegment(first, make_ids([]), {}))
        capture.rest = None
        if last is not None:
            yield SegmentRows(last, prefix + first, end)

    def _made(
        self,
        capture: _Capture,
        start: bytes,
        ids: list[bytes],
        rows: list[Any],
        names: tuple[str, ...],
    ) -> ColumnSegment:
        """Make a segment of records that were read."""
        from storage.columns.ids import make_ids

        return ColumnSegment(start, make_ids(ids), self._blocks(capture, rows, names))

    def _blocks(self, capture: _Capture, rows: list[Any], names: tuple[str, ...]) -> dict[str, Any]:
        """Make the blocks of some columns."""
        from storage.columns.blocks import Dictionary, make_block

        slots = self._shape(names).slots
        blocks = {}
        for name in names:
            slot = slots[name]
            dictionary = capture.table.dictionaries.setdefault(name, Dictionary())
            self.run.tick()
            values = [getattr(row, slot) for row in rows]
            blocks[name] = make_block(values, dictionary, self.run.tick)
            self.run.memory.held += blocks[name].size
        self._projections.built += len(names)
        return blocks

    def _patched(
        self, capture: _Capture, segment: ColumnSegment, changed: Sequence[bytes]
    ) -> list[ColumnSegment]:
        """Return a segment with the changed records put in."""
        from storage.columns.blocks import patch

        names = tuple(sorted(segment.columns))
        shape, prefix = self._shape(names), self.table.prefix
        record_id = records.record_id(self.table)
        changes: list[tuple[bytes, dict[str, Any] | None]] = []
        for id in changed:
            self.run.tick(_PATCHED)
            value = self._transaction.value_over(prefix + id)
            if value is None:
                changes.append((id, None))
                continue
            (row,) = shape.from_pairs(Pairs([(prefix + id, value[SEQUENCE_BYTES:])], record_id))
            changes.append((id, {name: getattr(row, shape.slots[name]) for name in names}))
        self._projections.patched += len(changes)
        return patch(segment, changes, capture.table.dictionaries)


_FETCHED: Final = 256
"""Records fetched in one step."""


class _Capture:
    """The segments of a projection, and the ids that differ, at the begin of a scan."""

    def __init__(self, scan: ColumnScan, table: TableProjection) -> None:
        transaction = scan._transaction
        skipped = len(scan.table.prefix)
        self._scan = scan
        self.table = table
        self.segments = list(table.segments)
        self._generation = table.generation
        self._overlay = dict(table.overlay)
        self._base = transaction.applied
        # Commits applied after the transaction's state may be in no overlay: as new records beyond
        # `top`, or if nothing was held when they were applied. What it builds would lack them.
        self._is_newest = transaction.sequence >= transaction.applied
        changed = transaction.changed_over(*scan._range, CHANGED)
        assert changed is not None, "an obstacle was not asked for"
        self._unsure = {key[skipped:] for key in changed}
        """Ids whose values are not those of the state at `_base`: of pending and own changes."""
        self._tail = table.tail
        ids = sorted(self._unsure.union(self._overlay))
        last = self.segments[-1]
        beyond = table.top is not None and (table.tail or bool(ids and ids[-1] > table.top))
        if last.ids is not None and beyond:
            # Records beyond the greatest id: read by one scan, into a segment of their own.
            assert table.top is not None
            self.segments.append(ColumnSegment(table.top + b"\0", None, {}))
        self.changed = dict(per_segment(self.segments, ids))
        self.replaced: list[list[ColumnSegment] | None] = [None] * len(self.segments)
        """Segments in the place of each captured one, if it was built or patched."""
        self.rest: tuple[int, bytes] | None = None
        """Number of the segment that is being built, and the encoded id from which on it is not."""

    def end(self, number: int) -> bytes:
        """Return the key at which a segment ends."""
        if number + 1 < len(self.segments):
            return self._scan.table.prefix + self.segments[number + 1].start
        return self._scan._range[1]

    def publish(self) -> None:
        """Put the built and patched segments in the place of those captured, if those are still
        current."""
        scan, table = self._scan, self.table
        projections, prefix = scan._projections, scan.table.prefix
        is_held = projections.tables.get(prefix) is table
        current = is_held and self._is_newest and table.generation == self._generation
        if current and any(parts is not None for parts in self.replaced):
            table.segments = self._joined()
            table.generation += 1
            table.sequence = max(table.sequence, self._base)
            for number, parts in enumerate(self.replaced):
                for id in self.changed.get(number, ()) if parts is not None else ():
                    if self.rest is None or number != self.rest[0] or id < self.rest[1]:
                        self._settle(id)
            last = len(self.segments) - 1
            if self.replaced[last] is not None and (self.rest is None or self.rest[0] != last):
                table.tail = False
        if is_held:
            projections.publish(prefix, table, scan.names)

    def _settle(self, id: bytes) -> None:
        """Take an id out of the overlay if its block has the value of the state at `_base`."""
        overlay = self.table.overlay
        if id in self._unsure:
            overlay.setdefault(id, self._base)
        elif id in overlay and overlay[id] == self._overlay[id] <= self._base:
            del overlay[id]

    def _joined(self) -> list[ColumnSegment]:
        """Return all segments, without empty ones, and with short ones at the end put together."""
        from storage.columns.blocks import together

        found: list[ColumnSegment] = []
        for number, segment in enumerate(self.segments):
            for one in self._now(number, segment):
                if one.ids is not None and not one.count:
                    continue
                if found and self.replaced[number] is not None and one.ids is not None:
                    both = together(found[-1], one) if found[-1].ids is not None else None
                    if both is not None:
                        found[-1] = both
                        continue
                found.append(one)
        if not found:
            return [ColumnSegment(b"", None, {})]
        if found[0].start:
            found[0] = ColumnSegment(b"", found[0].ids, found[0].columns)
        # A captured tail that was not reached is left to the next scan.
        if found[-1].ids is None and self._is_tail(found[-1]):
            found.pop()
        return found

    def _now(self, number: int, segment: ColumnSegment) -> list[ColumnSegment]:
        """Return the segments in the place of a captured one."""
        found = self.replaced[number]
        if found is None:
            return [segment]
        if self.rest is not None and self.rest[0] == number:
            found = [*found, ColumnSegment(self.rest[1], None, {})]
        return found

    def _is_tail(self, segment: ColumnSegment) -> bool:
        return self.table.top is not None and segment.start == self.table.top + b"\0"


__all__ = ["ColumnScan", "SegmentRows"]
