"""Fault: an older copy of a member's directory is put back, as a machine snapshot or a backup of
files.

Copies are taken at any time after the policy is in force. A machine that starts on one has the id
of the original node; `promises.py` states the invariants for that case.
"""

from __future__ import annotations

from typing import Final

from storage.files.directory import is_joining
from tests.simulation.course import Act, Course
from tests.simulation.joining_machines import JoiningMachines
from tests.simulation.members import PATH, DirectoryCopy, SimulatedMember

REMEMBERED: Final = 6
"""Number of copies kept to be put back."""


class OlderCopies:
    """The older copies of one world.

    Each loses the newer content of its node. So they come as lost disks do: one at a time, and only
    if another disk holds everything.
    """

    def __init__(self, world: Course, newcomers: JoiningMachines) -> None:
        self.world = world
        self._newcomers = newcomers
        self._chance = world.chance
        self._kept: list[DirectoryCopy] = []

    @property
    def acts(self) -> list[list[Act]]:
        return [[self._copy, self._copy, self._put_back]]

    async def _copy(self) -> None:
        machine = self._chance.choice(self.world.machines)
        if machine.id and machine.name not in self.world.away and not _is_joining(machine):
            self._kept = [*self._kept, machine.copied()][-REMEMBERED:]

    async def _put_back(self) -> None:
        """Kill a machine and replace its directory by an older copy."""
        world = self.world
        copy = self._chance.choice(self._kept) if self._kept else None
        for machine in world.machines:
            if copy is None or machine.id != copy.node or machine.process is None:
                continue
            if not _is_joining(machine) and self._newcomers.may_lose(machine):
                world.figures["put back"] += 1
                world.died(machine, power=False)
                machine.put_back(copy)


def _is_joining(machine: SimulatedMember) -> bool:
    return is_joining(machine.disk, PATH)
