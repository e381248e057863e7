"""What operators of a cluster do, while all goes on and when they look at how it stands."""

from __future__ import annotations

from protocol.requests import ScriptAnswer
from storage.directory import is_joining
from tests.simulation.course import Act, Course
from tests.simulation.members import PATH


class Operators:
    """Those of one world."""

    def __init__(self, world: Course) -> None:
        self.world = world
        self._chance = world.chance
        self._amending: list[int] = []
        """`ACKS` of the policies that were asked for and not answered: each may be in force."""

    @property
    def acts(self) -> list[list[Act]]:
        """What may happen, by what belongs together."""
        return [[self._amend], [self._lead_by_hand]]

    async def _amend(self) -> None:
        """Another policy, on whoever leads."""
        machine = self.world.some_leader()
        if machine is None:
            return
        acks = self._chance.randrange(3)
        self._amending.append(acks)
        self.world.promises.acks |= {acks}
        behind = self._chance.choice((None, "400ms", "2s"))

        async def amend() -> None:
            try:
                answer = await machine.ask(self.world.shape.policy(acks, behind))
            finally:
                self._amending.remove(acks)
            if isinstance(answer, ScriptAnswer) and answer.refusal is None:
                # What was refused, or lost its answer, was before this one; the others may follow.
                self.world.promises.acks = frozenset({acks, *self._amending})
                self.world.figures["amended"] += 1

        self.world.has_done(amend())

    async def _lead_by_hand(self) -> None:
        machine = self.world.some()
        if machine is not None:
            self.world.has_done(machine.ask("DEFINE NODE LEADS STORE"))

    async def operate(self) -> None:
        """What an operator does who looks at how it stands."""
        for machine in self.world.machines:
            if machine.process is None:
                await self.world.start(machine)
            elif is_joining(machine.disk, PATH) and machine.node is not None:
                await machine.stop()  # its next start copies the store anew
                await self.world.start(machine)
        insync = self.world.etcd.insync
        if self.world.etcd.lead is not None or insync is None:
            return
        for machine in self.world.machines:
            if machine.id in insync.members and machine.answers:
                await machine.ask("DEFINE NODE LEADS STORE")
                return
