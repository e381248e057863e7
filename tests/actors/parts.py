"""The lower half of a node, for tests: a store on a simulated disk, its log and commits actors.

Tests of actors run on both schedulers: with threads on the real event loop, and on the loop with
virtual time. `on_both` and `on_stepped` run the coroutine of a test there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial, update_wrapper
from inspect import Parameter, Signature, signature
from typing import Any, TypeVar

import pytest
from pykka import ActorRef

from actors.checkpoints import CheckpointsActor, FlushActor
from actors.commits.actor import CommitsActor
from actors.commits.committer import Committer, NamedAuthor
from actors.environment import SystemClock
from actors.execution.registry import Registry
from actors.log import LogActor, LogFigures, has_room
from actors.log_pins import Pins
from actors.log_reads import LogChecks, LogReadActor, LogReads
from actors.passwords import Cost, Passwords
from actors.rights import Rights
from actors.roles import Roles
from actors.runtime import Actor, Runtime, Supervised, stop
from actors.sessions import Sessions
from actors.sign_ins import SessionsActor
from actors.statements import Statements
from actors.store import end_of_released
from protocol.environment import Clock, Scheduler
from protocol.errors import Refusal
from storage.catalog import users
from storage.engine.memory import MemoryEngine
from storage.files.directory import StoreDirectory
from storage.files.disk_reserve import FreeSpaceCheck
from storage.formats import keys
from storage.indexes import derived
from storage.log.log import Log
from storage.log.retention import LogRetention
from storage.txn import applied_position
from storage.txn.ledger import Ledger
from tests.simulation import loop as stepped
from tests.simulation.disk import SimulatedDisk
from tests.simulation.environment import LoopClock, SeededRng, SteppedScheduler, ThreadScheduler

T = TypeVar("T")

KINDS = ("real", "stepped")
KEEP = LogRetention()
CHEAP = Cost(memory_kib=64, passes=1)
"""argon2 that costs nothing worth waiting for."""
SOMEBODY = NamedAuthor("ana", "wire")


def play(kind: str, main: Callable[[], Coroutine[Any, Any, T]], seed: int = 1) -> T:
    """Run `main` to its end on a scheduler of that kind."""
    if kind == "stepped":
        return stepped.run(main(), seed)
    return asyncio.run(main())


class Played:
    """Decorator: run the coroutine of a test to its end on a scheduler, or on each as two tests.

    :param setting: yields the positional-only arguments of the test, one or a tuple of them. It
        takes the kind of scheduler, and the keywords given to the decorator.
    """

    def __init__(
        self,
        setting: Callable[..., AbstractAsyncContextManager[Any]] = nullcontext,
        kinds: Sequence[str] = KINDS,
        **more: Any,
    ) -> None:
        self._setting, self._kinds, self._more = setting, kinds, more

    def using(self, **more: Any) -> Played:
        """Return the same with keywords of the setting."""
        return Played(self._setting, self._kinds, **self._more, **more)

    def __call__(self, test: Callable[..., Any]) -> Callable[..., None]:
        wanted = signature(test).parameters.values()
        fixtures = {
            one.name: one.replace(kind=Parameter.KEYWORD_ONLY)
            for one in wanted
            if one.kind is not Parameter.POSITIONAL_ONLY
        }
        wants_kind = "kind" in fixtures

        def run(kind: str = self._kinds[0], **values: Any) -> None:
            self.run(partial(test, **values, **({"kind": kind} if wants_kind else {})), kind)

        update_wrapper(run, test)
        if len(self._kinds) > 1:
            fixtures["kind"] = Parameter("kind", Parameter.KEYWORD_ONLY)
            pytest.mark.parametrize("kind", self._kinds)(run)
        vars(run)["__signature__"] = Signature([*fixtures.values()])
        return run

    def run(self, main: Callable[..., Any], kind: str | None = None, **more: Any) -> None:
        """Run `main` with what the setting yields, as much as it takes."""
        kind = kind or self._kinds[0]
        positional = Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD
        wanted = sum(one.kind in positional for one in signature(main).parameters.values())

        async def whole() -> None:
            async with self._setting(kind, **self._more, **more) as found:
                await main(*(found if isinstance(found, tuple) else (found,))[:wanted])

        play(kind, whole)

    @property
    def stepped(self) -> Played:
        """The same on the loop with virtual time alone."""
        return Played(self._setting, ["stepped"], **self._more)


on_both = Played()
on_stepped = on_both.stepped


def scheduler_of(kind: str) -> Scheduler:
    return SteppedScheduler() if kind == "stepped" else ThreadScheduler()


def clock_of(kind: str) -> Clock:
    return LoopClock(asyncio.get_running_loop()) if kind == "stepped" else SystemClock()


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, however long; the test's own timeout ends it."""
    while not condition():
        await asyncio.sleep(0.001)


async def outcome(awaited: Awaitable[Any]) -> Any:
    """What it brings, or the refusal or exception it raises."""
    try:
        return await awaited
    except Exception as error:
        return error


class Failures:
    """What actors reported."""

    def __init__(self) -> None:
        self.failed: list[tuple[Actor, BaseException]] = []
        self.noticed: list[BaseException] = []

    def runtime(self, kind: str, clock: Clock | None = None) -> Runtime:
        return Runtime(
            scheduler_of(kind),
            clock or clock_of(kind),
            lambda actor, error: self.failed.append((actor, error)),
            self.noticed.append,
        )


class Parts:
    """A store, its log and its commits; filled by `parts`."""

    runtime: Runtime
    disk: SimulatedDisk
    directory: StoreDirectory
    log: Log
    engine: MemoryEngine
    ledger: Ledger
    committer: Committer
    commits: ActorRef[CommitsActor]
    log_ref: ActorRef[LogActor]
    figures: LogFigures
    pins: Pins
    failures: Failures
    rng: SeededRng

    def put(self, name: str, value: bytes) -> int:
        """Commit one key; answers its sequence."""
        tx = self.committer.begin_transaction()
        tx.put(key(name), value)
        return self.committer.commit(tx, SOMEBODY).sequence

    def get(self, name: str) -> bytes | None:
        """A key as a new transaction sees it."""
        with self.committer.begin_transaction() as tx:
            return tx.get(key(name))

    async def durable(self, sequence: int) -> None:
        await self.committer.released(self.committer.ticket(sequence))

    def log_frames(self) -> list[int]:
        """Sequences in the log."""
        return [frame.sequence for frame in self.log.reader.read(self.log.state.first)]


def key(name: str) -> bytes:
    """A key of the state that no securable owns."""
    return keys.STORE_RANGE + b"\xf0" + name.encode()


@asynccontextmanager
async def parts(
    kind: str,
    disk: SimulatedDisk | None = None,
    engine: MemoryEngine | None = None,
    clock: Clock | None = None,
    seed: int = 7,
    gives_way: bool = False,
    follows: Refusal | None = None,
) -> AsyncIterator[Parts]:
    """Start the lower half, and stop it in order.

    :param follows: what commits are refused with by one that follows another node from its start on
    """
    made = Parts()
    made.failures = Failures()
    clock = clock or clock_of(kind)
    made.rng = rng = SeededRng(seed)
    made.runtime = runtime = made.failures.runtime(kind, clock)
    made.disk = disk or SimulatedDisk()
    made.directory = StoreDirectory.open("/store", made.disk, clock, rng, create=True)
    made.engine = engine or MemoryEngine()
    store_id = made.directory.store_id.bytes
    made.log = log = Log.open(
        made.directory, proven=applied_position.read(made.engine, store_id).proves
    )
    applied_position.require_joined(
        applied_position.read(made.engine, store_id), log.reader.digest_at
    )
    made.committer = committer = Committer(runtime, Registry())
    found = applied_position.read(made.engine, store_id)
    end = log.state.end if follows is None else end_of_released(found, log.reader)
    made.ledger = ledger = Ledger(made.engine, end, clock, rng, committer.hand_over, derived.kept)
    for frame in log.reader.read(ledger.state.committed + 1, end.sequence):
        ledger.replay(frame)
    made.commits = CommitsActor.start(runtime, committer)
    made.figures = LogFigures()
    made.pins = Pins(clock, log.state.first)
    made.log_ref = LogActor.start(
        runtime,
        log,
        made.commits,
        made.engine.unflushed_bytes,
        made.engine.flushed_sequence if gives_way else None,
        made.figures,
        made.engine.holds,
        made.pins,
    )
    committer.has_room = partial(has_room, log, made.engine.unflushed_bytes)
    committer.attach(ledger, made.commits, made.log_ref, lambda: None)
    reader = Supervised(
        lambda: LogReadActor.start(runtime, log.reader, LogChecks()), refoldable=True
    )
    committer.set_log_readers(log.reader, LogReads(committer, log.reader, reader, made.pins).stored)
    if follows is not None:
        committer.follow_first(follows)
    try:
        yield made
    finally:
        await stop(reader.ref)
        await stop(made.log_ref)
        await stop(made.commits)
        made.directory.close()


@asynccontextmanager
async def reading(made: Parts, found: LogChecks | None = None) -> AsyncIterator[LogReads]:
    """The log, read by a thread.

    :param found: is told of damage
    """
    checks = found or LogChecks()
    reader = Supervised(
        lambda: LogReadActor.start(made.runtime, made.log.reader, checks), refoldable=True
    )
    try:
        yield LogReads(made.committer, made.log.reader, reader, made.pins)
    finally:
        await stop(reader.ref)


@asynccontextmanager
async def checkpoints(
    made: Parts, *, keep: LogRetention | None = KEEP
) -> AsyncIterator[ActorRef[Any]]:
    """The checkpoint actors over the lower half."""
    headroom = FreeSpaceCheck(made.disk, "/store/state", "/store/tmp")
    flusher = FlushActor.start(made.runtime, made.engine, headroom)
    ref = CheckpointsActor.start(
        made.runtime,
        made.committer,
        flusher,
        made.log_ref,
        keep=keep,
        flushed=made.engine.flushed_sequence,
        newest_segment=lambda: made.log.state.newest,
    )
    try:
        yield ref
    finally:
        await stop(ref)
        await stop(flusher)


class SignInDesk:
    """The sessions actor and what it needs."""

    sessions: Sessions
    ref: ActorRef[SessionsActor]
    passwords: Passwords
    roles: Roles
    parts: Parts

    async def define(self, name: str, password: str, role: str = users.OWNER) -> None:
        """A user, durable."""
        passhash = await self.passwords.hash(password)
        with self.parts.committer.begin_transaction() as tx:
            users.define(tx, name, role, passhash)
            sequence = self.parts.committer.commit(tx, SOMEBODY).sequence
        await self.parts.durable(sequence)

    async def change(
        self, name: str, *, role: str | None = None, passhash: str | None = None
    ) -> None:
        """Another role or hash for a user, durable."""
        with self.parts.committer.begin_transaction() as tx:
            users.alter(tx, users.get(tx, name), role=role, passhash=passhash)
            sequence = self.parts.committer.commit(tx, SOMEBODY).sequence
        await self.parts.durable(sequence)

    async def drop(self, name: str) -> None:
        """Remove a user, durably."""
        with self.parts.committer.begin_transaction() as tx:
            users.drop(tx, users.get(tx, name))
            sequence = self.parts.committer.commit(tx, SOMEBODY).sequence
        await self.parts.durable(sequence)

    def stored(self, name: str) -> users.User:
        """A user as it is stored."""
        with self.parts.committer.begin_transaction() as tx:
            return users.get(tx, name)


@asynccontextmanager
async def desk(
    kind: str, clock: Clock | None = None, cost: Cost = CHEAP, cores: int = 2
) -> AsyncIterator[SignInDesk]:
    """Sessions over the lower half, with cheap hashes."""
    async with parts(kind, clock=clock) as made:
        found = SignInDesk()
        found.parts = made
        found.roles = Roles(made.runtime, made.directory)
        made.committer._check_declared = found.roles.check_writable
        found.passwords = Passwords(made.runtime, made.rng, cores, cost)
        found.sessions = Sessions(made.runtime.clock, made.rng)
        found.ref = SessionsActor.start(
            made.runtime, found.sessions, made.committer, found.roles, found.passwords, made.rng,
            Statements(made.runtime, made.committer, Rights(), "here", made.rng),
        )  # fmt: skip
        try:
            yield found
        finally:
            await stop(found.ref)
            await found.passwords.stop()
            await found.roles.stop()


with_parts = Played(parts)
with_desk = Played(desk)


def code(found: object) -> str:
    """The code of a refusal, or what else it is."""
    return found.code if isinstance(found, Refusal) else repr(found)
