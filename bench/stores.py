"""Rows about a store that has grown: its start, its memory, the cost of an operation."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

from bench import load
from bench.figures import NODE, Measurement
from bench.load import LoadDescription
from bench.nodes import NodeProcess, define_place
from bench.records import insert
from bench.settings import Settings

SIZES: Final = (10_000, 100_000, 1_000_000)
REQUESTS: Final = 2_000
IDLE_SECONDS: Final = 3
"""Seconds without a request after which a node is idle."""

NAMES: Final = ("growth-read", "growth-create", "start", "start-killed", "memory")


def rows(settings: Settings, wanted: Callable[[str], bool]) -> Iterator[Measurement]:
    """Measure the wanted rows: one store that grows to its largest, then starts of it."""
    if not any(map(wanted, NAMES)):
        return
    sizes = [settings.scaled(size) for size in SIZES]
    node = NodeProcess(settings.directory / "grown")
    memory = Measurement("memory", "resident memory of an idle node", "MiB", "less", "≤ 100 MiB")
    with node:
        with node.client() as client:
            define_place(client, "person")
        memory.sides["empty"] = _idle_memory(node)
        yield from _growth(settings, node, sizes)
        memory.sides[f"after loading {sizes[-1]:,} records"] = _idle_memory(node)
        node.kill()
    if wanted("start-killed"):
        yield _started_after_kill(node, sizes[-1])
    else:
        with node:
            pass
    row = Measurement("start", f"start with {sizes[-1]:,} records", "s", "less", "≤ 2 s")
    row.notes.append(
        "from the start of the process to ready, stopped in order before, files cached"
    )
    row.sides[NODE] = []
    for _ in range(settings.rounds):
        with node:
            row.sides[NODE].append(node.start_seconds)
    if wanted("start"):
        yield row
    if wanted("memory"):
        with node:
            memory.sides[f"started with {sizes[-1]:,} records"] = _idle_memory(node)
        yield memory


def _growth(settings: Settings, node: NodeProcess, sizes: list[int]) -> Iterator[Measurement]:
    read = Measurement(
        "growth-read", "read one record by id, 1 client, of so many", "/s", "more", "flat"
    )
    create = Measurement(
        "growth-create", "create one record, 1 client, beside so many", "/s", "more", "flat"
    )
    asked = settings.scaled(REQUESTS)
    filled = 0
    took = 0.0
    for size in sizes:
        with node.client() as client:
            define_place(client)
            took += insert(client, "person", size - filled, filled + 1)
        filled = size
        reads = LoadDescription("read", node.wire, 1, asked, among=size)
        creates = LoadDescription("create", node.wire, 1, asked)
        side = f"{size:,} records"
        load.run(reads)
        read.sides[side] = [load.run(reads).rate for _ in range(settings.rounds)]
        create.sides[side] = [load.run(creates).rate for _ in range(settings.rounds)]
    create.notes.append(f"{filled:,} rows were loaded in {took:.1f} s")
    yield read
    yield create


def _started_after_kill(node: NodeProcess, size: int) -> Measurement:
    """Measure a start after SIGKILL. Once only: the start flushes the state that was unflushed."""
    row = Measurement("start-killed", f"start with {size:,} records after SIGKILL", "s", "less")
    row.notes.append("what the state had not flushed is replayed from the log")
    with node:
        row.sides[NODE] = [node.start_seconds]
    return row


def _idle_memory(node: NodeProcess) -> list[float]:
    time.sleep(IDLE_SECONDS)
    return [node.memory_mib()]
