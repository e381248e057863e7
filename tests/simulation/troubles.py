"""Three or five whole members of a cluster, their clients and their operators, and all that goes
wrong, decided by one number.

Machines lose their power, at any operation of their disks too, processes stand still for shorter
and longer than the lease, links are cut each way, etcd is silent, slow, loses answers, or loses
what it knew; clocks go at rates of their own and are set; disks fill up; members come new, are
dropped, lose their disks; policies are changed, and leads taken by hand. In the end everything is
mended, and all come to the same in bounded time.

What must hold all along is said in `promises.py`. What clients were told is held against it here.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final

from actors.cluster.standing import Standing
from protocol.errors import Refusal
from protocol.requests import ScriptAnswer
from storage.directory import is_joining
from storage.faults import CopyFailed, StoreFault
from tests import leaks
from tests.actors.cluster import whole
from tests.simulation import loop as stepped
from tests.simulation.agreement import Fate
from tests.simulation.disk import NO_LIMIT
from tests.simulation.members import ASKED_SECONDS, PATH, Member, Members, Shape
from tests.simulation.processes import ProcessLoop
from tests.simulation.promises import Broken

SECOND_US: Final = 1_000_000
HOUR_US: Final = 3600 * SECOND_US
COMES_TOGETHER_SECONDS: Final = 240
"""Virtual ones, from when all is mended: a link that is dead is given up after thirty."""
LASTS_SECONDS: Final = 1_500
"""Virtual ones, that no world needs."""
TABLES: Final = (
    "DEFINE TABLE t; DEFINE TABLE c; CREATE c:1 SET n = 0; CREATE c:2 SET n = 0;"
    " DEFINE TOPIC q; DEFINE SPACE s"
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
"""What clients may be refused with while things go wrong."""
UNDONE: Final = frozenset({"NotWritable", "NotEnoughReplicas", "Busy", "DiskFull", "Draining"})
"""Those of them that say that nothing was done."""

Act = Callable[[], Awaitable[None]]


def drawn(seed: int) -> Shape:
    """How large the world of a seed is."""
    chance = random.Random(seed * 7919 + 1)
    machines = chance.choice((3, 3, 3, 5))
    return Shape(
        machines=machines,
        lease_s=chance.choice((2, 3, 5)),
        behind=chance.choice(("300ms", "1s", "3s")),
        acks=chance.choice((0, 1, 1, 1, 2)),
        promote=chance.choice(("AUTO", "AUTO", "AUTO", "MANUAL")),
        rates=chance.choice(((1.0,), (1.0, 0.97, 1.03))),
        walls_us=chance.choice(((0,), (0, -HOUR_US, HOUR_US))),
    )


class Clients:
    """Those who write and read, and what they were told."""

    def __init__(self, world: Troubled) -> None:
        self.world = world
        self.markers = 0
        self.sure: dict[int, int] = {}
        """Markers whose commit was acknowledged, and its sequence."""
        self.never: set[int] = set()
        """Those that were refused."""
        self.steps: dict[int, int] = {}
        """What the counter was told to be, by the sequence of the commit that brought it there."""
        self.counted = 0
        """How often it was told to count, whatever came of it."""
        self.read: dict[int, Any] = {}
        """What was read, by the sequence that it was read at."""
        self.newest = 0
        """The last commit that was acknowledged."""

    async def go_on(self, chance: random.Random) -> None:
        """One of them, for good."""
        while True:
            await asyncio.sleep(chance.choice((0.01, 0.05, 0.2, 1.0)))
            machine = self.world.some_leader() if chance.random() < 0.8 else None
            machine = machine or chance.choice(self.world.machines)
            await chance.choice((self.create, self.create, self.count, self.publish, self.look))(
                machine
            )

    async def create(self, machine: Member) -> bool:
        """A record, of a name that no other has. Answers whether it is there for sure."""
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
        self._refused(refusal)
        if refusal.code in UNDONE and "committed" not in refusal.detail:
            self.never.add(marker)
        return False

    async def count(self, machine: Member) -> None:
        """One more, of a counter that all share."""
        self.counted += 1
        answer = await machine.ask("UPDATE c:1 SET n = n + 1 RETURN n")
        if isinstance(answer, ScriptAnswer) and answer.refusal is None:
            self._acknowledged(machine, answer)
            found: Any = answer.results[-1].value
            self.steps[answer.sequence] = found[0]["n"]
        elif answer is not None:
            self._refused(answer if isinstance(answer, Refusal) else answer.refusal)

    async def publish(self, machine: Member) -> None:
        """A message and a key, in one commit."""
        self.markers += 1
        script = f"BEGIN; PUBLISH INTO q VALUE {self.markers}; SET 'k' IN s VALUE 1; COMMIT"
        answer = await machine.ask(script)
        if isinstance(answer, ScriptAnswer) and answer.refusal is None:
            self._acknowledged(machine, answer)
        elif answer is not None:
            self._refused(answer if isinstance(answer, Refusal) else answer.refusal)

    async def look(self, machine: Member) -> None:
        """Read, wherever; sometimes what was written last at least."""
        after = self.newest if self.world.chance.random() < 0.5 else None
        lineage = len(self.world.promises.cuts)
        answer = await machine.ask(READ, after)
        if answer is None or lineage != len(self.world.promises.cuts):
            return
        refusal = answer if isinstance(answer, Refusal) else answer.refusal
        if refusal is not None:
            self._refused(refusal)
            return
        assert isinstance(answer, ScriptAnswer)
        if after is not None and answer.sequence < after:
            raise Broken(f"{machine.name} reads at {answer.sequence}, and {after} was asked for")
        self.heard(machine, answer)

    def heard(self, machine: Member, answer: ScriptAnswer) -> None:
        """What was read is what was written up to there, and the same everywhere."""
        at = answer.sequence
        found: Any = next(r.value for r in reversed(answer.results) if isinstance(r.value, list))
        if self.read.setdefault(at, found) != found:
            raise Broken(f"{machine.name} reads {found} at {at}, where {self.read[at]} was read")
        held = set(found[0])
        lacks = {marker for marker, seq in self.sure.items() if seq <= at} - held
        early = {marker for marker, seq in self.sure.items() if seq > at} & held
        if lacks or early or held & self.never:
            raise Broken(
                f"{machine.name} at {at} lacks {lacks}, has {early} too early, and"
                f" {held & self.never} that were refused"
            )
        counted = found[1][0] if isinstance(found[1], list) else found[1]
        least = max((n for seq, n in self.steps.items() if seq <= at), default=0)
        most = min((n for seq, n in self.steps.items() if seq > at), default=1 << 60)
        if not least <= counted < most:
            raise Broken(f"{machine.name} counts {counted} at {at}: {least} were told, and {most}")

    def _acknowledged(self, machine: Member, answer: ScriptAnswer) -> None:
        at, truth = answer.sequence, self.world.promises.truth
        if at > len(truth) or truth[at - 1].digest != machine.handed.get(at):
            raise Broken(f"{machine.name} has acknowledged {at}, which was not released")
        self.newest = max(self.newest, at)
        self.world.figures["acknowledged"] += 1

    def _refused(self, refusal: Refusal | None) -> None:
        assert refusal is not None
        self.world.figures[refusal.code] += 1
        if refusal.code not in PASSING:
            raise Broken(f"a client was refused with {refusal.code}: {refusal.message}")

    def forget(self, stays: int) -> None:
        """A lineage was begun by force: what is behind its beginning may be lost."""
        self.sure = {marker: at for marker, at in self.sure.items() if at <= stays}
        self.steps = {at: n for at, n in self.steps.items() if at <= stays}
        self.read = {at: found for at, found in self.read.items() if at <= stays}
        self.newest = min(self.newest, stays)


class Troubled(Members):
    """One of them. `run` lets it happen."""

    def __init__(self, seed: int, shape: Shape | None = None) -> None:
        super().__init__(seed, shape or drawn(seed))
        self.figures = Counter[str]()
        self.clients = Clients(self)
        self.later: list[tuple[float, Act]] = []
        """What is undone, and when."""
        self.sky = "clear"
        self._tasks: set[asyncio.Task[Any]] = set()
        self._cuts_seen = 0

    # --- its course -----------------------------------------------------------------------------

    async def live(self) -> None:
        """All of it."""
        with self.looked_on():
            course = asyncio.ensure_future(self._course())
            await asyncio.wait(
                (course, self.broken), timeout=LASTS_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            if self.broken.done():
                course.cancel()
                self.broken.result()
            if not course.done():
                course.cancel()
                raise Broken(f"it does not end:\n{self.shown()}")
            course.result()

    async def _course(self) -> None:
        names = "abcde"[: self.shape.machines]
        self.promises.acks = frozenset({0})
        await whole.begin(self, names, TABLES, self.shape.policy())
        self.promises.acks = frozenset({self.shape.acks})
        for _ in range(self.shape.clients):
            self.has_done(self.clients.go_on(random.Random(self.chance.random())))
        acts = self._acts()
        for _ in range(self.shape.steps):
            await asyncio.sleep(self.chance.choice((0.05, 0.3, 1.0, 2.0)))
            await self._undo_some()
            act = self.chance.choice(acts)
            self.figures[act.__name__.strip("_")] += 1
            await act()
            self.look()
        await self.mend()
        await self.come_together()
        await self.end()

    def has_done(self, work: Any) -> None:
        """Have something done beside all else; what breaks in it ends the world."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)

        def done(_: object) -> None:
            self._tasks.discard(task)
            error = None if task.cancelled() else task.exception()
            if error is not None and not self.broken.done():
                self.broken.set_exception(error)

        task.add_done_callback(done)

    def _acts(self) -> list[Act]:
        """What may happen in this one: some of what there is, so that some things meet often."""
        every: list[list[Act]] = [
            [self._kill, self._kill, self._kill_within],
            [self._kill_all],
            [self._stop],
            [self._pause, self._pause],
            [self._cut, self._cut, self._isolate],
            [self._silence, self._cloud],
            [self._fill],
            [self._set_wall],
            [self._amend],
            [self._lead_by_hand],
        ]
        chosen = [each for each in every if self.chance.random() < 0.5] or [every[0]]
        return [act for each in chosen for act in each]

    def look(self) -> None:
        """See how everybody stands."""
        if len(self.promises.cuts) > self._cuts_seen:
            self._cuts_seen = len(self.promises.cuts)
            self.clients.forget(min(stays for stays, _ in self.promises.cuts))
        for machine in self.machines:
            machine.look()
            node = machine.node
            if node is not None and node.member.is_stranded and not self.promises.cuts:
                raise Broken(f"{machine.name} is stranded")

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

    def _later(self, seconds: float, undo: Act) -> None:
        self.later.append((asyncio.get_running_loop().time() + seconds, undo))

    async def _undo_some(self) -> None:
        now = asyncio.get_running_loop().time()
        due, self.later = (
            [one for one in self.later if one[0] <= now],
            [one for one in self.later if one[0] > now],
        )
        for _, undo in due:
            await undo()

    async def start(self, machine: Member) -> None:
        """Have it run, if it does not. On a full disk it does not."""
        if machine.process is not None:
            return
        try:
            await machine.start()
        except (OSError, Refusal, StoreFault) as why:
            if machine.disk.capacity == NO_LIMIT and not isinstance(why, CopyFailed):
                raise Broken(f"{machine.name} does not start: {why!r}") from why
            self._later(1, lambda: self._begin(machine))

    async def _begin(self, machine: Member) -> None:
        """The same, while all goes on: who has to be copied takes a while."""
        self.has_done(self.start(machine))

    def died(self, machine: Member, power: bool) -> None:
        super().died(machine, power)
        self.figures["deaths"] += 1
        self._later(self.chance.choice((0, 0.2, 2, 8)), lambda: self._begin(machine))

    # --- what goes wrong ------------------------------------------------------------------------

    async def _kill(self) -> None:
        machine = self.some()
        if machine is not None:
            self.died(machine, power=self.chance.random() < 0.6)

    async def _kill_within(self) -> None:
        machine = self.some()
        if machine is not None:
            machine.die_within(self.chance.randrange(1, 40), power=self.chance.random() < 0.8)

    async def _kill_all(self) -> None:
        if self.chance.random() < 0.3:
            for machine in self.machines:
                if machine.process is not None:
                    self.died(machine, power=self.chance.random() < 0.8)

    async def _stop(self) -> None:
        machine = self.some()
        if machine is not None:
            await machine.stop()
            self._later(self.chance.choice((0, 1, 5)), lambda: self._begin(machine))

    async def _pause(self) -> None:
        """Shorter than the lease, about as long, and longer."""
        machine = self.some()
        if machine is None:
            return
        resume = machine.pause(suspended=self.chance.random() < 0.5)

        async def undo() -> None:
            resume()

        lease = self.shape.lease_s
        self._later(self.chance.choice((0.1, 0.5, lease * 0.7, lease + 0.5, 3 * lease)), undo)

    async def _cut(self) -> None:
        """One link, in one direction or both."""
        one, other = self.chance.sample(self.machines, 2)
        ways = self.chance.choice((((one, other),), ((one, other), (other, one))))
        for source, target in ways:
            self.network.cut(source.address, target.address)

        async def undo() -> None:
            for source, target in ways:
                self.network.mend(source.address, target.address)

        self._later(self.chance.choice((0.5, 2, 6, 40)), undo)

    async def _isolate(self) -> None:
        """One from all others, from etcd, or from both."""
        machine, kind = self.chance.choice(self.machines), self.chance.randrange(3)
        if kind != 0:
            machine.etcd = self.chance.choice((Fate.REFUSED, Fate.LOST))
        if kind != 1:
            self.network.pause(machine.address)

        async def undo() -> None:
            machine.etcd = Fate.ANSWERED
            self.network.resume(machine.address)

        self._later(self.chance.choice((0.5, 2, 6, 12)), undo)

    async def _silence(self) -> None:
        """Etcd answers nobody."""
        self.sky = "silent"
        self._later(self.chance.choice((1, 4, 10)), self._clear)

    async def _cloud(self) -> None:
        """Etcd is slow, or its answers don't come."""
        self.sky = self.chance.choice(("slow", "lossy"))
        self._later(self.chance.choice((2, 6, 12)), self._clear)

    async def _clear(self) -> None:
        self.sky = "clear"

    def weather(self, machine: Member) -> tuple[Fate, float]:
        chance = self.chance
        if self.sky == "silent":
            return chance.choice((Fate.REFUSED, Fate.LOST)), 0.01
        if self.sky == "slow":
            return Fate.ANSWERED, chance.uniform(0.1, 4)
        if self.sky == "lossy" and chance.random() < 0.5:
            return chance.choice((Fate.REFUSED, Fate.LOST, Fate.UNHEARD, Fate.LATE)), 0.01
        return super().weather(machine)

    async def _fill(self) -> None:
        """A disk has room for little more."""
        machine = self.chance.choice(self.machines)
        disk = machine.disk
        used = sum(len(found) for found in disk.image().values() if found is not None)
        disk.capacity = used + self.chance.choice((0, 300, 5_000))

        async def undo() -> None:
            machine.disk.capacity = NO_LIMIT

        self._later(self.chance.choice((1, 5)), undo)

    async def _set_wall(self) -> None:
        self.chance.choice(self.machines).clock.step_wall(
            self.chance.choice((-HOUR_US, HOUR_US, -SECOND_US))
        )

    # --- what operators do ----------------------------------------------------------------------

    async def _amend(self) -> None:
        """Another policy, on whoever leads."""
        machine = self.some_leader()
        if machine is None:
            return
        acks = self.chance.randrange(3)
        before = self.promises.acks
        self.promises.acks = before | {acks}
        behind = self.chance.choice((None, "400ms", "2s"))

        async def amend() -> None:
            answer = await machine.ask(self.shape.policy(acks, behind))
            if isinstance(answer, ScriptAnswer) and answer.refusal is None:
                self.promises.acks = frozenset({acks})
                self.figures["amended"] += 1

        self.has_done(amend())

    async def _lead_by_hand(self) -> None:
        machine = self.some()
        if machine is not None:
            self.has_done(machine.ask("DEFINE NODE LEADS STORE"))

    # --- the end --------------------------------------------------------------------------------

    async def mend(self) -> None:
        """All that went wrong is undone."""
        self.sky = "clear"
        for machine in self.machines:
            machine.disk.capacity = NO_LIMIT
            machine.disk.watch = None
            machine.etcd = Fate.ANSWERED
            self.network.resume(machine.address)
            for other in self.machines:
                self.network.mend(machine.address, other.address)
        later, self.later = self.later, []
        for _, undo in later:
            await undo()
        for machine in self.machines:
            await self.start(machine)

    async def come_together(self) -> None:
        """All hold and show the same, in bounded time; operators do what the pages say."""
        loop = asyncio.get_running_loop()
        until = loop.time() + COMES_TOGETHER_SECONDS
        while not self.is_whole:
            if loop.time() > until:
                raise Broken(f"they do not come together:\n{self.shown()}")
            await self._operate()
            await asyncio.sleep(0.5)
            self.look()

    @property
    def is_whole(self) -> bool:
        """Whether one leads, and all others are in the set and show what it does."""
        leader, insync = self.leader, self.etcd.insync
        if leader is None or insync is None or leader.node is None:
            return False
        if insync.members != {each.id for each in self.machines}:
            return False
        at = leader.node.committer.released_upto
        return all(
            each.node is not None
            and each.node.committer.released_upto == at
            and (each is leader or each.node.member.standing is Standing.IN_SYNC)
            for each in self.machines
        )

    async def _operate(self) -> None:
        """What an operator does who looks at how it stands."""
        for machine in self.machines:
            if machine.process is None:
                await self.start(machine)
            elif is_joining(machine.disk, PATH) and machine.node is not None:
                await machine.stop()  # its next start copies the store anew
                await self.start(machine)
        insync = self.etcd.insync
        if self.etcd.lead is not None or insync is None:
            return
        for machine in self.machines:
            if machine.id in insync.members and machine.answers:
                await machine.ask("DEFINE NODE LEADS STORE")
                return

    async def end(self) -> None:
        """Everybody is answered, what was acknowledged is there, and all are the same."""
        for task in list(self._tasks):
            task.cancel()
        for _ in range(200):
            leader = self.some_leader()
            if leader is not None and await self.clients.create(leader):
                break
            await asyncio.sleep(0.1)
        else:
            raise Broken(f"nothing is written when all is mended:\n{self.shown()}")
        await self.come_together()
        await asyncio.sleep(ASKED_SECONDS + 10)
        if self.asking:
            raise Broken(f"{len(self.asking)} clients wait for an answer that does not come")
        self.look()
        for machine in self.machines:
            answer = await machine.ask(READ, self.clients.newest)
            if not isinstance(answer, ScriptAnswer) or answer.refusal is not None:
                raise Broken(f"{machine.name} does not answer: {answer}")
            self.clients.heard(machine, answer)
        if len({machine.engine.applied for machine in self.machines}) != 1:
            raise Broken("they have not come to the same")
        for machine in self.machines:
            self.promises.states.pop(machine.engine.applied, None)
        self.look()
        for machine in self.machines:
            if machine.process is not None:
                await machine.stop()
        for machine in self.machines:
            await asyncio.gather(*machine.burials)


def run(seed: int, shape: Shape | None = None) -> Counter[str]:
    """Let the world of a seed happen. :raises Broken: a promise does not hold; it names the seed"""
    chance = random.Random(seed * 31 + 7)

    def latency() -> float:
        return chance.choice((0, 0, 0.0002, 0.001, 0.004))

    figures = Counter[str]()

    async def main() -> None:
        world = Troubled(seed, shape)
        try:
            await world.live()
        finally:
            figures.update(world.figures)
            for machine in world.machines:
                if machine.process is not None:
                    machine.process.resume()  # else it could not even end

    try:
        stepped.run(main(), loop=ProcessLoop(chance.randrange(1 << 30), latency))
    except Broken as broken:
        leaks.end_greenlets()
        leaks.leaked_actors()  # what broke is left as it is
        raise Broken(f"seed {seed} (tests.simulation.troubles.run({seed})): {broken}") from broken
    return figures
