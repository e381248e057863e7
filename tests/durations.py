"""How long each rig took: a module of tests, its fixtures included."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Protocol


class Report(Protocol):
    """What pytest says of one phase of a test."""

    nodeid: str
    duration: float


def by_rig(reports: Iterable[Report]) -> list[str]:
    """A line for each module, the longest first, and one for all. Where several processes ran them
    beside each other, the sum is more than the time that passed."""
    seconds: Counter[str] = Counter()
    tests: dict[str, set[str]] = {}
    for report in reports:
        rig = report.nodeid.partition("::")[0]
        seconds[rig] += report.duration  # type: ignore[assignment]
        tests.setdefault(rig, set()).add(report.nodeid)
    lines = [_line(took, len(tests[rig]), rig) for rig, took in seconds.most_common()]
    return [*lines, _line(sum(seconds.values()), sum(map(len, tests.values())), "all of them")]


def _line(seconds: float, tests: int, rig: str) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes:4d} min {rest:02d} s  {tests:4d} tests  {rig}"
