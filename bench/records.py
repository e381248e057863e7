"""Rows about records: created, read, inserted in bulk, scanned. Beside a peer, in one run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any, Final

from bench import load, peers, people
from bench.drivers import DRIVER_BUSY, Measured
from bench.figures import NODE, Measure, Measurement, in_turns
from bench.load import LoadDescription
from bench.nodes import NodeProcess, define_place
from bench.peers import ComparedSystem
from bench.settings import Settings
from storeclient import Client

SCANNED: Final = 50_000
SCANNED_LARGE: Final = 1_000_000
ROUNDS_LARGE: Final = 2
"""Rounds over many records: a peer takes some ten seconds for each."""
LARGE: Final = "-large"
"""Suffix of the names of the rows over SCANNED_LARGE records."""
INSERTED: Final = 25_000
REQUESTS_1: Final = 2_000
"""Requests of one client in a round."""
REQUESTS_64: Final = 19_200


@dataclass(frozen=True, slots=True)
class Scan:
    """A scan, in both languages. `compare` reduces an answer to the part that must be equal in
    both."""

    name: str
    work: str
    node: str
    peer: str
    compare: Callable[[list[dict[str, Any]]], Any]


SCANS: Final = (
    Scan(
        "filter",
        "SELECT … WHERE on two fields; 1 row in 50 passes",
        "SELECT name, balance FROM person WHERE age >= 60 AND city = 'Lima'",
        "SELECT name, balance FROM person WHERE age >= 60 AND city = 'Lima'",
        lambda rows: sorted((row["name"], row["balance"]) for row in rows),
    ),
    Scan(
        "group",
        "SELECT … GROUP BY, 20 groups, count and mean",
        "SELECT city, count() AS people, mean(age) AS age FROM person GROUP BY city",
        "SELECT city, count() AS people, math::mean(age) AS age FROM person GROUP BY city",
        lambda rows: sorted((row["city"], row["people"], round(row["age"], 6)) for row in rows),
    ),
    Scan(
        "sum",
        "SELECT sum(…) GROUP ALL",
        "SELECT sum(balance) AS total FROM person GROUP ALL",
        "SELECT math::sum(balance) AS total FROM person GROUP ALL",
        lambda rows: [round(row["total"], 2) for row in rows],
    ),
    Scan(
        "top",
        "SELECT … ORDER BY … DESC LIMIT 10",
        "SELECT name, balance FROM person ORDER BY balance DESC LIMIT 10",
        "SELECT name, balance FROM person ORDER BY balance DESC LIMIT 10",
        lambda rows: [row["balance"] for row in rows],  # of a million, several are alike
    ),
)

NAMES: Final = (
    "create-1", "create-64", "read-1", "read-64", "http-read-64", "insert",
    *(scan.name for scan in SCANS), *(scan.name + LARGE for scan in SCANS),
)  # fmt: skip


class Differs(Exception):
    """Node and peer answer differently: their times can't be compared."""


def rows(settings: Settings, wanted: Callable[[str], bool]) -> Iterator[Measurement]:
    """Measure the wanted rows, and yield each as soon as it is done."""
    if any(wanted(name) for name in NAMES if not name.endswith(LARGE)):
        with ExitStack() as held:
            ground = _RecordSetup(settings, held, settings.scaled(SCANNED), peers.KINDS)
            yield from ground.scanned(wanted)
            yield from ground.measured(wanted)
    if any(wanted(name) for name in NAMES if name.endswith(LARGE)):
        fewer = replace(settings, rounds=min(settings.rounds, ROUNDS_LARGE))
        with ExitStack() as held:
            ground = _RecordSetup(fewer, held, settings.scaled(SCANNED_LARGE), peers.KINDS[:1])
            yield from ground.scanned(wanted, LARGE)


class _RecordSetup:
    """A node and the peers, each with the same table."""

    def __init__(
        self, settings: Settings, held: ExitStack, scanned: int, kinds: Sequence[peers.PeerKind]
    ) -> None:
        self._settings = settings
        self._scanned = scanned
        self._created = count(1_000_000)
        self._node = held.enter_context(NodeProcess(settings.directory / f"records-{scanned}"))
        self._client = held.enter_context(self._node.client())
        define_place(self._client, "person", "bulk")
        self._gap = peers.missing()
        self._peers: list[ComparedSystem] = []
        self._notes: dict[str, list[Measured]] = {}
        if self._gap is None:
            for kind in kinds:
                peer = ComparedSystem(kind, settings.directory / f"peer-{kind.scheme}-{scanned}")
                held.callback(peer.close)
                self._peers.append(peer)
        self._fill()

    def _fill(self) -> None:
        insert(self._client, "person", self._scanned)
        for peer in self._peers:
            peer.call("fill", count=self._scanned)

    def scanned(self, wanted: Callable[[str], bool], suffix: str = "") -> Iterator[Measurement]:
        """Measure the scans, before anything else: they must meet only the records that they
        name."""
        for scan in SCANS:
            if wanted(scan.name + suffix):
                yield self._scan(scan, suffix)

    def measured(self, wanted: Callable[[str], bool]) -> Iterator[Measurement]:
        """Measure single records and bulk inserts."""
        table: dict[str, Callable[[], Measurement]] = {
            "read-1": partial(self._read, "read-1", 1, "read", "≥ 1× SurrealDB"),
            "read-64": partial(self._read, "read-64", 64, "read", ""),
            "http-read-64": partial(self._read, "http-read-64", 64, "read-http", ""),
            "insert": self._insert,
            "create-1": partial(self._create, "create-1", 1, "≥ 1× SurrealDB in process"),
            "create-64": partial(self._create, "create-64", 64, "≥ 5× SurrealDB, one client"),
        }
        for name, measure in table.items():
            if wanted(name):
                yield measure()

    # --- scans ----------------------------------------------------------------------------------

    def _scan(self, scan: Scan, suffix: str) -> Measurement:
        work = f"{scan.work}, {self._scanned:,} rows"
        row = self._row(scan.name + suffix, work, "ms", "≥ 3× SurrealDB")
        found = scan.compare(self._client.query(scan.node))
        measures: dict[str, Measure] = {NODE: partial(self._scan_node, scan)}
        for peer in self._peers:
            _, answered = peer.call("scan", statement=scan.peer)
            if scan.compare(answered) != found:
                raise Differs(f"{scan.name}: {found!r:.300} and {scan.compare(answered)!r:.300}")
            measures[peer.kind.name] = partial(self._scan_peer, peer, scan)
        row.sides = in_turns(self._settings.rounds, measures)
        return row

    def _scan_node(self, scan: Scan) -> float:
        began = time.perf_counter()
        self._client.query(scan.node)
        return (time.perf_counter() - began) * 1000

    def _scan_peer(self, peer: ComparedSystem, scan: Scan) -> float:
        took, _ = peer.call("scan", statement=scan.peer)
        return float(took) * 1000

    # --- single records --------------------------------------------------------------------------

    def _requests(self, clients: int) -> int:
        wanted = self._settings.scaled(REQUESTS_1 if clients == 1 else REQUESTS_64)
        return max(wanted // clients, 1) * clients

    def _read(self, name: str, clients: int, kind: str, goal: str) -> Measurement:
        over = "over HTTP" if kind == "read-http" else "over the wire"
        row = self._row(name, f"read one record by id, {_clients(clients)}, {over}", "/s", goal)
        asked = self._requests(clients)
        measures: dict[str, Measure] = {
            NODE: lambda: self._load(
                row, LoadDescription(kind, self._address(kind), clients, asked, among=self._scanned)
            )
        }
        for peer in self._peers:
            measures[f"{peer.kind.name}, one client"] = partial(self._read_peer, peer)
        row.sides = in_turns(self._settings.rounds, measures)
        self._say_load(row)
        return row

    def _read_peer(self, peer: ComparedSystem) -> float:
        asked = self._requests(1)
        return asked / float(peer.call("read", count=asked, among=self._scanned))

    def _create(self, name: str, clients: int, goal: str) -> Measurement:
        row = self._row(name, f"create one record, {_clients(clients)}, over the wire", "/s", goal)
        asked = self._requests(clients)
        measures: dict[str, Measure] = {
            NODE: lambda: self._load(
                row, LoadDescription("create", self._node.wire, clients, asked)
            )
        }
        for peer in self._peers:
            measures[f"{peer.kind.name}, one client"] = partial(self._create_peer, peer)
        row.sides = in_turns(self._settings.rounds, measures)
        self._say_load(row)
        return row

    def _create_peer(self, peer: ComparedSystem) -> float:
        asked = self._requests(1)
        return asked / float(peer.call("create", count=asked, first=next(self._created)))

    def _address(self, kind: str) -> str:
        return self._node.http if kind == "read-http" else self._node.wire

    def _load(self, row: Measurement, asked: LoadDescription) -> float:
        measured = load.run(asked, self._node.cpu_seconds)
        self._notes.setdefault(row.name, []).append(measured)
        return measured.rate

    def _say_load(self, row: Measurement) -> None:
        found = self._notes.pop(row.name)[1:]
        middle = sorted(found, key=lambda measured: measured.rate)[len(found) // 2]
        row.notes.append(f"p50 {middle.p50_ms:.2f} ms, p99 {middle.p99_ms:.2f} ms")
        row.notes.append(f"node computes {middle.node_cpu_us:.0f} µs a request")
        busy = max(measured.driver_busy for measured in found)
        row.notes.append(
            f"drivers busy {busy:.0%}" + (": too slow a driver" if busy > DRIVER_BUSY else "")
        )

    # --- in bulk ---------------------------------------------------------------------------------

    def _insert(self) -> Measurement:
        total = self._settings.scaled(INSERTED)
        work = f"INSERT of {total:,} rows, {people.TRANSACTION:,} a transaction, one client"
        row = self._row("insert", work, "rows/s", "≥ 3× SurrealDB")
        measures: dict[str, Measure] = {NODE: partial(self._insert_node, total)}
        for peer in self._peers:
            measures[peer.kind.name] = partial(self._insert_peer, peer, total)
        row.sides = in_turns(self._settings.rounds, measures)
        return row

    def _insert_node(self, total: int) -> float:
        self._client.query("DROP TABLE bulk; DEFINE TABLE bulk")
        return total / insert(self._client, "bulk", total)

    def _insert_peer(self, peer: ComparedSystem, total: int) -> float:
        return total / float(peer.call("insert", count=total))

    def _row(self, name: str, work: str, unit: str, goal: str) -> Measurement:
        row = Measurement(name, work, unit, "less" if unit == "ms" else "more", goal)
        if self._gap is not None:
            row.gaps.append(f"SurrealDB: {self._gap}")
        return row


def insert(client: Client, table: str, total: int, first: int = 1) -> float:
    """Insert people in bulk. Return the seconds it took, without generating the rows."""
    took = 0.0
    for part in people.parts(total, first):
        began = time.perf_counter()
        client.query(f"INSERT INTO {table} $rows RETURN NONE", {"rows": part})
        took += time.perf_counter() - began
    return took


def _clients(number: int) -> str:
    return "1 client" if number == 1 else f"{number} clients"
