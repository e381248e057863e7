"""A cluster of real nodes, each a process, with a real etcd and what stands for the network; and a
writer that remembers what was acknowledged to it.

It is the cluster of `tests.cluster`, made in a moment: `make cluster` for tests. Each node is
killed, stopped and started as a machine would be, with its directory and its addresses.
"""

from __future__ import annotations

import itertools
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests import canaries
from tests.cluster import building, chaos, processes
from tests.cluster.asking import ClusterClient, NodeRefused, ResultUnknown, leads
from tests.cluster.faults import around
from tests.cluster.histories.clients import COUNT, Clients
from tests.cluster.histories.history import OperationHistory
from tests.cluster.plan import ETCD, ClusterPlan, Failover, NodeAt, draw
from tests.cluster.processes import NETWORK
from tests.processes import PASSWORD, USER, environment

PLACE = {"ns": "a", "db": "b"}
SETTING = (
    "DEFINE NAMESPACE IF NOT EXISTS a; DEFINE DATABASE IF NOT EXISTS a.b; USE a.b;"
    " DEFINE TABLE IF NOT EXISTS t"
)
LEASE_SECONDS = 3
"""Whoever leads and hears nothing of etcd for less than two seconds still leads."""
BEHIND_SECONDS = 1
PATIENCE_SECONDS = 120
"""Until something happens that has to happen; a limit on the wait, not a figure to reach."""
ASKED_SECONDS = 30.0
"""For an answer that a test takes as it comes."""
SHOWN_BYTES = 2_000
"""Of what a node said last, where a test has failed."""


@dataclass(frozen=True)
class Member:
    plan: ClusterPlan
    at: NodeAt

    @property
    def name(self) -> str:
        return self.at.name

    def start(self) -> None:
        """Start it, and wait until it is ready to be asked."""
        processes.start_node(self.plan, self.at)

    @property
    def runs(self) -> bool:
        return processes.pid_of(self.plan, self.name) is not None

    def kill(self) -> None:
        processes.end(self.plan, self.name)

    def pause(self) -> None:
        """SIGSTOP: as a machine that is suspended, it does nothing, and knows nothing of it."""
        processes.send(self.plan, self.name, signal.SIGSTOP)

    def go_on(self) -> None:
        processes.send(self.plan, self.name, signal.SIGCONT)

    def stop(self) -> None:
        processes.end(self.plan, self.name, signal.SIGTERM)

    def script(self, text: str, **fields: object) -> list[Any]:
        """What a script answered. :raises Refused: :raises Unknown:"""
        return ClusterClient(self.plan, ASKED_SECONDS).script(self.at, text, **fields)

    def value(self, text: str, **fields: object) -> Any:
        """What the last statement answered; None: it was refused, or nobody answers."""
        try:
            return ClusterClient(self.plan).value(self.at, text, **fields)
        except (NodeRefused, ResultUnknown):
            return None

    def refusal(self, text: str, **fields: object) -> str:
        """The code that a script is refused with; empty: it was not, or nobody knows."""
        try:
            ClusterClient(self.plan).script(self.at, text, **fields)
        except NodeRefused as error:
            return error.code
        except ResultUnknown:
            pass
        return ""

    @property
    def about(self) -> dict[str, Any]:
        """What it says of itself; empty: nothing."""
        return self.value("INFO FOR NODE") or {}

    @property
    def leads(self) -> bool:
        """Whether it leads, by a lease that has not run out."""
        about = self.about
        return bool(about) and leads(about)

    @property
    def said(self) -> str:
        return self.plan.log_of(self.name).read_text("utf-8", "replace")


@dataclass
class Cluster:
    plan: ClusterPlan
    acknowledged: set[int] = field(default_factory=set)
    """The records that a writer was told of."""

    @property
    def members(self) -> list[Member]:
        return [Member(self.plan, node) for node in self.plan.nodes]

    def until(self, what: str, condition: Callable[[], Any]) -> Any:
        ends = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < ends:
            found = condition()
            if found:
                return found
            time.sleep(0.02)
        raise AssertionError(f"never: {what}; {self.shown()}")

    @property
    def leader(self) -> Member | None:
        """Who leads, as it says itself."""
        return next((each for each in self.members if each.leads), None)

    def led(self, but: Member | None = None) -> Member:
        """Whoever leads, as soon as somebody does.

        :param but: who is not meant
        """

        def found() -> Member | None:
            return next((each for each in self.members if each != but and each.leads), None)

        leader = self.until("somebody leads", found)
        assert isinstance(leader, Member)
        return leader

    def followers(self) -> list[Member]:
        """Those that do not lead."""
        leader = self.led()
        return [each for each in self.members if each != leader]

    def in_set(self, member: Member) -> bool:
        """Whether a node is in the set, as who leads says."""
        leader = self.leader
        if leader is None or leader == member:
            return leader is not None
        node = member.about.get("id")
        return any(
            one["node"] == node and one["in_set"] for one in leader.about.get("downstream", [])
        )

    def in_sync(self, count: int) -> None:
        """Wait until so many nodes are in the set, attached, and nobody is behind."""

        def is_so() -> bool:
            leader = self.leader
            about = {} if leader is None else leader.about
            if about.get("followers") != count - 1 or about.get("furthest_lag") != 0:
                return False
            return bool(sum(one["in_set"] for one in about["downstream"]) == count - 1)

        self.until(f"{count} nodes in sync", is_so)

    def cut(self, *pairs: tuple[str, str]) -> None:
        """Have the network carry nothing from the one to the other of each pair. What was cut
        before is whole again."""
        processes.cut(self.plan, pairs)

    def pause_etcd(self) -> None:
        """SIGSTOP."""
        processes.send(self.plan, ETCD, signal.SIGSTOP)

    def resume_etcd(self) -> None:
        """SIGCONT."""
        processes.send(self.plan, ETCD, signal.SIGCONT)

    def around(self, member: Member) -> Sequence[tuple[str, str]]:
        """All links of a node, to etcd too, both ways."""
        return around(self.plan, member.at, ETCD)

    def shown(self) -> str:
        """How all of it stands, for people."""
        lines = []
        for each in self.members:
            about = each.about
            seen = {name: about.get(name) for name in ("life", "waits_for", "leader", "sequence")}
            lines.append(f"{each.name}: {seen} {each.said[-SHOWN_BYTES:]}")
        return "\n".join(lines)

    def done(self, text: str, **fields: object) -> None:
        """Have whoever leads run what may run twice, until it is answered: who has just taken the
        lead may lack followers yet, and whoever has it may lose it."""

        def is_done() -> bool:
            try:
                self.led().script(text, **fields)
            except (NodeRefused, ResultUnknown):
                return False
            return True

        self.until(f"answered: {text}", is_done)

    def write(self, number: int) -> bool:
        """Write one record wherever that is taken; whether it was acknowledged."""
        for each in self.members:
            try:
                ClusterClient(self.plan).script(
                    each.at, f"UPSERT t:{number} SET n = {number}", **PLACE
                )
            except (NodeRefused, ResultUnknown):
                continue
            self.acknowledged.add(number)
            return True
        return False

    @contextmanager
    def written(self, writers: int = 2) -> Iterator[None]:
        """Records are written all along, by several at once, each as soon as its last was taken or
        refused."""
        numbers, over = itertools.count(1_000_000), threading.Event()

        def write() -> None:
            while not over.is_set():
                self.write(next(numbers))

        with ThreadPoolExecutor(writers) as pool:
            writing = [pool.submit(write) for _ in range(writers)]
            try:
                yield
            finally:
                over.set()
            for each in writing:
                each.result()

    def write_until_taken(self, number: int) -> None:
        """Write one record, again and again until it is acknowledged."""
        self.until(f"record {number} is taken", lambda: self.write(number))

    def check(self) -> None:
        """Every record that was acknowledged is on every node, and all have the same state."""
        self.in_sync(len(self.members))
        for each in self.members:

            def has_all(each: Member = each) -> bool:
                rows = each.value("SELECT VALUE n FROM t", **PLACE)
                return rows is not None and self.acknowledged <= set(rows)

            self.until(f"{each.name} shows all that was acknowledged", has_all)
        assert chaos.differing(self.plan) == []


@contextmanager
def asked(
    found: Cluster, *histories: OperationHistory, seed: int = 1, count: int = COUNT
) -> Iterator[Clients]:
    """Clients ask all along, and what they were told is judged behind the block, when all is whole
    again: see `tests.cluster.histories`.

    :param histories: all kinds, unless some are named
    :param count: of clients
    """
    clients = Clients(found.plan, histories or chaos.every_history(), seed, count)

    def are_defined() -> bool:
        try:
            clients.define(found.led().at)
        except (NodeRefused, ResultUnknown):
            return False
        return True

    found.until("what clients write to is defined", are_defined)
    clients.begin()
    try:
        yield clients
    except BaseException:
        with suppress(Exception):  # the other one is the first
            clients.end()
        raise
    found.in_sync(len(found.members))
    clients.end()
    print(chaos.judge(found.plan, clients))


@contextmanager
def cluster(
    root: Path,
    count: int = 3,
    acks: int = 1,
    promote: str = "AUTO",
    environments: Mapping[str, Mapping[str, str]] | None = None,
) -> Iterator[Cluster]:
    """Nodes n1, n2, … that are in sync by a policy.

    :param environments: by node, what is said to it there beside what all tests say
    """
    drawn = draw(root / "cluster", count)
    kept = {name: environment()[name] for name in ("PYTHONPYCACHEPREFIX",)}
    more = environments or {}
    plan = replace(
        drawn,
        nodes=tuple(
            replace(node, environment={**kept, **more.get(node.name, {})}) for node in drawn.nodes
        ),
        user=USER,
        password=PASSWORD,
        failover=Failover(acks, LEASE_SECONDS, BEHIND_SECONDS, promote),
        etcd_syncs=False,  # the disk is everybody's, and no test takes the machine's power
    )
    found = Cluster(plan)
    plan.save()
    try:
        building.build(plan, print)
        found.done(SETTING)
        yield found
    finally:
        for name in (*(node.name for node in plan.nodes), ETCD, NETWORK):
            processes.end(plan, name)
        for node in plan.nodes:
            if plan.log_of(node.name).exists():
                canaries.heard(plan.log_of(node.name).read_bytes(), f"what {node.name} logged")
