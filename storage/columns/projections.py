"""Column projections of all tables, their overlays and the bound of their memory.

A projection divides the keys of one table into segments. A segment holds the ids of its records,
and one block for each column. Both are immutable: a reader keeps the segments that it has captured.

The blocks stand for the state at `TableProjection.sequence`. The ledger notes each key of a record
that it applies to the engine (`Projections.note`), so a key outside the overlay has the value of
its block in every later state, but for pending commits and the reader's own writes. A reader of an
older state must not use the blocks. Rolled-back commits were never applied, and are never noted.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from protocol import limits
from storage.formats.keys import RECORD, RECORD_PREFIX_BYTES, TAG_AT, Range

OVERLAY_KEYS: Final = 8_192
"""Changed keys of one table beyond which its blocks are dropped: reading all rows costs less."""
KEY_BYTES: Final = 120
"""Memory (bytes) of a key in an overlay, about."""


class ColumnSegment:
    """Records of a table from `start` up to the next segment, as ids and columns.

    `start` is an encoded id, empty for the first segment. `ids` is None if nothing is known of the
    records; they are read then.
    """

    __slots__ = ("columns", "ids", "start")

    def __init__(self, start: bytes, ids: Any, columns: dict[str, Any]) -> None:
        self.start = start
        self.ids = ids
        self.columns = columns

    @property
    def count(self) -> int:
        """Number of its records."""
        return 0 if self.ids is None else self.ids.count

    def without(self, name: str) -> ColumnSegment:
        """Return the segment without one of its columns; without ids too if none is left."""
        columns = {one: block for one, block in self.columns.items() if one != name}
        return ColumnSegment(self.start, self.ids if columns else None, columns)


class TableProjection:
    """Columns of one table."""

    def __init__(self) -> None:
        self.segments: list[ColumnSegment] = [ColumnSegment(b"", None, {})]
        """Segments in key order; together they cover all possible ids. Replaced, never changed."""
        self.overlay: dict[bytes, int] = {}
        """Encoded ids of records that applied commits have changed since, with the newest sequence.
        """
        self.sequence = 0
        """Sequence of the oldest state that a reader of the blocks may read."""
        self.generation = 0
        """Number of changes of `segments`."""
        self.scans = 0
        """Number of running scans, which have captured the segments."""
        self.top: bytes | None = None
        """Greatest encoded id in the segments; None: unknown, or none."""
        self.tail = False
        """True if commits have written beyond `top`: those records are in no segment or overlay."""
        self.dictionaries: dict[str, Any] = {}
        """Dictionary of each column, shared by its blocks."""
        self.used: dict[str, int] = {}
        """Time of the last use of each column, as a number that grows."""

    def note(self, id: bytes, sequence: int) -> None:
        """Note that an applied commit has changed a record."""
        # A running scan may be about to move `top`, so only the overlay is exact then.
        if not self.scans and self.top is not None and id > self.top:
            self.tail = True
        else:
            self.overlay[id] = sequence

    def forget(self) -> None:
        """Drop all blocks."""
        self.segments = [ColumnSegment(b"", None, {})]
        self.overlay, self.top, self.tail = {}, None, False
        self.dictionaries = {}
        self.generation += 1

    def held(self, name: str) -> tuple[int, int]:
        """Return the number of blocks of a column, and their bytes."""
        blocks = [one.columns[name] for one in self.segments if name in one.columns]
        return len(blocks), sum(block.size for block in blocks)

    @property
    def columns(self) -> list[str]:
        """Names of the columns that some segment holds."""
        return sorted({name for one in self.segments for name in one.columns})

    @property
    def bytes(self) -> int:
        """Memory of blocks, ids, dictionaries and overlay, about."""
        found: int = sum(block.size for one in self.segments for block in one.columns.values())
        found += sum(one.ids.size for one in self.segments if one.ids is not None)
        found += sum(one.size for one in self.dictionaries.values())
        return found + KEY_BYTES * len(self.overlay)


class Projections:
    """Projections of a node's tables, by the key prefix of their records.

    :param most_bytes: bound of their memory; the columns used least recently leave first
    """

    def __init__(self, most_bytes: int = limits.COLUMNS_BYTES) -> None:
        self.most_bytes = most_bytes
        self.tables: dict[bytes, TableProjection] = {}
        self.bytes = 0
        """Memory of all projections, as of the last `publish`."""
        self.built = 0
        """Blocks built so far."""
        self.patched = 0
        """Changed records put into blocks so far."""
        self.evicted = 0
        """Columns dropped so far because of the bound."""
        self._uses = 0

    def of(self, prefix: bytes) -> TableProjection:
        """Return the projection of a table; a new one holds no column yet."""
        found = self.tables.get(prefix)
        if found is None:
            found = self.tables[prefix] = TableProjection()
        return found

    def use(self, table: TableProjection, names: Iterable[str]) -> None:
        """Mark columns as used now."""
        self._uses += 1
        for name in names:
            table.used[name] = self._uses

    # --- what commits change ----------------------------------------------------------------------

    def note(self, written: Iterable[bytes], sequence: int) -> None:
        """Note keys that commit `sequence` has written or deleted in the engine."""
        tables = self.tables
        if not tables:
            return
        for key in written:
            if key[TAG_AT] == RECORD:
                table = tables.get(key[:RECORD_PREFIX_BYTES])
                if table is not None:
                    table.note(key[RECORD_PREFIX_BYTES:], sequence)
                    if len(table.overlay) > OVERLAY_KEYS:
                        table.forget()

    def note_ranges(self, ranges: Sequence[Range]) -> None:
        """Note deleted ranges: the projections of tables within them are dropped."""
        for start, end in ranges:
            for prefix in list(self.tables):
                if start < prefix + b"\xff" and end > prefix:
                    self.drop(prefix)

    def drop(self, prefix: bytes) -> None:
        """Drop the projection of a table. Running scans keep what they have captured."""
        self.tables.pop(prefix).forget()

    # --- what scans build -------------------------------------------------------------------------

    def publish(self, prefix: bytes, table: TableProjection, names: Iterable[str]) -> None:
        """Take note that a scan has replaced segments, and keep the memory within its bound."""
        self.use(table, names)
        segments = table.segments
        last = segments[-1].ids
        table.top = last.last if last is not None and last.count else None
        if not table.columns and self.tables.get(prefix) is table and not table.scans:
            del self.tables[prefix]
        self._count()
        while self.bytes > self.most_bytes and self._evict():
            self._count()

    def _count(self) -> None:
        self.bytes = sum(table.bytes for table in self.tables.values())

    def _evict(self) -> bool:
        """Drop the column used least recently. Return False if there is none."""
        known = [
            (table.used.get(name, 0), prefix, name)
            for prefix, table in self.tables.items()
            for name in table.columns
        ]
        if not known:
            return False
        _, prefix, name = min(known)
        table = self.tables[prefix]
        table.segments = [one.without(name) for one in table.segments]
        table.generation += 1
        table.dictionaries.pop(name, None)
        table.used.pop(name, None)
        self.evicted += 1
        if not table.columns:
            table.forget()
            if not table.scans:
                del self.tables[prefix]
        return True


def segment_of(segments: Sequence[ColumnSegment], id: bytes) -> int:
    """Return the number of the segment that covers an encoded id."""
    return bisect_right(segments, id, key=_start) - 1


def _start(segment: ColumnSegment) -> bytes:
    return segment.start


def per_segment(
    segments: Sequence[ColumnSegment], ids: Sequence[bytes]
) -> Iterator[tuple[int, list[bytes]]]:
    """Divide sorted encoded ids by their segments."""
    at = 0
    while at < len(ids):
        number = segment_of(segments, ids[at])
        end = len(ids)
        if number + 1 < len(segments):
            limit = segments[number + 1].start
            end = at
            while end < len(ids) and ids[end] < limit:
                end += 1
        yield number, list(ids[at:end])
        at = end


__all__ = ["OVERLAY_KEYS", "Projections", "ColumnSegment", "TableProjection", "per_segment"]
