"""Rows about a cluster: the cost of a replicated write, the time without writes after the leader is
killed, replication lag, and the time to join; and the cost of cluster support on a node outside any
cluster.

The peers are etcd with three members and NATS JetStream with a stream of three replicas. All of it
is on one machine: processors and the disk are shared, and there is no network latency.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from threading import Thread
from typing import Final

from bench import etcds, jetstream, jetstreams, load
from bench.drivers import DRIVER_BUSY, Measured
from bench.figures import NODE, Measure, Measurement, in_turns, median
from bench.load import LoadDescription
from bench.nodes import DATABASE, NAMESPACE, PASSWORD, USER, NodeProcess, define_place
from bench.processes import wait_for
from bench.records import insert
from bench.settings import Settings
from bench.trio import LEASE_SECONDS, NODES, Trio
from storeclient import Client, OutcomeUnknown, StoreError

CREATED: Final = {1: 2_000, 32: 9_600}
"""Clients: requests of a round."""
ALONE_REQUESTS: Final = 19_200
JOINED: Final = 1_000_000
LOOKED: Final = 200
"""Reads on a follower in a round."""
BESIDE_CLIENTS: Final = 8
"""Clients that write while a follower is read …"""
BESIDE_RATE: Final = 1_000
"""… at this many records per second."""
JOINED_ROUNDS: Final = 2
ALL_OF_THEM: Final = "storenode, ACKS 2"
ALONE: Final = "storenode, alone"
LINKED: Final = "with --peer and a row, in no cluster"
BESIDE_PEERS: Final = ("cluster-create-1", "cluster-create-32", "cluster-failover")
BY_ITSELF: Final = ("cluster-lag", "cluster-join")
NAMES: Final = (*BESIDE_PEERS, *BY_ITSELF, "cluster-none")
DIFFERS: Final = (
    "storenode: a record with its rights, statement log and state, answered when it is synced on"
    f" all {NODES} nodes, which with all in sync is the same for ACKS 1 and 2",
    "etcd: a put over the JSON gateway, answered when 2 of 3 members have synced it",
    "JetStream: a message of 128 bytes by its Python client, answered when 2 of 3 servers have it,"
    " synced or in memory as the side says",
)


def rows(settings: Settings, wanted: Callable[[str], bool]) -> Iterator[Measurement]:
    """Measure the wanted rows."""
    if any(wanted(name) for name in (*BESIDE_PEERS, *BY_ITSELF)):
        with ExitStack() as held:
            ground = _ClusterSetup(settings, held)
            if any(map(wanted, BESIDE_PEERS)):
                ground.begin_peers()
            yield from ground.measured(wanted)
    if wanted("cluster-none"):
        yield _none(settings)


class _ClusterSetup:
    """Three nodes, and the peers with three each."""

    def __init__(self, settings: Settings, held: ExitStack) -> None:
        self._settings = settings
        self._held = held
        self._directory = directory = settings.directory / "clusters"
        self._trio = Trio(directory / "trio", held)
        self._alone = held.enter_context(NodeProcess(directory / "alone"))
        self._gaps: list[str] = []
        self._etcd: etcds.Etcds | None = None
        self._streams: list[jetstreams.Jetstreams] = []
        for client in (held.enter_context(self._trio.client()), self._alone.client()):
            define_place(client, "person")
            client.close()

    def begin_peers(self) -> None:
        """Start the peers that are installed."""
        directory, held = self._directory, self._held
        if (gap := etcds.missing()) is None:
            self._etcd = held.enter_context(etcds.etcds(directory / "etcds"))
        else:
            self._gaps.append(f"etcd: {gap}")
        if (gap := jetstream.missing()) is None:
            for number, name in enumerate(jetstreams.NAMES):
                entered = jetstreams.jetstreams(directory / f"streams{number}", name)
                self._streams.append(held.enter_context(entered))
        else:
            self._gaps.append(f"JetStream: {gap}")

    def measured(self, wanted: Callable[[str], bool]) -> Iterator[Measurement]:
        """Measure the rows; the one that fills the store comes last."""
        table: dict[str, Callable[[], Measurement]] = {
            "cluster-create-1": partial(self._create, 1),
            "cluster-create-32": partial(self._create, 32),
            "cluster-lag": self._lag,
            "cluster-failover": self._failover,
            "cluster-join": self._join,
        }
        for name, measure in table.items():
            if wanted(name):
                yield measure()

    # --- writes -----------------------------------------------------------------------------------

    def _create(self, clients: int) -> Measurement:
        work = f"a write that {NODES} have, {_clients(clients)}"
        row = Measurement(f"cluster-create-{clients}", work, "/s", "more", gaps=list(self._gaps))
        asked = max(self._settings.scaled(CREATED[clients]) // clients, 1) * clients
        told: dict[str, list[Measured]] = {}

        def side(name: str, measure: Callable[[], Measured]) -> Measure:
            def rate() -> float:
                found = measure()
                told.setdefault(name, []).append(found)
                return found.rate

            return rate

        def here(acks: int) -> Measured:
            self._trio.lead(acks)
            return load.run(
                LoadDescription("create", self._trio.leader().wire, clients, asked),
                self._trio.cpu_seconds,
            )

        sides: dict[str, Callable[[], Measured]] = {
            NODE: partial(here, 1),
            ALL_OF_THEM: partial(here, 2),
            ALONE: lambda: load.run(
                LoadDescription("create", self._alone.wire, clients, asked), self._alone.cpu_seconds
            ),
        }
        if self._etcd is not None:
            sides[etcds.NAME] = partial(self._put, self._etcd, clients, asked)
        for stream in self._streams:
            sides[stream.name] = partial(stream.publish, clients, asked)
        measures = {name: side(name, measure) for name, measure in sides.items()}
        row.sides = in_turns(self._settings.rounds, measures)
        for name, found in told.items():
            row.notes.append(f"{name}: {_latencies(found[1:])}")
        row.notes += DIFFERS
        return row

    def _put(self, etcd: etcds.Etcds, clients: int, asked: int) -> Measured:
        return load.run(
            LoadDescription("etcd-put", f"127.0.0.1:{etcd.leader().port}", clients, asked)
        )

    # --- followers --------------------------------------------------------------------------------

    def _lag(self) -> Measurement:
        work = (
            f"how long after its answer a write is read on a follower, beside {BESIDE_CLIENTS}"
            f" clients that create {BESIDE_RATE:,} a second together"
        )
        row = Measurement("cluster-lag", f"{work}; p50", "ms", "less")
        row.gaps.append("etcd, JetStream: a read there asks whoever leads, or is of any age")
        found: list[list[float]] = []

        def measure() -> float:
            found.append(self._looked())
            return median(found[-1])

        row.sides = in_turns(self._settings.rounds, {NODE: measure})
        late = sorted(took for looks in found[1:] for took in looks)
        row.notes.append(
            f"p99 {late[len(late) * 99 // 100]:.2f} ms, at most {late[-1]:.2f} ms; the way of"
            " the read to the follower and back is part of it"
        )
        return row

    def _looked(self) -> list[float]:
        """Write on the leader, then read on a follower, in a loop beside other writers."""
        self._trio.lead(1)
        looks = self._settings.scaled(LOOKED)
        leader, follower = self._trio.leader(), self._trio.followers[0]
        seconds = looks * 0.01 + 2
        beside = LoadDescription(
            "create", leader.wire, BESIDE_CLIENTS,
            int(BESIDE_RATE * seconds) // BESIDE_CLIENTS * BESIDE_CLIENTS, rate=BESIDE_RATE,
        )  # fmt: skip
        writes = Thread(target=load.run, args=(beside,))
        took = []
        with leader.client() as here, follower.client() as there:
            there.query("RETURN 1")
            writes.start()
            for number in range(looks):
                answer = here.run("UPSERT person:looked SET n = $n", {"n": number})
                began = time.perf_counter()
                found = there.query("SELECT VALUE n FROM person:looked", after=answer.seq)
                took.append((time.perf_counter() - began) * 1000)
                assert found == [number], found
            writes.join()
        return took

    # --- the leader is killed ---------------------------------------------------------------------

    def _failover(self) -> Measurement:
        row = Measurement(
            "cluster-failover", "from SIGKILL of the leader to the next write, one writer", "s",
            "less", f"≤ {LEASE_SECONDS + 2} s", gaps=list(self._gaps),
        )  # fmt: skip
        measures: dict[str, Measure] = {NODE: self._kill_node}
        if self._etcd is not None:
            measures[etcds.NAME] = partial(self._kill_member, self._etcd)
        for stream in self._streams[:1]:
            measures[stream.name] = partial(self._kill_server, stream)
        row.sides = in_turns(self._settings.rounds, measures)
        row.notes.append(
            f"storenode: LEASE {LEASE_SECONDS}s, at least 2s; the lease of who is killed has to"
            " lapse. etcd and JetStream: as they come; members vote once heartbeats are missed"
        )
        return row

    def _kill_node(self) -> float:
        self._trio.lead(1)
        leader = self._trio.leader()
        with self._trio.client() as client:
            client.use(NAMESPACE, DATABASE)
            client.query("UPSERT person:written SET n = 0")
            began = time.perf_counter()
            leader.kill()
            while True:
                try:
                    client.query("UPSERT person:written SET n += 1")
                    break
                except (OutcomeUnknown, StoreError):
                    continue
            took = time.perf_counter() - began
        leader.start()
        self._trio.tell_endpoints()
        self._trio.in_sync()
        return took

    def _kill_member(self, etcd: etcds.Etcds) -> float:
        leader = etcd.leader()
        leader.kill()
        began = time.perf_counter()
        etcd.put_anywhere()
        took = time.perf_counter() - began
        leader.start()
        wait_for(partial(_answers, leader), "never: an etcd that is back")
        return took

    def _kill_server(self, stream: jetstreams.Jetstreams) -> float:
        leader = stream.leader()
        leader.kill()
        began = time.perf_counter()
        stream.publish_anywhere()
        took = time.perf_counter() - began
        leader.start()
        stream.leader()
        stream.in_sync()
        return took

    # --- joining ----------------------------------------------------------------------------------

    def _join(self) -> Measurement:
        count = self._settings.scaled(JOINED)
        row = Measurement(
            "cluster-join",
            f"a new node joins a store of {count:,} records: from its start to ready",
            "s",
            "less",
        )
        row.gaps.append("etcd, JetStream: hold no such store")
        with self._trio.client() as client:
            define_place(client, "person")
            insert(client, "person", count, first=10_000_000)
        self._trio.in_sync()

        def measure() -> float:
            node = self._trio.join(NODES + 1)
            took = node.start_seconds
            self._trio.in_sync()
            self._trio.leave()
            return took

        row.sides = in_turns(min(self._settings.rounds, JOINED_ROUNDS), {NODE: measure})
        row.notes.append("the leader takes a snapshot, sends it, and the new node proves it")
        return row


def _none(settings: Settings) -> Measurement:
    """Measure the cost of cluster support on a node that is in no cluster."""
    clients = 32
    row = Measurement(
        "cluster-none",
        f"create one record, {_clients(clients)}, on a node without a cluster",
        "/s",
        "more",
        "1×: it pays nothing",
    )
    asked = max(settings.scaled(ALONE_REQUESTS) // clients, 1) * clients
    with ExitStack() as held:
        directory = settings.directory / "none"
        directory.mkdir(parents=True)
        plain = held.enter_context(NodeProcess(directory / "plain"))
        flags = ("--peer", "127.0.0.1:0")
        linked = held.enter_context(NodeProcess(directory / "linked", flags=flags))
        told: dict[str, list[Measured]] = {NODE: [], LINKED: []}
        for node in (plain, linked):
            with node.client() as client:
                define_place(client, "person")
        with Client(linked.wire, user=USER, password=PASSWORD) as client:
            id = client.query("INFO FOR NODE")["id"]
            client.run(f"DEFINE REPLICA n1 PEER '127.0.0.1:1' NODE '{id}' ROLES serving, writable")

        def side(name: str, node: NodeProcess) -> Measure:
            def rate() -> float:
                told[name].append(
                    load.run(LoadDescription("create", node.wire, clients, asked), node.cpu_seconds)
                )
                return told[name][-1].rate

            return rate

        row.sides = in_turns(
            settings.rounds, {NODE: side(NODE, plain), LINKED: side(LINKED, linked)}
        )
    for name, found in told.items():
        row.notes.append(f"{name}: {_latencies(found[1:])}")
    return row


def _answers(member: etcds.EtcdMember) -> bool:
    try:
        member.put()
    except OSError:
        return False
    return True


def _latencies(found: list[Measured]) -> str:
    middle = sorted(found, key=lambda measured: measured.rate)[len(found) // 2]
    busy = max(measured.driver_busy for measured in found)
    told = f"p50 {middle.p50_ms:.2f} ms, p99 {middle.p99_ms:.2f} ms"
    if middle.node_cpu_us:
        told += f", computes {middle.node_cpu_us:.0f} µs a request"
    if busy > DRIVER_BUSY:
        told += f", drivers busy {busy:.0%}: too slow a driver"
    return told


def _clients(number: int) -> str:
    return "1 client" if number == 1 else f"{number} clients"
