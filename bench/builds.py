"""`make builds`: the compiled tree beside the plain one, in turns.

A figure is the processor time that the node takes for a request, all its threads together: on a
machine that does other things too it wanders less than a rate.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from rich.console import Console

from bench import load, machine, records, spaces
from bench.__main__ import STORES, TOP, WIDTH, facts_line, table
from bench.figures import NODE, Measure, Row, in_turns
from bench.load import Load
from bench.node_queue import node_queue
from bench.nodes import NodeProcess, define_place
from bench.settings import Settings
from compiling.modules import ROOT

COMPILED: Final = ROOT / "build" / "compiled"
PLAIN: Final = "plain sources"
RECORDS: Final = 5_000
REQUESTS: Final = 12_800
PUBLISHED: Final = 6_400
KEY_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class _Side:
    """A node of one build."""

    node: NodeProcess
    settings: Settings

    def loaded(self, kind: str, clients: int) -> float:
        asked = self.settings.scaled(REQUESTS)
        wanted = Load(kind, self.node.wire, clients, asked, among=RECORDS)
        return load.run(wanted, self.node.cpu_seconds).node_cpu_us

    def keys(self, operation: str, clients: int, depth: int) -> float:
        seconds, before = KEY_SECONDS * min(self.settings.scale, 1.0), self.node.cpu_seconds()
        rate = spaces.drive(self.node.wire, operation, clients, depth, seconds)
        return (self.node.cpu_seconds() - before) / (rate * seconds) * 1e6

    def published(self, clients: int) -> float:
        queue = node_queue(self.node)
        queue.refill(0)
        asked = self.settings.scaled(PUBLISHED)
        return queue.run(queue.publish, clients, asked).node_cpu_us


ROWS: Final[dict[str, tuple[str, Callable[[_Side], float]]]] = {
    "read-64": ("read one record by id, 64 clients", lambda side: side.loaded("read", 64)),
    "create-64": ("create one record, 64 clients", lambda side: side.loaded("create", 64)),
    "kv-get-50-16": ("GET, 50 connections, 16 under way", lambda side: side.keys("get", 50, 16)),
    "kv-set-50-16": ("SET, 50 connections, 16 under way", lambda side: side.keys("set", 50, 16)),
    "topic-publish-32": ("publish a message, 32 clients", lambda side: side.published(32)),
}


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m bench.builds", description=__doc__)
    parser.add_argument("--row", choices=ROWS, help="only this row")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="of the amounts of work")
    asked = parser.parse_args()
    (TOP / STORES).mkdir(exist_ok=True)
    console = Console(width=WIDTH)
    with tempfile.TemporaryDirectory(prefix="storenode-builds-", dir=TOP / STORES) as folder:
        settings = Settings(Path(folder), asked.rounds, asked.scale)
        facts = {**machine.facts(settings.directory), "build": machine.build(COMPILED)}
        console.print(facts_line(facts, settings))
        console.print(table(measured(settings, [asked.row] if asked.row else list(ROWS))))


def measured(settings: Settings, names: list[str], compiled: Path = COMPILED) -> list[Row]:
    """The rows of these names, both builds in turns.

    :param compiled: the other tree
    """
    with ExitStack() as held:
        sides = {
            name: _Side(held.enter_context(_node(settings, name, tree)), settings)
            for name, tree in ((NODE, compiled), (PLAIN, ROOT))
        }
        found = []
        for name in names:
            work, measure = ROWS[name]
            row = Row(name, f"{work}; processor of the node a request", "µs", "less")
            measures: dict[str, Measure] = {
                build: partial(measure, side) for build, side in sides.items()
            }
            row.sides = in_turns(settings.rounds, measures)
            ours, theirs = (min(row.sides[build]) for build in (NODE, PLAIN))
            row.notes.append(f"least {ours:.0f} and {theirs:.0f} µs: {theirs / ours:.2f}×")
            found.append(row)
        return found


@contextmanager
def _node(settings: Settings, name: str, tree: Path) -> Iterator[NodeProcess]:
    """A node of a tree, with what the rows ask it for."""
    with NodeProcess(settings.directory / name.replace(" ", "-"), tree=tree) as node:
        with node.client() as client:
            define_place(client, "person")
            records.insert(client, "person", RECORDS)
            client.run(f"DEFINE SPACE {spaces.SPACE}")
            client.run(f"SET 'k' IN {spaces.SPACE} VALUE 'hello'")
        yield node


if __name__ == "__main__":
    main()
