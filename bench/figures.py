"""Figures: measured in turns, summarized by median and spread."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Measure = Callable[[], float]
NODE = "storenode"
"""The side to which the others are compared."""


@dataclass(slots=True)
class Measurement:
    """A measurement, on one side or several."""

    name: str
    work: str
    unit: str
    better: Literal["more", "less"]
    goal: str = ""
    sides: dict[str, list[float]] = field(default_factory=dict)
    """Figures of all rounds, by side."""
    gaps: list[str] = field(default_factory=list)
    """Measurements that are missing, and why."""
    notes: list[str] = field(default_factory=list)

    def ratio(self, side: str) -> float | None:
        """Return how many times better the node is than a side; above 1 if it is better."""
        if side == NODE or NODE not in self.sides:
            return None
        node, other = median(self.sides[NODE]), median(self.sides[side])
        return node / other if self.better == "more" else other / node

    def plain(self) -> dict[str, Any]:
        """Return the row as a JSON object."""
        return {
            "name": self.name,
            "work": self.work,
            "unit": self.unit,
            "better": self.better,
            "goal": self.goal,
            "sides": [
                {
                    "side": side,
                    "median": median(figures),
                    "spread": spread(figures),
                    "ratio": self.ratio(side),
                    "figures": figures,
                }
                for side, figures in self.sides.items()
            ],
            "gaps": self.gaps,
            "notes": self.notes,
        }


def median(figures: list[float]) -> float:
    """Return the median."""
    return statistics.median(figures)


def spread(figures: list[float]) -> float:
    """Return the range as a share of the median."""
    return (max(figures) - min(figures)) / statistics.median(figures)


def in_turns(rounds: int, measures: Mapping[str, Measure]) -> dict[str, list[float]]:
    """Measure every side once to warm up, then once in each round, another side first each time.

    So other load on the machine affects all sides alike.
    """
    names = list(measures)
    found: dict[str, list[float]] = {name: [] for name in names}
    for name in names:
        measures[name]()
    for nth in range(rounds):
        first = nth % len(names)
        for name in names[first:] + names[:first]:
            found[name].append(measures[name]())
    return found
