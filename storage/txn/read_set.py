"""Read set of a transaction: keys, ranges and catalog look-ups, for validation at the commit.

Keys and ranges include absent keys. The set is bounded: too many entries are widened to the range
around them. That may cause a false conflict, never miss one. A key inside the last scanned range is
not added again: an UPDATE scans its table, and then reads each record of it.

It also carries what validation needs to know of its transaction: the commit whose state was read,
whether that was rolled back, and the end.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator
from collections.abc import Set as AbstractSet

from protocol import limits
from storage.formats.keys import RECORD_PREFIX_BYTES, Range
from storage.txn.catalog_cache import CachedLookup, rest_on
from storage.txn.key_sorting import in_order
from storage.txn.tickets import CommitTicket, RollBacks


class ReadSet:
    """Keys, ranges and look-ups that a transaction has read.

    :param since: sequence of the commit whose state is read
    :param roll_backs: those of that state
    """

    __slots__ = (
        "_end", "_ends", "_keys", "_ordered", "_ranges", "_roll_backs", "_start", "_starts",
        "compared", "ended", "generation", "looked", "since",
    )  # fmt: skip

    def __init__(self, since: int, roll_backs: RollBacks) -> None:
        self.since = since
        """Sequence of the commit whose state is read."""
        self.generation = roll_backs.generation
        """Roll-back generation of that state; see `CommitTicket`."""
        self.ended = False
        """True once its transaction has ended."""
        self._roll_backs = roll_backs
        self._keys: set[bytes] = set()
        """Keys read. It only grows, or is emptied as a whole."""
        self._ordered: list[bytes] = []
        """Sorted copy of `_keys` at the time of the last sort."""
        self._ranges: set[Range] = set()
        self._start = self._end = b""
        """Bounds of the range scanned last."""
        self._starts: list[bytes] = []
        self._ends: list[bytes] = []
        """Bounds of the merged, sorted ranges; computed on demand by `_in_order`."""
        self.looked: set[CachedLookup] = set()
        self.compared = 0
        """Newest commit against which all keys and ranges are validated; 0: not all are. See
        `validation.py`."""

    @property
    def rolled_back(self) -> bool:
        """True if a commit of the state that is read was rolled back; also after the end."""
        roll_backs = self._roll_backs
        if self.generation == roll_backs.generation:
            return False
        return roll_backs.why(CommitTicket(self.since, self.generation)) is not None

    def add_key(self, key: bytes) -> None:
        """Add a point read."""
        # An UPDATE reads each record of the range that it has just scanned.
        if self._start <= key < self._end:
            return
        if key in self._keys:
            return
        self._keys.add(key)
        # No commit was compared with the new key: validation starts over.
        self.compared = 0
        if len(self._keys) > limits.READ_KEYS:
            self._widen()

    def add_keys(self, keys: Collection[bytes]) -> None:
        """Add several point reads."""
        self._keys.update(keys)
        self.compared = 0
        if len(self._keys) > limits.READ_KEYS:
            self._widen()

    def _widen(self) -> None:
        """Replace the keys by the ranges around them, one for each table.

        A single range would include keys of the tables between.
        """
        keys, self._keys = self._keys, set()
        self._ordered = []
        for start, last in _around(keys):
            # Half-open: the zero byte takes the last key in.
            self._ranges.add((start, last + b"\0"))
        self._bound()

    def add_range(self, start: bytes, end: bytes) -> None:
        """Add a scan."""
        self._start, self._end = start, end
        if (start, end) not in self._ranges:
            self._ranges.add((start, end))
            self._bound()

    def _bound(self) -> None:
        self.compared = 0
        # The merged bounds are stale; `_in_order` computes them again on demand.
        self._starts.clear()
        if len(self._ranges) > limits.READ_RANGES:
            # Merging loses nothing. Widening can cause false conflicts, so it comes second.
            self._ranges = set(_joined(self._ranges))
            # Down to half of the limit: otherwise each further range would widen again.
            if len(self._ranges) > limits.READ_RANGES // 2:
                self._ranges = _widened(self._ranges)

    def touch(self, changed: AbstractSet[bytes], ordered: list[bytes]) -> bool:
        """True if any of the changed keys was read.

        :param ordered: the same keys, sorted
        """
        if not changed.isdisjoint(self._keys):
            return True
        if not (self._ranges and ordered):
            return False
        starts, ends = self._in_order()
        # A commit outside the span of all ranges needs no search.
        if ordered[-1] < starts[0] or ordered[0] >= ends[-1]:
            return False
        # Search the longer list by each item of the shorter one.
        if len(ordered) < len(starts):
            for key in ordered:
                at = bisect_right(starts, key) - 1
                if at >= 0 and key < ends[at]:
                    return True
            return False
        for start, end in zip(starts, ends, strict=True):
            at = bisect_left(ordered, start)
            if at < len(ordered) and ordered[at] < end:
                return True
        return False

    def looks(self, ordered: list[bytes]) -> int:
        """Return the approximate number of comparisons that `touch` makes."""
        return min(len(ordered), len(self._ranges) + len(self._keys))

    @property
    def ranges(self) -> int:
        """Number of ranges that `touch_range` compares."""
        return len(self._ranges)

    def _in_order(self) -> tuple[list[bytes], list[bytes]]:
        """Return the starts and ends of the ranges, merged and sorted. There must be some."""
        if not self._starts:
            joined = _joined(self._ranges)
            self._starts = [start for start, _ in joined]
            self._ends = [end for _, end in joined]
        return self._starts, self._ends

    def rest_on(self, declared: Collection[bytes], ranges: list[Range]) -> bool:
        """True if any look-up depends on declarations that changed, or were deleted by ranges.

        :param declared: `keys.declared` of those that changed
        """
        return rest_on(self.looked, declared, ranges)

    def put_in_order(self, step: int) -> Iterator[None]:
        """Sort the keys in steps of about `step`, so that `touch_range` is fast.

        No read may be added in between.
        """
        if len(self._ordered) < len(self._keys):
            self._ordered = yield from in_order(self._keys, step)

    def touch_range(self, low: bytes, high: bytes) -> bool:
        """True if any key in a range was read."""
        if any(start < high and low < end for start, end in self._ranges):
            return True
        # `_keys` only grows: with equal lengths the sorted copy is complete.
        ordered = self._ordered
        if len(ordered) < len(self._keys):
            return any(low <= key < high for key in self._keys)
        at = bisect_left(ordered, low)
        return at < len(ordered) and ordered[at] < high


def _around(keys: Collection[bytes]) -> Collection[Range]:
    """Return the first and last key of each table, space or topic."""
    first, last = min(keys), max(keys)
    # Keys sort by table first: equal prefixes at both ends mean a single table.
    if first[:RECORD_PREFIX_BYTES] == last[:RECORD_PREFIX_BYTES]:
        return ((first, last),)
    found: dict[bytes, Range] = {}
    for key in keys:
        whose = key[:RECORD_PREFIX_BYTES]
        first, last = found.get(whose, (key, key))
        found[whose] = min(first, key), max(last, key)
    return found.values()


def _widened(ranges: set[Range]) -> set[Range]:
    """Return one range for each table that any of these begins in; a single one if those are too
    many."""
    found: dict[bytes, Range] = {}
    for start, end in ranges:
        whose = start[:RECORD_PREFIX_BYTES]
        first, last = found.get(whose, (start, end))
        found[whose] = min(first, start), max(last, end)
    if len(found) > limits.READ_RANGES // 2:
        starts, ends = zip(*found.values(), strict=True)
        return {(min(starts), max(ends))}
    return set(found.values())


def _joined(ranges: set[Range]) -> list[Range]:
    """Merge ranges that overlap or touch. Return them sorted."""
    joined: list[Range] = []
    for start, end in sorted(ranges):
        if joined and start <= joined[-1][1]:
            first, last = joined.pop()
            start, end = first, max(last, end)
        joined.append((start, end))
    return joined
