"""What a scan looks at of the writes that lie over the engine; see `layers.py`, which makes them.

A layer that may still be changed knows by weak references which scans look at it. Compiled classes
carry none, so this stays a module of its own: docs/decisions/compiled.md.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping

from storage.effects import stamped
from storage.keys import Range


class Sheet:
    """Writes in a range, for one scan, which takes them in order.

    :param writes: a layer's, or the scan's own
    :param sequence: of the commit; 0: there is none, or the writes are stamped
    :param ordered: keys of `writes`, those from `low` to `high` in the range
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
        """Writes that were replaced or taken back since the scan began: as they were then."""
        self.ranges: list[Range] = []
        """Deleted before these writes: of what lies below."""

    def keep(self, key: bytes, value: bytes | None) -> None:
        """A write is about to be changed that the scan may come to."""
        low, high = self._low, self._high
        if low < high and self._ordered[low] <= key <= self._ordered[high - 1]:
            self._kept.setdefault(key, value)

    @property
    def empty(self) -> bool:
        """Whether the scan has taken all of it."""
        return self._low >= self._high

    def bound(self, count: int, reverse: bool) -> bytes | None:
        """The key that comes `count` from here; None: there are not so many."""
        if self._high - self._low < count:
            return None
        return self._ordered[self._high - count if reverse else self._low + count - 1]

    def end(self, reverse: bool) -> bytes:
        """The last key of those that are left."""
        return self._ordered[self._low if reverse else self._high - 1]

    def take(self, last: bytes, reverse: bool) -> dict[bytes, bytes | None]:
        """The next writes, up to a key."""
        ordered, low, high = self._ordered, self._low, self._high
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
                value = writes[key]
            found[key] = stamped(key, value, sequence) if sequence else value
        return found
