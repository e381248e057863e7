"""Judge whether a series of samples grows without bound.

Caches and retained log fill up first and have stopped growing by the second half of a run. So only
that half is judged, in four parts. A series grows if each part's median is above that of the part
before. The last must also exceed the first by more than a share of it and a slack. Noise has no
direction, and a series that approaches its bound slows down.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

PARTS: Final = 4
SHARE: Final = 0.05
FEWEST: Final = 6
"""Fewest samples in a part that allow a judgement."""
SLOWED: Final = 0.5
"""A series whose last step is less than this share of its first one approaches its bound."""


class TooShort(Exception):
    """There are too few samples for a judgement."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Judgement of one series."""

    name: str
    medians: tuple[float, ...]
    """Medians of the parts of the second half."""
    grows: bool

    def __str__(self) -> str:
        shown = " → ".join(f"{median:,.1f}" for median in self.medians)
        return f"{self.name}: {shown}{'  GROWS' if self.grows else ''}"


def judge(name: str, samples: Sequence[float], slack: float) -> Verdict:
    """Judge one series, sampled at equal intervals.

    :param slack: growth that is noise, in the unit of the series
    :raises TooShort: there are too few samples
    """
    half = samples[len(samples) // 2 :]
    each = len(half) // PARTS
    if each < FEWEST:
        raise TooShort(f"{len(samples)} samples; at least {2 * PARTS * FEWEST} are needed")
    medians = tuple(
        statistics.median(half[len(half) - (PARTS - at) * each :][:each]) for at in range(PARTS)
    )
    steps = [after - before for before, after in pairwise(medians)]
    rises = medians[-1] - medians[0] > SHARE * abs(medians[0]) + slack
    grows = rises and min(steps) > 0 and steps[-1] >= SLOWED * steps[0]
    return Verdict(name, medians, grows)
