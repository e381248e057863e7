"""Older copies of members' directories, put back: snapshots of machines, files of last week.

They are taken at any moment, from when the policy stands. A machine that finds one when it starts
has the id of the node whose it was; `promises.py` says what may not come of that.
"""

from __future__ import annotations

from typing import Final

from storage.directory import is_joining
from tests.simulation.course import Act, Course
from tests.simulation.members import PATH, Copy, Member
from tests.simulation.newcomers import Newcomers

REMEMBERED: Final = 6
"""Copies that may be put back."""


class OlderCopies:
    """Those of one world. What its node held is lost with each, so they come as lost disks do: one
    at a time, and where another disk holds everything."""

    def __init__(self, world: Course, newcomers: Newcomers) -> None:
        self.world = world
        self._newcomers = newcomers
        self._chance = world.chance
        self._kept: list[Copy] = []

    @property
    def acts(self) -> list[list[Act]]:
        """What may happen, by what belongs together."""
        return [[self._copy, self._copy, self._put_back]]

    async def _copy(self) -> None:
        """Somebody's directory is copied."""
        machine = self._chance.choice(self.world.machines)
        if machine.id and machine.name not in self.world.away and not _is_joining(machine):
            self._kept = [*self._kept, machine.copied()][-REMEMBERED:]

    async def _put_back(self) -> None:
        """A machine is killed, and finds an older copy when it is started again."""
        world = self.world
        copy = self._chance.choice(self._kept) if self._kept else None
        for machine in world.machines:
            if copy is None or machine.id != copy.node or machine.process is None:
                continue
            if not _is_joining(machine) and self._newcomers.may_lose(machine):
                world.figures["put back"] += 1
                world.died(machine, power=False)
                machine.put_back(copy)


def _is_joining(machine: Member) -> bool:
    return is_joining(machine.disk, PATH)
