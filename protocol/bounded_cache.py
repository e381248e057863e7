"""Cache of the most recently used values, bounded by their number and their bytes (LRU).

Keys depend on all that a value depends on, or the user of the cache compares what it finds: no
entry is removed because something has changed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

Value = TypeVar("Value")

LARGE_PART: Final = 8
"""Divisor of the bytes of a cache for its largest value: a larger one would evict too many."""


class BoundedCache(Generic[Value]):
    """Recently used values by key.

    :param most_bytes: bytes of all values; None: not counted
    :param most: values; None: unlimited
    :param large_part: as LARGE_PART
    """

    def __init__(
        self,
        most_bytes: int | None = None,
        most: int | None = None,
        large_part: int = LARGE_PART,
    ) -> None:
        self._most_bytes = most_bytes
        self._most = most
        self._large_part = large_part
        self.bytes = 0
        """Bytes of the values."""
        self._kept: OrderedDict[Hashable, tuple[Value, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Hashable) -> Value | None:
        """Return a value, which becomes the most recently used."""
        found = self._kept.get(key)
        if found is None:
            return None
        self._kept.move_to_end(key)
        return found[0]

    def keep(self, key: Hashable, value: Value, size: int = 0) -> bool:
        """Keep a value, in the place of those that were used longest ago. Return False if it is too
        large.

        :param size: its bytes
        """
        most_bytes = self._most_bytes
        if most_bytes is not None and size > most_bytes // self._large_part:
            return False
        before = self._kept.pop(key, None)
        if before is not None:
            self.bytes -= before[1]
        self._kept[key] = value, size
        self.bytes += size
        while self._is_full():
            _, (_, gone) = self._kept.popitem(last=False)
            self.bytes -= gone
        return True

    def _is_full(self) -> bool:
        return (self._most is not None and len(self._kept) > self._most) or (
            self._most_bytes is not None and self.bytes > self._most_bytes
        )
