"""Clients of a cluster that write and read on any node. Their answers are checked against the
released frames, and against each other."""

from __future__ import annotations

import asyncio
import random
from typing import Any, Final

from protocol.errors import Refusal
from protocol.requests import ScriptAnswer
from tests.simulation.course import Course
from tests.simulation.judged import DEFINITIONS, Judged
from tests.simulation.members import SimulatedMember
from tests.simulation.promises import ClusterGuaranteeViolated

TABLES: Final = (
    "DEFINE TABLE t; DEFINE TABLE c; CREATE c:1 SET n = 0; CREATE c:2 SET n = 0;"
    f" DEFINE TOPIC q; DEFINE SPACE s; {DEFINITIONS}"
)
READ: Final = (
    "BEGIN; LET $t = (SELECT VALUE record::id(id) FROM t); LET $c = (SELECT VALUE n FROM c:1);"
    " RETURN [$t, $c]; COMMIT"
)
PASSING: Final = frozenset(
    {
        "NotWritable", "NotEnoughReplicas", "Busy", "DiskFull", "Draining", "UnknownOutcome",
        "StatementTimeout", "Conflict",
    }
)  # fmt: skip
"""Errors that clients may get while faults are active."""
UNDONE: Final = frozenset({"NotWritable", "NotEnoughReplicas", "Busy", "DiskFull", "Draining"})
"""Errors of `PASSING` that guarantee that nothing was done."""


class Clients:
    def __init__(self, world: Course) -> None:
        self.world = world
        self.markers = 0
        self.sure: dict[int, int] = {}
        """Acknowledged markers, with the sequence of their commit."""
        self.never: set[int] = set()
        """Markers whose commit was refused."""
        self.steps: dict[int, int] = {}
        """Answered values of the counter, by the sequence of the commit."""
        self.counted = 0
        """Increments sent, whatever their outcome."""
        self.read: dict[int, Any] = {}
        """Answers of reads, by the sequence of the snapshot."""
        self.shown: dict[tuple[str, int], int] = {}
        """Newest sequence read from a directory, which must never go back."""
        self.newest = 0
        """Newest acknowledged commit."""
        self.judged = Judged(world, self._acknowledged, self._refused)

    async def go_on(self, chance: random.Random) -> None:
        while True:
            await asyncio.sleep(chance.choice((0.01, 0.05, 0.2, 1.0)))
            machine = self.world.some_leader() if chance.random() < 0.8 else None
            machine = machine or chance.choice(self.world.machines)
            if chance.random() < 0.5:
                await chance.choice(self.judged.acts)(machine, chance)
            else:
                mine = (
                    self.create, self.create, self.count, self.publish, self.look, self.look_now,
                )  # fmt: skip
                await chance.choice(mine)(machine)

    async def create(self, machine: SimulatedMember) -> bool:
        """Create a record with a unique name. Return True if it was acknowledged."""
        self.markers += 1
        marker = self.markers
        answer = await machine.ask(f"CREATE t:{marker}")
        if answer is None:
            return False
        refusal = answer if isinstance(answer, Refusal) else answer.refusal
        if refusal is None:
            assert isinstance(answer, ScriptAnswer)
            self._acknowledged(machine, answer)
            self.sure[marker] = answer.sequence
            return True
        if self._refused(refusal):
            self.never.add(marker)
        return False

    async def count(self, machine: SimulatedMember) -> None:
        self.counted += 1
        answer = await machine.ask("UPDATE c:1 SET n = n + 1 RETURN n")
        if isinstance(answer, ScriptAnswer) and answer.refusal is None:
            self._acknowledged(machine, answer)
            found: Any = answer.results[-1].value
            self.steps[answer.sequence] = found[0]["n"]
        elif answer is not None:
            self._refused(answer if isinstance(answer, Refusal) else answer.refusal)

    async def publish(self, machine: SimulatedMember) -> None:
        """Publish a message and set a key, in one commit."""
        self.markers += 1
        script = f"BEGIN; PUBLISH INTO q VALUE {self.markers}; SET 'k' IN s VALUE 1; COMMIT"
        answer = await machine.ask(script)
        if isinstance(answer, ScriptAnswer) and answer.refusal is None:
            self._acknowledged(machine, answer)
        elif answer is not None:
            self._refused(answer if isinstance(answer, Refusal) else answer.refusal)

    async def look(self, machine: SimulatedMember) -> None:
        """Read on any machine; sometimes at least the newest acknowledged commit (`after`)."""
        after = self.newest if self.world.chance.random() < 0.5 else None
        await self._read(machine, after)

    async def look_now(self, _machine: SimulatedMember) -> None:
        """Read with CURRENT on any machine: at least everything released anywhere before the
        request."""
        released = len(self.world.promises.truth)
        await self._read(self.world.chance.choice(self.world.machines), released, current=True)

    async def look_at(self, machine: SimulatedMember) -> None:
        """Read the present state of a machine."""
        await self._read(machine, None)

    async def _read(
        self, machine: SimulatedMember, after: int | None, *, current: bool = False
    ) -> None:
        losses, directory = self.world.promises.losses, machine.directory
        shown = self.shown.get(directory, 0)
        answer = await machine.ask(READ, None if current else after, current=current)
        if answer is None or losses != self.world.promises.losses:
            return
        refusal = answer if isinstance(answer, Refusal) else answer.refusal
        if refusal is not None:
            self._refused(refusal)
            return
        assert isinstance(answer, ScriptAnswer)
        if after is not None and answer.sequence < after:
            raise ClusterGuaranteeViolated(
                f"{machine.name} reads at {answer.sequence}, and {after} was asked for"
            )
        if machine.directory == directory:  # else an older copy came in its place meanwhile
            if answer.sequence < shown:
                raise ClusterGuaranteeViolated(
                    f"{machine.name} shows {answer.sequence}, and has shown {shown}"
                )
            self.shown[directory] = max(self.shown.get(directory, 0), answer.sequence)
        self.heard(machine, answer)

    def heard(self, machine: SimulatedMember, answer: ScriptAnswer) -> None:
        """Check a read against the acknowledged writes up to its sequence, and against other reads
        there."""
        at = answer.sequence
        found: Any = next(r.value for r in reversed(answer.results) if isinstance(r.value, list))
        if self.read.setdefault(at, found) != found:
            raise ClusterGuaranteeViolated(
                f"{machine.name} reads {found} at {at}, where {self.read[at]} was read"
            )
        held = set(found[0])
        lacks = {marker for marker, seq in self.sure.items() if seq <= at} - held
        early = {marker for marker, seq in self.sure.items() if seq > at} & held
        if lacks or early or held & self.never:
            raise ClusterGuaranteeViolated(
                f"{machine.name} at {at} lacks {lacks}, has {early} too early, and"
                f" {held & self.never} that were refused"
            )
        counted = found[1][0] if isinstance(found[1], list) else found[1]
        least = max((n for seq, n in self.steps.items() if seq <= at), default=0)
        most = min((n for seq, n in self.steps.items() if seq > at), default=1 << 60)
        if not least <= counted < most:
            raise ClusterGuaranteeViolated(
                f"{machine.name} counts {counted} at {at}: {least} were told, and {most}"
            )

    def _acknowledged(self, machine: SimulatedMember, answer: ScriptAnswer) -> None:
        at, truth = answer.sequence, self.world.promises.truth
        if at > len(truth) or truth[at - 1].digest != machine.handed.get(at):
            raise ClusterGuaranteeViolated(
                f"{machine.name} has acknowledged {at}, which was not released"
            )
        self.newest = max(self.newest, at)
        self.world.figures["acknowledged"] += 1

    def _refused(self, refusal: Refusal | None) -> bool:
        """Count an error. Return True if nothing was done for sure."""
        assert refusal is not None
        self.world.figures[refusal.code] += 1
        if refusal.code not in PASSING:
            raise ClusterGuaranteeViolated(
                f"a client was refused with {refusal.code}: {refusal.message}"
            )
        return refusal.code in UNDONE and "committed" not in refusal.detail

    def forget(self, stays: int) -> None:
        """Forget commits after `stays`: a lineage was begun by force, and later ones may be
        lost."""
        self.sure = {marker: at for marker, at in self.sure.items() if at <= stays}
        self.steps = {at: n for at, n in self.steps.items() if at <= stays}
        self.read = {at: found for at, found in self.read.items() if at <= stays}
        self.newest = min(self.newest, stays)
        self.shown.clear()
