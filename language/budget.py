"""What a statement may hold in memory, estimated from samples: weighing every row would cost more
than most statements do."""

from __future__ import annotations

import sys
from typing import Any, Final

from protocol import limits
from protocol.errors import TooLarge

_SAMPLES: Final = 8
_POINTER: Final = 8


class Budget:
    """Counts what one run of a statement holds."""

    def __init__(self, most: int = limits.STATEMENT_MEMORY_BYTES) -> None:
        self.held = 0
        self.most = most

    def sample(self, values: list[Any]) -> None:
        """Hold these values too. :raises TooLarge: together they are over the limit"""
        if not values:
            return
        step = -(-len(values) // _SAMPLES)
        weighed = [weigh(value) for value in values[::step]]
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


def weigh(value: Any) -> int:
    """About how many bytes a value takes in memory, what it holds included."""
    kind = type(value)
    if kind is str or kind is bytes or kind is int or kind is float:
        return sys.getsizeof(value) + _POINTER
    if kind is dict:
        return sys.getsizeof(value) + sum(map(weigh, value.values()))
    if kind is list or kind is tuple:
        return sys.getsizeof(value) + sum(map(weigh, value))
    slots = getattr(kind, "__struct_fields__", None)
    if slots is not None:
        return 16 + sum(weigh(getattr(value, slot)) for slot in slots)
    return 64
