"""The size that the results of a script have in its answer, measured before its commit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from protocol.binary import pack, pack_in_steps
from protocol.errors import AnswerTooLarge
from protocol.requests import Result
from protocol.values import Tick, is_low

BESIDE_BYTES: Final = 64
"""What an answer says of a result beside its value, at most."""


class _Sum:
    """A class, since a function in a function that is compiled would hold what it shares with the
    other until the collector comes by."""

    def __init__(self, size: int, most: int) -> None:
        self.size = size
        self._most = most

    def add(self, part: bytes) -> None:
        """:raises AnswerTooLarge:"""
        self.size += len(part)
        if self.size > self._most:
            raise AnswerTooLarge(
                f"the answer has {self.size} bytes or more, a frame carries at most {self._most}:"
                " what would make it larger was not done; write RETURN NONE, or fewer rows at once",
                bytes=self.size,
                limit=self._most,
            )


def measured(results: Sequence[Result], size: int, most: int, tick: Tick) -> int:
    """The bytes that an answer has with some more results.

    :param size: those that it has without them
    :param most: those that it may have
    :raises AnswerTooLarge: it has more
    """
    sum = _Sum(size, most)
    for result in results:
        sum.size += BESIDE_BYTES
        if is_low(result.value):
            sum.add(pack(result.value))
        else:
            pack_in_steps(result.value, tick, sum.add)
    return sum.size
