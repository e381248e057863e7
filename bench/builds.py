"""`make builds`: the compiled tree beside the plain one, in turns; or two checkouts. `make floor`:
a node beside a toy that does the least there is to do (floor.py).

A figure is the processor time that the node takes for a request, all its threads together: on a
busy machine it varies less than a rate.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from rich.console import Console

from bench import load, machine, records, spaces
from bench.__main__ import STORES, TOP, WIDTH, facts_line, table
from bench.figures import NODE, Measure, Measurement, in_turns, median
from bench.floor import FLOOR, FloorProcess
from bench.load import LoadDescription
from bench.node_queue import node_queue
from bench.nodes import NodeProcess, define_place
from bench.queues import QueueSide
from bench.settings import Settings
from compiling.modules import ROOT

COMPILED: Final = ROOT / "build" / "compiled"
PLAIN: Final = "plain sources"
BEFORE: Final = "before"
RECORDS: Final = 5_000
REQUESTS: Final = 12_800
REQUESTS_1: Final = 2_000
"""Requests of a round with one client."""
SIGN_INS: Final = 400
PUBLISHED: Final = 6_400
TAKEN: Final = 6_400
KEY_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class _Side:
    """A node of one build, or the floor."""

    node: NodeProcess | FloorProcess
    settings: Settings
    queue: QueueSide
    http: str = ""
    rates: dict[str, list[float]] = field(default_factory=dict)
    """Answers per second of the rows that a load drove, round by round."""

    def loaded(self, kind: str, clients: int, requests: int = REQUESTS) -> float:
        asked = max(self.settings.scaled(requests), clients)
        address = self.http if kind.endswith("-http") else self.node.wire
        wanted = LoadDescription(kind, address, clients, asked, among=RECORDS)
        found = load.run(wanted, self.node.cpu_seconds)
        self.rates.setdefault(f"{kind}-{clients}", []).append(found.rate)
        return found.node_cpu_us

    def keys(self, operation: str, clients: int, depth: int) -> float:
        seconds, wire = KEY_SECONDS * min(self.settings.scale, 1.0), self.node.wire
        told = spaces.drive(wire, operation, clients, depth, seconds, self.node.cpu_seconds)
        self.rates.setdefault(f"kv-{operation}-{clients}-{depth}", []).append(told[0])
        return told[1]

    def published(self, clients: int) -> float:
        self.queue.refill(0)
        asked = self.settings.scaled(PUBLISHED)
        found = self.queue.run(self.queue.publish, clients, asked)
        self.rates.setdefault(f"topic-publish-{clients}", []).append(found.rate)
        return found.node_cpu_us

    def taken(self, clients: int) -> float:
        asked = self.settings.scaled(TAKEN)
        self.queue.refill(asked)
        found = self.queue.run(self.queue.take, clients, asked)
        self.rates.setdefault(f"topic-take-{clients}", []).append(found.rate)
        return found.node_cpu_us


ROWS: Final[dict[str, tuple[str, Callable[[_Side], float]]]] = {
    "read-64": ("read one record by id, 64 clients", lambda side: side.loaded("read", 64)),
    "create-64": ("create one record, 64 clients", lambda side: side.loaded("create", 64)),
    "create-1": (
        "create one record, 1 client",
        lambda side: side.loaded("create", 1, REQUESTS_1),
    ),
    "update-64": (
        "change one record by id, 64 clients",
        lambda side: side.loaded("update", 64),
    ),
    "read-http-32": (
        "read one record by id over HTTP, 32 clients",
        lambda side: side.loaded("read-http", 32),
    ),
    "sign-in-http-4": (
        "POST /session, 4 clients",
        lambda side: side.loaded("sign-in-http", 4, SIGN_INS),
    ),
    "kv-get-50-1": ("GET, 50 connections", lambda side: side.keys("get", 50, 1)),
    "kv-get-50-16": ("GET, 50 connections, 16 under way", lambda side: side.keys("get", 50, 16)),
    "kv-set-50-16": ("SET, 50 connections, 16 under way", lambda side: side.keys("set", 50, 16)),
    "topic-publish-32": ("publish a message, 32 clients", lambda side: side.published(32)),
    "topic-take-32": ("TAKE a message and ACK it, 32 workers", lambda side: side.taken(32)),
}
NOT_OF_THE_FLOOR: Final = frozenset({"sign-in-http-4", "update-64", "read-http-32"})
"""Rows that the floor can't serve: it speaks the wire only, and changes no existing record."""


def main() -> None:
    """Run the rows that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m bench.builds", description=__doc__)
    parser.add_argument(
        "--row", choices=ROWS, action="append", help="measure only this row; may be repeated"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--turns", type=int, default=1, help="number of turns, each with fresh nodes"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the amounts of work")
    parser.add_argument(
        "--before", type=Path, help="compare with this checkout instead of the other build"
    )
    parser.add_argument(
        "--floor",
        action="store_true",
        help="compare with the floor, a toy server, instead of the other build",
    )
    parser.add_argument(
        "--plain", action="store_true", help="compare the floor with the plain tree"
    )
    asked = parser.parse_args()
    (TOP / STORES).mkdir(exist_ok=True)
    console = Console(width=WIDTH)
    with tempfile.TemporaryDirectory(prefix="storenode-builds-", dir=TOP / STORES) as folder:
        settings = Settings(Path(folder), asked.rounds, asked.scale)
        tree = ROOT if asked.before or asked.plain else COMPILED
        other: dict[str, Path | None] = {PLAIN: ROOT}
        if asked.before:
            other = {BEFORE: asked.before.resolve()}
        elif asked.floor:
            other = {FLOOR: None}
        facts = {**machine.facts(settings.directory), "build": machine.build(tree)}
        console.print(facts_line(facts, settings))
        without = NOT_OF_THE_FLOOR if asked.floor else frozenset[str]()
        names = [name for name in asked.row or ROWS if name not in without]
        console.print(table(measured(settings, names, {NODE: tree, **other}, asked.turns)))


def measured(
    settings: Settings, names: list[str], trees: Mapping[str, Path | None], turns: int = 1
) -> list[Measurement]:
    """Measure the rows of these names, both trees in turns.

    :param trees: by the names of their sides: the node's, and the other one; None: the floor
    :param turns: repetitions, each with fresh nodes; another side is first each time
    """
    rows = [
        Measurement(name, f"{ROWS[name][0]}; processor of the node a request", "µs", "less")
        for name in names
    ]
    ours, theirs = trees
    rates: dict[str, dict[str, list[float]]] = {row.name: {} for row in rows}
    for turn in range(turns):
        order = list(trees.items())[:: -1 if turn % 2 else 1]
        with ExitStack() as held:
            sides = {
                name: held.enter_context(_side(settings, f"{name} {turn}", tree))
                for name, tree in order
            }
            for row in rows:
                measures: dict[str, Measure] = {
                    name: partial(ROWS[row.name][1], side) for name, side in sides.items()
                }
                for name, figures in in_turns(settings.rounds, measures).items():
                    row.sides.setdefault(name, []).extend(figures)
                    told = sides[name].rates.get(row.name, [])[-settings.rounds :]
                    rates[row.name].setdefault(name, []).extend(told)
    for row in rows:
        row.sides = {name: row.sides[name] for name in trees}
        one, other = min(row.sides[ours]), min(row.sides[theirs])
        row.notes.append(f"least {one:.0f} and {other:.0f} µs: {other / one:.2f}×")
        pairs = zip(row.sides[ours], row.sides[theirs], strict=True)
        row.notes.append(f"median of the pairs {median([a / b - 1 for a, b in pairs]):+.1%}")
        if rates[row.name][ours]:
            of_ours, of_theirs = (median(rates[row.name][name]) for name in trees)
            row.notes.append(f"{of_ours:.0f} and {of_theirs:.0f} a second")
    return rows


@contextmanager
def _side(settings: Settings, name: str, tree: Path | None) -> Iterator[_Side]:
    """Run a node of a tree, filled for the rows; or the floor."""
    directory = settings.directory / name.replace(" ", "-")
    if tree is None:
        with FloorProcess(directory) as floor:
            yield _Side(floor, settings, floor.queue())
        return
    with NodeProcess(directory, tree=tree) as node:
        with node.client() as client:
            define_place(client, "person")
            records.insert(client, "person", RECORDS)
            client.run(f"DEFINE SPACE {spaces.SPACE}")
            client.run(f"SET 'k' IN {spaces.SPACE} VALUE 'hello'")
        yield _Side(node, settings, node_queue(node), node.http)


if __name__ == "__main__":
    main()
