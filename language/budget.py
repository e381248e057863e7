"""What a statement may hold in memory, estimated from samples: weighing every row would cost more
than most statements do."""

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
    """Counts what one run of a statement holds.

    :param memory: counts the same, of all that runs for the request
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
        """Hold these values too.

        :param each: as of `size`
        :raises TooLarge: together they are over the limit
        """
        self.hold(self.size(values, each=each))

    def size(self, values: list[Any], *, each: bool = False, samples: int = _SAMPLES) -> int:
        """What values take, about.

        :param each: whether each is weighed, because some are large
        :param samples: otherwise, how many of them
        """
        if not values:
            return 0
        step = 1 if each else -(-len(values) // samples)
        tick = self._tick
        some = values[::step] if tick is None or not each else paced(values, tick)
        weighed = [weigh(value, tick) for value in some]
        return sum(weighed) * len(values) // len(weighed)

    def hold_one(self, value: Any) -> None:
        """Hold a value too. :raises TooLarge: over the limit"""
        self.hold(weigh(value, self._tick))

    def hold(self, size: int) -> None:
        """Hold so many bytes more, or fewer. :raises TooLarge: over the limit"""
        self.held += size
        self._memory.held += size
        if self.held > self.most:
            raise too_large(self.most)

    def hold_for_now(self, size: int) -> None:
        """Hold so many bytes more, or fewer, of which most are let go again before they are too
        many for the statement."""
        self._memory.held += size

    def hand_on(self) -> None:
        """Hold nothing any more: somebody else does."""
        self._memory.return_to(self._memory.held - self.held)
        self.held = 0


def too_large(most: int) -> TooLarge:
    """What a statement is refused with that would hold more than so many bytes."""
    return TooLarge(
        f"the statement would hold more than {most} bytes of rows; narrow it with WHERE or LIMIT",
        limit=most,
    )


class Parts:
    """What the parts of one value take while it is made, as far as they are large.

    :param memory: counts the same, until the value is there
    """

    __slots__ = ("_held", "_memory", "_most")

    def __init__(self, memory: WorkingMemory | None = None) -> None:
        self._held = 0
        self._memory = WorkingMemory() if memory is None else memory
        self._most = limits.STATEMENT_MEMORY_BYTES

    def add(self, part: Any, tick: Tick) -> Any:
        """The part itself. :raises TooLarge: with those before it is over the limit"""
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
        """The value itself, of which these are the parts: it is handed on."""
        if self._held:
            self._memory.return_to(self._memory.held - self._held)
            self._held = 0
        return value


def bounded(value: Any, tick: Tick | None = None) -> Any:
    """The value itself, when it is small and flat enough to be kept, answered or stored.

    Called where a script gives a value a name or lets it go: what is used twice after that can
    double at most once before it is weighed again.

    :param tick: called now and then while a large value is weighed
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
    """Whether what an expression answers has been weighed before: what stands under a name was when
    it got the name, or came with the request, whose size is limited."""
    return type(expression) is tree.Parameter
