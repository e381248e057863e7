"""Runtime of a world of members: pending repairs, background tasks, and choice of machines.

Faults are in `machine_faults.py`, operators in `operators.py`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final

from protocol.errors import Refusal
from storage.faults import CopyFailed, StoreFault
from tests.simulation.agreement import Fate
from tests.simulation.disk import NO_LIMIT
from tests.simulation.members import Members, SimulatedMember
from tests.simulation.promises import ClusterGuaranteeViolated
from tests.simulation.shape import ClusterShape

SECOND_US: Final = 1_000_000
HOUR_US: Final = 3600 * SECOND_US

Act = Callable[[], Awaitable[None]]


class Course(Members):
    def __init__(self, seed: int, shape: ClusterShape) -> None:
        super().__init__(seed, shape)
        self.figures = Counter[str]()
        self.later: list[tuple[float, Act]] = []
        """Repairs of faults, and when they are due, seconds of the loop."""
        self.sky = "clear"
        self.tasks: set[asyncio.Task[Any]] = set()
        """Background tasks."""
        self.away: set[str] = set()
        """Machines that an operator brings into the cluster, by name: nothing else starts them."""

    def has_done(self, work: Any) -> None:
        """Run a task in the background; its failure ends the world."""
        task = asyncio.ensure_future(work)
        self.tasks.add(task)

        def done(_: object) -> None:
            self.tasks.discard(task)
            error = None if task.cancelled() else task.exception()
            if error is not None and not self.broken.done():
                self.broken.set_exception(error)

        task.add_done_callback(done)

    # --- choice of machines ---------------------------------------------------------------------

    def some_leader(self) -> SimulatedMember | None:
        """Return a random machine that believes to lead; None: no machine does."""
        found = [each for each in self.machines if each.answers and each.leads]
        return self.chance.choice(found) if found else None

    def some(self) -> SimulatedMember | None:
        """Return a random machine that runs, with a preference for a leader."""
        found = [each for each in self.machines if each.answers]
        leads = self.some_leader()
        if leads is not None and self.chance.random() < 0.4:
            return leads
        return self.chance.choice(found) if found else None

    # --- what is undone later -------------------------------------------------------------------

    def do_later(self, seconds: float, undo: Act) -> None:
        """Schedule the repair of a fault, in so many seconds or somewhat later."""
        self.later.append((asyncio.get_running_loop().time() + seconds, undo))

    async def undo_some(self) -> None:
        """Run the repairs that are due."""
        now = asyncio.get_running_loop().time()
        due, self.later = (
            [one for one in self.later if one[0] <= now],
            [one for one in self.later if one[0] > now],
        )
        for _, undo in due:
            await undo()

    async def start(self, machine: SimulatedMember) -> None:
        """Start a machine that does not run. On a full disk it does not start."""
        if machine.process is not None or machine.name in self.away:
            return
        try:
            await machine.start()
        except (OSError, Refusal, StoreFault) as why:
            if machine.disk.capacity == NO_LIMIT and not isinstance(why, CopyFailed):
                raise ClusterGuaranteeViolated(f"{machine.name} does not start: {why!r}") from why
            self.do_later(1, lambda: self.begin(machine))

    async def begin(self, machine: SimulatedMember) -> None:
        """Start a machine in the background: a copy of the store takes a while."""
        self.has_done(self.start(machine))

    def died(self, machine: SimulatedMember, power: bool) -> None:
        super().died(machine, power)
        self.figures["deaths"] += 1
        self.do_later(self.chance.choice((0, 0.2, 2, 8)), lambda: self.begin(machine))

    # --- etcd -------------------------------------------------------------------------------------

    def weather(self, machine: SimulatedMember) -> tuple[Fate, float]:
        chance = self.chance
        if self.sky == "silent":
            return chance.choice((Fate.REFUSED, Fate.LOST)), 0.01
        if self.sky == "slow":
            return Fate.ANSWERED, chance.uniform(0.1, 4)
        if self.sky == "lossy" and chance.random() < 0.5:
            return chance.choice((Fate.REFUSED, Fate.LOST, Fate.UNHEARD, Fate.LATE)), 0.01
        return super().weather(machine)
