"""Node rig: a whole node and its clients, life after life, in one thread and from one seed.

Simulated: each life starts on the disk and state that the last one left. The last one ended in a
power cut that kept, lost or garbled unsynced data, in a kill, or in an orderly stop; the state may
have lost unflushed writes, or some of them. Clients run concurrent scripts. Meanwhile the disk
fills up or fails, the wall clock is set, checkpoints run, scripts are cancelled. In the end
`StoreHistory.check` checks every answer against a model of dictionaries.

Not simulated: the surfaces and clients over the network, threads, RocksDB and its compaction, and
other nodes. Scripts are those that `scripts.py` draws, over few records, so that they conflict.

To reproduce: a violation names its seed: `make seeds FROM=17 TO=18`, with `OF=feeds` and the like
for worlds with more in them (`BESIDE`). A change of the node's code makes other histories of all
seeds.

Proof: planted faults of the log, of transactions, of validation, of feeds and of entries have to be
found, each by a few seeds:
`tests/simulation/test_node_from_seed.py::test_a_planted_log_is_caught`,
`tests/simulation/test_node_from_seed.py::test_a_planted_fault_is_caught`,
`tests/simulation/test_node_from_seed.py::test_a_planted_fault_is_caught_beside_tables`.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, ClassVar, Final, Self
from unittest.mock import patch
from uuid import UUID

import actors.checkpoints
import actors.commits.idle_marks
import actors.log
import actors.store
import storage.engine.memory
import storage.files.directory
import storage.txn.ledger
from actors.checkpoints import CheckpointNow
from actors.commits.committer import Committer
from actors.environment import Environment, SystemNet
from actors.node import Node, start
from actors.runtime import ask
from protocol import limits
from protocol.environment import Rng
from protocol.errors import Refusal
from protocol.requests import Caller, CancelScript, RunScript, ScriptAnswer
from storage.engine import sealed
from storage.engine.engine import Batch
from storage.engine.memory import MemoryEngine
from storage.engine.state_hash import state_hash
from storage.files.directory import StoreDirectory
from storage.formats.frames import Frame
from storage.formats.sealing import Key
from storage.log.log import Log
from storage.log.state import LogSizes
from tests import leaks
from tests.actors.nodes import settings
from tests.receipts import STORE
from tests.simulation import loop as stepped
from tests.simulation.disk import NO_LIMIT, Fault, SimulatedDisk
from tests.simulation.environment import LoopClock, SeededRng, SteppedScheduler
from tests.simulation.feed_readers import Feeds
from tests.simulation.guests import ENDED, Guests
from tests.simulation.history import GuaranteeViolated, SentScript, StoreHistory
from tests.simulation.scripts import PREPARE, Author, ClientScript
from tests.storage.index_entries import all_differences, wrong_entries

ANA = Caller("ana", "owner", None, None, "wire", "192.0.2.1:5000")
SECOND_US = 1_000_000
HOUR_US = 3600 * SECOND_US
STEPS_US = (-HOUR_US, HOUR_US, 10 * 365 * 24 * HOUR_US)
FOREVER = 1 << 60
PATIENCE_SECONDS = 60
"""Timeout of a life, virtual seconds."""
EXPIRES_SECONDS = 100
"""Virtual seconds within which expired entries must be gone: refused sweeps are retried for a
minute."""


class SmallLog(Log):
    """A log in small segments, so that it rolls and is pruned within one life."""

    @classmethod
    def inspect(cls, directory: StoreDirectory, sizes: LogSizes | None = None) -> Self:
        return super().inspect(directory, LogSizes(segment_frames=24, reserve_bytes=4096))


IMAGE: Final = f"/store/state/{sealed.NAME}"


class LossyEngine(MemoryEngine):
    """A state engine that after a crash has its last flush, or any later version."""

    def __init__(self) -> None:
        super().__init__()
        self.versions = [self._version]

    def write(self, batch: Batch, applied: int) -> None:
        super().write(batch, applied)
        self.versions.append(self._version)

    def flush(self, *how: Any) -> None:
        super().flush(*how)
        self.versions = [self._version]

    def after_crash(self, chance: random.Random) -> LossyEngine:
        """Return the state that the next process finds."""
        kept = self.versions[0] if chance.random() < 0.5 else chance.choice(self.versions)
        found = LossyEngine()
        found._version = found._flushed = kept
        found.versions = [kept]
        return found


@dataclass
class WorldShape:
    """Size of a world, and its features."""

    lives: int = 4
    clients: int = 5
    scripts: int = 7
    """Scripts of each client in each life."""
    pruned: bool = True
    """True if old log is pruned, as on a node that serves."""
    troubles: bool = True
    """True if the disk fills up or fails."""
    apply_keys: int = 6
    """`storage.txn.ledger.APPLY_KEYS` for a plain build; a compiled one has it built in."""
    idle_seconds: float = 0.02
    """`actors.commits.idle_marks.IDLE_SECONDS`, likewise."""
    rebuilt: bool = False
    """True if the state is deleted between two lives now and then."""
    key: Key | None = None
    """Key that seals the store: its state is in memory then, with an image on the disk."""
    inspects: bool = False
    """True if clients read the node's statement log and audit trail, and the disk is full for
    moments."""
    expires: bool = False
    """True if clients declare and drop short-lived entries, and the disk is full for moments."""
    feeds: bool = False
    """True if readers follow a table, while their privileges on commit metadata change."""
    guests: bool = False
    """True if there are clients whose session or password gets revoked."""


BESIDE: Final = {
    "inspects": WorldShape(inspects=True),
    "expires": WorldShape(expires=True),
    "feeds": WorldShape(feeds=True),
    "guests": WorldShape(guests=True),
}
"""Worlds with features beyond tables, keys and topics."""


@dataclass
class EventCounts:
    """Counts of the events in a world."""

    commits: int = 0
    answers: int = 0
    refusals: int = 0
    crashes: int = 0
    live: int = 0
    """States compared with their log before the node stopped, …"""
    replayed: int = 0
    """… after a start from the state and log that a crash had left, …"""
    rebuilt: int = 0
    """… after a start from the log alone."""
    told: int = 0
    """State hashes in answers to clients, while other clients wrote."""

    def add(self, other: EventCounts) -> None:
        for name in vars(self):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def __str__(self) -> str:
        return ", ".join(f"{count} {name}" for name, count in vars(self).items())


class World:
    log_class: ClassVar[type[Log]] = SmallLog

    def __init__(self, seed: int, shape: WorldShape | None = None) -> None:
        self.seed = seed
        self.shape = shape or WorldShape()
        self.chance = random.Random(seed)
        self.history = StoreHistory()
        self.figures = EventCounts()
        self.disk = SimulatedDisk()
        self.engine = LossyEngine()
        self.wall_us = 1_790_000_000_000_000
        self.roles: set[tuple[str, ...]] = {("serving", "writable")}
        """Possible roles of the node, as far as they are known from outside."""
        self._trace = blake2b(digest_size=16)
        self._names = iter(range(FOREVER))

    def run(self) -> str:
        """Run all lives and check. Return a hash of all events.

        :raises Broken: an invariant is violated; it names the seed
        """
        try:
            with surroundings(self):
                for _ in range(self.shape.lives):
                    NodeLife(self).pass_by()
                    if self.shape.rebuilt and self.chance.random() < 0.5:
                        self.engine = LossyEngine()  # state/ is deleted
                NodeLife(self, quiet=True).pass_by()
            self.history.check()
        except Exception as error:
            raise GuaranteeViolated(f"seed {self.seed}: {error}") from error
        self.figures.commits = len(self.history.frames)
        self.figures.told = self.history.told
        requests = self.history.requests.values()
        self.figures.answers = sum(1 for each in requests if each.answer is not None)
        self.figures.refusals = sum(
            1 for each in requests if each.error is not None or each.refusal() is not None
        )
        return self._trace.hexdigest()

    def new_name(self, kind: str) -> str:
        return f"{kind}{next(self._names)}"

    def note(self, *what: object) -> None:
        """Add events to the trace."""
        self._trace.update(repr(what).encode())


def _new_uuid(rng: Rng) -> UUID:
    """Return an id with the same prefix as the model's receipts."""
    return UUID(bytes=bytes.fromhex(STORE) + rng.bytes(12))


@contextmanager
def surroundings(world: World) -> Iterator[None]:
    """Patch small limits, so that a short life meets them all, and observe the commits."""
    hand_over, roll_back = Committer.hand_over, Committer.roll_back

    def seen(committer: Committer, frame: Frame) -> None:
        hand_over(committer, frame)  # which refuses what adds something to a full disk
        world.history.hand_over(frame)

    def seen_back(committer: Committer, generation: int, refusal: Refusal) -> None:
        current = generation == committer.generation
        roll_back(committer, generation, refusal)
        if current:
            world.history.cut(committer.committed)

    with ExitStack() as patches:
        for target, name, value in (
            (actors.store, "Log", world.log_class),
            (storage.files.directory, "new_uuid", _new_uuid),
            (actors.checkpoints, "LOOK_SECONDS", 0.02),
            (actors.commits.idle_marks, "IDLE_SECONDS", world.shape.idle_seconds),
            (limits, "CHECKPOINT_SECONDS", 0.05),
            (limits, "LOG_FRAMES_KEPT", 30 if world.shape.pruned else FOREVER),
            (storage.txn.ledger, "APPLY_KEYS", world.shape.apply_keys),
            (actors.log, "SPARE_BYTES", 200),
            (
                storage.engine.memory,
                "CHUNK_KEYS",
                4 if world.shape.inspects else storage.engine.memory.CHUNK_KEYS,
            ),
            (Committer, "hand_over", seen),
            (Committer, "roll_back", seen_back),
        ):
            patches.enter_context(patch.object(target, name, value))
        yield


class NodeLife:
    """A life of the node: from a start to a crash, or a stop.

    :param quiet: True for a life without faults
    """

    def __init__(self, world: World, quiet: bool = False) -> None:
        self.world = world
        self.chance = random.Random(world.chance.random())
        self.quiet = quiet
        chance = self.chance
        self.ending = "stop" if quiet else chance.choice(("power", "power", "kill", "stop"))
        self.operations_left = chance.choice((chance.randrange(1, 60), chance.randrange(20, 400)))
        self.over = False
        """True after the crash: later messages are lost."""
        self.left: tuple[SimulatedDisk, LossyEngine] | None = None
        self.running: set[SentScript] = set()
        self.may: set[str] = set()
        """Codes of errors that requests may get now."""
        self.lasting: set[str] = set()
        """Codes of `may` that stay until the end of this life."""
        self.author = Author(chance, world.shape.inspects, world.shape.expires)
        self.node: Node
        self.guests = Guests(self, random.Random(chance.random())) if world.shape.guests else None
        self.feeds = Feeds(self, random.Random(chance.random())) if world.shape.feeds else None
        self.guesting: list[asyncio.Future[Any]] = []
        """Requests of the guests."""
        self.found_at = 0
        """Sequence of the state at the start of this life."""

    def pass_by(self) -> None:
        """Run the life; leave its disk and state in the world."""
        chance = random.Random(self.chance.random())

        def latency() -> float:
            return chance.choice((0, 0, 0.0002, 0.001, 0.004))

        try:
            stepped.run(self._main(), chance.randrange(1 << 30), latency)
        finally:
            leaks.leaked_actors()  # a process that died has none
        world = self.world
        if self.left is None:
            world.disk.watch = world.disk.plan = None
        else:
            world.disk, world.engine = self.left
            world.figures.crashes += 1

    # --- its course -----------------------------------------------------------------------------

    async def _main(self) -> None:
        loop = asyncio.get_running_loop()
        self.end = asyncio.Event()
        world = self.world
        clock = LoopClock(loop, world.wall_us, tick_us=self.chance.choice((0, 150, 600)))
        world.disk.watch = self._count
        course = asyncio.ensure_future(self._course(clock))
        course.add_done_callback(lambda _: self.end.set())
        try:
            await asyncio.wait_for(self.end.wait(), 3 * PATIENCE_SECONDS)
        except TimeoutError:
            raise GuaranteeViolated("a node neither works nor ends") from None
        if self.over:
            loop.set_exception_handler(lambda *_: None)  # of a process that is no more
            leaks.end_greenlets()
        else:
            course.result()
        world.wall_us = clock.wall_us()
        if not self.quiet and self.chance.random() < 0.3:
            world.wall_us += self.chance.choice(STEPS_US)

    def _count(self, kind: str, path: str) -> None:
        """Count down to the crash, before each change of the disk."""
        if self.over:
            return
        self.world.note(kind, path)
        if self.ending == "stop":
            return
        self.operations_left -= 1
        if self.operations_left == 0:
            self.crash()

    def crash(self) -> None:
        """Crash the node here. Later work of it has no effect."""
        if self.over:
            return
        self.over = True
        world = self.world
        left = world.disk.killed()
        if self.ending != "kill":
            left.cut_power(self.chance)
        left.capacity = NO_LIMIT
        self.left = left, world.engine.after_crash(self.chance)
        self.end.set()

    async def _course(self, clock: LoopClock) -> None:
        world = self.world
        environment = Environment(
            SteppedScheduler(),
            clock,
            SeededRng(self.chance.randrange(1 << 30)),
            world.disk,
            SystemNet(),
            lambda _path, **_more: world.engine,
            cores=1,
            open_in_memory=self._forget_state,
        )
        key = world.shape.key
        self.found_at = world.engine.applied if key is None else world.disk.exists(IMAGE)
        told = settings(serves=world.shape.pruned, accept_clock_jump=True, key=key)
        self.node = node = await start(told, environment)
        if self.over:
            return
        self._check_start()
        await self.send(self.author.all_roles())
        await self.send(PREPARE)
        for script in self.author.reads():
            await self.send(script)
        work = [asyncio.ensure_future(self._client()) for _ in range(world.shape.clients)]
        if self.feeds is not None:
            await self.feeds.prepare()
        if self.guests is not None:
            await self.guests.prepare()
            work += [asyncio.ensure_future(self._guest(self.guests)) for _ in range(2)]
        helpers = [] if self.quiet else [asyncio.ensure_future(self._trouble(clock))]
        failing = asyncio.ensure_future(node.failed.wait())
        clients = asyncio.gather(*work)
        try:
            done, _ = await asyncio.wait(
                (clients, failing), timeout=PATIENCE_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            if not done and not self.over:
                names = sorted(each.name for each in self.running)
                raise GuaranteeViolated(f"{', '.join(names)} wait for an answer that does not come")
            if node.failure is not None and not self.over:
                await asyncio.sleep(0.01)  # the clients hear of it, before the process goes
                if clients.done():
                    clients.result()
                self.crash()
                return
            clients.result()
        finally:
            for task in (*helpers, failing, *work):
                task.cancel()
            ended = await asyncio.gather(clients, *helpers, failing, return_exceptions=True)
        for each in ended:
            if isinstance(each, GuaranteeViolated):
                raise each
        if world.disk.plan is not None:
            world.disk.plan = None
            await asyncio.sleep(0.05)  # a failing sync may be on its way back
        world.disk.capacity = NO_LIMIT
        if self.feeds is not None:
            await self.feeds.end()
        if world.shape.expires and not self.over:
            await self._expire(clock)
        if self.ending != "stop" or self.node.failure is not None:
            self.crash()
            return
        await self._stop()

    def _forget_state(self, _path: str) -> LossyEngine:
        """Replace the state engine: the state of a sealed store is loaded from its image."""
        self.world.engine = LossyEngine()
        return self.world.engine

    def _check_start(self) -> None:
        """Check the store after a start: state, indexes, log and roles."""
        world, log, ledger = self.world, self.node.store.parts.log, self.node.committer.ledger
        last = log.recovery.last
        if ledger.state.committed == last:
            if state_hash(ledger.state.engine) != world.history.hash_at(last):
                raise GuaranteeViolated(f"the state at {last} is not that of its log")
            with ledger.begin_transaction() as tx:
                if wrong := all_differences(tx):
                    raise GuaranteeViolated(
                        f"after a start an index is not that of its records: {wrong}"
                    )
            if self.found_at:
                world.figures.replayed += 1
            else:
                world.figures.rebuilt += 1
            world.history.recovered(last, log.reader.read(log.state.first))
        if self.node.roles.words not in world.roles:
            raise GuaranteeViolated(f"roles {self.node.roles.words}, not one of {world.roles}")
        world.roles = {self.node.roles.words}
        self._limit()

    async def _expire(self, clock: LoopClock) -> None:
        """Let the node work without faults, until all expired entries are gone."""
        await self.send(self.author.all_roles())
        loop, committer = asyncio.get_running_loop(), self.node.committer
        now_us = committer.ledger.log_time()
        clock.step_wall(max(0, now_us - clock.wall_us()))
        until = loop.time() + EXPIRES_SECONDS
        while not self.over and self.node.failure is None:
            await asyncio.sleep(1)
            wrong = self.world.history.folded(committer.commit_index).overdue(
                committer.ledger.log_time() - SECOND_US
            )
            if not wrong:
                return
            if loop.time() > until:
                raise GuaranteeViolated(f"{'; '.join(wrong)}: it does not go")

    async def _stop(self) -> None:
        world = self.world
        if wrong := await wrong_entries(self.node, "b", "a"):
            raise GuaranteeViolated(f"an index is not that of its records: {wrong}")
        self._allow_to_the_end("Draining", "Cancelled", "UnknownOutcome")
        late = [asyncio.ensure_future(self.send(self.author.script())) for _ in range(3)]
        await asyncio.sleep(self.chance.choice((0, 0.001)))
        await self.node.stop()
        await asyncio.gather(*late)
        if self.node.failure is not None:
            raise self.node.failure
        if state_hash(world.engine) != world.history.hash_at(world.engine.applied):
            raise GuaranteeViolated("the state after a stop is not that of its log")
        if world.engine.applied != len(world.history.frames):
            raise GuaranteeViolated("a commit is missing from the state after a stop")
        world.figures.live += 1

    # --- clients --------------------------------------------------------------------------------

    async def _client(self) -> None:
        for _ in range(self.world.shape.scripts):
            if self.chance.random() < 0.5:
                await asyncio.sleep(self.chance.choice((0, 0.0005, 0.003, 0.02)))
            await self.send(self.author.script())

    def send_soon(self, script: ClientScript, caller: Caller, let_in_by: str) -> None:
        """Send a script in this iteration of the loop, on behalf of a guest with a token or a
        password. Its answer is awaited only at the end of this life."""
        if self.over:
            return
        name = self.world.new_name("r")
        self.world.history.guests[name] = let_in_by
        self.guesting.append(asyncio.ensure_future(self._sent(name, script, caller, ENDED)))

    async def send(self, script: ClientScript) -> bool:
        """Send a script, and record its answer. Return True if it succeeded."""
        if self.over:
            return False
        return await self._sent(self.world.new_name("r"), script, ANA, ())

    def _sent(
        self, name: str, script: ClientScript, caller: Caller, may: Sequence[str]
    ) -> Coroutine[Any, Any, bool]:
        world = self.world
        request = SentScript(name, script, world.history.shown, set(self.may))
        request.may.update(("Conflict", *may))
        if script.timeout_us is not None:
            # The other, when its own commit was on its way to the disk.
            request.may.update(("StatementTimeout", "UnknownOutcome"))
        request.may |= script.may
        world.history.requests[name] = request
        self.running.add(request)
        if script.roles is not None:
            world.roles.add(script.roles)
            self._limit()
        world.note("send", name, script.text)
        asked = RunScript(
            caller, script.text, name, script.parameters, "a", "b", script.timeout_us, reason=name
        )
        return self._answered(request, ask(self.node.scripts, asked))

    async def _answered(self, request: SentScript, asked: Awaitable[ScriptAnswer]) -> bool:
        world, script = self.world, request.script
        try:
            answer = await asked
        except Refusal as refusal:
            if not self.over:
                request.error = refusal.code
                self._heard(request, refusal.code)
            return False
        finally:
            self.running.discard(request)
        if self._is_over():
            return False
        request.answer = answer
        for result in answer.results:
            self.author.hear(result.value)
        world.history.shown = max(world.history.shown, answer.sequence)
        if script.roles is not None and answer.refusal is None:
            self._limit()
            if not any(other.script.roles is not None for other in self.running):
                world.roles = {self.node.roles.words}
                if self.node.roles.words != script.roles and not self._defined_beside(request):
                    raise GuaranteeViolated(f"roles {script.roles} were set and are {world.roles}")
                self._limit()
        self._heard(request, answer.results, answer.sequence, request.refusal())
        return answer.refusal is None

    async def _guest(self, guests: Guests) -> None:
        await guests.live()
        await asyncio.gather(*self.guesting)

    def _is_over(self) -> bool:
        return self.over

    def _defined_beside(self, request: SentScript) -> bool:
        return "beside" in request.may

    def _heard(self, request: SentScript, *what: object) -> None:
        request.until = self.node.committer.commit_index
        self.world.note("heard", request.name, asyncio.get_running_loop().time(), *what)

    def allow(self, *codes: str) -> None:
        """Allow these errors from here on, for running requests too."""
        self.may.update(codes)
        for request in self.running:
            request.may.update(codes)

    def _allow_to_the_end(self, *codes: str) -> None:
        self.lasting.update(codes)
        self.allow(*codes)

    def _limit(self) -> None:
        """Allow the errors of every role that may be missing."""
        roles = self.world.roles
        limited = {code for code, word in LIMITS if any(word not in words for words in roles)}
        self.may -= {code for code, _ in LIMITS} - self.lasting
        self.allow(*limited)
        if sum(1 for each in self.running if each.script.roles is not None) > 1:
            for each in self.running:
                each.may.add("beside")

    # --- faults ---------------------------------------------------------------------------------

    async def _trouble(self, clock: LoopClock) -> None:
        """Inject a random fault or operator action."""
        kinds: list[Callable[[], Awaitable[None]]] = [
            self._cancel,
            self._checkpoint,
            lambda: self._set_clock(clock),
            self._take_all_roles,
            self._take_all_roles,
        ]
        if self.world.shape.troubles:
            kinds += [self._fill, self._empty, self._fill]
            if self.chance.random() < 0.25:
                kinds.append(self._fail)
            if self.feeds is not None:
                kinds += [self.feeds.change_rights] * 12
            if self.guests is not None:
                kinds += [self.guests.cut] * 6
            if self.world.shape.inspects or self.world.shape.expires:
                kinds += [self._fill_for_a_moment] * 8
        while True:
            await asyncio.sleep(self.chance.choice((0.001, 0.004, 0.02, 0.1)))
            await self.chance.choice(kinds)()

    async def _take_all_roles(self) -> None:
        await self.send(self.author.all_roles())

    async def _cancel(self) -> None:
        running = [each for each in self.running if each.script.roles is None]
        if running:
            request = self.chance.choice(sorted(running, key=lambda each: each.name))
            request.may.update(("Cancelled", "UnknownOutcome"))
            await ask(self.node.scripts, CancelScript(request.name))

    async def _checkpoint(self) -> None:
        await ask(self.node.checkpoints, CheckpointNow())

    async def _set_clock(self, clock: LoopClock) -> None:
        clock.step_wall(self.chance.choice(STEPS_US))

    async def _fill(self) -> None:
        self.allow("DiskFull")
        disk = self.world.disk
        disk.capacity = NO_LIMIT
        used = sum(len(found) for found in disk.image().values() if found is not None)
        disk.capacity = used + self.chance.choice((-4000, 0, 300, 5000, 20_000))

    async def _empty(self) -> None:
        disk = self.world.disk
        disk.capacity = NO_LIMIT
        await asyncio.sleep(0.05)  # what was on its way may still go with what was refused
        if disk.capacity == NO_LIMIT:
            self.may.discard("DiskFull")

    async def _fill_for_a_moment(self) -> None:
        """Make appends to the log fail with ENOSPC for a moment, whatever room was reported."""
        disk = self.world.disk
        if disk.plan is not None:
            return
        self.allow("DiskFull")

        def plan(kind: str, path: str) -> Fault | None:
            return Fault(errno.ENOSPC) if kind == "append" and "/log/" in path else None

        disk.plan = plan
        await asyncio.sleep(self.chance.choice((0.001, 0.004, 0.02)))
        if disk.plan is plan:
            disk.plan = None

    async def _fail(self) -> None:
        """Fail the next sync of the log, which ends the node."""
        self._allow_to_the_end("UnknownOutcome", "Failed", "Draining")

        def plan(kind: str, path: str) -> Fault | None:
            return Fault(errno.EIO) if kind == "sync" and "/log/" in path else None

        self.world.disk.plan = plan


LIMITS = (("NotWritable", "writable"), ("Draining", "serving"))
"""Error code of a request to a node that lacks a role."""
