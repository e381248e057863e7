"""R4: SIGKILL at every write, sync, rename, unlink, truncation and mkdir with which a node changes
its store: while it is made, written, rolled, pruned, closed, and while it recovers. Of calls that
repeat each other, some."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.reliability import disks, injections, workload
from tests.reliability.injections import FAULTS, WORKLOADS, Point, Workload
from tests.reliability.workload import Broken

LANES = 4
KILL = "signal=SIGKILL"
SIGKILLED = -9

Figure = Callable[[str, object], None]
pytestmark = [pytest.mark.hard, pytest.mark.timeout(900)]


def kill_at(load: Workload, number: int, point: Point, faults: str = FAULTS) -> bool:
    """Answers whether the run came to the point. :raises Broken:"""
    outcome, store = load.run(f"kill{number}", point, KILL, faults)
    injections.check(outcome, store)
    return outcome.exit_code == SIGKILLED


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_kill_at_every_call_loses_nothing(tmp_path: Path, name: str, figure: Figure) -> None:
    disks.require("strace")
    load = WORKLOADS[name](tmp_path)
    plain, store = load.run("plain", None)
    assert (plain.exit_code, plain.codes) == (0, []), plain.lines
    injections.check(plain, store)
    points = injections.sampled(injections.points(plain.calls))
    kinds = {point.name for point in points}
    assert kinds >= {"write", "fdatasync", "fsync", "rename", "unlink", "ftruncate"}

    reached = workload.side_by_side(
        lambda case: kill_at(load, *case), list(enumerate(points)), LANES
    )
    assert sum(reached) > 0.9 * len(points)
    figure(f"R4 kills, {name}", f"{len(points)} points, {sum(reached)} reached; 0 violations")


def test_writing_in_place_is_caught(tmp_path: Path) -> None:
    disks.require("strace")
    load = injections.fresh(tmp_path)
    faults = f"{FAULTS},writes-in-place"
    plain, _ = load.run("plain", None, faults=faults)
    points = [p for p in injections.points(plain.calls) if p.path in ("STORE", "NODE")]
    caught = 0
    for number, point in enumerate(points):
        try:
            kill_at(load, number, point, faults)
        except Broken:
            caught += 1
    assert caught > 0
