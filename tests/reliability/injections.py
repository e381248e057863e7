"""System calls with which a node changes its store, one by one: killed there, or made to fail.

A run under `strace` tells which calls there are: a `Point` is the n-th call of a kind on one file
by one thread. Further runs of the same workload are then killed, or told an error, at that point.
The workload is one commit at a time: how many commits one write holds is a matter of chance, and a
segment ends, and its successor is named, where a write ends. So runs are alike.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Final

from tests.processes import NodeProcess, StartFailed
from tests.reliability import faulty, workload
from tests.reliability.workload import Broken, Promises, Writer

SYNCS: Final = ("fdatasync", "fsync")
CALLS: Final = ("write", "pwrite64", *SYNCS, "rename", "unlink", "ftruncate", "mkdir")
EVERY: Final = 5
EVERY_FRAME: Final = 2
"""Of calls that repeat each other one in so many is tried, beside the first two and the last: more
of those by which frames come into the log."""
FAULTS: Final = "tiny"
SCRIPTS: Final = 6
"""From each of the two clients."""

_NUMBER: Final = re.compile(r"\d+")
_LINE: Final = re.compile(r"^(\d+) +(?:<\.\.\. )?(\w+)\((?:\d+<([^>]*)>|\"([^\"]*)\")")


@dataclass(frozen=True)
class Call:
    thread: int
    name: str
    path: str
    """Below the store."""
    injected: bool


@dataclass(frozen=True)
class Point:
    """The `number`-th call of `name` on `path`, counted from 1, for each thread."""

    name: str
    path: str
    number: int

    @property
    def is_log_sync(self) -> bool:
        """Whether it makes frames durable."""
        return self.name in SYNCS and self.path.endswith(".storelog")

    @property
    def is_log_write(self) -> bool:
        """Whether it puts bytes into a segment in use."""
        return self.name == "write" and self.path.startswith("log/")

    @property
    def is_of_frames(self) -> bool:
        """True if frames are written or synced by it."""
        return self.path.startswith("log/") and (self.is_log_sync or self.is_log_write)


@dataclass
class Outcome:
    point: Point | None
    promises: Promises
    exit_code: int
    codes: list[str] = field(default_factory=list)
    """What clients heard, beside what they asked for."""
    ready: bool = False
    lines: list[str] = field(default_factory=list)
    """What the node said: events and plain lines."""
    failures: list[str] = field(default_factory=list)
    """Why it failed, as it said itself."""
    calls: list[Call] = field(default_factory=list)


class Workload:
    """Starts a node on a fresh copy of a store, writes, and stops it."""

    def __init__(self, folder: Path, template: Path | None, promises: Promises) -> None:
        self._folder = folder
        self._template = template
        self._promises = promises

    def run(
        self, label: str, point: Point | None, inject: str = "", faults: str = FAULTS
    ) -> tuple[Outcome, Path]:
        """One run. `inject`: what strace does at the point. Answers where the store is, too."""
        folder = self._folder / label
        folder.mkdir()
        store, trace = folder / "store", folder / "trace"
        if self._template is not None:
            shutil.copytree(self._template, store)
        node = NodeProcess(
            store,
            more={faulty.FAULTS: faults},
            module=faulty.MODULE,
            under=_strace(store, trace, point, inject),
        )
        outcome = Outcome(point, self._promises.copy(), 0)
        node.spawn()
        try:
            self._drive(node, outcome)
        finally:
            if node.process.poll() is None:
                node.process.kill()
        outcome.exit_code = node.process.wait()
        outcome.lines = [str(line.get("event")) for line in node.lines]
        failed = [line for line in node.lines if line.get("event") == "node failed"]
        outcome.failures = [str(line.get("reason")) for line in failed]
        outcome.calls = _calls(trace, store)
        return outcome, store

    def _drive(self, node: NodeProcess, outcome: Outcome) -> None:
        try:
            node.wait_ready()
        except StartFailed:
            return
        outcome.ready = True
        try:
            for script in workload.SETUP:
                if "error" in (answer := node.script(script)):
                    outcome.codes.append(answer["error"]["code"])
                    node.script(script)  # a fault comes once; without tables all is refused
            token = workload.token(node)
            for number in range(2):
                writer = Writer(
                    node, outcome.promises, token, number, scripts=SCRIPTS, patient=True
                )
                writer.run()  # in this thread
                outcome.codes += writer.codes
        except (OSError, HTTPException, ValueError, KeyError):
            pass  # it died meanwhile; what it said of that, and its store, are asked afterwards
        if node.process.poll() is None:
            node.signal()
        node.wait()


def _strace(store: Path, trace: Path, point: Point | None, inject: str) -> list[str]:
    words = ["strace", "-D", "-f", "-y", "-qq", "-s", "256", "-o", str(trace)]
    if point is None:
        return [*words, "-e", f"trace={','.join(CALLS)}"]
    return [
        *words,
        *("-P", f"{store}/{point.path}".rstrip("/")),
        *("-e", f"trace={point.name}"),
        *("-e", f"inject={point.name}:{inject}:when={point.number}"),
    ]


def _calls(trace: Path, store: Path) -> list[Call]:
    """What a trace says of the store."""
    found = []
    for line in trace.read_text(errors="replace").splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        path = match[3] or match[4] or ""
        if path == str(store) or path.startswith(f"{store}/"):
            below = path[len(str(store)) + 1 :]
            found.append(Call(int(match[1]), match[2], below, "(INJECTED)" in line))
    return found


def points(calls: Sequence[Call]) -> list[Point]:
    """All different points of a run."""
    counts: Counter[tuple[int, str, str]] = Counter()
    found: dict[Point, None] = {}
    for call in calls:
        counts[call.thread, call.name, call.path] += 1
        number = counts[call.thread, call.name, call.path]
        found[Point(call.name, call.path, number)] = None
    return list(found)


def sampled(found: Sequence[Point]) -> list[Point]:
    """Return points of every kind of call on every kind of file: of those that differ by numbers
    alone, as the writes of one segment and of the next, the first two, one in `EVERY`, and the
    last."""
    alike: defaultdict[tuple[str, str], list[Point]] = defaultdict(list)
    for point in found:
        alike[point.name, _NUMBER.sub("#", point.path)].append(point)
    return [
        point
        for points in alike.values()
        for every in [EVERY_FRAME if points[0].is_of_frames else EVERY]
        for at, point in enumerate(points)
        if at < 2 or at % every == 0 or at == len(points) - 1
    ]


def fresh(folder: Path) -> Workload:
    """The first start of a store, and its first frames: with segments of 4 frames of which the
    newest 8 are kept, this rolls, and prunes at the end."""
    (folder / "fresh").mkdir()
    return Workload(folder / "fresh", None, Promises())


def killed_before(folder: Path) -> Workload:
    """The start of a store that was killed under load, with half a frame at its end."""
    (folder / "killed").mkdir()
    template, promises = folder / "killed" / "template", Promises()
    node = NodeProcess(template, more={faulty.FAULTS: FAULTS}, module=faulty.MODULE).start()
    try:
        workload.setup(node)
        with workload.writing(node, promises, clients=2, scripts=9) as writers:
            for writer in writers:
                writer.join()
        promises.compare(workload.records(node))
    finally:
        node.kill()
    newest = max((template / "log").glob("*.storelog"))
    with newest.open("ab") as file:
        file.write(b"half a frame that nobody was told of")
    return Workload(folder / "killed", template, promises)


WORKLOADS: Final[dict[str, Callable[[Path], Workload]]] = {
    "fresh": fresh,
    "killed before": killed_before,
}


def check(outcome: Outcome, store: Path) -> None:
    """The store of a run that has ended keeps every promise. :raises Broken:"""
    try:
        workload.settle(outcome.promises, store, None)
    except (Broken, StartFailed) as broken:
        raise Broken(f"at {outcome.point}: {broken}\n{outcome.lines}") from broken
    shutil.rmtree(store.parent)
