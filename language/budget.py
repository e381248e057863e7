"""Memory budget of a statement, estimated from samples.

Weighing every row would cost more than most statements do. `actors/memory.py` lists all memory
bounds of a SELECT.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from language import tree
from language.sizing import WorkingMemory
from protocol import limits
from protocol.errors import TooLarge
from protocol.values import LONG, Tick, is_rows, paced
from protocol.weights import weigh, weigh_with_heights

Made = TypeVar("Made")

_SAMPLES: Final = 8


class Budget:
    """Memory accounting for one run of a statement.

    :param memory: also counts these bytes, for all work of the same request
    """

    def __init__(
        self,
        most: int = limits.STATEMENT_MEMORY_BYTES,
        tick: Tick | None = None,
        memory: WorkingMemory | None = None,
    ) -> None:
        self.held = 0
        self.most = most
        self._tick = tick
        self._memory = WorkingMemory() if memory is None else memory

    def sample(self, values: list[Any], *, each: bool = False) -> None:
        """Reserve memory for these values.

        :param each: see `size`
        :raises TooLarge: the total exceeds the limit
        """
        self.hold(self.size(values, each=each))

    def size(self, values: list[Any], *, each: bool = False, samples: int = _SAMPLES) -> int:
        """Estimate the memory of values, in bytes.

        :param each: weigh every value, because some are large
        :param samples: number of values to weigh otherwise
        """
        if not values:
            return 0
        step = 1 if each else -(-len(values) // samples)
        tick = self._tick
        some = values[::step] if tick is None or not each else paced(values, tick)
        weighed = [weigh(value, tick) for value in some]
        return sum(weighed) * len(values) // len(weighed)

    def hold_one(self, value: Any) -> None:
        """Reserve memory for one value. :raises TooLarge: the total exceeds the limit"""
        self.hold(weigh(value, self._tick))

    def hold(self, size: int) -> None:
        """Reserve or release (negative) a number of bytes. :raises TooLarge: the total exceeds the
        limit"""
        self.held += size
        self._memory.held += size
        if self.held > self.most:
            raise too_large(self.most)

    def hold_for_now(self, size: int) -> None:
        """Reserve or release bytes that are counted for the request only.

        Most of them are released before they could exceed the statement's own limit.
        """
        self._memory.held += size

    def hand_on(self) -> None:
        """Release everything: ownership of the memory passes to the caller."""
        self._memory.return_to(self._memory.held - self.held)
        self.held = 0


def too_large(most: int) -> TooLarge:
    """Return the error for a statement that exceeds its memory budget."""
    return TooLarge(
        f"the statement would hold more than {most} bytes of rows; narrow it with WHERE or LIMIT",
        limit=most,
    )


class PartsBudget:
    """Memory accounting for the large parts of one value while it is built.

    :param memory: also counts these bytes, until the value is complete
    """

    __slots__ = ("_held", "_memory", "_most")

    def __init__(self, memory: WorkingMemory | None = None) -> None:
        self._held = 0
        self._memory = WorkingMemory() if memory is None else memory
        self._most = limits.STATEMENT_MEMORY_BYTES

    def add(self, part: Any, tick: Tick) -> Any:
        """Count a part and return it. :raises TooLarge: the parts so far exceed the limit"""
        kind = type(part)
        if kind is str or kind is bytes:
            if len(part) <= LONG:
                return part
            size = len(part)
        elif kind is list or kind is dict:
            size = weigh(part, tick)
        else:
            return part
        self._held += size
        self._memory.held += size
        if self._held > self._most:
            raise TooLarge(f"a value takes at most {self._most} bytes", limit=self._most)
        return part

    def made(self, value: Made) -> Made:
        """Release the parts and return the complete value: its memory passes to the caller."""
        if self._held:
            self._memory.return_to(self._memory.held - self._held)
            self._held = 0
        return value


def bounded(value: Any, tick: Tick | None = None) -> Any:
    """Return the value itself if it is small and flat enough to be kept, returned or stored.

    Called when a script assigns a value to a name, returns it or stores it. A value used twice
    afterwards can therefore double at most once before it is weighed again.

    :param tick: called periodically while a large value is weighed
    :raises TooLarge: over `limits.STATEMENT_MEMORY_BYTES` or `limits.DEPTH`
    """
    if type(value) is list or type(value) is dict:
        sizes: dict[int, tuple[int, int]] = {}
        size = weigh_with_heights(value, sizes, 0, tick)
        if size > limits.STATEMENT_MEMORY_BYTES:
            raise TooLarge(
                f"a value takes at most {limits.STATEMENT_MEMORY_BYTES} bytes",
                limit=limits.STATEMENT_MEMORY_BYTES,
            )
        if sizes[id(value)][1] > limits.DEPTH + is_rows(value):
            raise TooLarge(f"values nest at most {limits.DEPTH} deep", limit=limits.DEPTH)
    return value


def is_bounded(expression: tree.Expression) -> bool:
    """True if the value of an expression has been weighed before.

    A variable was weighed when it was assigned, or came with the request, whose size is limited.
    """
    return type(expression) is tree.Parameter
