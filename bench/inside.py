"""`python -m bench.inside --before DIR`: the loop time of an operation, two checkouts in turns.

For single operations on a busy machine. Kernel and drivers are excluded: each checkout has a
process with a node on a real disk, whose connections are fed frames by hand and answer into a list.
The two run one at a time, in many short pieces. The minimum of a side's pieces counts, because
other load on the machine only ever adds to it.

`--count` counts instead of measuring: instructions of the interpreter per request, which are the
same on every machine. With one checkout it shows in which functions they are. `--stacks` samples
whole call stacks, mainly of a compiled tree (`--tree build/compiled`): stacks.py.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
PASSWORD: Final = "correct horse battery"
RECORDS: Final = 2_000
STACKS_SECONDS: Final = 6.0
PIECES_SAMPLED: Final = 300
"""Pieces of work to run while stacks are sampled: they outlast `STACKS_SECONDS`."""
SAID: Final = "=> "
"""Prefix of the lines that are meant for the parent: the node logs to the same stream."""


# --- in a checkout's process ----------------------------------------------------------------------


class Pipe:
    """A transport without a peer: keeps the node's answers."""

    def __init__(self) -> None:
        self.taken = bytearray()
        self.some = asyncio.Event()
        """Set when something is answered."""

    def write(self, data: bytes) -> None:
        """Append an answer, or several."""
        self.taken += data
        self.some.set()

    async def more(self) -> None:
        """Wait for the next answer."""
        self.some.clear()
        await self.some.wait()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the address of the peer, as a transport does."""
        return ("127.0.0.1", 1) if name == "peername" else default

    def get_write_buffer_size(self) -> int:
        """Return 0: nothing is buffered."""
        return 0

    def is_closing(self) -> bool:
        """Return False."""
        return False

    can_write_eof = is_closing

    def close(self) -> None:
        """Do nothing."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Ignore the limits: nothing is buffered."""

    def pause_reading(self) -> None:
        """Do nothing: all input has been fed already."""

    resume_reading = pause_reading


class InsideClient:
    """A connection over the wire."""

    def __init__(self, wire: Any) -> None:
        from surfaces.wire.connection import WireConnection

        self.pipe = Pipe()
        self.protocol = WireConnection(wire)
        self.protocol.connection_made(self.pipe)  # type: ignore[arg-type]

    def say(self, frames: bytes) -> None:
        """Feed frames, as the loop does after a read."""
        self.protocol.data_received(frames)

    def heard(self) -> list[Any]:
        """Return the messages answered since the last call."""
        from storeclient.frames import FrameReader

        taken, self.pipe.taken = bytes(self.pipe.taken), bytearray()
        return list(FrameReader().feed(taken))

    async def answered(self, count: int) -> None:
        """Wait for `count` messages, and drop them."""
        pipe, seen = self.pipe, 0
        while True:
            taken = pipe.taken
            while len(taken) >= 4:
                end = 4 + int.from_bytes(taken[:4], "big")
                if len(taken) < end:
                    break
                assert taken[5] != 35, bytes(taken[:end])
                del taken[:end]
                seen += 1
            if seen >= count:
                return
            await pipe.more()


class HttpPeer:
    """A connection over HTTP, without pipelining."""

    def __init__(self, surface: Any) -> None:
        from surfaces.http.connection import HttpConnection

        self.pipe = Pipe()
        self.protocol = HttpConnection(surface)
        self.protocol.connection_made(self.pipe)  # type: ignore[arg-type]

    def say(self, data: bytes) -> None:
        """Feed bytes, as the loop does after a read."""
        self.protocol.data_received(data)

    async def answered(self, count: int) -> None:
        """Wait for an answer, and drop it."""
        if not self.pipe.taken:
            await self.pipe.more()
        assert self.pipe.taken.startswith(b"HTTP/1.1 20"), bytes(self.pipe.taken)
        self.pipe.taken.clear()


class Here:
    """A node in this process, and its workload."""

    def __init__(self, node: Any, wire: Any, http: Any) -> None:
        self.node = node
        self.wire = wire
        self.http = http
        self.peers: list[InsideClient] = []
        self.http_peers: list[HttpPeer] = []
        self.number = 0

    async def begin(self) -> None:
        """Open connections and create data to ask for."""
        from storeclient.frames import Kind, encode

        hello = {"magic": "STORE", "major": 1, "minor": [0, 0], "user": "root"}
        for _ in range(64):
            peer = InsideClient(self.wire)
            peer.say(encode(Kind.HELLO, 0, {**hello, "password": PASSWORD}))
            await peer.answered(1)
            self.peers.append(peer)
        define = "DEFINE NAMESPACE b; DEFINE DATABASE b.b"
        await self.ask(encode(Kind.RUN, 1, {"script": define}))
        make = (
            "DEFINE TABLE person; DEFINE SPACE s; SET 'k' IN s VALUE 'hello';"
            " DEFINE TABLE made; DEFINE TOPIC work; DEFINE GROUP g ON work DEADLINE 5m"
            " IN FLIGHT 10000"
        )
        await self.ask(self.run(make))
        from bench.people import people

        await self.ask(self.run("INSERT INTO person $rows", {"rows": people(RECORDS)}))
        for _ in range(32):
            http_peer = HttpPeer(self.http)
            http_peer.say(self.read_http(1))
            await http_peer.answered(1)
            self.http_peers.append(http_peer)

    async def ask(self, frame: bytes) -> None:
        """Send a request and return its answer."""
        self.peers[0].say(frame)
        await self.peers[0].answered(1)

    # requests

    def run(self, script: str, params: dict[str, Any] | None = None) -> bytes:
        from storeclient.frames import Kind, encode

        body = {"script": script, "params": params or {}, "ns": "b", "db": "b"}
        return encode(Kind.RUN, 1, body)

    def key(self, op: str, id: int, **more: Any) -> bytes:
        from storeclient.frames import Kind, encode

        body = {"op": op, "ns": "b", "db": "b", "space": "s", "key": "k", **more}
        return encode(Kind.KV, id, body)

    def topic(self, op: str, **more: Any) -> bytes:
        from storeclient.frames import Kind, encode

        body = {"op": op, "ns": "b", "db": "b", "topic": "work", **more}
        return encode(Kind.TOPIC, 1, body)

    def read(self, number: int) -> bytes:
        from storeclient import RecordId

        return self.run("SELECT * FROM $id", {"id": RecordId("person", 1 + number % RECORDS)})

    def read_http(self, number: int) -> bytes:
        from base64 import b64encode

        params = {"id": {"$rec": f"person:{1 + number % RECORDS}"}}
        asked = {"script": "SELECT * FROM $id", "params": params, "ns": "b", "db": "b"}
        body = json.dumps(asked).encode()
        pair = b64encode(f"root:{PASSWORD}".encode())
        head = b"POST /script HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic " + pair
        head += b"\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        return head + body

    def update(self, number: int) -> bytes:
        from storeclient import RecordId

        id = RecordId("person", 1 + number % RECORDS)
        return self.run("UPDATE $id SET age = $age", {"id": id, "age": number % 100})

    def create(self, number: int) -> bytes:
        from bench.people import person

        return self.run("CREATE made CONTENT $v", {"v": person(number)})

    # rows: each says what a round sends to how many peers, and how many requests that is

    def round(self, row: str) -> tuple[list[Any], list[list[bytes]], int]:
        """Return the peers, the frames that each sends in order, and the number of answers to each
        peer."""
        self.number += 64
        kind, clients, depth = row.split("-")
        count, deep = int(clients), int(depth)
        peers: list[Any] = (self.http_peers if kind == "http" else self.peers)[:count]
        if kind in ("get", "set"):
            more = {"value": "hello"} if kind == "set" else {}
            data = b"".join(self.key(kind, id + 1, **more) for id in range(deep))
            return peers, [[data]] * count, deep
        make: Callable[[int], bytes] = {
            "read": self.read,
            "http": self.read_http,
            "update": self.update,
            "create": self.create,
            "publish": lambda _: self.topic("publish", value="x" * 128),
        }[kind]
        return peers, [[make(self.number + at)] for at in range(count)], 1

    async def once(self, row: str, rounds: int, spent: Callable[[], float]) -> float:
        """Return the loop's seconds per request over so many rounds."""
        if row.startswith("take"):
            return await self.taken(row, rounds, spent)
        took, asked, loop = 0.0, 0, asyncio.get_running_loop()
        for _ in range(rounds):
            peers, sent, deep = self.round(row)
            began = spent()
            for peer, frames in zip(peers, sent, strict=True):
                for frame in frames:
                    loop.call_soon(peer.say, frame)  # as the reads of one turn come
            for peer in peers:
                await peer.answered(deep)
            took += spent() - began
            asked += len(peers) * deep
        return took / asked

    async def taken(self, row: str, rounds: int, spent: Callable[[], float]) -> float:
        """Measure pairs of TAKE and ACK; each worker handles one message at a time."""
        count = int(row.split("-")[1])
        peers = self.peers[:count]
        took, loop = 0.0, asyncio.get_running_loop()
        for _ in range(rounds):
            fill = self.topic("publish", values=["x" * 128] * count)
            await self.ask(fill)
            take = self.topic("take", group="g")
            began = spent()
            for peer in peers:
                loop.call_soon(peer.say, take)
            for peer in peers:
                if not peer.pipe.taken:
                    await peer.pipe.more()
            took += spent() - began
            acks = []
            for peer in peers:
                (message,) = peer.heard()
                receipt = message.body["messages"][0]["receipt"]
                acks.append(self.topic("ack", group="g", receipts=[receipt]))
            began = spent()
            for peer, ack in zip(peers, acks, strict=True):
                loop.call_soon(peer.say, ack)
            for peer in peers:
                await peer.answered(1)
            took += spent() - began
        return took / (rounds * count)


class Steps:
    """Counts the interpreter's instructions while it is on. Passed to `Here.once` as `spent`."""

    def __init__(self) -> None:
        self.done = 0
        self.of: Counter[str] = Counter()

    def count(self) -> float:
        """Return the instructions so far."""
        return float(self.done)

    def __call__(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        code = frame.f_code
        name = f"{Path(code.co_filename).name}:{code.co_qualname}"

        def step(_frame: FrameType, event: str, _argument: Any) -> Any:
            if event == "opcode":
                self.done += 1
                self.of[name] += 1
            return step

        return step


async def begin(directory: str) -> Here:
    """Start a node in this process, with connections and data to ask for."""
    from actors.environment import system_environment
    from actors.node import start
    from actors.settings import FirstOwner, NodeSettings
    from surfaces.command import heap
    from surfaces.http.shared import HttpSettings
    from surfaces.http.surface import HttpSurface
    from surfaces.wire import NodeGate
    from surfaces.wire.shared import Wire

    heap.collect_less_often()  # as the command does: else a sixth of a CREATE is the collector's
    owner = FirstOwner("root", PASSWORD)
    node = await start(NodeSettings(directory, first_owner=owner), system_environment())
    http = HttpSurface(node, HttpSettings("127.0.0.1", 0))
    await http.start()
    here = Here(node, Wire(NodeGate(node)), http)
    await here.begin()
    heap.freeze_startup_objects()
    return here


async def serve(directory: str, counts: bool) -> None:
    """Execute the requests of the parent, line by line."""
    if counts:
        from protocol import limits

        # Counting takes long, and nothing may be put off. Before other modules read it.
        limits.SLICE_US = 10**12  # type: ignore[misc]
    here = await begin(directory)
    print(f"{SAID}ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        word, row, rounds = line.split()
        if word == "time":
            found: Any = await here.once(row, int(rounds), time.thread_time) * 1e6
        elif word == "count":
            await here.once(row, 3, lambda: 0.0)
            steps = Steps()
            sys.settrace(steps)
            made = await here.once(row, int(rounds), steps.count)
            sys.settrace(None)
            found = [made, steps.of.most_common(80)]
        else:
            found = await profiled(here.once(row, int(rounds), time.thread_time))
        print(f"{SAID}{json.dumps(found)}", flush=True)


async def profiled(work: Awaitable[float]) -> str:
    """Return cProfile's report, by the time in each function itself."""
    import cProfile
    import io
    import pstats

    profile = cProfile.Profile(time.thread_time)
    profile.enable()
    await work
    profile.disable()
    told = io.StringIO()
    pstats.Stats(profile, stream=told).sort_stats("tottime").print_stats(60)
    return told.getvalue()


# --- the parent -----------------------------------------------------------------------------------

ROWS: Final = (
    "get-50-1", "get-50-16", "set-50-1", "set-50-16", "read-64-1", "http-32-1", "update-64-1",
    "create-64-1", "create-1-1", "publish-32-1", "publish-1-1", "take-32-1", "take-1-1",
)  # fmt: skip


class CheckoutProcess:
    """Process of a checkout."""

    def __init__(self, tree: Path, directory: Path, counts: bool) -> None:
        path = os.pathsep.join([str(tree), str(tree / "clients" / "python")])
        self.figures: dict[str, list[float]] = {}
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__, "--worker", str(directory)] + ["--count"] * counts,
            cwd=tree, env={**os.environ, "PYTHONPATH": path}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._heard()

    def _heard(self) -> str:
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            if line.startswith(SAID):
                return line.removeprefix(SAID)
        raise SystemExit("a process ended")

    def ask(self, word: str, row: str, rounds: int) -> Any:
        """Send a request to the process and return its result."""
        self._say(word, row, rounds)
        return json.loads(self._heard())

    def stacks(self, row: str, rounds: int) -> Iterator[list[str]]:
        """Sample the stacks of its loop while it repeats one operation."""
        from bench import stacks  # the parent's, and no business of an older checkout's process

        with tempfile.TemporaryDirectory(prefix="stacks-") as folder:
            recorded = Path(folder) / "perf.data"
            self._say("time", row, rounds)
            stacks.record(self._process.pid, STACKS_SECONDS, recorded)
            self._heard()
            yield from stacks.stacks(recorded)

    def _say(self, word: str, row: str, rounds: int) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word} {row} {rounds}\n")
        self._process.stdin.flush()

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


def rounds_of(row: str) -> int:
    """Return the rounds of one piece: some tens of milliseconds of work."""
    kind, clients, depth = row.split("-")
    weight = {"get": 2, "set": 4, "read": 3, "http": 5}.get(kind, 15)
    return max(4000 // (weight * int(clients) * int(depth)), 1)


def main() -> None:
    """Run the rows that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m bench.inside", description=__doc__)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument(
        "--tree", type=Path, default=ROOT, help="tree to measure instead of this checkout"
    )
    parser.add_argument("--before", type=Path, help="compare with this checkout")
    parser.add_argument("--row", action="append", help="measure only this row; may be repeated")
    parser.add_argument("--pieces", type=int, default=15, help="pieces of each side for one row")
    parser.add_argument("--count", action="store_true", help="count instructions instead of time")
    parser.add_argument("--profile", action="store_true", help="print a profile by cProfile")
    parser.add_argument("--stacks", action="store_true", help="print whole stacks by perf")
    parser.add_argument("--within", default="", help="only stacks with this function")
    asked = parser.parse_args()
    if asked.worker:
        asyncio.run(serve(asked.worker, asked.count))
        return
    rows = asked.row or ROWS
    trees = {"now": asked.tree.resolve()}
    if asked.before:
        trees["before"] = asked.before.resolve()
    (ROOT / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="inside-", dir=ROOT / "build") as folder:
        sides = {
            name: CheckoutProcess(tree, Path(folder) / name, asked.count)
            for name, tree in trees.items()
        }
        try:
            for row in rows:
                told(row, sides, asked)
        finally:
            for side in sides.values():
                side.end()


def told(row: str, sides: dict[str, CheckoutProcess], asked: argparse.Namespace) -> None:
    """Print one row: measured, counted or profiled."""
    rounds = rounds_of(row)
    if asked.stacks:
        from bench.stacks import table

        for name, side in sides.items():
            print(row, name, flush=True)
            print("\n".join(table(side.stacks(row, rounds * PIECES_SAMPLED), asked.within)))
        return
    if asked.count or asked.profile:
        for name, side in sides.items():
            if asked.profile:
                print(row, name, side.ask("profile", row, rounds * 10))
                continue
            made, of = side.ask("count", row, 3)
            print(f"{row:14} {name:7} {made:.0f} instructions", flush=True)
            clients, depth = (int(part) for part in row.split("-")[1:])
            if len(sides) == 1:
                for what, times in of:
                    print(f"    {times / (3 * clients * depth):7.2f}  {what}")
        return
    figures: dict[str, list[float]] = {name: [] for name in sides}
    for piece in range(asked.pieces):
        for name, side in list(sides.items())[:: -1 if piece % 2 else 1]:
            figures[name].append(side.ask("time", row, rounds))
    said = []
    for name, found in figures.items():
        found.sort()
        said.append(f"{name} least {found[0]:7.1f} median {found[len(found) // 2]:7.1f}")
    print(f"{row:14} " + "   ".join(said), flush=True)


if __name__ == "__main__":
    main()
