"""Cluster rig: three or five whole members, clients, operators and all faults, from one seed.

Simulated: machines lose power, at any disk operation too. Processes pause for shorter and longer
than the lease, links are cut in each direction. Etcd is silent, slow, loses answers, or loses its
data. Clocks drift and are set; disks fill up. Members join, are dropped, and lose their disks; an
older copy of a directory is put back; policies change, and operators force elections. In the end
all faults are healed, and all members must converge in bounded time. `members.py` has the machines,
`drawn` the shape of a seed's world, `agreement.py` the model of etcd.

Checked at every step (`promises.py`): nothing released is ever lost or changed; one leader releases
in each epoch; every member of the in-sync replicas holds, synced, everything released; a node never
shows less than before, or other frames. Answers to clients are checked in `clients.py`, and reads
with CURRENT in watched worlds (`watchers.py`). Schemas and indexes are looked at in others
(`close_looks.py`).

Not simulated: etcd's own consensus (real etcd: `tests/cluster`, `tests/reliability`), threads,
RocksDB, TLS, more than one fault of a disk that nobody else has a copy of, and the surfaces. A few
dozen commits make a world, so bounds of memory and speed are no subject.

To reproduce: a violation names its seed. `make seeds FROM=3 TO=4 OF=members SHOW=1` runs it and
prints the history as a table: time, node, role, epoch, sequence, event. A seed is one history on
every machine. A change of the node's code makes other histories of all seeds.

Proof: each rule of the cluster is left out (`ablation.py`) and has to be missed, by a seed or by
the shortest history of the model, and faults that only close looks show are planted:
`tests/simulation/test_members_from_seed.py::test_a_rule_that_is_left_out_is_missed`,
`tests/simulation/test_bad_histories.py::test_without_the_rule_it_goes_wrong`,
`tests/simulation/test_members_from_seed.py::test_a_planted_fault_is_seen_by_who_looks_closely`,
`tests/actors/cluster/test_every_history.py::test_a_rule_that_is_left_out_is_missed`.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from typing import Final

from actors.cluster.log_matching import SyncStatus
from protocol.requests import ScriptAnswer
from tests import leaks
from tests.actors.cluster import whole
from tests.simulation import loop as stepped
from tests.simulation.agreement import Fate
from tests.simulation.clients import READ, TABLES, Clients
from tests.simulation.close_looks import TABLES as MORE_TABLES
from tests.simulation.close_looks import CloseLooks
from tests.simulation.course import HOUR_US, Act, Course
from tests.simulation.disk import NO_LIMIT
from tests.simulation.joining_machines import JoiningMachines
from tests.simulation.lost_etcd import LostEtcd
from tests.simulation.machine_faults import MachineFaults
from tests.simulation.members import ASKED_SECONDS, SimulatedMember
from tests.simulation.older_copies import OlderCopies
from tests.simulation.operators import Operators
from tests.simulation.processes import ProcessLoop
from tests.simulation.promises import ClusterGuaranteeViolated, Excused
from tests.simulation.shape import ClusterShape
from tests.simulation.watchers import Watchers

COMES_TOGETHER_SECONDS: Final = 240
"""Virtual seconds within which members must converge after healing: a dead link is closed after 30.
"""
LASTS_SECONDS: Final = 1_500
"""Timeout of a whole world, virtual seconds."""
EXPECTED: Final = (
    "leads no more",
    "releases nothing",
    "nobody leads",
    "etcd does not answer",
    "was not renewed",
    "was not answered",
    "request to take the lead",
    "were cut off",
    "the machine died",
    "the disk is full",
    "the last commits were refused",
    "the next start replays more of the log",
    "the checkpoint waits for disk space",
    "no room on the disk",
    "this node stopped following the leader",
    "copied anew",
    "the copy failed",
    "a copy was",
    "held up",
    "trusts etcd again, since an operator has named a leader",
    "a new lineage begins",
    "the revision of etcd is behind",
    "does not take the lead",
    "lacks what was released",
)
"""Log lines that are expected when nodes die, links are cut, disks are full, etcd is lost and older
copies are put back."""


def drawn(seed: int) -> ClusterShape:
    chance = random.Random(seed * 7919 + 1)
    machines = chance.choice((3, 3, 3, 5))
    return ClusterShape(
        machines=machines,
        lease_s=chance.choice((2, 3, 5)),
        behind=chance.choice(("300ms", "1s", "3s")),
        acks=chance.choice((0, 1, 1, 1, 2)),
        promote=chance.choice(("AUTO", "AUTO", "AUTO", "MANUAL")),
        rates=chance.choice(((1.0,), (1.0, 0.97, 1.03))),
        walls_us=chance.choice(((0,), (0, -HOUR_US, HOUR_US))),
        newcomers=chance.choice((False, True)),
        loses_etcd=(beside := chance.randrange(6)) > 3,
        puts_back=beside in (2, 3),
    )


def watched(seed: int) -> ClusterShape:
    """Draw the shape of a seed's world, watched (`watchers.py`)."""
    return replace(drawn(seed), watched=True)


def looked_at(seed: int) -> ClusterShape:
    """Draw the shape of a seed's world, looked at closely (`close_looks.py`)."""
    return replace(drawn(seed), looked_at=True)


class FaultyCluster(Course):
    """A world under faults. `run` runs it."""

    def __init__(self, seed: int, shape: ClusterShape | None = None) -> None:
        super().__init__(seed, shape or drawn(seed))
        self.clients = Clients(self)
        self.mishaps = MachineFaults(self)
        self.operators = Operators(self)
        self.newcomers = JoiningMachines(self, self.operators.policies)
        self.lost_etcd = LostEtcd(self, self.operators.policies)
        self.older_copies = OlderCopies(self, self.newcomers)
        self.watchers = Watchers(self, self.clients.look_at) if self.shape.watched else None
        self.close_looks = CloseLooks(self) if self.shape.looked_at else None
        self._losses_seen = 0

    # --- its course -----------------------------------------------------------------------------

    async def live(self) -> None:
        close_looks = self.close_looks
        with self.looked_on(), close_looks.small_limits() if close_looks else nullcontext():
            course = asyncio.ensure_future(self._course())
            await asyncio.wait(
                (course, self.broken), timeout=LASTS_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            if self.broken.done():
                course.cancel()
                self.broken.result()
            if not course.done():
                course.cancel()
                raise ClusterGuaranteeViolated(f"it does not end:\n{self.shown()}")
            course.result()

    async def _course(self) -> None:
        names = "abcde"[: self.shape.machines]
        policies = self.operators.policies
        policies.stands(0)
        tables = TABLES + MORE_TABLES if self.shape.looked_at else TABLES
        await whole.begin(self, names, tables, self.shape.policy())
        policies.stands(self.shape.acks)
        if self.watchers is not None:
            self.watchers.begin()
        if self.close_looks is not None:
            self.has_done(self.close_looks.look_on())
            for _ in range(self.shape.clients):
                self.has_done(self.close_looks.write_on())
        for _ in range(self.shape.clients):
            self.has_done(self.clients.go_on(random.Random(self.chance.random())))
        acts = self._acts()
        for _ in range(self.shape.steps):
            await asyncio.sleep(self.chance.choice((0.05, 0.3, 1.0, 2.0)))
            await self.undo_some()
            act = self.chance.choice(acts)
            self.figures[act.__name__.strip("_")] += 1
            await act()
            self.look()
        await self.mend()
        await self.come_together()
        await self.end()

    async def start(self, machine: SimulatedMember) -> None:
        await super().start(machine)
        if self.watchers is not None and machine.process is not None:
            self.has_done(self.watchers.read_on(machine))

    def _acts(self) -> list[Act]:
        """Draw some of the possible acts of this world, so that rare combinations become
        frequent."""
        every = self.mishaps.acts + self.operators.acts
        if self.shape.newcomers:
            every += self.newcomers.acts
        if self.shape.loses_etcd:
            every += self.lost_etcd.acts
        if self.shape.puts_back:
            every += self.older_copies.acts
        chosen = [each for each in every if self.chance.random() < 0.5] or [every[0]]
        return [act for each in chosen for act in each]

    def look(self) -> None:
        if self.promises.losses > self._losses_seen:
            self._losses_seen = self.promises.losses
            stays = min(stays for stays, _ in self.promises.cuts)
            self.clients.forget(stays)
            if self.close_looks is not None:
                self.close_looks.forget(stays)
        for machine in self.machines:
            machine.look()
            node = machine.node
            if node is not None and node.member.is_stranded and not self.promises.losses:
                raise ClusterGuaranteeViolated(f"{machine.name} is stranded")

    # --- the end --------------------------------------------------------------------------------

    async def mend(self) -> None:
        self.sky = "clear"
        for machine in self.machines:
            machine.disk.capacity = NO_LIMIT
            machine.disk.watch = None
            machine.etcd = Fate.ANSWERED
            self.network.resume(machine.address)
            for other in self.machines:
                self.network.mend(machine.address, other.address)
        later, self.later = self.later, []
        for _, undo in later:
            await undo()
        for machine in self.machines:
            await self.start(machine)

    async def come_together(self) -> None:
        """Wait until all nodes converge, in bounded time; operators follow the manual."""
        loop = asyncio.get_running_loop()
        until = loop.time() + COMES_TOGETHER_SECONDS
        while not self.is_whole:
            if loop.time() > until:
                raise ClusterGuaranteeViolated(f"they do not come together:\n{self.shown()}")
            await self.operators.operate()
            await self.newcomers.bring_who_knows_nobody()
            await asyncio.sleep(0.5)
            self.look()

    @property
    def is_whole(self) -> bool:
        """True if one node leads, and all others are in sync and show the same sequence."""
        leader, insync = self.leader, self.etcd.insync
        if leader is None or insync is None or leader.node is None:
            return False
        if insync.members != {each.id for each in self.machines}:
            return False
        at = leader.node.committer.commit_index
        return all(
            each.node is not None
            and each.node.committer.commit_index == at
            and (each is leader or each.node.member.sync_status is SyncStatus.IN_SYNC)
            for each in self.machines
        )

    async def end(self) -> None:
        """Check the end: requests are answered, acknowledged writes are there, all states are
        equal."""
        for task in list(self.tasks):
            task.cancel()
        for _ in range(200):
            leader = self.some_leader()
            if leader is not None and await self.clients.create(leader):
                break
            await self.operators.operate()  # a lease may have lapsed since they came together
            await asyncio.sleep(0.1)
        else:
            raise ClusterGuaranteeViolated(
                f"nothing is written when all is mended:\n{self.shown()}"
            )
        await self.come_together()
        await asyncio.sleep(ASKED_SECONDS + 10)
        if self.asking:
            raise ClusterGuaranteeViolated(
                f"{len(self.asking)} clients wait for an answer that does not come"
            )
        self.look()
        for machine in self.machines:
            answer = await machine.ask(READ, self.clients.newest)
            if not isinstance(answer, ScriptAnswer) or answer.refusal is not None:
                raise ClusterGuaranteeViolated(f"{machine.name} does not answer: {answer}")
            self.clients.heard(machine, answer)
        if len({machine.engine.applied for machine in self.machines}) != 1:
            raise ClusterGuaranteeViolated("they have not come to the same")
        for machine in self.machines:
            self.promises.states.pop(machine.engine.applied, None)
        self.look()
        self.clients.judged.judge()
        if self.close_looks is not None:
            self.close_looks.end()
        for machine in self.machines:
            if machine.process is not None:
                await machine.stop()
        for machine in self.machines:
            await asyncio.gather(*machine.burials)


def run(seed: int, shape: ClusterShape | None = None) -> Counter[str]:
    """Run the world of a seed.

    :raises Broken: an invariant is violated; it names the seed
    """
    chance = random.Random(seed * 31 + 7)

    def latency() -> float:
        return chance.choice((0, 0, 0.0002, 0.001, 0.004))

    figures = Counter[str]()

    async def main() -> None:
        world = FaultyCluster(seed, shape)
        try:
            await world.live()
        except Excused:
            leaks.end_greenlets()  # else what they wait for is ended below them
            raise
        finally:
            figures.update(world.figures)
            if world.watchers is not None:
                figures["asked what is current"] += world.watchers.asked
                world.watchers.end()
            for machine in world.machines:
                if machine.process is not None:
                    machine.process.resume()  # else it could not even end

    try:
        stepped.run(main(), loop=ProcessLoop(chance.randrange(1 << 30), latency))
    except ClusterGuaranteeViolated as broken:
        leaks.end_greenlets()
        leaks.leaked_actors()  # what broke is left as it is
        raise ClusterGuaranteeViolated(
            f"seed {seed} (tests.simulation.cluster_faults.run({seed})): {broken}"
        ) from broken
    except Excused:
        leaks.end_greenlets()
        leaks.leaked_actors()
        figures["excused"] += 1
    return figures
