"""Machines of one cluster on simulated disks and clocks, and the faults that each can meet.

The nodes are whole: they coordinate, lead, ship, receive and copy by their own code, over a model
of the network and one of etcd. The invariants are in `promises.py`; faults, clients and operators
are in `cluster_faults.py` and the files beside it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from itertools import count
from typing import Any, Final, NamedTuple
from unittest.mock import patch
from weakref import WeakKeyDictionary

import actors.store
from actors.cluster import snapshot_transfer
from actors.cluster.bootstrap import Joiner
from actors.cluster.role import RoleName
from actors.commits.committer import Committer
from actors.environment import Environment
from actors.node import Node, start
from actors.runtime import ask
from actors.settings import keep_log
from protocol.agreement import AgreedState, Agreement
from protocol.errors import Refusal
from protocol.links import VERSION, Hello, Link, Redeem, Redeemed
from protocol.requests import RunScript, ScriptAnswer
from storage.backups.state_builder import RestoreEnvironment as Making
from storage.backups.state_builder import no_progress
from storage.catalog.join_tokens import JoinToken
from storage.engine.engine import Engine
from storage.engine.state_hash import state_hash
from storage.files.directory import is_joining
from storage.files.joining_file import JoiningDirectory
from storage.formats.frames import Frame
from tests.actors import nodes
from tests.actors.cluster.whole import Asks, ClusterMachine, Dial, Trio
from tests.simulation.agreement import AgreementModel, Fate
from tests.simulation.disk import NO_LIMIT, SimulatedDisk
from tests.simulation.environment import START_US, LoopClock
from tests.simulation.links import LinksModel, ModelLinks
from tests.simulation.processes import Process, here, marked_greenlets
from tests.simulation.promises import ClusterGuaranteeViolated, Excused, GuaranteeJudge, Medium
from tests.simulation.shape import ClusterShape
from tests.simulation.world import LossyEngine, SmallLog
from tests.storage.books import is_part_settled

PATH: Final = "/store"
NEVER: Final = datetime(2100, 1, 1, tzinfo=UTC)
DIED: Final = "the machine died"
ASKED_SECONDS: Final = 20
"""Timeout of a client's script, virtual seconds."""


class OwnClock(LoopClock):
    """Clocks of a machine. Each runs at its own rate, and the wall clock is set now and then. The
    monotonic clock stops while the machine is suspended.

    :param rate: rate of the quartz; the promises tolerate a drift of some percent
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, rate: float, wall_us: int) -> None:
        super().__init__(loop, wall_us)
        self._rate = rate
        self.suspended_us = 0

    def monotonic_us(self) -> int:
        """Microseconds since an arbitrary start, without suspended time."""
        return self.boottime_us() - self.suspended_us

    def _passed_us(self) -> int:
        return round(self._loop.time() * 1_000_000 * self._rate)


class ObservedEtcd(AgreementModel):
    """Model of etcd that reports every write.

    :ivar hears: called after each write
    """

    hears: Callable[[], None] = staticmethod(lambda: None)

    def _write(self) -> int:
        revision = super()._write()
        # Behind it: what was written stands once the caller of this has gone on.
        asyncio.get_running_loop().call_soon(self.hears)
        return revision


class DirectoryCopy(NamedTuple):
    node: str
    """Id of the node."""
    disk: SimulatedDisk
    engine: LossyEngine
    medium: Medium


@dataclass(eq=False)
class SimulatedMember(ClusterMachine):
    trio: Members
    engine: LossyEngine
    process: Process | None = None
    clock: OwnClock = field(init=False)
    medium: Medium = field(init=False)
    burials: list[asyncio.Task[None]] = field(default_factory=list)
    slow: dict[str, float] = field(default_factory=dict)
    """Delays of requests to etcd, seconds, by the name of the request; each applies once."""
    hears_old: AgreedState | None = None
    """Stale state that etcd answers to reads (planted fault: no real etcd does that)."""
    told: dict[str, Any] = field(default_factory=dict)
    """Settings of its processes, in addition to the default."""
    invited: JoinToken | None = None
    """Join token, used if its directory is new."""
    opening: Node = field(init=False)
    """Node of its process, set before the node writes for the first time."""
    went_back: int = 0
    """Number of older copies that have replaced its directory."""
    handed: dict[int, bytes] = field(default_factory=dict)
    """Digests of the frames that its process has committed."""

    def __post_init__(self) -> None:
        world = self.trio
        loop, rate = asyncio.get_running_loop(), world.chance.choice(world.shape.rates)
        self.clock = OwnClock(loop, rate, START_US + world.chance.choice(world.shape.walls_us))
        self.medium = Medium(self.name)
        world.media[self.disk] = self

    # --- its processes ----------------------------------------------------------------------------

    async def start(self, **told: Any) -> None:
        """Start a process, and wait until it answers or has died.

        :raises OSError, Refusal, StoreFault: it does not start
        """
        assert self.process is None, f"{self.name} runs"
        process = self.process = Process()
        self.handed.clear()
        starting = process.begin(self._start(process, told))
        # If the world ends before the start does, its result is never retrieved.
        starting.add_done_callback(lambda done: done.cancelled() or done.exception())
        process.dead.add_done_callback(lambda _: self._bury(starting))
        await asyncio.wait((starting, process.dead), return_when=asyncio.FIRST_COMPLETED)
        if process.is_dead:
            return
        try:
            self.node = starting.result()
        except BaseException:
            self.process = None
            if self.address in self.trio.network.nodes:
                self.trio.network.leave(self.address)
            raise

    async def _start(self, process: Process, told: dict[str, Any]) -> Node:
        is_new = self.invited is not None and not self.disk.exists(f"{PATH}/STORE")
        if is_new or is_joining(self.disk, PATH):
            self.medium = Medium(self.name)  # what its log held is no part of the copy
            if self.id:
                self.trio.promises.media[self.id] = self.medium
            joining = asyncio.ensure_future(self._join())
            process.dead.add_done_callback(lambda _: joining.cancel())
            await joining
        settings = nodes.settings(
            agree=partial(self._agree_of, process), accept_clock_jump=True, **self.told, **told
        )
        node = await start(settings, self.environment())
        if process.is_dead:
            return node
        node.copies = snapshot_transfer.begin_copies(
            node.runtime, node.committer, node.reads, node.store, node.settings, node.environment,
            lambda begin: node._supervise(begin, refoldable=True),
        )  # fmt: skip
        node.cluster.copy_with(node.copies)
        node.peering.links = Dial(self.reached_by(node))
        # Rows name nodes here, and no certificates: each shows its name.
        node.peering.trust.pins_of = self._pins_of  # type: ignore[method-assign]
        return node

    def _pins_of(self, node: str) -> frozenset[str]:
        return frozenset(each.name for each in self.trio.machines if each.id == node)

    async def _join(self) -> None:
        """Copy the store from other nodes into the directory."""
        environment = self.environment()
        opened = environment.open_engine
        making = Making(
            environment.fs, environment.clock, environment.rng, opened, opened, no_progress
        )
        with closing(
            JoiningDirectory.lock(PATH, environment.fs, environment.clock, environment.rng)
        ) as found:
            hello = Hello(VERSION, "", str(found.now.node))
            self.id = str(found.now.node)
            door = self.trio.network.node(
                self.address, lambda: hello, self.name, lambda _: None, _nobody
            )
            try:
                await Joiner(found, Dial(door), making).join(self.invited)
            finally:
                if self.trio.network.nodes.get(self.address) is door:
                    self.trio.network.leave(self.address)
        self.invited = None

    def environment(self) -> Environment:
        environment = nodes.simulated_environment(
            "stepped", self.disk, self.engine, self.seed(), self.clock
        )
        return replace(environment, open_engine=partial(self._open, self.disk))

    def _open(self, disk: SimulatedDisk, path: str, **_more: Any) -> Engine:
        """Open the state in a directory; it is empty if the directory has no files of it."""
        if self.disk is not disk:
            return LossyEngine()  # of a process that has died meanwhile
        sign = f"{path}/CURRENT"
        if not self.disk.exists(sign):
            self.disk.open(sign, create=True).close()
            self.disk.sync_directory(path)
            self.engine = LossyEngine()
        return self.engine

    def seed(self) -> int:
        """Draw the seed of its next process."""
        return self.trio.chance.randrange(1 << 30)

    def reached_by(self, node: Node) -> ModelLinks:
        """Connect it to the network, in both directions: declared replicas are trusted."""
        peering, named = node.peering, self.trio.named

        def trusts(shown: str) -> str | None:
            row = node.member.row_of(named(shown).id)
            return None if row is None else row.name

        async def redeem(asked: Redeem, shown: str) -> Redeemed:
            certificate = sha256(f"{shown} {asked.node}".encode()).hexdigest()
            return await peering.redeem(asked, certificate, NEVER, shown)

        async def accept(link: Link) -> None:
            await peering.accept(link)

        return self.trio.network.node(
            self.address, lambda: peering.hello, self.name, trusts, accept, redeem
        )

    def _agree_of(self, process: Process, via: Sequence[str], store: str) -> Agreement:
        return _AsksOnce(self, process, via)

    # --- what happens to it -----------------------------------------------------------------------

    @property
    def answers(self) -> bool:
        """True if its process runs and is not paused."""
        return self.node is not None and self.process is not None and not self.process.stands

    @property
    def directory(self) -> tuple[str, int]:
        """Name of the disk's content, which changes when another copy replaces it."""
        return self.id, self.went_back

    @property
    def waits_with_lead(self) -> bool:
        """True if it was elected and has not shown anything as leader yet."""
        leadership = self.runs.member.leadership
        return leadership is not None and not leadership.is_settled

    def die(self, power: bool) -> None:
        """Kill the process, or cut the machine's power. Later messages of the process are lost."""
        process = self.process
        assert process is not None, f"{self.name} does not run"
        chance = self.trio.chance
        self.disk.watch = None
        left = self.disk.killed()
        if power:
            left.cut_power(chance)
        self.trio.media[left] = self
        self.medium = self.medium.copy()
        if self.id:
            self.trio.promises.media[self.id] = self.medium
        self.disk, self.engine = left, self.engine.after_crash(chance)
        if self.address in self.trio.network.nodes:
            self.trio.network.leave(self.address)
        self.node = self.process = None
        process.die()

    def _bury(self, starting: asyncio.Task[Node]) -> None:
        """Clean up after a dead process."""

        async def bury() -> None:
            await asyncio.wait((starting,))
            if starting.cancelled() or starting.exception() is not None:
                return
            node = starting.result()
            node.fail(RuntimeError(DIED))
            await node.stop()

        self.burials.append(asyncio.ensure_future(bury()))

    def wipe(self) -> None:
        """Replace its disk by an empty one, while it does not run."""
        assert self.process is None, f"{self.name} runs"
        self.medium.is_lost = True
        self.disk, self.engine, self.id = SimulatedDisk(), LossyEngine(), ""
        self.medium = Medium(self.name)
        self.trio.media[self.disk] = self

    def copied(self) -> DirectoryCopy:
        """Return a copy of its present directory, even while it runs."""
        disk = self.disk.killed()
        disk.capacity = NO_LIMIT
        return DirectoryCopy(
            self.id, disk, self.engine.after_crash(self.trio.chance), self.medium.copy()
        )

    def put_back(self, copy: DirectoryCopy) -> None:
        """Replace its directory by an older copy, while it does not run."""
        assert self.process is None, f"{self.name} runs"
        assert self.id == copy.node, "it is another node's"
        self.disk, self.engine = copy.disk.killed(), copy.engine.after_crash(self.trio.chance)
        self.trio.media[self.disk] = self
        self.medium = copy.medium.put_back(self.medium)
        self.went_back += 1
        self.trio.promises.media[self.id] = self.medium

    def die_within(self, operations: int, power: bool) -> None:
        """Let it die at one of the next operations of its disk."""
        left = [operations]

        def watch(_kind: str, _path: str) -> None:
            left[0] -= 1
            if left[0] == 0:
                self.disk.watch = None
                self.trio.died(self, power)

        self.disk.watch = watch

    async def stop(self) -> None:
        process, node = self.process, self.runs
        assert process is not None
        await asyncio.wait(
            (process.begin(node.stop()), process.dead), return_when="FIRST_COMPLETED"
        )
        if self.process is process:
            self.node = self.process = None
            self.trio.network.leave(self.address)

    def pause(self, suspended: bool) -> Callable[[], None]:
        """Pause the process, or suspend the machine. Return a function that resumes it."""
        process, clock = self.process, self.clock
        assert process is not None
        process.pause()
        self.trio.network.stand(self.address)
        began_us = clock.boottime_us()

        def resume() -> None:
            if not process.stands:
                return
            if suspended:
                clock.suspended_us += clock.boottime_us() - began_us
            self.trio.network.walk(self.address)
            process.resume()

        return resume

    async def value(self, script: str) -> Any:
        assert self.process is not None
        return await self.process.begin(super().value(script))

    async def ask(
        self,
        script: str,
        after: int | None = None,
        *,
        current: bool = False,
        parameters: Mapping[str, Any] | None = None,
    ) -> ScriptAnswer | Refusal | None:
        """Run a script on the node. None: the process died, and the outcome is unknown."""
        process, node = self.process, self.node
        if process is None or node is None:
            return None
        name = f"q{next(self.trio.requests)}"
        request = RunScript(
            nodes.ANA, script, name, parameters or {}, namespace="a", database="b", after=after,
            timeout_us=ASKED_SECONDS * 1_000_000, current=current,
        )  # fmt: skip

        async def answered() -> ScriptAnswer:
            return await ask(node.scripts, request)

        asking = process.begin(answered())
        self.trio.asking.add(asking)
        asking.add_done_callback(self.trio.asking.discard)
        await asyncio.wait((asking, process.dead), return_when=asyncio.FIRST_COMPLETED)
        if process.is_dead:
            asking.cancel()
            return None
        try:
            return asking.result()
        except Refusal as refusal:
            return refusal

    # --- how it stands ----------------------------------------------------------------------------

    def committed(self, frame: Frame) -> None:
        """Record a commit of its process, and check its lease."""
        self.handed[frame.sequence] = frame.digest()
        if frame.epoch:  # of a cluster
            self.trio.promises.wrote(self.name, frame.epoch)
        member = self.opening.member
        leadership = member.leadership
        settled = (
            member.life is RoleName.LEADING and leadership is not None and leadership.is_settled
        )
        if leadership is not None and settled and not self.trio.etcd_lies:
            self.trio.promises.committed(self.name, leadership.epoch, self.trio.etcd.agreed)

    @property
    def leads_in(self) -> int | None:
        """Epoch in which its process may release new frames; None: it may not."""
        member = self.opening.member
        if member.life in (RoleName.ALONE, RoleName.FOUNDING):
            return self.opening.committer.ledger.epoch
        return None if member.leadership is None else member.leadership.epoch

    def look(self) -> None:
        """Check that the node has not failed, and compare its state."""
        node, promises = self.node, self.trio.promises
        if node is None or self.process is None or self.process.stands:
            return
        if node.failure is not None:
            raise ClusterGuaranteeViolated(
                f"{self.name} has failed: {node.failure!r}"
            ) from node.failure
        ledger = node.committer.ledger
        if ledger.state.flight.write_sets or is_part_settled(ledger):
            return
        at = self.engine.applied
        if at != node.committer.commit_index:
            raise ClusterGuaranteeViolated(f"the state of {self.name} stands at {at}")
        if at not in promises.states or self.trio.chance.random() < 0.2:
            promises.state(self.name, at, state_hash(self.engine))


class _AsksOnce(Asks):
    def __init__(self, machine: SimulatedMember, process: Process, via: Sequence[str]) -> None:
        super().__init__(machine, via)
        self._member, self._process = machine, process

    async def read(self) -> AgreedState:
        if self._member.hears_old is None:
            return await super().read()
        await asyncio.sleep(0.1)
        return self._member.hears_old

    def _fate(self) -> tuple[Fate, float]:
        machine, name = self._member, self._name
        fate, seconds = super()._fate()
        if self._process.is_dead:
            return Fate.REFUSED, seconds
        slow = machine.slow.pop(name, None)
        if slow is not None or fate is not Fate.ANSWERED:
            return fate, slow or seconds
        return machine.trio.weather(machine)


class Members(Trio):
    """All machines, observed by the judge."""

    machines: list[SimulatedMember]  # type: ignore[assignment]

    def __init__(self, seed: int, shape: ClusterShape) -> None:
        self.seed, self.shape = seed, shape
        self.chance = random.Random(seed)
        self.promises = GuaranteeJudge()
        self.media: WeakKeyDictionary[SimulatedDisk, SimulatedMember] = WeakKeyDictionary()
        etcd = ObservedEtcd()
        etcd.hears = self._agreed
        super().__init__(etcd, LinksModel(self.chance.randrange(1 << 30)), [])
        self.etcd_lies = False
        """True from the loss of etcd's data until an operator has repaired that."""
        self.requests = count()
        self.asking: set[asyncio.Task[Any]] = set()
        """Pending requests of clients."""
        self.broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Fails with the first violated invariant."""

    def _agreed(self) -> None:
        if not self.etcd_lies:
            self.seen(lambda: self.promises.agreed(self.etcd.agreed))

    def add(self, name: str, disk: SimulatedDisk, id: str = "") -> SimulatedMember:
        made = SimulatedMember(name, self, disk, LossyEngine(), id)
        self.machines.append(made)
        if self.shape.keep is not None:
            made.told["keep_log"] = keep_log(self.shape.keep)
        return made

    def weather(self, machine: SimulatedMember) -> tuple[Fate, float]:
        return Fate.ANSWERED, self.chance.uniform(0.001, 0.02)

    def died(self, machine: SimulatedMember, power: bool) -> None:
        """Kill a machine now."""
        machine.die(power)

    # --- looking on -------------------------------------------------------------------------------

    def seen(self, look: Callable[[], None]) -> None:
        """Run a check within the observed call; a violation ends the world, not that call."""
        if self.broken.done():
            return
        try:
            look()
        except (ClusterGuaranteeViolated, Excused) as found:
            self.broken.set_exception(found)

    @contextmanager
    def looked_on(self) -> Iterator[None]:
        """Observe the writes of nodes to their logs, and the frames that they show."""
        world = self

        class Looked(SmallLog):
            """An observed log."""

            _medium: Medium

            def recover(self, proven: int = 0) -> None:
                super().recover(proven)
                disk = self.state.fs
                assert isinstance(disk, SimulatedDisk)
                self._medium = medium = world.media[disk].medium
                frames = (
                    list(self.reader.read(self.state.first, self.state.last))
                    if self.state.last >= self.state.first
                    else []
                )
                world.seen(lambda: world.promises.opened(medium, self.state.first, frames))

            def append(self, frames: Sequence[Frame], **how: Any) -> list[bytes]:
                digests = super().append(frames, **how)
                world.promises.synced(self._medium, frames)
                return digests

            def cut(self, after: int) -> None:
                super().cut(after)
                world.seen(lambda: world.promises.cut(self._medium, after))

        release, hand_over, begin = (
            Committer._advance_commit_index,
            Committer.hand_over,
            Node._start_writing,
        )

        def releases(committer: Committer, upto: int) -> None:
            before = committer.commit_index
            release(committer, upto)
            process = here()
            machine = world.whose(process)
            if machine is not None and upto > before:
                promises, epoch = world.promises, machine.leads_in
                world.seen(lambda: promises.released(machine.medium, process, epoch, upto))

        def hands_over(committer: Committer, frame: Frame) -> None:
            hand_over(committer, frame)
            machine = world.whose(here())
            if machine is not None:
                world.seen(lambda: machine.committed(frame))

        def begins(node: Node) -> None:
            process = here()
            machine = world.whose(process)
            if machine is not None:
                machine.opening = node
            begin(node)
            if machine is not None:
                machine.id = node.roles.node_id
                world.promises.media[machine.id] = machine.medium

        with ExitStack() as patches:
            for target, name, value in (
                (Node, "_start_writing", begins),
                (actors.store, "Log", Looked),
                (Committer, "_advance_commit_index", releases),
                (Committer, "hand_over", hands_over),
            ):
                patches.enter_context(patch.object(target, name, value))
            patches.enter_context(marked_greenlets())
            yield

    def whose(self, process: Process | None) -> SimulatedMember | None:
        """Return the machine of a process, or None if the process has died."""
        if process is None or process.is_dead:
            return None
        return next((each for each in self.machines if each.process is process), None)


async def _nobody(_link: Link) -> None:
    raise ClusterGuaranteeViolated("nobody dials a node that joins")
