"""Rows about indexes: looked up, walked in order, written. The peer has the same indexes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import count
from typing import Any, Final

from bench import load, peers
from bench.drivers import Measured
from bench.figures import NODE, Measure, Measurement, in_turns
from bench.load import LOOKUP, RANGE, LoadDescription
from bench.nodes import NodeProcess, define_place
from bench.peers import ComparedSystem
from bench.records import insert
from bench.settings import Settings
from storeclient import Client

RECORDS: Final = 50_000
INSERTED: Final = 25_000
REQUESTS_1: Final = 1_000
REQUESTS_64: Final = 19_200
SCANS: Final = 5
"""Lookups without an index in a round."""
BULK: Final = ("city", "balance", "tags")
"""Fields of the three indexes of a bulk insert."""

NAMES: Final = (
    "lookup-none", "lookup-1", "lookup-64", "range-order", "create-unique", "insert-indexed",
)  # fmt: skip


def rows(settings: Settings, wanted: Callable[[str], bool]) -> Iterator[Measurement]:
    """Measure the wanted rows, and yield each as soon as it is done."""
    if not any(map(wanted, NAMES)):
        return
    with ExitStack() as held:
        yield from _IndexSetup(settings, held).measured(wanted)


class _IndexSetup:
    """A node and the peers, each with the same table."""

    def __init__(self, settings: Settings, held: ExitStack) -> None:
        self._settings = settings
        self._among = settings.scaled(RECORDS)
        self._numbers = count(1)
        self._node = held.enter_context(NodeProcess(settings.directory / "indexes"))
        self._client: Client = held.enter_context(self._node.client())
        self._gap = peers.missing()
        self._peers: list[ComparedSystem] = []
        if self._gap is None:
            for kind in peers.KINDS:
                peer = ComparedSystem(kind, settings.directory / f"peer-indexes-{kind.scheme}")
                held.callback(peer.close)
                self._peers.append(peer)
        define_place(self._client, "person", "coded", "bulk")
        insert(self._client, "person", self._among)
        for peer in self._peers:
            peer.call("fill", count=self._among)

    def measured(self, wanted: Callable[[str], bool]) -> Iterator[Measurement]:
        """Measure the rows in their order: the first without an index."""
        if wanted("lookup-none"):
            yield self._one_by_one(
                "lookup-none", "one record by a field without an index", LOOKUP, SCANS
            )
        took = self._define(
            "DEFINE INDEX name ON person FIELDS name UNIQUE;"
            "DEFINE INDEX city_balance ON person FIELDS city, balance"
        )
        for name, measure in self._with_indexes().items():
            if wanted(name):
                row = measure()
                if name == "lookup-1":
                    row.notes.append(f"the node built both indexes in {took:.1f} s")
                yield row

    def _with_indexes(self) -> dict[str, Callable[[], Measurement]]:
        asked = self._settings.scaled(REQUESTS_1)
        return {
            "lookup-1": partial(
                self._one_by_one, "lookup-1", "one record by a UNIQUE index", LOOKUP, asked
            ),
            "lookup-64": self._lookup_64,
            "range-order": partial(
                self._one_by_one, "range-order",
                "WHERE city = … AND balance > … ORDER BY balance LIMIT 10", RANGE, asked,
            ),
            "create-unique": self._create_unique,
            "insert-indexed": self._insert,
        }  # fmt: skip

    def _define(self, statements: str) -> float:
        """Define the indexes on all sides. Return the seconds until the node's are built."""
        for peer in self._peers:
            peer.call("run", statement=statements)
        began = time.perf_counter()
        self._client.query(statements)
        while any(
            index["state"] != "ready"
            for index in self._client.query("INFO FOR TABLE person")["indexes"]
        ):
            time.sleep(0.01)
        return time.perf_counter() - began

    # --- asked ------------------------------------------------------------------------------------

    def _one_by_one(self, name: str, work: str, statement: str, asked: int) -> Measurement:
        row = self._row(name, f"{work}, 1 client, of {self._among:,}", "/s", "")
        questions = [load.question(statement, number, self._among) for number in range(asked)]
        measures: dict[str, Measure] = {NODE: partial(self._ask_node, statement, questions)}
        for peer in self._peers:
            measures[peer.kind.name] = partial(self._ask_peer, peer, statement, questions)
        row.sides = in_turns(self._settings.rounds, measures)
        return row

    def _ask_node(self, statement: str, questions: list[dict[str, Any]]) -> float:
        began = time.perf_counter()
        for question in questions:
            self._client.query(statement, question)
        return len(questions) / (time.perf_counter() - began)

    def _ask_peer(
        self, peer: ComparedSystem, statement: str, questions: list[dict[str, Any]]
    ) -> float:
        return len(questions) / float(peer.call("ask", statement=statement, questions=questions))

    def _lookup_64(self) -> Measurement:
        row = self._row(
            "lookup-64", "one record by a UNIQUE index, 64 clients, over the wire", "/s",
            "≥ 10,000/s",
        )  # fmt: skip
        asked = max(self._settings.scaled(REQUESTS_64) // 64, 1) * 64
        told: list[Measured] = []

        def node() -> float:
            asking = LoadDescription("lookup", self._node.wire, 64, asked, among=self._among)
            told.append(load.run(asking, self._node.cpu_seconds))
            return told[-1].rate

        measures: dict[str, Measure] = {NODE: node}
        questions = [
            load.question(LOOKUP, number, self._among)
            for number in range(self._settings.scaled(REQUESTS_1))
        ]
        for peer in self._peers:
            measures[f"{peer.kind.name}, one client"] = partial(
                self._ask_peer, peer, LOOKUP, questions
            )
        row.sides = in_turns(self._settings.rounds, measures)
        middle = sorted(told, key=lambda one: one.rate)[len(told) // 2]
        row.notes.append(f"p50 {middle.p50_ms:.2f} ms, p99 {middle.p99_ms:.2f} ms")
        row.notes.append(f"node computes {middle.node_cpu_us:.0f} µs a request")
        return row

    # --- written ----------------------------------------------------------------------------------

    def _create_unique(self) -> Measurement:
        define = "DEFINE INDEX name ON coded FIELDS name UNIQUE"
        self._client.query(define)
        for peer in self._peers:
            peer.call("run", statement=f"DEFINE TABLE coded; {define}")
        row = self._row(
            "create-unique", "create one record with a UNIQUE index, 64 clients", "/s", ""
        )
        asked = max(self._settings.scaled(REQUESTS_64) // 64, 1) * 64

        def node() -> float:
            first = next(self._numbers) * asked
            return load.run(LoadDescription("create-coded", self._node.wire, 64, asked, first)).rate

        def peer_creates(peer: ComparedSystem) -> float:
            asked_1 = self._settings.scaled(REQUESTS_1)
            first = next(self._numbers) * asked_1
            return asked_1 / float(peer.call("create", count=asked_1, first=first, table="coded"))

        measures: dict[str, Measure] = {NODE: node}
        for peer in self._peers:
            measures[f"{peer.kind.name}, one client"] = partial(peer_creates, peer)
        row.sides = in_turns(self._settings.rounds, measures)
        return row

    def _insert(self) -> Measurement:
        total = self._settings.scaled(INSERTED)
        row = self._row("insert-indexed", "bulk insert, three indexes", " rows/s", "≥ 3× SurrealDB")
        measures: dict[str, Measure] = {}
        for indexes, side in ((3, NODE), (1, "node, one index"), (0, "node, none")):
            measures[side] = partial(self._insert_node, total, indexes)
        for peer in self._peers:
            measures[peer.kind.name] = partial(self._insert_peer, peer, total)
        row.sides = in_turns(self._settings.rounds, measures)
        return row

    def _insert_node(self, total: int, indexes: int) -> float:
        self._client.query(f"DROP TABLE bulk; DEFINE TABLE bulk; {_indexes(indexes)}")
        return total / insert(self._client, "bulk", total)

    def _insert_peer(self, peer: ComparedSystem, total: int) -> float:
        return total / float(peer.call("insert", count=total, indexes=_indexes(len(BULK))))

    def _row(self, name: str, work: str, unit: str, goal: str) -> Measurement:
        row = Measurement(name, work, unit, "more", goal)
        if self._gap is not None:
            row.gaps.append(f"SurrealDB: {self._gap}")
        return row


def _indexes(number: int) -> str:
    return ";".join(f"DEFINE INDEX i_{field} ON bulk FIELDS {field}" for field in BULK[:number])
