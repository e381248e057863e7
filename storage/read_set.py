"""The read set of a transaction: single keys, ranges, absent keys included, and what it has looked
up of declarations where others had looked before.

Bounded: what becomes too much to remember one by one is remembered as the range around it. That
may name a conflict where there was none, never miss one. A key inside the range that was scanned
last is not remembered again: an UPDATE scans its table, and then reads each record of it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator
from collections.abc import Set as AbstractSet

from protocol import limits
from storage.keys import RECORD_PREFIX_BYTES, Range
from storage.layers import in_order
from storage.lookups import Lookup, rest_on


class ReadSet:
    """Keys and ranges that were looked at."""

    __slots__ = (
        "_end", "_ends", "_keys", "_ordered", "_ranges", "_start", "_starts", "compared", "looked",
    )  # fmt: skip

    def __init__(self) -> None:
        self._keys: set[bytes] = set()
        """More come, or all of them go at once."""
        self._ordered: list[bytes] = []
        """As many of them as there were when they were put in order."""
        self._ranges: set[Range] = set()
        self._start = self._end = b""
        """The range scanned last."""
        self._starts: list[bytes] = []
        self._ends: list[bytes] = []
        """The ranges joined and in order, once somebody has asked: `_in_order`."""
        self.looked: set[Lookup] = set()
        self.compared = 0
        """The newest commit that all keys and ranges were compared with; 0: some with none. See
        `conflicts.py`."""

    def add_key(self, key: bytes) -> None:
        """Remember a point read."""
        if self._start <= key < self._end:
            return
        if key in self._keys:
            return
        self._keys.add(key)
        self.compared = 0
        if len(self._keys) > limits.READ_KEYS:
            self._widen()

    def add_keys(self, keys: Collection[bytes]) -> None:
        """Remember some point reads."""
        self._keys.update(keys)
        self.compared = 0
        if len(self._keys) > limits.READ_KEYS:
            self._widen()

    def _widen(self) -> None:
        """Remember the ranges around the keys in their place: of each table by itself, since what
        lies between two tables is others'."""
        keys, self._keys = self._keys, set()
        self._ordered = []
        for start, last in _around(keys):
            self._ranges.add((start, last + b"\0"))
        self._bound()

    def add_range(self, start: bytes, end: bytes) -> None:
        """Remember a scan."""
        self._start, self._end = start, end
        if (start, end) not in self._ranges:
            self._ranges.add((start, end))
            self._bound()

    def _bound(self) -> None:
        self.compared = 0
        self._starts.clear()
        if len(self._ranges) > limits.READ_RANGES:
            self._ranges = set(_joined(self._ranges))
            if len(self._ranges) > limits.READ_RANGES // 2:
                self._ranges = _widened(self._ranges)

    def touch(self, changed: AbstractSet[bytes], ordered: list[bytes]) -> bool:
        """Whether any of these keys was read; `ordered` are the same keys, sorted."""
        if not changed.isdisjoint(self._keys):
            return True
        if not (self._ranges and ordered):
            return False
        starts, ends = self._in_order()
        if ordered[-1] < starts[0] or ordered[0] >= ends[-1]:
            return False
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
        """At how many keys or ranges `touch` looks, about."""
        return min(len(ordered), len(self._ranges) + len(self._keys))

    @property
    def ranges(self) -> int:
        """At how many ranges `touch_range` looks."""
        return len(self._ranges)

    def _in_order(self) -> tuple[list[bytes], list[bytes]]:
        """Where the ranges begin, and where they end, joined and in order. There are some."""
        if not self._starts:
            joined = _joined(self._ranges)
            self._starts = [start for start, _ in joined]
            self._ends = [end for _, end in joined]
        return self._starts, self._ends

    def rest_on(self, declared: Collection[bytes], ranges: list[Range]) -> bool:
        """Whether any look-up rests on declarations that changed, or were deleted by ranges.

        :param declared: `keys.declared` of those that changed
        """
        return rest_on(self.looked, declared, ranges)

    def put_in_order(self, step: int) -> Iterator[None]:
        """Have the keys in order, about so many at a time: then `touch_range` need not go through
        them. Nothing is read in between."""
        if len(self._ordered) < len(self._keys):
            self._ordered = yield from in_order(self._keys, step)

    def touch_range(self, low: bytes, high: bytes) -> bool:
        """Whether anything in a range was read."""
        if any(start < high and low < end for start, end in self._ranges):
            return True
        ordered = self._ordered
        if len(ordered) < len(self._keys):
            return any(low <= key < high for key in self._keys)
        at = bisect_left(ordered, low)
        return at < len(ordered) and ordered[at] < high


def _around(keys: Collection[bytes]) -> Collection[Range]:
    """The first and the last of some keys, of each table, space or topic by itself."""
    first, last = min(keys), max(keys)
    if first[:RECORD_PREFIX_BYTES] == last[:RECORD_PREFIX_BYTES]:
        return ((first, last),)
    found: dict[bytes, Range] = {}
    for key in keys:
        whose = key[:RECORD_PREFIX_BYTES]
        first, last = found.get(whose, (key, key))
        found[whose] = min(first, key), max(last, key)
    return found.values()


def _widened(ranges: set[Range]) -> set[Range]:
    """One range for each table that any of these begins in; one for all if there are too many."""
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
    """The same ranges with those that overlap or meet made one, in order."""
    joined: list[Range] = []
    for start, end in sorted(ranges):
        if joined and start <= joined[-1][1]:
            first, last = joined.pop()
            start, end = first, max(last, end)
        joined.append((start, end))
    return joined
