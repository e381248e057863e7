"""R5: an error from every kind of system call on every kind of file with which a node changes its
store, one at a time.

- A sync of the log that fails ends the node: nothing more is acknowledged, the file is not synced
  again, the exit code is not 0.
- No room for frames is refused as DiskFull, and the node goes on in the same life.
- Everything else is one of: borne; a start refused in one line; an end by name, exit code 1.

After each, the next start finds all that was acknowledged, and nothing that was refused.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from actors.commits.idle_marks import IDLE_SECONDS
from tests.processes import NodeProcess, StartFailed
from tests.reliability import disks, faulty, injections, workload
from tests.reliability.injections import FAULTS, WORKLOADS, Outcome, Point, Workload
from tests.reliability.workload import Broken, Promises

LANES = 4
ERRORS = {"EIO": injections.CALLS, "ENOSPC": ("write", "mkdir", "rename", "fdatasync")}
"""What is told, and by which calls."""

Figure = Callable[[str, object], None]
pytestmark = [pytest.mark.hard, pytest.mark.timeout(900)]


def judge(outcome: Outcome, error: str) -> str:
    """In a word how the node took it. :raises Broken: not as it promises to"""
    point = outcome.point
    assert point is not None
    said = [*outcome.lines[-6:], *outcome.failures]
    told = f"{error} at {point}: exit {outcome.exit_code}, {outcome.codes}, {said}"
    at = [number for number, call in enumerate(outcome.calls) if call.injected]
    if not at:
        return "not reached"
    if any("Traceback" in line for line in outcome.lines):
        raise Broken(f"a traceback on the standard error: {told}")
    if point.is_log_sync and point.path.startswith("log/") and outcome.ready:
        _judge_failed_sync(outcome, at[0], told)
        return "log sync failed: ended"
    if outcome.exit_code == 0:
        if set(outcome.codes) - {"DiskFull"}:
            raise Broken(f"went on with refusals of other names: {told}")
        word = "refused as DiskFull, went on" if outcome.codes else "borne"
        return f"no room in the log: {word}" if error == "ENOSPC" and point.is_log_write else word
    if outcome.exit_code != 1:
        raise Broken(f"no orderly end: {told}")
    if outcome.ready:
        if error == "ENOSPC" and point.is_log_write:
            raise Broken(f"no room in the log ended the node: {told}")
        if "node failed" not in outcome.lines:
            raise Broken(f"ended without saying why: {told}")
        return "node ended by name"
    if not outcome.lines or not outcome.lines[-1].startswith("storenode: "):
        raise Broken(f"the start was refused without a reason: {told}")
    return "start refused by name"


def _judge_failed_sync(outcome: Outcome, at: int, told: str) -> None:
    failed = outcome.calls[at]
    if any(call.path == failed.path for call in outcome.calls[at + 1 :]):
        raise Broken(f"the failed log was synced again: {told}")
    if outcome.exit_code == 0:
        raise Broken(f"went on after a failed sync of the log: {told}")
    # A node that stops has refused the writer by name, or the log had failed before the writer came
    # to it; what failed is then the node's own. That nothing of it is there is looked at later.
    if outcome.codes[:1] not in (["UnknownOutcome"], ["Draining"], ["Failed"], []):
        raise Broken(f"the writer was not told that its outcome is unknown: {told}")


def fail_at(load: Workload, label: str, point: Point, error: str, faults: str = FAULTS) -> str:
    """One run, judged, and its store checked. :raises Broken:"""
    outcome, store = load.run(label, point, f"error={error}", faults)
    word = judge(outcome, error)
    injections.check(outcome, store)
    return word


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("name", WORKLOADS)
def test_an_error_from_every_call(tmp_path: Path, name: str, error: str, figure: Figure) -> None:
    disks.require("strace")
    load = WORKLOADS[name](tmp_path)
    plain, store = load.run("plain", None)
    injections.check(plain, store)
    points = injections.sampled(
        [p for p in injections.points(plain.calls) if p.name in ERRORS[error]]
    )

    def work(case: tuple[int, Point]) -> str:
        try:
            return fail_at(load, f"fail{case[0]}", case[1], error)
        except Broken as broken:  # all of them at the end: one run of this takes minutes
            return f"BROKEN {broken}"

    words = workload.side_by_side(work, list(enumerate(points)), LANES)
    broken = [word for word in words if word.startswith("BROKEN")]
    assert not broken, "\n\n".join(broken)
    counts = Counter(words)
    assert counts["not reached"] < 0.1 * len(points)
    assert counts["log sync failed: ended"] > 5
    if error == "ENOSPC":
        # Old log gives way to a write where there is any: it is refused, or borne.
        assert sum(n for word, n in counts.items() if word.startswith("no room in the log")) > 5
    shown = ", ".join(f"{count} {word}" for word, count in sorted(counts.items()))
    figure(f"R5 {error}, {name}", f"{len(points)} points: {shown}; 0 violations")


def test_a_slow_run_makes_the_calls_of_a_quick_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A point is counted in one run and met in another, on a machine that may be busy by then: an
    idle log that got a mark meanwhile moved every call behind it."""
    disks.require("strace")
    load = injections.fresh(tmp_path)
    quick, _ = load.run("quick", None)
    script = NodeProcess.script

    def later(self: NodeProcess, *words: Any, **fields: Any) -> Any:
        time.sleep(IDLE_SECONDS + 0.3)
        return script(self, *words, **fields)

    monkeypatch.setattr(NodeProcess, "script", later)
    slow, _ = load.run("slow", None)
    in_the_log = [
        {point for point in injections.points(run.calls) if point.path.startswith("log/")}
        for run in (quick, slow)
    ]
    assert in_the_log[0] == in_the_log[1] != set()


@pytest.mark.parametrize("fault", ["ignores-sync-errors", "syncs-again"])
def test_a_node_that_trusts_a_failed_log_is_caught(tmp_path: Path, fault: str) -> None:
    disks.require("strace")
    load = injections.fresh(tmp_path)
    plain, _ = load.run("plain", None)
    syncs = [p for p in injections.points(plain.calls) if p.is_log_sync]
    point = next(p for p in syncs if p.path.startswith("log/") and p.number == 2)
    with pytest.raises(Broken, match=r"synced again|went on"):
        fail_at(load, "fault", point, "EIO", f"{FAULTS},{fault}")


def short_writes(folder: Path, faults: str) -> int:
    """A life in which the system takes only a part of every third write. :raises Broken:"""
    promises = Promises()
    node = NodeProcess(folder / "store", more={faulty.FAULTS: faults}, module=faulty.MODULE)
    node.start()
    try:
        workload.setup(node)
        with workload.writing(node, promises, scripts=50, padding=500) as writers:
            for writer in writers:
                writer.join()
    finally:
        node.kill()
    workload.settle(promises, folder / "store", folder / "again")
    return len(promises.acknowledged)


def test_short_writes_are_finished(tmp_path: Path, figure: Figure) -> None:
    acknowledged = short_writes(tmp_path, "short-writes")
    figure("R5 short writes", f"every third of the log's, {acknowledged} acknowledged, 0 lost")


def test_dropped_short_writes_are_caught(tmp_path: Path) -> None:
    with pytest.raises((Broken, StartFailed, OSError)):
        short_writes(tmp_path, "short-writes,drops-short-writes")
