"""Write sets of pending commits (`WriteSet`), and how reads merge them over the engine.

A write set holds the changes of one transaction: its range deletes, then its writes over them. The
write sets of commits that the engine lacks lie over it, newer over older. `PendingWrites` also
keeps them merged, so that a point read costs one look-up, however many commits are pending.

A record in a write set begins with the sequence of the change *before* this one, because its own
sequence is assigned only at the commit. Reads of a commit, and the write to the engine, replace
that sequence by the commit's ("stamp" it).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sized
from itertools import islice
from operator import itemgetter
from typing import Final
from weakref import ref

from storage.engine.engine import BATCH_PAIRS, Batch
from storage.formats.effects import DELETE_RANGE, DERIVE, PUT, PUT_RECORD, Effect
from storage.formats.keys import (
    SEQUENCE_BYTES,
    STAMPED,
    TAG_AT,
    Pair,
    Range,
    is_catalog,
    stamped,
    touches_catalog,
)
from storage.txn.key_sorting import in_order
from storage.txn.scan_snapshot import ScanSnapshot

_FEW: Final = 16
"""Number of writes up to which a linear search of a write set beats sorting it."""
_MANY: Final = 4096
"""Pending writes beyond which write sets are searched one by one, not merged."""
_BUILT: Final = 256
"""The same limit for a write set of an index build.

Merging costs as much as making the entries, and hardly any read asks for an index that is not in
use yet.
"""
COPIED: Final = 256
"""Writes in a range that a scan copies at its start.

With more of them, the scan reads the write set lazily (`ScanSnapshot`).

A transaction may have 600 000 writes, and scan once for each row of a table.
"""

_by_key: Final = itemgetter(0)


KEY_BYTES: Final = 200
"""Memory overhead (bytes) of a pending key, beside key and value.

Three dictionary entries and the object headers; measured.
"""
_NOTHING: Final[set[bytes]] = set()
"""Shared empty set, never modified: a write set with a declaration gets one of its own."""


class KeyOrder:
    """Lazily sorted keys of a dictionary. Keys that are never read in order cost a write almost
    nothing."""

    __slots__ = ("_fresh", "_lent", "_sorted")

    def __init__(self) -> None:
        self._sorted: list[bytes] = []
        self._fresh: list[bytes] = []
        """Keys added since the last sort. A key that was deleted and added again may be in both
        lists."""
        self._lent = False
        """True if a caller holds the sorted list, which must then not be modified."""

    def add(self, keys: Iterable[bytes], held: Sized) -> None:
        """Note keys that were added; they may have been there already.

        :param held: the dictionary
        """
        fresh = self._fresh
        fresh.extend(keys)
        if len(fresh) > 2 * len(held) + _MANY:
            # No ordered read for long, and as many keys have come and gone: sort again when needed.
            self._sorted, self._lent = [], False
            fresh.clear()

    def all(self, held: Mapping[bytes, object]) -> list[bytes]:
        """Return exactly all keys, sorted. The returned list is never modified.

        :param held: the dictionary
        """
        ordered = self.about(held)
        # `about` may keep deleted keys; this list must not.
        if len(ordered) != len(held):
            ordered = self._sorted = sorted(held)
        self._lent = True
        return ordered

    def release(self) -> list[bytes]:
        """Give up the sorted list, for piecewise deallocation. Empty if a caller holds it."""
        ordered = [] if self._lent else self._sorted
        self._sorted = []
        return ordered

    def knows(self, held: Mapping[bytes, object]) -> bool:
        """True if all keys are sorted already.

        :param held: the dictionary
        """
        return not self._fresh and len(self._sorted) == len(held)

    def know(self, ordered: list[bytes]) -> None:
        """Take over a list of all keys that the caller has sorted."""
        self._sorted, self._lent = ordered, False
        self._fresh.clear()

    def about(self, held: Mapping[bytes, object]) -> list[bytes]:
        """Return all keys, sorted, and perhaps some deleted ones. Valid until the next change."""
        fresh, ordered = self._fresh, self._sorted
        come = len(held) - len(ordered)
        # With many new or deleted keys one sort is faster than single insertions.
        if max(len(fresh), come) * 8 > len(held) or len(ordered) > 2 * len(held) + _FEW:
            ordered, self._lent = sorted(held), False
        elif fresh:
            # Copy on write: a caller holds the list.
            if self._lent:
                ordered, self._lent = ordered.copy(), False
            for key in fresh:
                at = bisect_left(ordered, key)
                if at == len(ordered) or ordered[at] != key:
                    ordered.insert(at, key)
        self._sorted = ordered
        fresh.clear()
        return ordered


class WriteSet:
    """Write set of one transaction. A value of None is a deletion."""

    __slots__ = (
        "_order", "_seen", "built", "catalog", "declared", "entries", "ranges", "sequence", "size",
        "time", "writes",
    )  # fmt: skip

    def __init__(self, sequence: int = 0) -> None:
        self.sequence = sequence
        self.writes: dict[bytes, bytes | None] = {}
        self.ranges: list[Range] = []
        self.size = 0
        """Approximate bytes of its changes; set at the commit."""
        self.time = 0
        """Log time of its frame (µs); set at the commit."""
        self.catalog = False
        """True if the changes include a declaration."""
        self.declared: set[bytes] = _NOTHING
        """`keys.declared` of the declarations written or deleted one by one."""
        self.entries = False
        """True if the commit includes index entries."""
        self.built = False
        """True if the changes are nearly all index entries of an index build."""
        self._order = KeyOrder()
        self._seen: list[ref[ScanSnapshot]] = []
        """Running scans that see the write set as it was at their start."""

    def declares(self) -> set[bytes]:
        """Mark the write set as changing a declaration. Return `declared`, for the caller to add
        to."""
        if not self.catalog:
            self.catalog, self.declared = True, set()
        return self.declared

    def write(self, key: bytes, value: bytes | None) -> None:
        """Set or delete a key."""
        # Running scans have the keys of their start, so a new key concerns none of them.
        if key not in self.writes:
            self._order.add((key,), self.writes)
        elif self._seen:
            self._changes((key,))
        self.writes[key] = value

    def _changes(self, keys: Iterable[bytes]) -> None:
        """Preserve the old values of these keys for running scans, before they are replaced or
        undone."""
        live = [scan_snapshot for seen in self._seen if (scan_snapshot := seen()) is not None]
        # Scans that have ended leave dead references behind.
        if len(live) < len(self._seen):
            self._seen = [ref(scan_snapshot) for scan_snapshot in live]
        writes = self.writes
        for scan_snapshot in live:
            for key in keys:
                if key in writes:
                    scan_snapshot.keep(key, writes[key])

    def touches(self, wanted: Collection[bytes]) -> bool:
        """True if the write set may change any of the keys; any range delete counts."""
        return bool(self.ranges) or not self.writes.keys().isdisjoint(wanted)

    def forget(self, key: bytes) -> None:
        """Undo a write."""
        if self._seen:
            self._changes((key,))
        del self.writes[key]

    def write_all(self, rows: Mapping[bytes, bytes | None]) -> None:
        """Set or delete many keys."""
        if self._seen:
            self._changes(rows)
        self._order.add(rows, self.writes)
        self.writes.update(rows)

    def replace(self, gone: Iterable[bytes], rows: Mapping[bytes, bytes | None]) -> None:
        """Undo some writes, and make others instead."""
        for key in gone:
            if key in self.writes:
                self.forget(key)
        self.write_all(rows)

    def delete_range(self, start: bytes, end: bytes) -> list[bytes]:
        """Delete a range. Return the keys of the write set's own writes in it, which are
        dropped."""
        gone = self.within(start, end)
        if self._seen:
            self._changes(gone)
        # `_order` keeps these keys; its next exact list leaves them out.
        for key in gone:
            del self.writes[key]
        self.ranges.append((start, end))
        return gone

    def within(self, start: bytes, end: bytes) -> list[bytes]:
        """Return the sorted keys of a range that were written or deleted one by one."""
        writes = self.writes
        if len(writes) <= _FEW:
            return sorted([key for key in writes if start <= key < end])
        ordered = self._order.all(writes)
        return ordered[bisect_left(ordered, start) : bisect_left(ordered, end)]

    def ordered(self) -> list[bytes]:
        """Return the keys of all writes, sorted. The returned list is never modified."""
        return self._order.all(self.writes)

    def hollow(self) -> tuple[dict[bytes, bytes | None], list[bytes]]:
        """Return the containers of a write set that no reader uses any more, for piecewise
        deallocation."""
        return self.writes, self._order.release()

    def in_steps(self, step: int) -> Iterator[list[tuple[bytes, bytes | None]]]:
        """Yield all writes, `step` at a time. If they come in order, this sorts the keys too.

        The first scan over a large write set then need not sort. The write set must not change in
        between.
        """
        rows = iter(self.writes.items())
        ordered: list[bytes] | None = []
        while part := list(islice(rows, step)):
            if ordered is not None:
                keys = sorted([key for key, _ in part])
                if ordered and keys[0] < ordered[-1]:
                    # Out of order: the first ordered read sorts, or `put_in_order` in steps.
                    ordered = None
                else:
                    ordered += keys
            yield part
        if ordered is not None:
            self._order.know(ordered)

    def put_in_order(self, step: int) -> Generator[None, None, None]:
        """Sort the keys in steps of about `step`, so that `ordered` is immediate. The write set
        must not change in between."""
        order, writes = self._order, self.writes
        if order.knows(writes):
            return
        ordered = yield from in_order(writes, step)
        order.know(ordered)

    def scan_snapshot(self, start: bytes, end: bytes) -> ScanSnapshot | None:
        """Return a scan's snapshot of a range. None if the range has few writes: use `within`."""
        if len(self.writes) <= COPIED:
            return None
        # The exact list, never modified: the scan holds it while the write set changes.
        ordered = self._order.all(self.writes)
        low, high = bisect_left(ordered, start), bisect_left(ordered, end)
        if high - low <= COPIED:
            return None
        scan_snapshot = ScanSnapshot(self.writes, self.sequence, ordered, low, high)
        if self.sequence == 0:  # not committed: it may be changed yet
            self._seen.append(ref(scan_snapshot))
        return scan_snapshot

    def apply_ranges(self, batch: Batch) -> None:
        """Add the range deletes, which come before the writes, to a batch for the engine."""
        for start, end in self.ranges:
            batch.delete_range(start, end)

    def apply(self, batch: Batch) -> None:
        """Add the changes to a batch for the engine."""
        self.apply_ranges(batch)
        writes = self.writes
        if self.built:
            # Sorting here and sorted inserts are cheaper for the engine than unordered inserts.
            apply_writes([(key, writes[key]) for key in self.ordered()], self.sequence, batch)
        else:
            apply_writes(writes.items(), self.sequence, batch)


class _Unchanged(WriteSet):
    """Shared empty write set of read-only transactions. Any write raises."""

    __slots__ = ()

    def write(self, key: bytes, value: bytes | None) -> None:
        raise _shared()

    def forget(self, key: bytes) -> None:
        raise _shared()

    def write_all(self, rows: Mapping[bytes, bytes | None]) -> None:
        raise _shared()

    def delete_range(self, start: bytes, end: bytes) -> list[bytes]:
        raise _shared()


def _shared() -> AssertionError:
    return AssertionError("a change was written to the shared empty write set")


UNCHANGED: Final[WriteSet] = _Unchanged()
"""The shared instance, so that beginning a transaction allocates no write set."""


def apply_writes(writes: Iterable[tuple[bytes, bytes | None]], sequence: int, batch: Batch) -> None:
    """Add writes of commit `sequence` to a batch for the engine."""
    put, delete = batch.put, batch.delete
    stamp = sequence.to_bytes(SEQUENCE_BYTES, "big")
    for key, value in writes:
        if value is None:
            delete(key)
        elif key[TAG_AT] in STAMPED:
            put(key, stamp + value[SEQUENCE_BYTES:])
        else:
            put(key, value)


def apply_effects(effects: list[Effect], sequence: int, batch: Batch) -> bool:
    """Add the effects of commit `sequence` to a batch. Return True if any touched the catalog."""
    stamp = sequence.to_bytes(SEQUENCE_BYTES, "big")
    catalog = False
    for effect in effects:
        op, key = effect[0], effect[1]
        if op == PUT_RECORD:
            batch.put(key, stamp + effect[2])
        elif op == PUT:
            batch.put(key, effect[2])
            catalog = catalog or is_catalog(key)
        elif op == DELETE_RANGE:
            batch.delete_range(key, effect[2])
            catalog = catalog or touches_catalog(key, effect[2])
        else:
            assert op != DERIVE, "what is derived needs more than a batch"
            batch.delete(key)
            catalog = catalog or is_catalog(key)
    return catalog


class Overlay:
    """Pending writes over one range of the engine, to be merged into a scan."""

    __slots__ = ("_copied", "_ranges", "_scan_snapshots", "newest")

    def __init__(self) -> None:
        self._scan_snapshots: list[ScanSnapshot] = []
        """Scan snapshots, the oldest first."""
        self._copied: dict[bytes, bytes | None] = {}
        """Copied writes over those, stamped."""
        self._ranges: list[Range] = []
        """Range deletes below the copied writes."""
        self.newest = 0
        """Highest sequence in the overlay; 0: none."""

    def put(self, key: bytes, value: bytes | None) -> None:
        """Put a write over those so far."""
        self._copied[key] = value

    def lay(self, write_set: WriteSet, start: bytes, end: bytes) -> None:
        """Merge a newer write set over the writes so far."""
        ranges = [(low, high) for low, high in write_set.ranges if low < end and high > start]
        if scan_snapshot := write_set.scan_snapshot(start, end):
            # Too large to copy. The copies so far are older, and stay below it.
            self._begin_scan_snapshot()
            scan_snapshot.ranges = ranges
            self._scan_snapshots.append(scan_snapshot)
        else:
            # A write set's range deletes come before its writes.
            for low, high in ranges:
                self._delete_range(low, high)
            keys = write_set.within(start, end)
            if not (keys or ranges):
                # The scan sees nothing of this commit, so its answer need not wait for it.
                return
            writes, sequence = write_set.writes, write_set.sequence
            if sequence == 0:  # not committed: records show the change before
                self._copied.update((key, writes[key]) for key in keys)
            else:
                self._copied.update((key, stamped(key, writes[key], sequence)) for key in keys)
        self.newest = max(self.newest, write_set.sequence)

    def _begin_scan_snapshot(self) -> None:
        """Close the writes copied so far into a scan snapshot of their own."""
        copied = self._copied
        if copied or self._ranges:
            scan_snapshot = ScanSnapshot(copied, 0, sorted(copied), 0, len(copied))
            scan_snapshot.ranges = self._ranges
            self._scan_snapshots.append(scan_snapshot)
            self._copied, self._ranges = {}, []

    def _delete_range(self, low: bytes, high: bytes) -> None:
        # Copied writes go at once; `_with` drops what lies below the copies.
        for key in [key for key in self._copied if low <= key < high]:
            del self._copied[key]
        self._ranges.append((low, high))

    def over(self, rows: Iterator[list[Pair]], reverse: bool) -> Iterator[list[Pair]]:
        """Merge the overlay into `rows`, a scan of the engine."""
        # The copies that are left become the newest scan snapshot.
        self._begin_scan_snapshot()
        return _merged(rows, self._scan_snapshots, reverse) if self._scan_snapshots else rows


def lookup(write_sets: Iterable[WriteSet], key: bytes) -> tuple[int, bytes | None] | None:
    """Return sequence and value (None: deleted) of a key in write sets, the newest first.

    None if no write set changes the key.
    """
    for write_set in write_sets:
        writes = write_set.writes
        # Writes first: they lie over the range deletes of the same write set.
        if key in writes:
            return write_set.sequence, stamped(key, writes[key], write_set.sequence)
        for start, end in write_set.ranges:
            if start <= key < end:
                return write_set.sequence, None
    return None


class PendingWrites:
    """Write sets of the commits that the engine lacks, oldest first.

    Small ones are merged, so that one look-up finds a key. Large ones stay separate: copying a
    commit of 600 000 keys would block the event loop. So do the write sets of index builds, of
    which there is one at a time.
    """

    __slots__ = ("_large", "_order", "_ranges", "_sequences", "bytes", "values", "write_sets")

    def __init__(self) -> None:
        self.write_sets: deque[WriteSet] = deque()
        self.bytes = 0
        """Approximate bytes of all pending changes."""
        self.values: dict[bytes, bytes | None] = {}
        """Merged writes of the small write sets."""
        self._sequences: dict[bytes, int] = {}
        self._large: deque[WriteSet] = deque()
        self._ranges: list[tuple[int, bytes, bytes]] = []
        self._order = KeyOrder()

    @property
    def memory_bytes(self) -> int:
        """Approximate memory use in bytes."""
        count = len(self.values) + sum(len(write_set.writes) for write_set in self._large)
        return self.bytes + KEY_BYTES * count

    def add(self, write_set: WriteSet) -> None:
        """Add the newest commit."""
        sequence = write_set.sequence
        assert not self.write_sets or self.write_sets[-1].sequence < sequence
        self.write_sets.append(write_set)
        self.bytes += write_set.size
        for start, end in write_set.ranges:
            # Deletions replace the older merged writes inside, so one look-up stays enough.
            for key in [key for key in self.values if start <= key < end]:
                self.values[key] = None
                self._sequences[key] = sequence
            self._ranges.append((sequence, start, end))
        if len(write_set.writes) > (_BUILT if write_set.built else _MANY):
            self._large.append(write_set)
            return
        self.values.update(write_set.writes)
        self._sequences.update(dict.fromkeys(write_set.writes, sequence))
        self._order.add(write_set.writes, self.values)

    def get(self, key: bytes) -> tuple[int, bytes | None] | None:
        """Look up a key as `lookup` does, in one step, or in one for each write set if there are
        large ones."""
        if self._large:
            # Only a key that a large write set changes is searched one by one.
            return (
                lookup(reversed(self.write_sets), key) if self._in_large(key) else self._merged(key)
            )
        return self._merged(key)

    def _in_large(self, key: bytes) -> bool:
        return any(key in write_set.writes for write_set in self._large)

    def _merged(self, key: bytes) -> tuple[int, bytes | None] | None:
        sequence = self._sequences.get(key)
        # No newer range delete hides this: `add` would have made a deletion of it.
        if sequence is not None:
            return sequence, stamped(key, self.values[key], sequence)
        for sequence, start, end in reversed(self._ranges):
            if start <= key < end:
                return sequence, None
        return None

    def touches(self, wanted: Collection[bytes]) -> bool:
        """True if any write set may change any of the keys, see `WriteSet.touches`."""
        if self._ranges or not self.values.keys().isdisjoint(wanted):
            return True
        return any(write_set.touches(wanted) for write_set in self._large)

    def overlay(self, start: bytes, end: bytes) -> Overlay:
        """Return the pending writes over a range of the engine."""
        over = Overlay()
        if self._ranges or self._large or len(self.values) > _MANY:
            # Write set by write set: merged values show no ranges, and lack large commits.
            for write_set in self.write_sets:
                over.lay(write_set, start, end)
            return over
        values = self.values
        ordered = self._order.about(values)
        for key in ordered[bisect_left(ordered, start) : bisect_left(ordered, end)]:
            # The list may have keys that were dropped since.
            if key in values:
                sequence = self._sequences[key]
                over.put(key, stamped(key, values[key], sequence))
                over.newest = max(over.newest, sequence)
        return over

    def keep(self, upto: int) -> None:
        """Roll back all commits after `upto`."""
        # A merged value has lost the older ones below it, so merge what stays again.
        kept = [write_set for write_set in self.write_sets if write_set.sequence <= upto]
        self.drop(len(self.write_sets))
        for write_set in kept:
            self.add(write_set)

    def drop(self, count: int) -> None:
        """Remove the `count` oldest write sets, which the engine has applied."""
        write_sets = self.write_sets
        if count == len(write_sets):
            write_sets.clear()
            self.bytes = 0
            self.values = {}
            self._sequences = {}
            self._large.clear()
            self._ranges = []
            self._order = KeyOrder()
            return
        for _ in range(count):
            self._take_away(write_sets.popleft())

    def _take_away(self, write_set: WriteSet) -> None:
        self.bytes -= write_set.size
        sequence, sequences = write_set.sequence, self._sequences
        if self._large and self._large[0] is write_set:
            self._large.popleft()
        else:
            for key in write_set.writes:
                # A newer commit that changed the key too keeps its value.
                if sequences.get(key) == sequence:
                    del sequences[key]
                    del self.values[key]
        if self._ranges and self._ranges[0][0] == sequence:
            # Its range turned older merged writes into deletions; remove those too.
            for key in [key for key, at in sequences.items() if at == sequence]:
                del sequences[key]
                del self.values[key]
            self._ranges = [entry for entry in self._ranges if entry[0] != sequence]


def _merged(
    rows: Iterator[list[Pair]], scan_snapshots: list[ScanSnapshot], reverse: bool
) -> Iterator[list[Pair]]:
    """Yield a scan merged with scan snapshots, in steps not much larger than its own."""
    nearer = max if reverse else min
    for step in rows:
        while step:
            # Bounds the step: each snapshot adds BATCH_PAIRS writes at most.
            ends = [
                end
                for scan_snapshot in scan_snapshots
                if (end := scan_snapshot.bound(BATCH_PAIRS, reverse))
            ]
            last = nearer([step[-1][0], *ends])
            part, step = _split(step, last, reverse)
            if found := _with(part, scan_snapshots, last, reverse):
                yield found
    # Writes behind the engine's last row.
    while left := [scan_snapshot for scan_snapshot in scan_snapshots if not scan_snapshot.empty]:
        last = nearer(
            scan_snapshot.bound(BATCH_PAIRS, reverse) or scan_snapshot.end(reverse)
            for scan_snapshot in left
        )
        if found := _with([], scan_snapshots, last, reverse):
            yield found


def _split(step: list[Pair], last: bytes, reverse: bool) -> tuple[list[Pair], list[Pair]]:
    """Split a step into the pairs up to a key (inclusive), and the rest."""
    if step[-1][0] == last:
        return step, []
    if reverse:
        # Descending keys: bisect does not apply.
        cut = sum(pair[0] >= last for pair in step)
    else:
        cut = bisect_right(step, last, key=_by_key)
    return step[:cut], step[cut:]


def _with(
    step: list[Pair], scan_snapshots: list[ScanSnapshot], last: bytes, reverse: bool
) -> list[Pair]:
    """Return a step of a scan merged with the snapshots' writes up to a key."""
    found: dict[bytes, bytes | None] | None = None
    # Oldest first: a range delete hides the rows and writes below its snapshot.
    for scan_snapshot in scan_snapshots:
        for start, end in scan_snapshot.ranges:
            if found is None:
                step = [pair for pair in step if not start <= pair[0] < end]
            else:
                found = {key: found[key] for key in found if not start <= key < end}
        if due := scan_snapshot.take(last, reverse):
            if found is None:
                found = dict(step)
            found.update(due)
    if found is None:
        return step
    # Deletions drop out last: until here they hide older writes and rows.
    pairs = [(key, value) for key, value in found.items() if value is not None]
    pairs.sort(key=_by_key, reverse=reverse)
    return pairs
