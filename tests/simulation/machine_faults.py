"""Faults of machines, links, disks, clocks and etcd (nemesis)."""

from __future__ import annotations

from tests.simulation.agreement import Fate
from tests.simulation.course import HOUR_US, SECOND_US, Act, Course
from tests.simulation.disk import NO_LIMIT


class MachineFaults:
    def __init__(self, world: Course) -> None:
        self.world = world
        self._chance = world.chance

    @property
    def acts(self) -> list[list[Act]]:
        return [
            [self._kill, self._kill, self._kill_within],
            [self._kill_all],
            [self._stop],
            [self._pause, self._pause],
            [self._cut, self._cut, self._isolate],
            [self._silence, self._cloud],
            [self._fill],
            [self._set_wall],
        ]

    async def _kill(self) -> None:
        machine = self.world.some()
        if machine is not None:
            self.world.died(machine, power=self._chance.random() < 0.6)

    async def _kill_within(self) -> None:
        machine = self.world.some()
        if machine is not None:
            machine.die_within(self._chance.randrange(1, 40), power=self._chance.random() < 0.8)

    async def _kill_all(self) -> None:
        if self._chance.random() < 0.3:
            for machine in self.world.machines:
                if machine.process is not None:
                    self.world.died(machine, power=self._chance.random() < 0.8)

    async def _stop(self) -> None:
        machine = self.world.some()
        if machine is not None:
            await machine.stop()
            self.world.do_later(self._chance.choice((0, 1, 5)), lambda: self.world.begin(machine))

    async def _pause(self) -> None:
        """Pause a machine: shorter than the lease, about as long, or longer."""
        machine = self.world.some()
        if machine is None:
            return
        resume = machine.pause(suspended=self._chance.random() < 0.5)

        async def undo() -> None:
            resume()

        lease = self.world.shape.lease_s
        self.world.do_later(
            self._chance.choice((0.1, 0.5, lease * 0.7, lease + 0.5, 3 * lease)), undo
        )

    async def _cut(self) -> None:
        one, other = self._chance.sample(self.world.machines, 2)
        ways = self._chance.choice((((one, other),), ((one, other), (other, one))))
        for source, target in ways:
            self.world.network.cut(source.address, target.address)

        async def undo() -> None:
            for source, target in ways:
                self.world.network.mend(source.address, target.address)

        self.world.do_later(self._chance.choice((0.5, 2, 6, 40)), undo)

    async def _isolate(self) -> None:
        """Isolate a machine from all others, from etcd, or from both."""
        machine, kind = self._chance.choice(self.world.machines), self._chance.randrange(3)
        if kind != 0:
            machine.etcd = self._chance.choice((Fate.REFUSED, Fate.LOST))
        if kind != 1:
            self.world.network.pause(machine.address)

        async def undo() -> None:
            machine.etcd = Fate.ANSWERED
            self.world.network.resume(machine.address)

        self.world.do_later(self._chance.choice((0.5, 2, 6, 12)), undo)

    async def _silence(self) -> None:
        """Make etcd unreachable for all machines."""
        self.world.sky = "silent"
        self.world.do_later(self._chance.choice((1, 4, 10)), self._clear)

    async def _cloud(self) -> None:
        """Make etcd slow, or lose its requests and answers."""
        self.world.sky = self._chance.choice(("slow", "lossy"))
        self.world.do_later(self._chance.choice((2, 6, 12)), self._clear)

    async def _clear(self) -> None:
        self.world.sky = "clear"

    async def _fill(self) -> None:
        """Leave a disk almost no room."""
        machine = self._chance.choice(self.world.machines)
        disk = machine.disk
        used = sum(len(found) for found in disk.image().values() if found is not None)
        disk.capacity = used + self._chance.choice((0, 300, 5_000))

        async def undo() -> None:
            machine.disk.capacity = NO_LIMIT

        self.world.do_later(self._chance.choice((1, 5)), undo)

    async def _set_wall(self) -> None:
        self._chance.choice(self.world.machines).clock.step_wall(
            self._chance.choice((-HOUR_US, HOUR_US, -SECOND_US))
        )
