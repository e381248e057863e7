"""Step sizes of index maintenance: the work done before it yields to other tasks."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from operator import itemgetter
from typing import Final

from protocol import limits
from protocol.values import Tick
from storage.formats.keys import Pair

TOGETHER_BYTES: Final = 16 * limits.KIB
"""Bytes of record values processed in one step. The time to make index entries is roughly
proportional to the bytes of the record."""
ENTRIES_A_TURN: Final = 256
"""Entries of a record that may be made without yielding."""

_value: Final = itemgetter(1)


def together(pairs: list[Pair]) -> Iterator[list[Pair]]:
    """Split the pairs of a scan step into groups of up to TOGETHER_BYTES, or of a single pair."""
    ends = list(accumulate(map(len, map(_value, pairs))))
    begun = before = 0
    while begun < len(pairs):
        # At least one pair: a large record exceeds the bound by itself.
        end = max(bisect_right(ends, before + TOGETHER_BYTES), begun + 1)
        yield pairs[begun:end]
        begun, before = end, ends[end - 1]


def yield_to_others(tick: Tick | None, *made: dict[bytes, bytes]) -> None:
    """Yield to other tasks if many entries were made."""
    if tick is not None and sum(map(len, made)) > ENTRIES_A_TURN:
        tick()
