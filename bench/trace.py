"""`python -m bench.trace [--json]`: the files, functions and calls of one request, by room.

The node runs in this process, warm: each request is answered before it is traced. Frames are fed to
its connections by hand, so kernel, Tornado and libraries are not counted: only functions of this
checkout, from the first byte read to the last work that the request leaves behind. A function
counts only if it is in each of several traces, which excludes the node's own background work; of
the calls the minimum counts. A generator or coroutine counts each time it is resumed.

The plain build only: a compiled function cannot be traced.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import redirect_stdout
from pathlib import Path
from types import FrameType
from typing import Any, Final

from bench.inside import Here, begin
from compiling.modules import ROOT

WARM: Final = 20
"""Requests before the first that is traced."""
TRACES: Final = 5
QUIET_TURNS: Final = 200
"""Iterations of the loop without a traced call, after which a request has ended."""
COLUMNS: Final = {
    "surfaces": "surfaces", "actors": "actors",
    "storage": "inner", "protocol": "inner", "language": "inner",
}  # fmt: skip
"""Column of a file on the loop, by its folder."""
LOG: Final = "log"
ORDER: Final = (*dict.fromkeys(COLUMNS.values()), LOG)

Function = tuple[str, str, int]
"""File, qualified name and first line."""
Figures = dict[str, dict[str, int]]
"""Column → files, functions, calls."""


class Trace:
    """Counts calls of this checkout's functions while it is on, on the loop and in the log's
    thread. It is created on the loop, before the node's threads."""

    def __init__(self) -> None:
        self.calls: dict[str, Counter[Function]] = {}
        self.is_on = False
        self._loop = threading.get_ident()
        self._paths: dict[str, tuple[str, str] | None] = {}
        threading.setprofile(self._see)

    def start(self) -> None:
        """Start counting, from zero."""
        self.calls = {column: Counter() for column in ORDER}
        self.is_on = True
        sys.setprofile(self._see)

    def stop(self) -> dict[str, Counter[Function]]:
        """Return the calls by column."""
        sys.setprofile(None)
        self.is_on = False
        return self.calls

    @property
    def seen(self) -> int:
        """Calls so far."""
        return sum(calls.total() for calls in self.calls.values())

    def _see(self, frame: FrameType, event: str, _argument: object) -> None:
        if event != "call" or not self.is_on:
            return
        code = frame.f_code
        place = self._place(code.co_filename)
        if place is None:
            return
        column, file = place
        if threading.get_ident() != self._loop:
            if threading.current_thread().name != "LogActor":
                return
            column = LOG
        self.calls[column][file, code.co_qualname, code.co_firstlineno] += 1

    def _place(self, path: str) -> tuple[str, str] | None:
        """Return the column and the file of a path; None: it is not a file of the node."""
        if path not in self._paths:
            file = Path(path)
            inside = file.relative_to(ROOT) if file.is_relative_to(ROOT) else Path()
            column = COLUMNS.get(inside.parts[0]) if inside.parts else None
            self._paths[path] = None if column is None else (column, str(inside))
        return self._paths[path]


async def quiet(trace: Trace) -> None:
    """Wait until the node is idle."""
    turns, seen = 0, -1
    while turns < QUIET_TURNS:
        turns, seen = (turns + 1, seen) if trace.seen == seen else (0, trace.seen)
        await asyncio.sleep(0)


def requests(here: Here) -> Mapping[str, Callable[[], Awaitable[None]]]:
    """Return a request of each kind; each returns when it is answered."""
    wire, http = here.peers[0], here.http_peers[0]

    def over(peer: Any, made: Callable[[], bytes]) -> Callable[[], Awaitable[None]]:
        async def ask() -> None:
            peer.say(made())
            await peer.answered(1)

        return ask

    def number() -> int:
        here.number += 1
        return here.number

    return {
        "create": over(wire, lambda: here.create(number())),
        "select": over(wire, lambda: here.read(number())),
        "take": over(wire, lambda: here.topic("take", group="g")),
        "publish": over(wire, lambda: here.topic("publish", value="x" * 128)),
        "set": over(wire, lambda: here.key("set", 1, value="hello")),
        "get": over(wire, lambda: here.key("get", 1)),
        "http-select": over(http, lambda: here.read_http(number())),
    }


def figures(traces: list[dict[str, Counter[Function]]]) -> Figures:
    """Return the figures of several traces of one request."""
    found: Figures = {}
    for column in ORDER:
        common = traces[0][column].copy()
        for trace in traces[1:]:
            common &= trace[column]
        files = {file for file, *_ in common}
        found[column] = {"files": len(files), "functions": len(common), "calls": common.total()}
    return found


async def measure(directory: str) -> dict[str, Figures]:
    """Trace a request of each kind.

    :returns: kind → figures
    """
    trace = Trace()
    here = await begin(directory)
    found = {}
    for kind, ask in requests(here).items():
        fill = here.topic("publish", values=["x" * 128] * (WARM + TRACES))
        if kind == "take":
            await here.ask(fill)
        for _ in range(WARM):
            await ask()
        traces = []
        for _ in range(TRACES):
            await quiet(trace)
            trace.start()
            await ask()
            await quiet(trace)
            traces.append(trace.stop())
        found[kind] = figures(traces)
    await here.node.stop()
    return found


def table(found: Mapping[str, Figures]) -> list[str]:
    """Format the figures as lines of text: files, functions and calls of each column."""
    lines = ["".join([f"{'':12}", *(f"{column:>18}" for column in (*ORDER, "all"))])]
    for kind, columns in found.items():
        every = [columns[column] for column in ORDER]
        whole = {each: sum(one[each] for one in every) for each in every[0]}
        cells = (" / ".join(map(str, one.values())) for one in (*every, whole))
        lines.append("".join([f"{kind:12}", *(f"{cell:>18}" for cell in cells)]))
    return lines


def main() -> None:
    """Run the traces that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m bench.trace", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON without the sums")
    asked = parser.parse_args()
    (ROOT / "build").mkdir(exist_ok=True)
    folder = tempfile.TemporaryDirectory(prefix="trace-", dir=ROOT / "build")
    with folder as path, redirect_stdout(sys.stderr):  # the node logs
        found = asyncio.run(measure(str(Path(path) / "store")))
    if asked.json:
        print(json.dumps(found))
        return
    print("files / functions / calls of one request")
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()
