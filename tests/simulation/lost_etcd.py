"""Fault: etcd loses its data, and an operator names the node that goes on.

The operator follows `docs/running-a-cluster.md`. He waits until no node leads and every machine
with a store runs, and orders without FORCE first. Then he names with FORCE the node whose
`log_ends` in INFO FOR NODE is the latest: by the epoch, and within an epoch by the sequence. All
in-sync replicas are among those nodes, so nothing is lost, although no other record of the complete
node exists. After that the policy is put into force again.

Etcd is not restored to the state that some node knows as the newest: that can't be distinguished
from a correct etcd, and is no fault of the nodes. Before the order no node leads.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from protocol.agreement import AgreedState
from protocol.requests import ScriptAnswer
from storage.files.directory import is_joining
from tests.simulation.course import Act, Course
from tests.simulation.members import PATH, SimulatedMember
from tests.simulation.operators import Policies
from tests.simulation.promises import ClusterGuaranteeViolated

REMEMBERED: Final = 8
"""Number of etcd states kept as possible backups."""
LOOKS_SECONDS: Final = 1.0


class LostEtcd:
    """The loss of etcd in one world; it happens once."""

    def __init__(self, world: Course, policies: Policies) -> None:
        self.world = world
        self._policies = policies
        self._chance = world.chance
        self._kept: list[AgreedState] = []

    @property
    def acts(self) -> list[list[Act]]:
        return [[self._back_up, self._back_up, self._lose]]

    async def _back_up(self) -> None:
        self._kept = [*self._kept, self.world.etcd.agreed][-REMEMBERED:]

    async def _lose(self) -> None:
        """Empty etcd, replace it, or restore an older backup."""
        world = self.world
        agreed = world.etcd.agreed
        if world.figures["lost etcd"] or agreed.insync is None:
            return
        if not all(map(_knows, world.machines)):
            return
        kept, anew = AgreedState(agreed.cluster, 1, None, None), None
        kind = self._chance.randrange(3)
        if kind == 0:
            anew = "another"
        elif kind == 1:
            older = [one for one in self._kept if self._is_known_to_be_old(one)]
            if not older:
                return
            kept = self._chance.choice(older)
        world.figures["lost etcd"] += 1
        world.etcd_lies, world.promises.members = True, frozenset()
        world.etcd.set_back(kept, anew)
        if self._chance.random() < 0.4:  # all nodes with it: a restarted one remembers less
            for machine in world.machines:
                if machine.process is not None:
                    world.died(machine, power=True)
        world.has_done(self._set_right())

    def _is_known_to_be_old(self, kept: AgreedState) -> bool:
        """True if every machine has recorded a newer agreement than the backup, with a different
        ISR.

        With the present ISR no harm would be done.
        """
        return kept.insync != self.world.etcd.insync and all(
            _heard(machine) > kept.revision for machine in self.world.machines
        )

    # --- the operator -----------------------------------------------------------------------------

    async def _set_right(self) -> None:
        world = self.world
        while not await self._named():
            await asyncio.sleep(LOOKS_SECONDS)
        while world.promises.forced is not None:  # named, and not begun yet
            await asyncio.sleep(LOOKS_SECONDS)
            await self._named()
        if world.promises.losses:
            stays, had = world.promises.cuts[-1]
            raise ClusterGuaranteeViolated(
                f"{had} had been released, and {stays} are left behind an order by force"
            )
        while True:
            await asyncio.sleep(LOOKS_SECONDS)
            leader = world.some_leader()
            if leader is not None and await self._policies.amend(leader, world.shape.acks):
                return

    async def _named(self) -> bool:
        """Name the node that goes on. Return True if one was named."""
        world, lead = self.world, self.world.etcd.lead
        if lead is not None and world.etcd_lies:
            for machine in world.machines:
                if machine.id == lead.node and machine.leads:
                    raise ClusterGuaranteeViolated(
                        f"{machine.name} leads by an etcd that all know to be old"
                    )
        if lead is not None or any(_leads(machine) for machine in world.machines):
            return False
        if not all(machine.answers and _knows(machine) for machine in self._machines):
            return False
        for machine in self._machines:
            answer = await machine.ask("DEFINE NODE LEADS STORE")
            if isinstance(answer, ScriptAnswer) and answer.refusal is None:
                return not world.etcd_lies  # a leader by stale data is found next time
        return await self._force()

    @property
    def _machines(self) -> list[SimulatedMember]:
        """Return machines that hold a store; one that joins or is copied waits for a leader."""
        return [
            each
            for each in self.world.machines
            if each.name not in self.world.away and not is_joining(each.disk, PATH)
        ]

    async def _force(self) -> bool:
        world = self.world
        found = list[tuple[tuple[int, int, bool], SimulatedMember]]()
        for machine in self._machines:
            ends = await _log_ends(machine)
            if ends is None:
                return False
            found.append((ends, machine))
        if world.etcd.lead is not None:
            return False
        _, chosen = max(found, key=lambda one: one[0])
        self._policies.stands(0)
        world.promises.forced = chosen.id
        world.etcd_lies = False
        world.figures["forced"] += 1
        await chosen.ask("DEFINE NODE LEADS STORE FORCE REASON 'etcd was lost'")
        return True


async def _log_ends(machine: SimulatedMember) -> tuple[int, int, bool] | None:
    """Return epoch and sequence of the last frame on a machine's disk, as it reports; None: no
    answer.

    The third value breaks ties: True if the node is declared as coordinating.
    """
    answer = await machine.ask("INFO FOR NODE")
    if not isinstance(answer, ScriptAnswer) or answer.refusal is not None:
        return None
    told: Any = answer.results[-1].value
    ends = told["log_ends"]
    return ends["epoch"], ends["sequence"], told["coordinates"]


def _leads(machine: SimulatedMember) -> bool:
    return machine.node is not None and machine.node.member.leadership is not None


def _knows(machine: SimulatedMember) -> bool:
    """True if a machine has a store, and has received etcd's state."""
    return machine.node is not None and _heard(machine) > 1


def _heard(machine: SimulatedMember) -> int:
    """Return the revision of etcd that a machine has stored."""
    stands = None if machine.node is None else machine.node.member.memory.stored
    return 0 if stands is None else stands.revision
