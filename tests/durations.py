"""Seconds of tests and what they start: by rig, by folder, and by file for the schedule."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

RECORDED: Final = Path(__file__).with_name("durations.txt")
"""Seconds of each file in the last recorded run, which order the next one."""
RECORDED_HARD: Final = Path(__file__).with_name("durations_hard.txt")
"""Seconds of a hard test by its function, likewise: of those with several parameters the mean."""
KINDS: Final = ("nodes", "processes", "interpreters", "browsers")
"""Counted starts: a node in the test's process, a process of the command by a fork or with an
interpreter of its own, a browser."""
SHOWN: Final = 60
"""Tests of a profile that are listed."""

starts: Counter[str] = Counter()
"""Starts since they were last taken."""


class Report(Protocol):
    """One phase of a test, as pytest reports it."""

    nodeid: str
    duration: float

    @property
    def when(self) -> str | None:
        """`setup`, `call` or `teardown`."""


def take_starts() -> dict[str, int]:
    """Return the starts counted since the last call."""
    found = dict(starts)
    starts.clear()
    return found


@dataclass
class Row:
    """Sums over some tests."""

    tests: set[str] = field(default_factory=set)
    seconds: float = 0.0
    set_up: float = 0.0
    started: Counter[str] = field(default_factory=Counter)

    def add(self, report: Report) -> None:
        """Add one phase of a test."""
        self.tests.add(report.nodeid)
        self.seconds += report.duration
        self.set_up += report.duration * (report.when == "setup")
        self.started.update(getattr(report, "started", {}))


def by_rig(reports: Iterable[Report]) -> list[str]:
    """Return a line for each module, the longest first, and one for all. Where processes ran them
    beside each other, the sum is more than the time that passed."""
    rows = _rows(reports, file_of)
    lines = [_line(row.seconds, len(row.tests), rig) for rig, row in _longest(rows)]
    tests = sum(len(row.tests) for row in rows.values())
    return [*lines, _line(sum(row.seconds for row in rows.values()), tests, "all of them")]


def profile(reports: Sequence[Report], shown: int | None = SHOWN) -> list[str]:
    """Return a table by folder, and one of the functions that start something."""
    folders = _rows(reports, folder_of)
    functions = _rows(reports, function_of)
    starting = [(name, row) for name, row in _longest(functions) if row.started]
    total = Row()
    for report in reports:
        total.add(report)
    head = f"{'tests':>6} {'seconds':>8} {'set-up':>7} " + " ".join(f"{one:>12}" for one in KINDS)
    listed = [*_longest(folders), ("all of them", total)]
    lines = [head, *(_columns(name, row) for name, row in listed), "", "tests that start something"]
    return [*lines, head, *(_columns(name, row) for name, row in starting[:shown])]


def file_of(nodeid: str) -> str:
    """Return the path of a test's module."""
    return nodeid.partition("::")[0]


def function_of(nodeid: str) -> str:
    """Return a test's name without its parameters."""
    return nodeid.partition("[")[0]


def folder_of(nodeid: str) -> str:
    """Return the folder below tests/, of two levels at most, that a test's module lies in."""
    folders = file_of(nodeid).split("/")[:-1]
    return "/".join(folders[:3])


def record(reports: Iterable[Report], path: Path = RECORDED) -> None:
    """Write the seconds of each file. Keep those of files that were not run and still exist."""
    _write({file: row.seconds for file, row in _rows(reports, file_of).items()}, path)


def record_hard(reports: Iterable[Report], path: Path = RECORDED_HARD) -> None:
    """Write the seconds of a test of each function. Keep others as `record` does."""
    rows = _rows(reports, function_of)
    _write({name: row.seconds / len(row.tests) for name, row in rows.items()}, path)


def _write(seconds: Mapping[str, float], path: Path) -> None:
    kept = {name: old for name, old in recorded(path).items() if Path(file_of(name)).exists()}
    lines = (f"{took:.1f} {name}\n" for name, took in sorted({**kept, **seconds}.items()))
    path.write_text("".join(lines))


def recorded(path: Path = RECORDED) -> dict[str, float]:
    """Return the seconds that were written, by file or by function."""
    pairs = (line.split(" ", 1) for line in path.read_text().splitlines())
    return {name: float(seconds) for seconds, name in pairs}


def _rows(reports: Iterable[Report], key: Callable[[str], str]) -> dict[str, Row]:
    rows: defaultdict[str, Row] = defaultdict(Row)
    for report in reports:
        rows[key(report.nodeid)].add(report)
    return dict(rows)


def _longest(rows: Mapping[str, Row]) -> list[tuple[str, Row]]:
    return sorted(rows.items(), key=lambda item: -item[1].seconds)


def _columns(name: str, row: Row) -> str:
    counts = " ".join(f"{row.started[kind]:12d}" for kind in KINDS)
    return f"{len(row.tests):6d} {row.seconds:8.1f} {row.set_up:7.1f} {counts}  {name}"


def _line(seconds: float, tests: int, rig: str) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes:4d} min {rest:02d} s  {tests:4d} tests  {rig}"
