"""Membership changes: machines that join, lose their disks and join again, are dropped and declared
again.

The operator follows `docs/running-a-cluster.md`: he drops and declares the replica, creates a token
on the leader, and joins with an empty directory. If the ISR is too small to drop a replica, he
first lowers ACKS in the policy.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from protocol.errors import NotEnoughReplicas, Refusal
from protocol.requests import ScriptAnswer
from storage.catalog.join_tokens import JoinToken, TokenLocation
from storage.faults import StoreFault
from storage.files.directory import is_joining
from tests.actors.cluster import whole
from tests.simulation.course import Act, Course
from tests.simulation.disk import SimulatedDisk
from tests.simulation.members import PATH, SimulatedMember
from tests.simulation.operators import Policies

NEW_NAMES: Final = "xyz"
"""Names of machines that may be added to a world."""
LOST_DISKS: Final = 2
"""Limit on lost disks in one world."""
PATIENCE: Final = 10
"""Checks, one second apart, in which an operator finds that an elected leader waits for lost
followers, before he lowers ACKS."""


class JoiningMachines:
    """The membership changes of one world, one at a time: more losses at once than the policy
    tolerates are no fault of the nodes."""

    def __init__(self, world: Course, policies: Policies) -> None:
        self.world = world
        self._policies = policies
        self._chance = world.chance
        self._drops = False
        """True while a replica is dropped."""
        self._found_waiting = 0
        """Consecutive checks in which the elected leader waited for other nodes."""

    @property
    def _is_busy(self) -> bool:
        world = self.world
        lacks = any(each.medium.went_back for each in world.machines)
        return bool(world.away or self._drops or lacks or world.etcd_lies or world.promises.forced)

    @property
    def acts(self) -> list[list[Act]]:
        return [[self._lose_disk], [self._come], [self._drop]]

    # --- what happens -----------------------------------------------------------------------------

    async def _lose_disk(self) -> None:
        world, machine = self.world, self._chance.choice(self.world.machines)
        if world.figures["lost disks"] >= LOST_DISKS or machine.process is None:
            return
        if not self.may_lose(machine):
            return
        world.figures["lost disks"] += 1
        world.away.add(machine.name)
        machine.die(power=True)
        machine.wipe()
        world.has_done(self._bring(machine))

    def may_lose(self, machine: SimulatedMember) -> bool:
        """True if another disk certainly holds everything released, and no disk was lost just now.

        Requests on their way to etcd do not change that.
        """
        if self._is_busy:
            return False
        agreed, media = self.world.etcd.agreed, self.world.promises.media
        there = {node for node, medium in media.items() if not medium.is_lost}
        held = frozenset() if agreed.insync is None else agreed.insync.members & there
        leads = agreed.lead is not None and agreed.lead.node == machine.id
        return bool(held - {machine.id}) and (not leads or self._policies.least > 0)

    async def _come(self) -> None:
        world = self.world
        taken = {each.name for each in world.machines}
        name = next((name for name in NEW_NAMES if name not in taken), None)
        if name is None or self._is_busy:
            return
        world.figures["new machines"] += 1
        machine = world.add(name, SimulatedDisk())
        world.away.add(name)
        world.has_done(self._bring(machine))

    async def _drop(self) -> None:
        """Drop a replica, and declare it again with the same node."""
        world = self.world
        found = [each for each in world.machines if each.id and not each.leads]
        if found and not self._is_busy:
            self._drops = True
            world.has_done(self._drop_and_declare(self._chance.choice(found)))

    async def bring_who_knows_nobody(self) -> None:
        """Join a machine again that knows no other member: all that could name the leader were
        replaced while it was away."""
        world, lead = self.world, self.world.etcd.lead
        runs = [each for each in world.machines if each.answers and each.name not in world.away]
        if lead is None or self._is_busy:
            return
        lost = [each for each in runs if each.runs.member.row_of(lead.node) is None]
        asked = {each.id for each in runs if each not in lost}
        for machine in lost:
            rows = [machine.runs.member.row_of(node) for node in asked]
            if machine.id != lead.node and not any(rows) and self.may_lose(machine):
                world.figures["knew nobody"] += 1
                world.away.add(machine.name)
                machine.die(power=False)
                machine.wipe()
                world.has_done(self._bring(machine))
                return

    # --- how --------------------------------------------------------------------------------------

    async def _drop_and_declare(self, machine: SimulatedMember) -> None:
        world, leader = self.world, self.world.some_leader()
        if leader is not None:
            answer = await leader.ask(f"DROP REPLICA {machine.name} REASON 'for a while'")
            world.figures["dropped rows"] += isinstance(answer, ScriptAnswer) and not answer.refusal
        await asyncio.sleep(self._chance.choice((0.5, 3, 10)))
        row = f"{self._row(machine)} NODE '{machine.id}' ROLES {whole.ROLES}"
        while not await self._said(row):
            await asyncio.sleep(1)
        self._drops = False

    def _row(self, machine: SimulatedMember) -> str:
        name = machine.name
        return f"DEFINE REPLICA OVERWRITE {name} PEER '{name}:1' ENDPOINTS '{name}.example:8001'"

    async def _said(self, script: str) -> Any | None:
        """Run a script on the leader and return its values; None: it is not known to be done."""
        leader = self.world.some_leader()
        if leader is None:
            await self._ask_less_of_who_waits()
            return None
        self._found_waiting = 0
        answer = await leader.ask(script)
        refusal = answer.refusal if isinstance(answer, ScriptAnswer) else answer
        if isinstance(answer, ScriptAnswer) and refusal is None:
            return [one.value for one in answer.results]
        if isinstance(refusal, NotEnoughReplicas) and self._policies.most > 0:
            await self._policies.amend(leader, self._policies.most - 1)
        return None

    async def _ask_less_of_who_waits(self) -> None:
        """Lower ACKS on an elected leader that has waited too long for the followers its policy
        requires."""
        waits = [each for each in self.world.machines if each.answers and each.waits_with_lead]
        self._found_waiting = self._found_waiting + 1 if waits else 0
        if self._found_waiting > PATIENCE and self._policies.most > 0:
            self._found_waiting = 0
            await self._policies.amend(waits[0], self._policies.most - 1)

    async def _bring(self, machine: SimulatedMember) -> None:
        """Join a machine with an empty disk, and retry until it has joined."""
        world = self.world
        while not _has_joined(machine):
            await asyncio.sleep(1)
            if machine.process is not None:
                continue
            if not is_joining(machine.disk, PATH):
                await self._invite(machine)
            try:
                await machine.start()
            except (OSError, Refusal, StoreFault):
                if not _has_joined(machine):
                    world.figures["failed joins"] += 1
                    machine.wipe()
        world.away.discard(machine.name)
        await world.start(machine)

    async def _invite(self, machine: SimulatedMember) -> None:
        """Declare the replica again, and give the machine a token."""
        name = machine.name
        if self._chance.random() < 0.5:
            await self._said(f"DROP REPLICA {name}")
        row = f"{self._row(machine)} ROLES {whole.ROLES}"
        while (told := await self._said(f"{row}; CREATE JOIN TOKEN FOR {name}")) is None:
            await asyncio.sleep(1)
        leader = self.world.some_leader() or self.world.machines[0]
        machine.invited = JoinToken(told[-1]["token"], TokenLocation([leader.address], leader.name))


def _has_joined(machine: SimulatedMember) -> bool:
    return machine.disk.exists(f"{PATH}/STORE") and not is_joining(machine.disk, PATH)
