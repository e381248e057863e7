"""A world of members in which much happens: what is undone later, what goes on beside all else, and
who is asked.

What goes wrong in it is in `mishaps.py`, what operators do in `operators.py`.
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
from tests.simulation.members import Member, Members
from tests.simulation.promises import Broken
from tests.simulation.shape import Shape

SECOND_US: Final = 1_000_000
HOUR_US: Final = 3600 * SECOND_US

Act = Callable[[], Awaitable[None]]


class Course(Members):
    """One of them."""

    def __init__(self, seed: int, shape: Shape) -> None:
        super().__init__(seed, shape)
        self.figures = Counter[str]()
        self.later: list[tuple[float, Act]] = []
        """What is undone, and when."""
        self.sky = "clear"
        self.tasks: set[asyncio.Task[Any]] = set()
        """What goes on beside all else."""
        self.away: set[str] = set()
        """Machines that somebody brings into the cluster, by name: nobody else starts them."""

    def has_done(self, work: Any) -> None:
        """Have something done beside all else; what breaks in it ends the world."""
        task = asyncio.ensure_future(work)
        self.tasks.add(task)

        def done(_: object) -> None:
            self.tasks.discard(task)
            error = None if task.cancelled() else task.exception()
            if error is not None and not self.broken.done():
                self.broken.set_exception(error)

        task.add_done_callback(done)

    # --- who is who -----------------------------------------------------------------------------

    def some_leader(self) -> Member | None:
        """Somebody who believes to lead."""
        found = [each for each in self.machines if each.answers and each.leads]
        return self.chance.choice(found) if found else None

    def some(self) -> Member | None:
        """Somebody who runs; more often one who leads."""
        found = [each for each in self.machines if each.answers]
        leads = self.some_leader()
        if leads is not None and self.chance.random() < 0.4:
            return leads
        return self.chance.choice(found) if found else None

    # --- what is undone later -------------------------------------------------------------------

    def do_later(self, seconds: float, undo: Act) -> None:
        """Have something undone in so many seconds, or somewhat later."""
        self.later.append((asyncio.get_running_loop().time() + seconds, undo))

    async def undo_some(self) -> None:
        """Undo what is due."""
        now = asyncio.get_running_loop().time()
        due, self.later = (
            [one for one in self.later if one[0] <= now],
            [one for one in self.later if one[0] > now],
        )
        for _, undo in due:
            await undo()

    async def start(self, machine: Member) -> None:
        """Have it run, if it does not. On a full disk it does not."""
        if machine.process is not None or machine.name in self.away:
            return
        try:
            await machine.start()
        except (OSError, Refusal, StoreFault) as why:
            if machine.disk.capacity == NO_LIMIT and not isinstance(why, CopyFailed):
                raise Broken(f"{machine.name} does not start: {why!r}") from why
            self.do_later(1, lambda: self.begin(machine))

    async def begin(self, machine: Member) -> None:
        """The same, while all goes on: who has to be copied takes a while."""
        self.has_done(self.start(machine))

    def died(self, machine: Member, power: bool) -> None:
        super().died(machine, power)
        self.figures["deaths"] += 1
        self.do_later(self.chance.choice((0, 0.2, 2, 8)), lambda: self.begin(machine))

    # --- etcd -------------------------------------------------------------------------------------

    def weather(self, machine: Member) -> tuple[Fate, float]:
        chance = self.chance
        if self.sky == "silent":
            return chance.choice((Fate.REFUSED, Fate.LOST)), 0.01
        if self.sky == "slow":
            return Fate.ANSWERED, chance.uniform(0.1, 4)
        if self.sky == "lossy" and chance.random() < 0.5:
            return chance.choice((Fate.REFUSED, Fate.LOST, Fate.UNHEARD, Fate.LATE)), 0.01
        return super().weather(machine)
