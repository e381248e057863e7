"""Watchers: check the nodes of a cluster more closely than clients do.

- They ask each node which sequence a CURRENT read has to show (linearizable read). They ask in the
  rounds of the loop in which the node changes its life, and now and then as more is released. It
  must be at least everything that was released before the request.
- They read from a machine as soon as it runs again, and go on. The sequence that a machine shows
  never goes back, whatever happened to its process in between. Losses of a lineage begun by force
  are excepted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from protocol.errors import Refusal
from tests.simulation.members import Members, SimulatedMember
from tests.simulation.processes import ProcessLoop
from tests.simulation.promises import ClusterGuaranteeViolated

ROUNDS: Final = 4
"""Rounds of the loop in which a node is asked after it has changed its life."""
ASKED_EVERY_SECONDS: Final = 0.02
"""Least interval between two requests to a node as more is released, seconds."""
LOOKS_EVERY_SECONDS: Final = 0.004
LOOKS_SECONDS: Final = 2.0
"""So often, and for so long, it is looked whether one that was started shows something else."""


class Watchers:
    """The watchers of one world.

    :param look_at: reads the present state of a machine, and checks it
    """

    def __init__(
        self, world: Members, look_at: Callable[[SimulatedMember], Awaitable[None]] | None = None
    ) -> None:
        self.world = world
        self._look_at = look_at
        self.asked = 0
        """Number of requests to nodes."""
        self._stands: dict[str, tuple[object, ...]] = {}
        """By machine, the role of its node at the last round."""
        self._rounds: dict[str, int] = {}
        """Rounds left in which a node is asked, by machine."""
        self._waits = set[asyncio.Future[int]]()
        self._asked_at: dict[str, tuple[int, float]] = {}
        """By machine, the newest released sequence at the last request, and its time."""

    def begin(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ProcessLoop), "its loop has rounds"
        loop.on_round = self._look

    def _look(self) -> None:
        """Choose the nodes to ask, in each round of the loop."""
        world, now = self.world, asyncio.get_running_loop().time()
        released = len(world.promises.truth)
        for machine in world.machines:
            if not machine.answers:
                continue
            name, member = machine.name, machine.runs.member
            stands = machine.life, member.follow_task, member.leadership
            if stands != self._stands.get(name):
                self._stands[name], self._rounds[name] = stands, ROUNDS
            left = self._rounds.get(name, 0)
            had, at = self._asked_at.get(name, (0, 0.0))
            if left or (released > had and now > at + ASKED_EVERY_SECONDS):
                self._rounds[name] = max(0, left - 1)
                self._asked_at[name] = released, now
                world.seen(lambda machine=machine: self._ask(machine))  # type: ignore[misc]

    def _ask(self, machine: SimulatedMember) -> None:
        """Check the sequence that a CURRENT read would wait for."""
        promises, process = self.world.promises, machine.process
        if promises.forced is not None:
            return  # a lineage begins, which may lack something
        assert process is not None
        released, losses = len(promises.truth), promises.losses

        def check(found: int) -> None:
            if found < released and losses == promises.losses:
                raise ClusterGuaranteeViolated(
                    f"{machine.name} takes {found} for current, and {released} were released"
                )

        def heard(done: asyncio.Future[int]) -> None:
            if not done.cancelled() and done.exception() is None and not process.is_dead:
                self.world.seen(lambda: check(done.result()))

        try:
            found = process.run(machine.runs.cluster.present)
        except Refusal:
            return
        self.asked += 1
        if isinstance(found, int):
            check(found)
        else:
            self._waits.add(found)
            found.add_done_callback(self._waits.discard)
            found.add_done_callback(heard)

    def end(self) -> None:
        for each in list(self._waits):
            each.cancel()

    async def read_on(self, machine: SimulatedMember) -> None:
        """Read from a machine after its start, for `LOOKS_SECONDS`, whenever its state has
        changed."""
        assert self._look_at is not None, "nobody reads"
        loop, process = asyncio.get_running_loop(), machine.process
        until, seen = loop.time() + LOOKS_SECONDS, None
        while loop.time() < until and machine.process is process and machine.node is not None:
            stands = machine.node.member.has_caught_up, machine.node.committer.commit_index
            if stands != seen:
                seen = stands
                await self._look_at(machine)
            await asyncio.sleep(LOOKS_EVERY_SECONDS)
