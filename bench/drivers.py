"""Drivers: processes that generate the same kind of load together and report latencies.

Each connects, reports that it is ready, and begins when all of them are. `Measured.driver_busy` is
the share of its time that the busiest driver computed. Near 1 the driver is the bottleneck, and the
table says so.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Final, TypeVar

DRIVER_BUSY: Final = 0.85
"""Driver utilization from which on the driver itself limits the figure."""

_SPAWN = multiprocessing.get_context("spawn")

Share = TypeVar("Share")
Go = Callable[[], None]
"""Barrier: returns once every driver is ready."""


class LoadFailed(Exception):
    """A request failed, or was not answered in time."""


@dataclass(frozen=True, slots=True)
class Driven:
    """Result of one driver. Its clock is shared by all processes; seconds."""

    began: float
    ended: float
    busy: float
    """Processor time that the driver itself used, seconds."""
    took: list[float]
    """Latency of each request, seconds."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Result of all drivers together."""

    seconds: float
    requests: int
    p50_ms: float
    p99_ms: float
    driver_busy: float
    """Share of its time that the busiest driver computed."""
    node_cpu_us: float
    """Processor time of the node per request, microseconds."""

    @property
    def rate(self) -> float:
        """Answers per second."""
        return self.requests / self.seconds


class Stopwatch:
    """Measures a driver: `with Stopwatch() as watch`, then `watch.driven(took)`."""

    def __enter__(self) -> Stopwatch:
        self._began, self._cpu = time.monotonic(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended, self._busy = time.monotonic(), time.process_time() - self._cpu

    def driven(self, took: list[float]) -> Driven:
        """Return the result of this driver."""
        return Driven(self._began, self._ended, self._busy, took)


def together(
    work: Callable[[Share, Go], Driven],
    shares: Sequence[Share],
    cpu_seconds: Callable[[], float] = lambda: 0.0,
) -> Measured:
    """Run each share in a process of its own.

    :param work: a function of a module: it is looked up by its name in the process
    :param cpu_seconds: the processor time that the node has used so far
    :raises LoadFailed: a request failed
    """
    ends: list[Connection] = []
    drivers = []
    for share in shares:
        ours, theirs = _SPAWN.Pipe()
        driver = _SPAWN.Process(target=_drive, args=(work, share, theirs), daemon=True)
        driver.start()
        theirs.close()
        ends.append(ours)
        drivers.append(driver)
    try:
        for end in ends:
            _told(end)
        cpu_before = cpu_seconds()
        for end in ends:
            end.send("go")
        found: list[Driven] = [_told(end) for end in ends]
        cpu = cpu_seconds() - cpu_before
    finally:
        for end in ends:
            end.close()
        for driver in drivers:
            driver.join()
    return measured(found, cpu)


def measured(found: list[Driven], cpu: float) -> Measured:
    """Sum up the results of drivers, and the processor time that the node used during their run."""
    late = sorted(took for driven in found for took in driven.took)
    return Measured(
        seconds=max(one.ended for one in found) - min(one.began for one in found),
        requests=len(late),
        p50_ms=late[len(late) // 2] * 1000,
        p99_ms=late[len(late) * 99 // 100] * 1000,
        driver_busy=max(one.busy / (one.ended - one.began) for one in found),
        node_cpu_us=cpu / len(late) * 1e6,
    )


def _told(end: Connection) -> Any:
    try:
        found = end.recv()
    except EOFError:
        raise LoadFailed("a driver ended without a result") from None
    if isinstance(found, Exception):
        raise LoadFailed(str(found))
    return found


def _drive(work: Callable[[Any, Go], Driven], share: Any, parent: Connection) -> None:
    def go() -> None:
        parent.send("ready")
        parent.recv()

    try:
        parent.send(work(share, go))
    except Exception as error:
        parent.send(LoadFailed(f"{type(error).__name__}: {error}"))
