"""State of a script between its statements: variables, loop items, results of subqueries.

Each value alone is bounded where it is made; hundreds together are not. So their memory is
estimated when they are kept, with one limit for the sum. A value counts once however many names it
has. A nested value counts for each value that contains it, so that the sum is rather too high than
too low.
"""

from __future__ import annotations

import sys
from typing import Any, Final, NamedTuple

from language import tree
from protocol import limits
from protocol.errors import TooLarge
from protocol.values import RecordId, Tick, Value
from protocol.weights import FLAT, weigh

SMALL_BYTES: Final = limits.KIB
"""Largest plain value that is not counted here (bytes). It counts as this much for the user and the
node alone: `limits.VARIABLES` of them are 16 MiB."""

PACKED_WEIGHT: Final = 4
"""Memory of a value, as a multiple of its packed size: the largest transaction of small records
takes 250 MiB."""
LINKED_BYTES: Final = 8 * limits.MIB
"""Largest size of the cached records of one statement (bytes)."""
LINK_BYTES: Final = 500
"""Memory of an entry of that cache beside the record's fields (bytes)."""


class _Held(NamedTuple):
    """A value under one name or several. Referenced here, so that no other object gets its
    identity."""

    value: Any
    size: int
    names: int


class ScriptState:
    """Values kept by one script.

    :param tick: called now and then while a large value is measured
    """

    __slots__ = ("_before", "_by_name", "_held", "_replaced", "_size", "_tick")

    def __init__(self, tick: Tick) -> None:
        self._tick = tick
        self._by_name: dict[str | int, int] = {}
        self._held: dict[int, _Held] = {}
        self._size = 0
        self._before: dict[int, _Held] = {}
        """Values at the begin of the transaction: they are held until it has committed."""
        self._replaced = 0
        """Bytes of values that only the begin of the transaction holds."""

    def copy(self) -> ScriptState:
        """Return the same values, for a transaction that may be retried."""
        other = ScriptState(self._tick)
        other._by_name, other._held, other._size = (
            self._by_name.copy(),
            self._held.copy(),
            self._size,
        )
        # A retry starts from these values: they stay in memory until the commit.
        other._before = self._held
        return other

    def put(self, name: str | int, value: Any) -> None:
        """Keep a value under a name, in place of the one kept there before.

        :param name: name of a variable; an int stands for a loop
        :raises TooLarge: the script keeps more than `limits.SCRIPT_MEMORY_BYTES`
        """
        # Taken first: the bytes of the replaced value are free for the new one.
        self.take(name)
        if type(value) in FLAT and sys.getsizeof(value) <= SMALL_BYTES:
            return
        key = id(value)
        held = self._held.get(key)
        if held is None:
            held = _Held(value, weigh(value, self._tick), 0)
            if self._size + held.size > limits.SCRIPT_MEMORY_BYTES:
                raise TooLarge(
                    "the variables and loops of a script hold at most"
                    f" {limits.SCRIPT_MEMORY_BYTES} bytes together",
                    limit=limits.SCRIPT_MEMORY_BYTES,
                )
            self._size += held.size
            # It is in `_size` again: a value of the begin must not count twice.
            if key in self._before:
                self._replaced -= held.size
        self._held[key] = held._replace(names=held.names + 1)
        self._by_name[name] = key

    @property
    def size(self) -> int:
        """Bytes that it holds, about, with those at the begin of its transaction."""
        return self._size + self._replaced

    def take(self, name: str | int) -> None:
        """Keep nothing under that name any more."""
        key = self._by_name.pop(name, None)
        if key is None:
            return
        held = self._held[key]
        if held.names > 1:
            self._held[key] = held._replace(names=held.names - 1)
        else:
            del self._held[key]
            self._size -= held.size
            if key in self._before:
                self._replaced += held.size


class StatementCache:
    """Results that one statement would compute again: its uncorrelated subqueries, and the records
    whose links it follows.

    A result beyond the limit is not cached, and computed again.
    """

    __slots__ = ("_linked", "_linked_size", "_subqueries", "_tick", "size")

    def __init__(self, tick: Tick) -> None:
        self._tick = tick
        self._subqueries: dict[int, tuple[tree.Select, Value]] = {}
        self._linked: dict[RecordId, dict[str, Any] | None] = {}
        self._linked_size = 0
        self.size = 0
        """Bytes held, about."""

    def subquery(self, select: tree.Select) -> tuple[tree.Select, Value] | None:
        """Return a subquery with its cached result, if any."""
        return self._subqueries.get(id(select))

    def add_subquery(self, select: tree.Select, found: Value) -> None:
        """Cache a result."""
        size = weigh(found, self._tick)
        if self.size + size <= limits.STATEMENT_MEMORY_BYTES:
            self.size += size
            # Keep the tree alive, so that no other object gets its id().
            self._subqueries[id(select)] = select, found

    def linked(self, record: RecordId, otherwise: Any) -> Any:
        """Return the cached fields of a record, None if it is known to be missing, or
        `otherwise`."""
        return self._linked.get(record, otherwise)

    def add_linked(self, record: RecordId, fields: dict[str, Any] | None, packed: int) -> None:
        """Cache the fields of a record. :param packed: bytes of the packed fields"""
        size = LINK_BYTES + packed * PACKED_WEIGHT
        if self._linked_size + size <= LINKED_BYTES:
            self._linked_size += size
            self.size += size
            self._linked[record] = fields
