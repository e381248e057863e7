"""Scan snapshot: pending writes in a range as of a scan's start; `write_set.py` makes them.

A write set that may still change holds weak references to the scans that read it. Compiled classes
support none, so this is a module of its own: docs/decisions/compiled.md.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping

from storage.formats.keys import Range, stamped


class ScanSnapshot:
    """Writes in a range, consumed in order by one scan.

    :param writes: those of a write set, or the scan's own
    :param sequence: that of the commit; 0: uncommitted, or the writes are stamped already
    :param ordered: sorted keys of `writes`; `low` to `high` are in the range
    """

    __slots__ = ("__weakref__", "_high", "_kept", "_low", "_ordered", "_sequence", "_writes",
                 "ranges")  # fmt: skip

    def __init__(
        self,
        writes: Mapping[bytes, bytes | None],
        sequence: int,
        ordered: list[bytes],
        low: int,
        high: int,
    ) -> None:
        self._writes = writes
        self._sequence = sequence
        self._ordered = ordered
        self._low = low
        self._high = high
        self._kept: dict[bytes, bytes | None] = {}
        """Old values of writes that were replaced or undone since the scan began."""
        self.ranges: list[Range] = []
        """Range deletes that apply below these writes."""

    def keep(self, key: bytes, value: bytes | None) -> None:
        """Save the old value of a write that is about to change, unless the scan has passed it."""
        low, high = self._low, self._high
        if low < high and self._ordered[low] <= key <= self._ordered[high - 1]:
            # Only the first old value is that of the scan's start.
            self._kept.setdefault(key, value)

    @property
    def empty(self) -> bool:
        """True if the scan has consumed all writes."""
        return self._low >= self._high

    def bound(self, count: int, reverse: bool) -> bytes | None:
        """Return the key of the `count`-th remaining write; None if there are fewer."""
        if self._high - self._low < count:
            return None
        return self._ordered[self._high - count if reverse else self._low + count - 1]

    def end(self, reverse: bool) -> bytes:
        """Return the last remaining key."""
        return self._ordered[self._low if reverse else self._high - 1]

    def take(self, last: bytes, reverse: bool) -> dict[bytes, bytes | None]:
        """Consume and return the next writes, up to a key (inclusive)."""
        ordered, low, high = self._ordered, self._low, self._high
        # The list is shared with the write set: consuming moves a bound, and changes no item.
        if reverse:
            self._high = begin = bisect_left(ordered, last, low, high)
            due = ordered[begin:high]
        else:
            self._low = end = bisect_right(ordered, last, low, high)
            due = ordered[low:end]
        writes, kept, sequence = self._writes, self._kept, self._sequence
        found = {}
        for key in due:
            if kept and key in kept:
                value = kept.pop(key)
            else:
                # Still the value of the start: `keep` has saved each that was replaced or undone.
                value = writes[key]
            found[key] = stamped(key, value, sequence) if sequence else value
        return found
