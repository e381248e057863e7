"""Sorting of many keys in steps, so that a large transaction does not hold the event loop."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Iterable
from itertools import islice
from typing import Final

_SAMPLES: Final = 16
"""Sample keys taken of each run to choose where all runs are cut."""


def in_order(keys: Iterable[bytes], step: int) -> Generator[None, None, list[bytes]]:
    """Sort keys in steps of about `step`. They must not change in between."""
    runs: list[list[bytes]] = []
    rows = iter(keys)
    while run := list(islice(rows, step)):
        run.sort()
        runs.append(run)
        yield
    # Choose cuts from samples, so that about `step` keys of all runs lie between two of them.
    some = sorted([key for run in runs for key in run[:: max(step // _SAMPLES, 1)]])
    places = [*some[_SAMPLES::_SAMPLES], None]
    ordered: list[bytes] = []
    begins = [0] * len(runs)
    # Merge piece by piece: the keys of all runs between two cuts.
    for place in places:
        between: list[bytes] = []
        for at, run in enumerate(runs):
            begin = begins[at]
            end = len(run) if place is None else bisect_left(run, place, begin)
            between += run[begin:end]
            begins[at] = end
        # Timsort finds the sorted runs, and merges them.
        between.sort()
        ordered += between
        yield
    return ordered
