"""Operators of a cluster: random policy changes, and repairs when they inspect its state."""

from __future__ import annotations

from actors.cluster.log_matching import SyncStatus
from protocol.requests import ScriptAnswer
from storage.files.directory import is_joining
from tests.simulation.course import Act, Course
from tests.simulation.members import PATH, SimulatedMember


class Policies:
    """Values of ACKS that may be in force, as far as operators know. The judge uses the least."""

    def __init__(self, world: Course) -> None:
        self.world = world
        self._stands = frozenset[int]()
        """Values that `ACKS` may have by the answers so far."""
        self._asked: list[set[int]] = []
        """For each request without an answer yet: its value, and those of concurrent ones. Any of
        these may be applied last."""

    @property
    def least(self) -> int:
        """Least value that `ACKS` may have."""
        return min(self.world.promises.acks)

    @property
    def most(self) -> int:
        """Greatest value that `ACKS` may have."""
        return max(self.world.promises.acks)

    def stands(self, acks: int) -> None:
        """Record that the policy has this value for sure."""
        self._stands = frozenset({acks})
        self._tell()

    async def amend(self, machine: SimulatedMember, acks: int, behind: str | None = None) -> bool:
        """Define another policy on a node. Return True if it is in force for sure."""
        mine = {acks}.union(*self._asked)
        for each in self._asked:
            each.add(acks)
        self._asked.append(mine)
        self._tell()
        answer = await machine.ask(self.world.shape.policy(acks, behind))
        self._asked = [each for each in self._asked if each is not mine]
        is_sure = isinstance(answer, ScriptAnswer) and answer.refusal is None
        self._stands = frozenset(mine) if is_sure else self._stands | {acks}
        self._tell()
        self.world.figures["amended"] += is_sure
        return is_sure

    def _tell(self) -> None:
        self.world.promises.acks = self._stands.union(*self._asked)


class Operators:
    def __init__(self, world: Course) -> None:
        self.world = world
        self.policies = Policies(world)
        self._chance = world.chance

    @property
    def acts(self) -> list[list[Act]]:
        return [[self._amend], [self._lead_by_hand]]

    async def _amend(self) -> None:
        machine = self.world.some_leader()
        if machine is None:
            return
        acks = self._chance.randrange(3)
        behind = self._chance.choice((None, "400ms", "2s"))
        self.world.has_done(self.policies.amend(machine, acks, behind))

    async def _lead_by_hand(self) -> None:
        machine = self.world.some()
        if machine is not None:
            self.world.has_done(machine.ask("DEFINE NODE LEADS STORE"))

    async def operate(self) -> None:
        """Inspect the cluster and repair it as the manual says."""
        for machine in self.world.machines:
            if machine.process is None:
                await self.world.start(machine)
            elif is_joining(machine.disk, PATH) and machine.node is not None:
                await machine.stop()  # its next start copies the store again
                await self.world.start(machine)
        insync = self.world.etcd.insync
        if insync is not None:
            await self._have_taken_out(insync.members)
        if self.world.etcd.lead is not None or insync is None:
            return
        for machine in self.world.machines:
            if machine.id not in insync.members or not machine.answers:
                continue
            if machine.runs.member.lacks:  # an older copy, as it says: another one may
                continue
            await machine.ask("DEFINE NODE LEADS STORE")
            return

    async def _have_taken_out(self, members: frozenset[str]) -> None:
        """Lower ACKS for an older copy of a member that has to be copied.

        It is in the ISR still, which would be too small without it.
        """
        machines = [each for each in self.world.machines if each.answers]
        fail = [each for each in machines if each.runs.member.sync_status is SyncStatus.COPY_FAILED]
        if any(each.id in members for each in fail) and self.policies.most > 0:
            for machine in machines:
                if machine.runs.member.leadership is not None:
                    await self.policies.amend(machine, self.policies.most - 1)
