"""Members that come new, lose their disks and join anew, are dropped and declared again.

What an operator does follows `docs/running-a-cluster.md`: the row goes and comes, a token is made
by whoever leads, a directory that joins is empty. Where too few are left in the set for a row to
go, the policy asks for fewer first.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from protocol.errors import NotEnoughReplicas, Refusal
from protocol.requests import ScriptAnswer
from storage.directory import is_joining
from storage.faults import StoreFault
from storage.join_tokens import Invitation, Where
from tests.actors.cluster import whole
from tests.simulation.course import Act, Course
from tests.simulation.disk import SimulatedDisk
from tests.simulation.members import PATH, Member
from tests.simulation.operators import Policies

NEW_NAMES: Final = "xyz"
"""Machines that a world may get beside those that it begins with."""
LOST_DISKS: Final = 2
"""So many are lost in one world, at the most."""
PATIENCE: Final = 10
"""So often an operator finds that who has the lead waits for those who are gone, a second apart,
before the policy asks for fewer."""


class Newcomers:
    """Those of one world. One at a time is on its way: more losses at once than the policy bears
    are no fault of the nodes."""

    def __init__(self, world: Course, policies: Policies) -> None:
        self.world = world
        self._policies = policies
        self._chance = world.chance
        self._drops = False
        """Whether a row is away."""
        self._found_waiting = 0
        """How often in a row who has the lead was found to wait for others."""

    @property
    def _is_busy(self) -> bool:
        world = self.world
        lacks = any(each.medium.went_back for each in world.machines)
        return bool(world.away or self._drops or lacks or world.etcd_lies or world.promises.forced)

    @property
    def acts(self) -> list[list[Act]]:
        """What may happen, by what belongs together."""
        return [[self._lose_disk], [self._come], [self._drop]]

    # --- what happens -----------------------------------------------------------------------------

    async def _lose_disk(self) -> None:
        """A machine loses its disk; its place is taken by a new one."""
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

    def may_lose(self, machine: Member) -> bool:
        """Whether another disk holds all that was released, whatever is on its way to etcd, and
        none was lost just now."""
        if self._is_busy:
            return False
        agreed, media = self.world.etcd.agreed, self.world.promises.media
        there = {node for node, medium in media.items() if not medium.is_lost}
        held = frozenset() if agreed.insync is None else agreed.insync.members & there
        leads = agreed.lead is not None and agreed.lead.node == machine.id
        return bool(held - {machine.id}) and (not leads or self._policies.least > 0)

    async def _come(self) -> None:
        """A machine more."""
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
        """A row goes, and comes again with the node that it named."""
        world = self.world
        found = [each for each in world.machines if each.id and not each.leads]
        if found and not self._is_busy:
            self._drops = True
            world.has_done(self._drop_and_declare(self._chance.choice(found)))

    async def bring_who_knows_nobody(self) -> None:
        """Who was away while all were made anew who could tell it who leads joins anew likewise."""
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

    async def _drop_and_declare(self, machine: Member) -> None:
        world, leader = self.world, self.world.some_leader()
        if leader is not None:
            answer = await leader.ask(f"DROP REPLICA {machine.name} REASON 'for a while'")
            world.figures["dropped rows"] += isinstance(answer, ScriptAnswer) and not answer.refusal
        await asyncio.sleep(self._chance.choice((0.5, 3, 10)))
        row = f"{self._row(machine)} NODE '{machine.id}' ROLES {whole.ROLES}"
        while not await self._said(row):
            await asyncio.sleep(1)
        self._drops = False

    def _row(self, machine: Member) -> str:
        name = machine.name
        return f"DEFINE REPLICA OVERWRITE {name} PEER '{name}:1' ENDPOINTS '{name}.example:8001'"

    async def _said(self, script: str) -> Any | None:
        """What whoever leads answers, at last a list; None: nobody hears that it was done."""
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
        """Who has taken the lead, and lacks followers to show anything by its policy, is told to go
        on with fewer, once it has waited for a while."""
        waits = [each for each in self.world.machines if each.answers and each.waits_with_lead]
        self._found_waiting = self._found_waiting + 1 if waits else 0
        if self._found_waiting > PATIENCE and self._policies.most > 0:
            self._found_waiting = 0
            await self._policies.amend(waits[0], self._policies.most - 1)

    async def _bring(self, machine: Member) -> None:
        """Have a machine with an empty disk join, and join again where that fails."""
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

    async def _invite(self, machine: Member) -> None:
        """Declare its row anew, and give it a token."""
        name = machine.name
        if self._chance.random() < 0.5:
            await self._said(f"DROP REPLICA {name}")
        row = f"{self._row(machine)} ROLES {whole.ROLES}"
        while (told := await self._said(f"{row}; CREATE JOIN TOKEN FOR {name}")) is None:
            await asyncio.sleep(1)
        leader = self.world.some_leader() or self.world.machines[0]
        machine.invited = Invitation(told[-1]["token"], Where([leader.address], leader.name))


def _has_joined(machine: Member) -> bool:
    """Whether its directory holds the store."""
    return machine.disk.exists(f"{PATH}/STORE") and not is_joining(machine.disk, PATH)
