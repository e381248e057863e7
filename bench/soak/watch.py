"""Samples of a node's resources from outside: memory, descriptors, files, and latencies."""

from __future__ import annotations

import csv
import os
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Final

MIB: Final = 1 << 20
SLACK: Final[dict[str, float]] = {
    "resident_mib": 4.0,
    "anonymous_mib": 4.0,
    "descriptors": 8.0,
    "threads": 2.0,
    "log_mib": 16.0,
    "state_mib": 16.0,
    "read_p50_ms": 1.0,
    "write_p50_ms": 2.0,
}
"""Series that are judged, and the growth of each that is noise. High percentiles are drawn only: on
a busy machine they reflect the machine more than the node."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Resources of the node at one time, and its answers since the previous sample."""

    at_s: float
    resident_mib: float
    anonymous_mib: float
    """The anonymous part of it: the heap, its arenas, stacks."""
    descriptors: float
    threads: float
    log_mib: float
    state_mib: float
    done: float
    """Requests answered since the previous sample, all kinds together."""
    refused: float
    read_p50_ms: float
    read_p99_ms: float
    write_p50_ms: float
    write_p99_ms: float


SERIES: Final = tuple(field.name for field in fields(Sample) if field.name != "at_s")


def process(pid: int) -> dict[str, float]:
    """Return memory, descriptors and threads of a process."""
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    return {
        "resident_mib": _kib(status["VmRSS"]) / 1024,
        "anonymous_mib": _kib(status["RssAnon"]) / 1024,
        "descriptors": float(len(os.listdir(f"/proc/{pid}/fd"))),
        "threads": float(status["Threads"]),
    }


def _kib(value: str) -> float:
    return float(value.split()[0])


def folder_mib(folder: Path) -> float:
    """Return the disk space of a folder's files. Files may be removed while they are counted."""
    found = 0
    for name in os.listdir(folder):
        try:
            found += (folder / name).stat().st_blocks * 512
        except FileNotFoundError:
            continue
    return found / MIB


def percentiles_ms(seconds: Sequence[float]) -> tuple[float, float]:
    """Return the 50th and the 99th percentile; 0 without any value."""
    if len(seconds) < 2:
        return 0.0, 0.0
    cuts = statistics.quantiles(seconds, n=100)
    return cuts[49] * 1000, cuts[98] * 1000


def write(path: Path, samples: Sequence[Sample]) -> None:
    """Write all samples as CSV, a column for each series."""
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, [field.name for field in fields(Sample)])
        table.writeheader()
        for sample in samples:
            table.writerow({name: round(value, 3) for name, value in asdict(sample).items()})
