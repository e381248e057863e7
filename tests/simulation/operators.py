"""What operators of a cluster do, while all goes on and when they look at how it stands."""

from __future__ import annotations

from protocol.requests import ScriptAnswer
from storage.directory import is_joining
from tests.simulation.course import Act, Course
from tests.simulation.members import PATH, Member


class Policies:
    """Which policy stands, as far as operators know: the judge holds nodes to the least that it may
    say."""

    def __init__(self, world: Course) -> None:
        self.world = world
        self._stands: tuple[int, frozenset[int]] = (0, frozenset())
        """The commit of the newest that was acknowledged, and what `ACKS` may say since."""
        self._asked: list[int] = []
        """What was asked for and not answered yet."""

    @property
    def least(self) -> int:
        """The least that `ACKS` may say."""
        return min(self.world.promises.acks)

    @property
    def most(self) -> int:
        """The most that it may say."""
        return max(self.world.promises.acks)

    @property
    def since(self) -> int:
        """The commit of the newest that was acknowledged."""
        return self._stands[0]

    def stands(self, acks: int, sequence: int = 0) -> None:
        """It is known to say this, since some commit."""
        if sequence >= self._stands[0]:
            self._stands = sequence, frozenset({acks})
        self._tell()

    def may_stand(self, acks: int) -> None:
        """It may say this as well, and nobody heard."""
        self._stands = self._stands[0], self._stands[1] | {acks}
        self._tell()

    async def amend(self, machine: Member, acks: int, behind: str | None = None) -> bool:
        """Have another policy put into force by a node. Answers whether it is for sure."""
        self._asked.append(acks)
        self._tell()
        answer = await machine.ask(self.world.shape.policy(acks, behind))
        self._asked.remove(acks)
        if isinstance(answer, ScriptAnswer) and answer.refusal is None:
            self.stands(acks, answer.sequence)
            self.world.figures["amended"] += 1
            return True
        self.may_stand(acks)
        return False

    def _tell(self) -> None:
        self.world.promises.acks = self._stands[1] | set(self._asked)


class Operators:
    """Those of one world."""

    def __init__(self, world: Course) -> None:
        self.world = world
        self.policies = Policies(world)
        self._chance = world.chance

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
        behind = self._chance.choice((None, "400ms", "2s"))
        self.world.has_done(self.policies.amend(machine, acks, behind))

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
