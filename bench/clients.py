"""Rows about the clients: the same operations through each, on one connection."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.drivers import Driven, Go, LoadFailed, Measured, Stopwatch, measured, together
from bench.figures import Measure, Measurement, in_turns
from bench.node_queue import GROUP, TOPIC, node_queue
from bench.nodes import DATABASE, NAMESPACE, PASSWORD, ROOT, USER, NodeProcess, define_place
from bench.people import people
from bench.settings import Settings
from storeclient import AsyncClient, Client, RecordId

DEPTHS: Final = (1, 16)
OPERATIONS: Final = {
    "get": ("get one key", (8_000, 32_000)),
    "set": ("set one key, synced", (1_500, 16_000)),
    "create": ("create one record, synced", (1_500, 16_000)),
    "select": ("select one record by id", (6_000, 24_000)),
    "publish": ("publish one message of 128 bytes, synced", (1_500, 16_000)),
    "take": ("take one message and acknowledge it, synced", (800, 8_000)),
    "rows": ("an answer of 1,000 rows", (200, 400)),
}
"""Kinds of work, and the operations of a round by pipelining depth."""
NAMES: Final = tuple(f"client-{name}-{depth}" for name in OPERATIONS for depth in DEPTHS)
PEOPLE: Final = 1_000
MESSAGE: Final = "x" * 128
AWAITED: Final = "Python, AsyncClient"
BLOCKING: Final = "Python, Client"
GO: Final = "Go"
SOURCES: Final = ROOT / "clients" / "go"


def rows(settings: Settings, wanted: Callable[[str], bool]) -> Iterator[Measurement]:
    """Measure the wanted rows, on one node."""
    if not any(map(wanted, NAMES)):
        return
    with ExitStack() as held:
        node = held.enter_context(NodeProcess(settings.directory / "clients"))
        with node.client() as client:
            define_place(client, "person", "made")
            client.run("DEFINE SPACE keys; INSERT INTO person $rows", {"rows": people(PEOPLE)})
            cache = client.cache(NAMESPACE, DATABASE, "keys")
            for number in range(1_000):
                cache.set(f"key:{number}", "sixteen bytes ok")
        program = _built(settings.directory)
        for name, (work, counts) in OPERATIONS.items():
            for depth, count in zip(DEPTHS, counts, strict=True):
                if wanted(f"client-{name}-{depth}"):
                    asked = _ConnectionLoad(node.wire, name, depth, settings.scaled(count))
                    yield _row(settings, node, asked, work, program)


def missing() -> str | None:
    """Return how to install the toolchain of the Go client; None: it is installed."""
    return None if shutil.which("go") else "not installed (apt-get install golang-go)"


def _built(directory: Path) -> Path | None:
    if missing() is not None:
        return None
    program = directory / "client-go"
    words = ["go", "build", "-o", str(program), "./bench"]
    subprocess.run(words, cwd=SOURCES, env={**os.environ, "GOTOOLCHAIN": "local"}, check=True)
    return program


@dataclass(frozen=True, slots=True)
class _ConnectionLoad:
    """A load on one connection."""

    address: str
    operation: str
    depth: int
    count: int


def _row(
    settings: Settings, node: NodeProcess, asked: _ConnectionLoad, work: str, program: Path | None
) -> Measurement:
    flight = "one at a time" if asked.depth == 1 else f"{asked.depth} in flight"
    row = Measurement(f"client-{asked.operation}-{asked.depth}", f"{work}, {flight}", "/s", "more")
    found: dict[str, list[Measured]] = {}
    queue = node_queue(node)

    def of(side: str, drive: Callable[[], Measured]) -> float:
        if asked.operation in ("publish", "take"):
            queue.refill(asked.count if asked.operation == "take" else 0)
        one = drive()
        found.setdefault(side, []).append(one)
        return one.rate

    sides: dict[str, Callable[[], Measured]] = {
        AWAITED: lambda: together(awaited, [asked], node.cpu_seconds)
    }
    if asked.depth == 1:
        sides[BLOCKING] = lambda: together(blocking, [asked], node.cpu_seconds)
    if program is not None:
        sides[GO] = lambda: _go(program, asked, node.cpu_seconds)
    else:
        row.gaps.append(f"{GO}: {missing()}")
    measures: dict[str, Measure] = {side: partial(of, side, drive) for side, drive in sides.items()}
    row.sides = in_turns(settings.rounds, measures)
    for side, times in found.items():
        middle = sorted(times, key=lambda one: one.rate)[len(times) // 2]
        cpu = middle.driver_busy * middle.seconds / middle.requests * 1e6
        row.notes.append(
            f"{side}: p50 {middle.p50_ms:.3f} ms, p99 {middle.p99_ms:.3f} ms, the client computes"
            f" {cpu:.0f} µs an operation, the node {middle.node_cpu_us:.0f} µs"
        )
    return row


# --- Go -------------------------------------------------------------------------------------------


def _go(program: Path, asked: _ConnectionLoad, cpu_seconds: Callable[[], float]) -> Measured:
    words = [str(program), "-op", asked.operation, "-db", DATABASE]
    words += ["-depth", str(asked.depth), "-count", str(asked.count)]
    signed_in = {"STORENODE_USER": USER, "STORENODE_PASSWORD": PASSWORD}
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "STORENODE_ADDRESS": asked.address, **signed_in},
    ) as process:  # fmt: skip
        assert process.stdin is not None and process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise LoadFailed("the Go client did not connect")
        before = cpu_seconds()
        process.stdin.write("go\n")
        process.stdin.flush()
        line = process.stdout.readline()
        used = cpu_seconds() - before
    if process.returncode != 0:
        raise LoadFailed("the Go client ended with an error")
    told = json.loads(line)
    return measured([Driven(0.0, told["seconds"], told["cpu"], told["took"])], used)


# --- Python, in the driver's process --------------------------------------------------------------


def _operation(client: AsyncClient | Client, name: str) -> Callable[[int], Any]:
    """Return an operation of a client; that of the async client has to be awaited."""
    cache = client.cache(NAMESPACE, DATABASE, "keys")
    topic = client.topic(NAMESPACE, DATABASE, TOPIC)
    return {
        "get": lambda n: cache.get(f"key:{n % 1000}"),
        "set": lambda n: cache.set(f"key:{n % 1000}", "sixteen bytes ok"),
        "create": lambda n: client.run(
            "CREATE made SET n = $n, name = $name", {"n": n, "name": "a lamp"}
        ),
        "select": lambda n: client.query(
            "SELECT * FROM $id", {"id": RecordId("person", 1 + n * 7_919 % PEOPLE)}
        ),
        "publish": lambda n: topic.publish(MESSAGE),
        "rows": lambda n: client.query(f"SELECT * FROM person LIMIT {PEOPLE}"),
    }[name]


def awaited(asked: _ConnectionLoad, go: Go) -> Driven:
    """Drive the async client."""
    return asyncio.run(_awaited(asked, go))


async def _awaited(asked: _ConnectionLoad, go: Go) -> Driven:
    async with AsyncClient(
        asked.address, user=USER, password=PASSWORD, ns=NAMESPACE, db=DATABASE
    ) as client:
        await client.connect()
        group = client.topic(NAMESPACE, DATABASE, TOPIC).group(GROUP)

        async def take(_: int) -> None:
            (one,) = await group.take(1, wait=60)
            if not await one.ack():
                raise LoadFailed("not acknowledged")

        operation: Callable[[int], Awaitable[Any]]
        operation = take if asked.operation == "take" else _operation(client, asked.operation)
        numbers, took = iter(range(asked.count)), []

        async def work() -> None:
            for number in numbers:
                began = time.perf_counter()
                await operation(number)
                took.append(time.perf_counter() - began)

        go()
        with Stopwatch() as watch:
            await asyncio.gather(*(work() for _ in range(asked.depth)))
        return watch.driven(took)


def blocking(asked: _ConnectionLoad, go: Go) -> Driven:
    """Drive the blocking client, one operation at a time."""
    with Client(asked.address, user=USER, password=PASSWORD, ns=NAMESPACE, db=DATABASE) as client:
        client.connect()
        group = client.topic(NAMESPACE, DATABASE, TOPIC).group(GROUP)

        def take(_: int) -> None:
            (one,) = group.take(1, wait=60)
            if not one.ack():
                raise LoadFailed("not acknowledged")

        operation = take if asked.operation == "take" else _operation(client, asked.operation)
        took = []
        go()
        with Stopwatch() as watch:
            for number in range(asked.count):
                began = time.perf_counter()
                operation(number)
                took.append(time.perf_counter() - began)
        return watch.driven(took)
