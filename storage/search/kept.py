"""Decoded values that searches keep in memory, up to a number of bytes.

Each has a name that depends on all that its value depends on: a digest of a segment's content or of
a record's text. So a value is right for every snapshot, and for every store of the process, and is
never removed because something has changed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

KEPT_BYTES: Final = 32 * 1024 * 1024
"""Memory of the decoded ids and lengths of segments."""

Value = TypeVar("Value")


class Kept(Generic[Value]):
    """Recent values by their names.

    :param most: bytes of all of them
    :param parts: a value that would take more than such a part of these is not kept
    """

    def __init__(self, most: int, parts: int = 8) -> None:
        self.most, self._largest = most, most // parts
        self.bytes = 0
        self._known: OrderedDict[Hashable, tuple[Value, int]] = OrderedDict()

    def get(self, name: Hashable) -> Value | None:
        """Return a value."""
        found = self._known.get(name)
        if found is None:
            return None
        self._known.move_to_end(name)
        return found[0]

    def keep(self, name: Hashable, value: Value, size: int) -> None:
        """Keep a value, in the place of those that were used longest ago.

        :param size: its bytes
        """
        if size > self._largest:
            return
        before = self._known.pop(name, None)
        if before is not None:
            self.bytes -= before[1]
        self._known[name] = value, size
        self.bytes += size
        while self.bytes > self.most:
            _, (_, gone) = self._known.popitem(last=False)
            self.bytes -= gone
