"""How much is made of indexes before it is asked whether others wait."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from operator import itemgetter
from typing import Final

from protocol import limits
from protocol.values import Tick
from storage.engine import Pair

TOGETHER_BYTES: Final = 16 * limits.KIB
"""Of the values of records that are looked at together, between two questions whether it is enough.
What a record makes for an index takes about as long as it has bytes there."""
ENTRIES_A_TURN: Final = 256
"""That are made of a record without a question whether others wait."""

_value: Final = itemgetter(1)


def together(pairs: list[Pair]) -> Iterator[list[Pair]]:
    """The pairs of a step of a scan, as many together as are small enough; at least one."""
    ends = list(accumulate(map(len, map(_value, pairs))))
    begun = before = 0
    while begun < len(pairs):
        end = max(bisect_right(ends, before + TOGETHER_BYTES), begun + 1)
        yield pairs[begun:end]
        begun, before = end, ends[end - 1]


def let_others(tick: Tick | None, *made: dict[bytes, bytes]) -> None:
    """Let others have a turn, where many entries were made."""
    if tick is not None and sum(map(len, made)) > ENTRIES_A_TURN:
        tick()
