"""What a transaction has read: single keys, and ranges, absent keys included.

Bounded: what becomes too much to remember one by one is remembered as the range around it. That may
name a conflict where there was none, never miss one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection

from protocol import limits
from storage.keys import Range


class Reads:
    """Keys and ranges that were looked at."""

    __slots__ = ("_keys", "_ranges")

    def __init__(self) -> None:
        self._keys: set[bytes] = set()
        self._ranges: set[Range] = set()

    def add_key(self, key: bytes) -> None:
        """Remember a point read."""
        self._keys.add(key)
        if len(self._keys) > limits.READ_KEYS:
            self._ranges.add((min(self._keys), max(self._keys) + b"\0"))
            self._keys.clear()

    def add_keys(self, keys: Collection[bytes]) -> None:
        """Remember some point reads."""
        self._keys.update(keys)
        if len(self._keys) > limits.READ_KEYS:
            self._ranges.add((min(self._keys), max(self._keys) + b"\0"))
            self._keys.clear()

    def add_range(self, start: bytes, end: bytes) -> None:
        """Remember a scan."""
        self._ranges.add((start, end))
        if len(self._ranges) > limits.READ_RANGES:
            self._ranges = _joined(self._ranges)
            if len(self._ranges) > limits.READ_RANGES // 2:
                starts, ends = zip(*self._ranges, strict=True)
                self._ranges = {(min(starts), max(ends))}

    def touch(self, changed: frozenset[bytes], ordered: list[bytes]) -> bool:
        """Whether any of these keys was read; `ordered` are the same keys, sorted."""
        if not self._keys.isdisjoint(changed):
            return True
        for start, end in self._ranges:
            at = bisect_left(ordered, start)
            if at < len(ordered) and ordered[at] < end:
                return True
        return False

    def touch_range(self, low: bytes, high: bytes) -> bool:
        """Whether anything in a range was read."""
        return any(start < high and low < end for start, end in self._ranges) or any(
            low <= key < high for key in self._keys
        )


def _joined(ranges: set[Range]) -> set[Range]:
    """The same ranges with those that overlap or meet made one."""
    joined: list[Range] = []
    for start, end in sorted(ranges):
        if joined and start <= joined[-1][1]:
            first, last = joined.pop()
            start, end = first, max(last, end)
        joined.append((start, end))
    return set(joined)
