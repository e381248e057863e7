"""The state of a script from one step to the next: its variables, what its loops go over, and what
the subqueries of a statement have answered.

Each value alone is bounded where it is made; hundreds of them are not. So they are weighed as they
are kept, and have one bound together. A value is weighed once however many names it has. What a
value holds inside counts for each value that holds it, so the sum says rather too much than too
little.
"""

from __future__ import annotations

import sys
from typing import Any, Final, NamedTuple

from language import tree
from protocol import limits
from protocol.errors import TooLarge
from protocol.values import Tick, Value
from protocol.weights import FLAT, weigh

SMALL_BYTES: Final = limits.KIB
"""A plain value up to this is not weighed, and counts as so much for the user and the node alone:
`limits.VARIABLES` of them are 16 MiB."""


class _Held(NamedTuple):
    """A value under one name or several. Held here, so that no other one gets its identity."""

    value: Any
    size: int
    names: int


class ScriptState:
    """The values that one script keeps.

    :param tick: called now and then while a large value is weighed
    """

    __slots__ = ("_before", "_by_name", "_held", "_replaced", "_size", "_tick")

    def __init__(self, tick: Tick) -> None:
        self._tick = tick
        self._by_name: dict[str | int, int] = {}
        self._held: dict[int, _Held] = {}
        self._size = 0
        self._before: dict[int, _Held] = {}
        """Values that it began with: they are held until its transaction has committed."""
        self._replaced = 0
        """Bytes of those that only the beginning of the transaction holds."""

    def copy(self) -> ScriptState:
        """The same values, for a transaction that may have to begin anew."""
        other = ScriptState(self._tick)
        other._by_name, other._held, other._size = (
            self._by_name.copy(),
            self._held.copy(),
            self._size,
        )
        other._before = self._held
        return other

    def put(self, name: str | int, value: Any) -> None:
        """Keep a value in place of what was kept under that name.

        :param name: a variable's; an int stands for a loop
        :raises TooLarge: the script keeps more than `limits.SCRIPT_MEMORY_BYTES`
        """
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
            if key in self._before:
                self._replaced -= held.size
        self._held[key] = held._replace(names=held.names + 1)
        self._by_name[name] = key

    @property
    def size(self) -> int:
        """Bytes that it holds, about, and the beginning of its transaction beside it."""
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


class Answered:
    """What the subqueries of one statement have answered that look at nothing around them.

    What would be too much to hold is not remembered, and asked again.
    """

    __slots__ = ("_known", "_tick", "size")

    def __init__(self, tick: Tick) -> None:
        self._tick = tick
        self._known: dict[int, tuple[tree.Select, Value]] = {}
        self.size = 0
        """Bytes that it holds, about."""

    def get(self, select: tree.Select) -> tuple[tree.Select, Value] | None:
        """A subquery with its answer, if it is remembered."""
        return self._known.get(id(select))

    def add(self, select: tree.Select, found: Value) -> None:
        """Remember an answer."""
        size = weigh(found, self._tick)
        if self.size + size <= limits.STATEMENT_MEMORY_BYTES:
            self.size += size
            # The tree is held, so that no other one can get its id.
            self._known[id(select)] = select, found
