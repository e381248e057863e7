"""What a statement may hold in memory, estimated from samples: weighing every row would cost more
than most statements do."""

from __future__ import annotations

import sys
from typing import Any, Final

from language import tree
from protocol import limits
from protocol.errors import TooLarge
from protocol.values import FEW, RecordId, Tick, paced

_SAMPLES: Final = 8
_POINTER: Final = 8
FLAT: Final = frozenset({str, bytes, int, float, bool, type(None)})
"""Types of values that hold no others."""


class Budget:
    """Counts what one run of a statement holds."""

    def __init__(self, most: int = limits.STATEMENT_MEMORY_BYTES, tick: Tick | None = None) -> None:
        self.held = 0
        self.most = most
        self._tick = tick

    def sample(self, values: list[Any]) -> None:
        """Hold these values too. :raises TooLarge: together they are over the limit"""
        if not values:
            return
        step = -(-len(values) // _SAMPLES)
        weighed = [weigh(value, self._tick) for value in values[::step]]
        self.hold(sum(weighed) * len(values) // len(weighed))

    def hold(self, size: int) -> None:
        """Hold so many bytes more, or fewer. :raises TooLarge: over the limit"""
        self.held += size
        if self.held > self.most:
            raise TooLarge(
                f"the statement would hold more than {self.most} bytes of rows; "
                "narrow it with WHERE or LIMIT",
                limit=self.most,
            )


def weigh(value: Any, tick: Tick | None = None) -> int:
    """About how many bytes a value would take if nothing in it were shared.

    A value made by a script may hold the same array many times over, and that array another one:
    each is walked once here, so that thirty doublings are weighed in thirty steps.

    :param tick: called now and then while a large value is weighed
    :raises TooLarge: it nests too deep to be walked
    """
    return _weigh(value, {}, 0, tick)


def bounded(value: Any, tick: Tick | None = None) -> Any:
    """The value itself, when it is small and flat enough to be kept, answered or stored.

    Called where a script gives a value a name or lets it go: what is used twice after that can
    double at most once before it is weighed again.

    :param tick: called now and then while a large value is weighed
    :raises TooLarge: over `limits.STATEMENT_MEMORY_BYTES` or `limits.DEPTH`
    """
    if type(value) is list or type(value) is dict:
        sizes: dict[int, tuple[int, int]] = {}
        size = _weigh(value, sizes, 0, tick)
        if size > limits.STATEMENT_MEMORY_BYTES:
            raise TooLarge(
                f"a value takes at most {limits.STATEMENT_MEMORY_BYTES} bytes",
                limit=limits.STATEMENT_MEMORY_BYTES,
            )
        if sizes[id(value)][1] > limits.DEPTH:
            raise TooLarge(f"values nest at most {limits.DEPTH} deep", limit=limits.DEPTH)
    return value


def is_bounded(expression: tree.Expression) -> bool:
    """Whether what an expression answers has been weighed before: what stands under a name was when
    it got the name, or came with the request, whose size is limited."""
    return type(expression) is tree.Parameter


_DEEPEST: Final = 4 * limits.DEPTH
"""Deeper than any expression nests what it is given, itself bounded: never reached but by a bug."""


def _weigh(value: Any, sizes: dict[int, tuple[int, int]], depth: int, tick: Tick | None) -> int:
    """`sizes`: the size and height of every array and object walked so far, by identity; all of
    them are parts of the value, so that no identity is used again meanwhile."""
    kind = type(value)
    if kind in FLAT:
        return sys.getsizeof(value) + _POINTER
    if kind is dict or kind is list or kind is tuple:
        known = sizes.get(id(value))
        if known is not None:
            return known[0]
        if depth > _DEEPEST:
            raise TooLarge(f"values nest at most {limits.DEPTH} deep", limit=limits.DEPTH)
        size, height = sys.getsizeof(value), 0
        parts = value.values() if kind is dict else value
        if tick is not None and len(value) > FEW:
            parts = paced(parts, tick)
        for part in parts:
            if type(part) in FLAT:  # most parts are: a call for each would be most of the work
                size += sys.getsizeof(part) + _POINTER
                continue
            size += _weigh(part, sizes, depth + 1, tick)
            below = sizes.get(id(part))
            if below is not None and below[1] > height:
                height = below[1]
        sizes[id(value)] = (size, height + 1)
        return size
    if kind is RecordId:  # an id may be an array, of any length until it is stored
        return 64 + _weigh(value.id, sizes, depth + 1, tick)
    slots = getattr(kind, "__struct_fields__", None)
    if slots is not None:
        return 16 + sum(_weigh(getattr(value, slot), sizes, depth + 1, tick) for slot in slots)
    return 64
