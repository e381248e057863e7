"""Size of a script's results in its answer, measured before its commit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from protocol.binary import pack, pack_in_steps
from protocol.errors import AnswerTooLarge
from protocol.requests import Result
from protocol.values import Tick, is_low

BESIDE_BYTES: Final = 64
"""Most bytes that an answer needs for a result beside its value."""


class _Sum:
    """Running sum with a limit. A class, since a nested compiled function would form a reference
    cycle, which lives until the garbage collector runs."""

    def __init__(self, size: int, most: int) -> None:
        self.size = size
        self._most = most

    def add(self, part: bytes) -> None:
        """Add an encoded part. :raises AnswerTooLarge:"""
        self.size += len(part)
        if self.size > self._most:
            raise AnswerTooLarge(
                f"the answer has {self.size} bytes or more, but a frame carries at most"
                f" {self._most}. Statements that would make it larger were not run: write RETURN"
                " NONE, or fewer rows at once",
                bytes=self.size,
                limit=self._most,
            )


def measured(results: Sequence[Result], size: int, most: int, tick: Tick) -> int:
    """Return the size of an answer with some more results (bytes).

    :param size: its size without them
    :param most: its limit
    :raises AnswerTooLarge: the limit is exceeded
    """
    sum = _Sum(size, most)
    for result in results:
        # An upper bound: an answer that passes here fits.
        sum.size += BESIDE_BYTES
        value = result.value
        # Fast path: few flat parts, so packing them needs no tick.
        if is_low(value):
            sum.add(pack(value))
        else:
            pack_in_steps(value, tick, sum.add)
    return sum.size
