"""Whole nodes of one cluster, in one process: each with a disk of its own, linked by a network in
memory, and a model of etcd between them.

The first is started and written to; the others are copies of its files, which know whom they were
copied from. What brings a copy to another machine is tried elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from actors.environment import Environment
from actors.node import Node, start
from protocol.agreement import AgreedState, Agreement, CompareAndSetResult, ReleasedFrame
from protocol.errors import Refusal
from protocol.links import Link, Links, Redeem, Redeemed
from storage.engine.memory import MemoryEngine
from storage.files import cluster_file, node_file
from storage.files.cluster_file import ClusterState, Upstream
from storage.files.directory import StoreDirectory
from tests.actors.nodes import settings, simulated_environment, value
from tests.simulation.agreement import AgreementModel, Fate, ModelAgreement
from tests.simulation.disk import SimulatedDisk
from tests.simulation.environment import ManualClock, SeededRng
from tests.simulation.links import LinksModel, ModelLinks

PRINT = "ab" * 32
ROLES = "serving, writable, coordinating"
LEASE_SECONDS: Final = 5
BEHIND_SECONDS: Final = 1
POLICY = (
    f"DEFINE FAILOVER VIA 'http://etcd' LEASE {LEASE_SECONDS}s ACKS {{}}"
    f" BEHIND {BEHIND_SECONDS}s PROMOTE {{}}"
)


@dataclass
class ClusterMachine:
    """One of them: what it has on its disk, and the node that runs on it."""

    name: str
    trio: Trio
    disk: SimulatedDisk
    engine: MemoryEngine
    id: str = ""
    node: Node | None = None
    etcd: Fate = Fate.ANSWERED
    """What becomes of what it asks of etcd."""
    once: dict[str, Fate] = field(default_factory=dict)
    """What becomes of the next request of a name instead."""
    gone: set[str] = field(default_factory=set)
    """Addresses of etcd at which nobody is any more."""
    renews_by_itself: bool = False
    """Whether what it reaches of etcd answers renewals without asking anybody."""

    @property
    def runs(self) -> Node:
        assert self.node is not None, f"{self.name} does not run"
        return self.node

    @property
    def life(self) -> str:
        return str(self.runs.member.life)

    @property
    def leads(self) -> bool:
        """Whether it leads, and shows all that was ever released."""
        leadership = None if self.node is None else self.node.member.leadership
        return leadership is not None and leadership.is_settled and self.life == "leading"

    async def start(self, **told: Any) -> None:
        """Start it, and have it reached by the others."""
        self.node = await start(settings(agree=self._agree, **told), self.environment())
        self.id = self.node.roles.node_id
        peering = self.node.peering
        peering.links = Dial(self.reached_by(self.node))

    def environment(self) -> Environment:
        """Of its next process."""
        return simulated_environment("stepped", self.disk, self.engine, seed=len(self.name))

    def reached_by(self, node: Node) -> ModelLinks:
        """Its door to the others, and theirs to it."""
        peering = node.peering
        return self.trio.network.node(
            self.address, lambda: peering.hello, self.name, lambda shown: shown, peering.accept
        )

    def _agree(self, via: Sequence[str], store: str) -> Agreement:
        return Asks(self, via)

    @property
    def address(self) -> str:
        """Where the others reach it."""
        return f"{self.name}:1"

    def cut(self) -> None:
        """Nobody reaches it, and it reaches nobody: neither nodes nor etcd."""
        self.etcd = Fate.LOST
        self.trio.network.pause(self.address)

    def mend(self) -> None:
        """The network is there again."""
        self.etcd = Fate.ANSWERED
        self.trio.network.resume(self.address)

    async def kill(self) -> None:
        """The process dies: what it had on its disk is there, and nothing else is heard of it."""
        self.cut()
        node, self.node = self.runs, None
        self.disk, self.engine = self.disk.killed(), MemoryEngine()
        self.trio.network.leave(self.address)
        await node.stop()  # of which nobody hears
        self.mend()

    async def stop(self) -> None:
        """In order."""
        node, self.node = self.runs, None
        await node.stop()
        self.trio.network.leave(self.address)

    async def value(self, script: str) -> Any:
        """What the last statement answers; a refusal is raised."""
        return await value(self.runs, script)


@dataclass
class Trio:
    """All of them."""

    etcd: AgreementModel = field(default_factory=AgreementModel)
    network: LinksModel = field(default_factory=lambda: LinksModel(1))
    machines: list[ClusterMachine] = field(default_factory=list)

    def add(self, name: str, disk: SimulatedDisk, id: str = "") -> ClusterMachine:
        """One more, which does not run yet."""
        machine = ClusterMachine(name, self, disk, MemoryEngine(), id)
        self.machines.append(machine)
        return machine

    def named(self, name: str) -> ClusterMachine:
        return next(each for each in self.machines if each.name == name)

    @property
    def leader(self) -> ClusterMachine | None:
        """Who leads as etcd has it, once it is settled."""
        lead = self.etcd.lead
        found = [
            each
            for each in self.machines
            if lead is not None and each.id == lead.node and each.leads
        ]
        return found[0] if found else None

    async def led(self) -> ClusterMachine:
        """Whoever leads, as soon as somebody does."""
        await self.until(lambda: self.leader is not None)
        assert self.leader is not None
        return self.leader

    async def until(
        self, condition: Callable[[], bool], seconds: float = 60, step_seconds: float = 0.01
    ) -> None:
        """Wait for a condition, which is looked at so often."""
        try:
            async with asyncio.timeout(seconds):
                while not condition():
                    await asyncio.sleep(step_seconds)
        except TimeoutError:
            raise AssertionError(self.shown()) from None

    async def until_done(self, work: Callable[[], Awaitable[Any]], seconds: float = 60) -> Any:
        """Try until it is not refused any more."""
        last: Refusal | None = None
        try:
            async with asyncio.timeout(seconds):
                while True:
                    try:
                        return await work()
                    except Refusal as refusal:
                        last = refusal
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"{last}: {self.shown()}") from None

    async def in_sync(self, *names: str) -> None:
        """Wait until etcd has these in the set, and no others."""
        wanted = {self.named(name).id for name in names}

        def is_so() -> bool:
            return self.etcd.insync is not None and self.etcd.insync.members == wanted

        await self.until(is_so)

    def shown(self) -> str:
        """How all of it stands, for people."""
        lines = [f"etcd: {self.etcd.agreed}"]
        for each in self.machines:
            node = each.node
            if node is None:
                lines.append(f"{each.name} {each.id}: does not run")
                continue
            member, committer = node.member, node.committer
            follow_task = member.follow_task
            lines.append(
                f"{each.name} {each.id}: {member.life} ({member.why}), log {committer.log_upto},"
                f" released {committer.commit_index}, follows {follow_task and follow_task.node}"
                f" {member.sync_status}, failure {node.failure}"
            )
        return "\n".join(lines)


class Asks(ModelAgreement):
    """A machine's door to etcd: some requests may fare otherwise than the others."""

    def __init__(self, machine: ClusterMachine, via: Sequence[str]) -> None:
        self._machine = machine
        self._via = set(via)
        self._name = ""
        super().__init__(machine.trio.etcd, self._fate)

    def _fate(self) -> tuple[Fate, float]:
        name, self._name = self._name, ""
        if self._via <= self._machine.gone:
            return Fate.REFUSED, 0.01
        return self._machine.once.pop(name, self._machine.etcd), 0.01

    async def read(self) -> AgreedState:
        self._name = "look"
        return await super().read()

    async def grant(self, seconds: int) -> int:
        self._name = "grant"
        return await super().grant(seconds)

    async def renew(self, lease: int) -> int:
        self._name = "renew"
        if self._machine.renews_by_itself:
            return 5
        return await super().renew(lease)

    async def revoke(self, lease: int) -> None:
        self._name = "revoke"
        await super().revoke(lease)

    async def found(self, members: frozenset[str]) -> CompareAndSetResult:
        self._name = "found"
        return await super().found(members)

    async def take_lead(self, node: str, lease: int, insync: int) -> CompareAndSetResult:
        self._name = "take_lead"
        return await super().take_lead(node, lease, insync)

    async def change(self, epoch: int, insync: int, members: frozenset[str]) -> CompareAndSetResult:
        self._name = "change"
        return await super().change(epoch, insync, members)

    async def begin_lineage(self, epoch: int, insync: int, node: str) -> CompareAndSetResult:
        self._name = "begin_lineage"
        return await super().begin_lineage(epoch, insync, node)

    async def report_released(self, epoch: int, released: ReleasedFrame) -> CompareAndSetResult:
        self._name = "tell"
        return await super().report_released(epoch, released)

    async def grow(self, by: int) -> AgreedState:
        self._name = "grow"
        return await super().grow(by)


class Dial:
    """The door of one node to the others. Who is whom is not what is tried: each shows its name."""

    def __init__(self, door: Links) -> None:
        self._door = door

    async def connect(self, address: str, pins: Collection[str]) -> Link:
        return await self._door.connect(address, [address.partition(":")[0]])

    async def redeem(self, address: str, pin: str, asked: Redeem) -> Redeemed:
        return await self._door.redeem(address, pin, asked)


@asynccontextmanager
async def cluster(
    count: int = 3, acks: int = 1, promote: str = "AUTO", *, founded: bool = True
) -> AsyncIterator[Trio]:
    """Nodes a, b, c, … of which a has begun and leads; all are in the set.

    :param founded: else a is copied, and no policy stands
    """
    trio = Trio()
    try:
        policy = POLICY.format(acks, promote) if founded else None
        await begin(trio, "abcde"[:count], "DEFINE TABLE t", policy)
        yield trio
    finally:
        for machine in trio.machines:
            if machine.node is not None:
                await machine.stop()


async def begin(trio: Trio, names: str, tables: str, policy: str | None) -> None:
    """Have a cluster begun: by the first of some nodes, of which the others are copies.

    :param tables: statements that it has run before
    :param policy: the statement that puts one into force; None: none stands, and others copy the
        first
    """
    first = trio.add(names[0], SimulatedDisk())
    count = len(names)
    ids = [str(_id(number)) for number in range(count)]
    await first.start()
    rows = "; ".join(
        f"DEFINE REPLICA {name} PEER '{name}:1' ENDPOINTS '{name}.example:8001'"
        f" NODE '{first.id if number == 0 else ids[number]}' ROLES {ROLES}"
        for number, name in enumerate(names)
    )
    await first.value(f"DEFINE NAMESPACE a; DEFINE DATABASE a.b; {rows}; USE a.b; {tables}")
    await first.stop()
    upstream = Upstream(first.id, (first.address,), PRINT)
    for number, name in enumerate(names[1:], 1):
        machine = trio.add(name, first.disk.killed(), ids[number])
        _made_another(machine.disk, number, upstream)
    for machine in trio.machines:
        await machine.start()
    if policy is not None:
        await trio.until_done(lambda: first.value(policy))
        await trio.in_sync(*names)


def _made_another(disk: SimulatedDisk, number: int, upstream: Upstream) -> None:
    """A copied directory is that of another node."""
    rng = SeededRng(number)
    directory = StoreDirectory.open("/store", disk, ManualClock(), rng, create=False)
    node_file.save_node(directory, node_file.NodeFileContents(_id(number)))
    cluster_file.save(directory, ClusterState(upstream=upstream))
    directory.close()


def _id(number: int) -> UUID:
    return UUID(f"6f3a0000-0000-4000-8000-00000000000{number}")
