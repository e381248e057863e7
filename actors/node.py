"""One node: how it starts, when it is ready, how it drains, how it stops, and what ends it early.

Order of start: directory → log → state, brought up to the log → actors → first owner. Each actor is
started after those it asks. The end is the same backwards.

Fail-stop: when the log, the ledger or the state engine fails, or an actor that can't be replaced,
nothing more is acknowledged, `status` says failed, and `failed` tells whoever runs the node.
"""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64encode
from collections.abc import Callable
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

import structlog
from pykka import ActorRef

from actors.checkpoints import CheckpointNow, CheckpointsActor, FlushActor, NoteDamage
from actors.commits import NODE, CommitsActor, Committer
from actors.doors import Doors
from actors.facts import Facts
from actors.indexes import Indexes, IndexesActor
from actors.log import LogActor, LogFigures, has_room
from actors.log_checks import LogChecks, LogChecksActor, LogReadActor
from actors.passwords import Cost, Passwords
from actors.rights import Rights
from actors.roles import Roles
from actors.runtime import Actor, Runtime, Supervised, ask, stop, tell
from actors.scripts.actor import ScriptsActor
from actors.scripts.plans import Plans
from actors.scripts.running import Running
from actors.scripts.services import Services
from actors.sessions import LetGo, Sessions, SessionsActor
from actors.spaces import Spaces
from actors.topics import Topics
from protocol import limits
from protocol.doors import Room
from protocol.errors import Busy, DiskFull, Draining, Refusal
from protocol.requests import (
    AuthenticateToken,
    Caller,
    Health,
    NodeStatus,
    Surface,
    Unready,
)
from protocol.values import Value
from protocol.version import VERSION
from storage import lineage, rebuilding, users
from storage.directory import StoreDirectory
from storage.engine import Engine, EngineFailed, EngineSpoiled, EngineUnreadable
from storage.faults import ClockRefused, StateDamaged, StoreFault
from storage.ledger import Ledger, StateUnusable, Tail
from storage.log import Log
from storage.recovery import Recovery
from storage.reserve import Headroom
from storage.retention import Keep

log = structlog.get_logger("node")

GENERATED_OWNER: Final = "root"
GENERATED_PASSWORD_BYTES: Final = 18
END_SECONDS: Final = 5
"""Scripts that the drain did not see the end of get so long to reach the end of their slice."""
TO_OPEN: Final = Room(256 * limits.KIB, 8)
"""What the state engine writes and makes at its open, before it removes what that replaces."""
REPLAY_FRAMES: Final = 256
"""Frames replayed before the loop gets its turn."""


def keep_log(rule: timedelta | int | None) -> Keep:
    """What of the log is kept.

    :param rule: frames younger than that; so many bytes; None: as many frames as the limits say
    """
    if isinstance(rule, timedelta):
        return Keep(age_us=rule // timedelta(microseconds=1))
    return Keep(bytes=rule)


Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class FirstOwner:
    """The user that a store without users is given."""

    name: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """What a node is told at its start."""

    data_dir: str
    create: bool = True
    """Whether a store is made where there is none."""
    serves: bool = True
    """Whether it is there for others: then old log is pruned, and a store without users gets an
    owner with a generated password when `first_owner` names none."""
    first_owner: FirstOwner | None = None
    password_cost: Cost = field(default_factory=Cost)
    keep_log: Keep = field(default_factory=Keep)
    """What of the log a node that serves keeps."""
    accept_clock_jump: bool = False
    """Whether a wall clock that is more than a year ahead of the log is meant."""
    rebuild_state: bool = False
    """Whether the state is thrown away and made anew from the log."""
    check: bool = False
    """Whether every frame that the log holds is read and checked, not only those of its tail."""
    progress: Progress | None = None
    """Called while the log is replayed, with frames done and frames in all."""


class Node:
    """A node. `start` makes one; `stop` ends it, whatever happened to it."""

    committer: Committer
    roles: Roles
    passwords: Passwords
    running: Running
    spaces: Spaces
    topics: Topics

    def __init__(self, settings: NodeSettings, doors: Doors) -> None:
        self.settings = settings
        self.doors = doors
        self.failed = asyncio.Event()
        """Set when the node has failed: stop it and exit with an error."""
        self.failure: BaseException | None = None
        self.first_owner: str | None = None
        """The owner this start gave to a store that had no users."""
        self.generated_owner: FirstOwner | None = None
        """The owner this start has made up: to be shown once."""
        self.rights = Rights()
        """Judges what callers may do."""
        self.runtime = Runtime(doors.scheduler, doors.clock, self._actor_failed, self._noticed)
        self.facts = Facts(self.status, self._log_info)
        self.facts.settings["directory"] = settings.data_dir
        self.directory: StoreDirectory | None = None
        self._log: Log | None = None
        self._log_figures = LogFigures()
        self.log_checks = LogChecks()
        """What was found in older segments since the start."""
        self._engine: Engine | None = None
        self._log_ref: ActorRef[LogActor] | None = None
        self._commits: ActorRef[CommitsActor] | None = None
        self._places: list[Supervised[Any]] = []
        self._passwords: Passwords | None = None
        self._roles: Roles | None = None
        self._spaces: Spaces | None = None
        self._topics: Topics | None = None
        self._rebuilds = False
        """Whether this start makes the state anew."""
        self._state_damage: str | None = None
        """What of the state can't be read."""
        self._state: Unready | None = "opening"
        self._began_us = doors.clock.monotonic_us()

    # --- start ----------------------------------------------------------------------------------

    async def open(self) -> None:
        """Everything from the directory to the first owner. See `start`."""
        try:
            await self._open()
        except EngineUnreadable as error:
            if self.directory is not None and not self.settings.check:
                self._note_for_next_start(str(error))
            raise

    def _note_for_next_start(self, what: str) -> None:
        """Or each start would end where this one did."""
        assert self.directory is not None
        try:
            rebuilding.note(self.directory, what)
        except OSError as error:
            log.warning("the damage of the state could not be noted", reason=str(error))

    async def _open(self) -> None:
        self._open_store()
        if self.settings.check:
            await self._check_log()
        await self._replay()
        if self._rebuilds and self.directory is not None:
            rebuilding.finish(self.directory)
        self._start_actors()
        await self.topics.begin()
        await self._ensure_owner()
        self._state = None
        log.info("node started", sequence=self.committer.released_upto, store=str(self._store_id()))

    def _open_store(self) -> None:
        doors = self.doors
        self.directory = StoreDirectory.open(
            self.settings.data_dir, doors.fs, doors.clock, doors.rng, self.settings.create
        )
        if self.directory.was_open_to_others:
            log.warning(
                "the data directory was open to other users and is closed now",
                directory=self.directory.path,
            )
        # A log that is refused leaves all as it is. The engine, with its own lock and with what it
        # proves, comes before the log is repaired.
        self._log = Log.look(self.directory)
        self._check_clock(self._log.last_time)
        self._log.make_room(TO_OPEN)
        self._engine = self._open_state()
        found = lineage.read(self._engine, self.directory.store_id.bytes)
        lineage.require_joined(found, self._log)
        self._log.recover(found.proves)
        _report(self._log.recovery)

    def _open_state(self) -> Engine:
        """The state; an empty one where it must be made anew and the log holds all of it.

        :raises StateDamaged: it must be, and that is not for this command or not possible
        :raises EngineFailed: it does not open, and is not known to be damaged
        """
        assert self.directory is not None and self._log is not None
        directory, begins = self.directory, self._log.first
        what = rebuilding.damage(directory)
        if what is None and not self.settings.rebuild_state:
            try:
                return self.doors.open_engine(directory.state_path)
            except EngineUnreadable as error:
                what = str(error)
                if begins > 1:
                    raise StateDamaged(_not_rebuilt(what, begins)) from error
        if self.settings.check:
            mends = ": a node that serves makes the state anew from the log" if begins == 1 else ""
            raise StateDamaged(f"{what}{mends}")
        if begins > 1:
            if self.settings.rebuild_state:
                raise StateDamaged(_not_rebuilt("--rebuild-state", begins))
            log.error("a part of the state can't be read, and it can't be made anew", reason=what)
            self._state_damage = what
            return self.doors.open_engine(directory.state_path, may_compact=False)
        what = what or "--rebuild-state"
        log.warning("the state is made anew from the log", reason=what, frames=self._log.last)
        rebuilding.note(directory, what)
        rebuilding.throw_away(directory)
        self._rebuilds = True
        return self.doors.open_engine(directory.state_path)

    def _check_clock(self, newest_us: int) -> None:
        """Before anything is written by it. :raises ClockRefused:"""
        wall_us = self.doors.clock.wall_us()
        ahead_s = (wall_us - newest_us) // 1_000_000
        if ahead_s <= limits.CLOCK_JUMP_SECONDS or self.settings.check:
            return
        if not self.settings.accept_clock_jump:
            raise ClockRefused(
                f"the clock says {_day(wall_us)}, and the newest frame of the log is of"
                f" {_day(newest_us)}: set the clock right, or start with --accept-clock-jump if it"
                " is. Log time never goes back"
            )
        log.info("the clock has jumped, and that was accepted", days=ahead_s // 86_400)

    async def _check_log(self) -> None:
        """Read every frame, in slices. :raises LogDamaged: one is not what was written"""
        assert self._log is not None
        for frame in self._log.read(self._log.first):
            if frame.sequence % REPLAY_FRAMES == 0:
                await asyncio.sleep(0)

    async def _replay(self) -> None:
        """Bring the state up to the log, in slices.

        All of the log: alone, whatever it holds may have been shown, also frames that a crash
        caught between their sync and their answer. In a cluster a start goes only as far as the
        released number that the log carries (`Log.released`): what lies behind that may have to
        give way to what another leader went on with, and a state is never undone.
        """
        assert self._log is not None and self._engine is not None and self.directory is not None
        store_id = self.directory.store_id.bytes
        self.committer = Committer(self.runtime)
        tail = Tail(self._log.last, self._log.epoch, self._log.last_time, store_id)
        ledger = Ledger(
            self._engine, tail, self.doors.clock, self.doors.rng, self.committer.hand_over
        )
        self.committer.ledger = ledger
        first, last = ledger.committed + 1, self._log.last
        if first > last:
            return
        if first < self._log.first:
            raise StateUnusable(
                f"the state stands at {first - 1} and the log begins at {self._log.first}"
            )
        for frame in self._log.read(first):
            ledger.replay(frame)
            if frame.sequence % REPLAY_FRAMES == 0:
                if self.settings.progress is not None:
                    self.settings.progress(frame.sequence - first + 1, last - first + 1)
                await asyncio.sleep(0)
        log.info("log replayed", frames=last - first + 1)

    def _start_actors(self) -> None:
        assert self.directory is not None and self._log is not None and self._engine is not None
        runtime, committer, engine = self.runtime, self.committer, self._engine
        self._commits = commits = CommitsActor.start(runtime, committer)
        serves = self.settings.serves
        self._log_ref = log_ref = LogActor.start(
            runtime,
            self._log,
            commits,
            partial(_unflushed_bytes, engine, committer),
            engine.flushed_sequence if serves else None,
            self._log_figures,
            lambda count: engine.holds(committer.unsettled_bytes + count),
        )
        self._roles = self.roles = Roles(runtime, self.directory)
        unflushed = partial(_unflushed_bytes, engine, committer)
        committer.has_room = partial(has_room, self._log, unflushed)
        committer.attach(committer.ledger, commits, log_ref, self.roles.check_writable)
        self._passwords = self.passwords = Passwords(
            runtime, self.doors.rng, self.doors.cores, self.settings.password_cost
        )
        fs, directory = self.doors.fs, self.directory
        headroom = Headroom(fs, directory.state_path, directory.tmp_path)
        note = partial(rebuilding.note, directory)
        opened_log = self._log
        self._flush = self._supervise(
            lambda: FlushActor.start(runtime, engine, headroom, note), refoldable=False
        )
        self._checkpoints = self._supervise(
            lambda: CheckpointsActor.start(
                runtime,
                committer,
                self._flush.ref,
                log_ref,
                keep=self.settings.keep_log if serves else None,
                flushed=engine.flushed_sequence,
                newest_segment=lambda: opened_log.newest,
            ),
            refoldable=False,
        )
        if serves:
            reader = self._supervise(
                lambda: LogReadActor.start(runtime, opened_log, self.log_checks), refoldable=True
            )
            self._supervise(
                lambda: LogChecksActor.start(runtime, committer, reader), refoldable=True
            )
        self.running = Running(committer)
        self._open_sessions = sessions = Sessions(self.doors.clock, self.doors.rng)
        self._sessions = self._supervise(
            lambda: SessionsActor.start(
                runtime, sessions, committer, self.passwords, self.doors.rng, self._sign_in_aside
            ),
            refoldable=True,
        )
        self._spaces = self.spaces = Spaces(runtime, committer, self.roles, sessions, self.rights)
        self._topics = self.topics = Topics(runtime, committer, self.roles, self.rights)
        indexes = Indexes()
        self._indexes = self._supervise(
            lambda: IndexesActor.start(runtime, indexes, committer), refoldable=True
        )
        committer.on_withdraw.append(self.topics.waits.taken_back)
        sessions.rests = self.running
        services = Services(
            committer=committer,
            roles=self.roles,
            rights=self.rights,
            passwords=self.passwords,
            sessions=sessions,
            spaces=self.spaces,
            topics=self.topics,
            running=self.running,
            indexes=indexes,
            clock=self.doors.clock,
            facts=self.facts,
            store_id=str(self.directory.store_id),
        )
        plans = Plans()
        self._scripts = self._supervise(
            lambda: ScriptsActor.start(runtime, services, plans), refoldable=True
        )
        self.spaces.begin()

    def _sign_in_aside(self, surface: Surface) -> AbstractContextManager[None]:
        """A sign-in that waits does not count among what its surface runs: many wrong ones are
        answered late, and must not take the places of others' requests. Over the wire it never
        did."""
        return self.running.aside(surface) if surface == "http" else nullcontext()

    def _supervise(
        self, begin: Callable[[], ActorRef[Any]], *, refoldable: bool
    ) -> Supervised[Any]:
        place: Supervised[Any] = Supervised(begin, refoldable=refoldable)
        self._places.append(place)
        return place

    def may_read_node(self, caller: Caller) -> bool:
        """Whether a caller may have what INFO FOR NODE shows."""
        with self.committer.begin() as tx:
            return self.rights.reads_node(tx, caller)

    def has_users(self) -> bool:
        """Whether the store belongs to somebody already."""
        with self.committer.begin() as tx:
            return bool(users.everyone(tx))

    async def _ensure_owner(self) -> None:
        """A store without users gets its first owner.

        :raises Refusal: the name or password given for it is none
        """
        if self.has_users():
            return
        owner = self.settings.first_owner
        if owner is None:
            if not self.settings.serves:
                return
            secret = urlsafe_b64encode(self.doors.rng.bytes(GENERATED_PASSWORD_BYTES)).decode()
            owner = self.generated_owner = FirstOwner(GENERATED_OWNER, secret)
        passhash = await self.passwords.hash(owner.password)
        with self.committer.begin() as tx:
            users.define(tx, owner.name, users.OWNER, passhash)
            promise = self.committer.commit(tx, NODE, reason="first owner of the store")
        await self.committer.released(promise)
        self.first_owner = owner.name

    # --- ready ----------------------------------------------------------------------------------

    def status(self) -> NodeStatus:
        """How the node stands; asks no actor, so it answers when all are busy."""
        health: Health = "well"
        if self.failure is not None:
            health = "failed"
        elif self._state == "draining":
            health = "closing"
        opened = self._log is not None and self._roles is not None
        return NodeStatus(
            health=health,
            reason=self._unready(),
            roles=self._roles.words if self._roles is not None else (),
            version=VERSION,
            store_id=str(self._store_id() or ""),
            node_id=self._roles.node_id if self._roles is not None else "",
            sequence=self.committer.released_upto if opened else 0,
            log_begins=self._log.first if self._log is not None else 0,
            log_given_way=self._log_figures.given_way,
            state_damage=self._state_damage,
            log_damage=len(self.log_checks.found(self._log.first)) if self._log is not None else 0,
            uptime_seconds=(self.doors.clock.monotonic_us() - self._began_us) / 1_000_000,
            endpoints=self._roles.endpoints if self._roles is not None else (),
        )

    def _log_info(self) -> dict[str, Value]:
        return self.log_checks.info(self._log.first if self._log is not None else 1)

    def _unready(self) -> Unready | None:
        if self.failure is not None:
            return "failed"
        if self._state is not None:
            return self._state
        return self._roles.unready if self._roles is not None else "opening"

    def _store_id(self) -> object:
        return self.directory.store_id if self.directory is not None else None

    @property
    def scripts(self) -> ActorRef[Any]:
        """Asked to run scripts."""
        return self._scripts.ref

    @property
    def sessions(self) -> ActorRef[Any]:
        """Asked who a caller is."""
        return self._sessions.ref

    def caller(self, asked: AuthenticateToken) -> Caller | None:
        """Who a token stands for, without asking an actor; None: `sessions` has to be asked.

        :raises SessionEnded:
        """
        return self._open_sessions.unchanged(asked, self.committer.ledger.users_version)

    @property
    def checkpoints(self) -> ActorRef[Any]:
        """Asked to flush the state now."""
        return self._checkpoints.ref

    # --- drain and stop -------------------------------------------------------------------------

    def not_ready(self) -> None:
        """First stage of the end: say that no more traffic should come."""
        if self._state is None:
            self._state = "draining"
        if self._topics is not None:
            self._topics.drain()
            with suppress(Busy):  # then refusals go out when they are due
                tell(self._sessions.ref, LetGo())

    async def drain(self) -> None:
        """Let what is running finish, for as long as that may take. Surfaces accept nothing new
        by now, and wait for their own answers."""
        self.not_ready()
        until_us = self.doors.clock.monotonic_us() + limits.DRAIN_SECONDS * 1_000_000
        while len(self.running) and self.failure is None:
            if self.doors.clock.monotonic_us() >= until_us:
                log.warning("scripts still running after the drain", count=len(self.running))
                return
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        """Close the store. Whatever still runs is ended; what was acknowledged is on the disk.

        What can't be closed in order is closed as far as it can be; `failure` says so.
        """
        self.not_ready()
        async with AsyncExitStack() as closing:  # runs from the last line to the first
            if self.directory is not None:
                closing.callback(self.directory.close)
            if self._engine is not None:
                closing.callback(_close_engine, self._engine)
            if self._commits is not None:
                closing.push_async_callback(stop, self._commits)
            if self._log_ref is not None:
                closing.push_async_callback(stop, self._log_ref)
                closing.callback(self.committer.hand_over_rest)
            elif self._log is not None:
                closing.callback(self._log.close, clean=False)
            if self._roles is not None:
                closing.push_async_callback(self._roles.stop)
            if self._passwords is not None:
                closing.push_async_callback(self._passwords.stop)
            for place in self._places:
                closing.push_async_callback(_stop_place, place)
            if self._spaces is not None:
                closing.push_async_callback(self._spaces.stop)
            if self._topics is not None:
                closing.push_async_callback(self._topics.stop)
            if self._commits is not None and self.failure is None:
                closing.push_async_callback(self._settle)
        await asyncio.sleep(0)  # failures of the last actors arrive
        if self._log_ref is not None:  # a start that was refused has its own line
            log.info("node stopped")

    async def _settle(self) -> None:
        """Wait for the commits in flight, then flush, so that the next start replays nothing."""
        committer = self.committer
        try:
            await self._end_scripts()
            await committer.released(committer.promise(committer.committed))
            await stop(self._sessions.ref)
            await stop(self._scripts.ref)
            await self.spaces.stop()
            await self.topics.stop()
            await committer.released(committer.promise(committer.committed))
        except Refusal as refusal:
            log.warning("the last commits were refused", reason=refusal.message)
        except Exception as error:
            self.fail(error)
        try:
            await ask(self._checkpoints.ref, CheckpointNow())
        except DiskFull as refusal:
            log.warning("the next start replays more of the log", reason=refusal.message)
        except Exception as error:
            self.fail(error)

    async def _end_scripts(self) -> None:
        """What outlasted the drain is ended at its next slice, and answered."""
        for run in self.running:
            run.turn.cancel(Draining("the node is stopping"))
        until_us = self.doors.clock.monotonic_us() + END_SECONDS * 1_000_000
        while len(self.running) and self.doors.clock.monotonic_us() < until_us:
            await asyncio.sleep(0.001)

    # --- failure --------------------------------------------------------------------------------

    def fail(self, error: BaseException) -> None:
        """End everything that could acknowledge. Called on the loop; the first call counts."""
        if self.failure is None:
            self.failure = error
            log.error("node failed", reason=str(error))
            if isinstance(error, EngineSpoiled) and self.directory is not None:
                self._note_for_next_start(str(error))
            self.committer.lose(error)
            self.failed.set()

    def _actor_failed(self, actor: Actor, error: BaseException) -> None:
        now_us = self.doors.clock.monotonic_us()
        for place in self._replaceable():
            if place.ref == actor.actor_ref:
                break
        else:
            place = None
        self._note_damage(error)
        fatal = isinstance(error, EngineFailed) and not isinstance(error, EngineUnreadable)
        if fatal or place is None or not place.restart(now_us):
            self.fail(error)
        elif place is self._scripts:
            self._forget_scripts()

    def _forget_scripts(self) -> None:
        """Scripts of an actor that is gone: their callers have heard, nobody waits for them."""
        for run in self.running:
            run.turn.cancel(Draining("the scripts' actor failed"))
            self.running.remove(run.request.request)

    def _replaceable(self) -> list[Supervised[Any]]:
        places = list(self._places)
        if self._passwords is not None:
            places += self._passwords.actors
        if self._roles is not None:
            places.append(self._roles.actor)
        if self._spaces is not None:
            places += self._spaces.places.values()
        if self._topics is not None:
            places += self._topics.places.values()
        return places

    def _noticed(self, error: BaseException) -> None:
        self._note_damage(error)
        if isinstance(error, EngineFailed) and not isinstance(error, EngineUnreadable):
            self.fail(error)

    def _note_damage(self, error: BaseException) -> None:
        """A part of the state can't be read. Who asked for it is told; others go on, and the next
        start makes the state anew, if it can."""
        if not isinstance(error, EngineUnreadable) or self._state_damage is not None:
            return
        self._state_damage = str(error)
        begins = self._log.first if self._log is not None else 1
        log.error(
            "a part of the state can't be read",
            reason=str(error),
            next_start="makes the state anew from the log" if begins == 1 else "can't make it anew",
        )
        with suppress(Busy):
            tell(self._flush.ref, NoteDamage(str(error)))


START_FAULTS: Final = (StoreFault, StateUnusable, EngineFailed, Refusal, OSError)
"""What `start` raises when the world, not a bug, keeps the node from starting. The text of each is
for whoever runs it."""


def _not_rebuilt(what: str, begins: int) -> str:
    return (
        f"{what}: the state can't be made anew, since the log begins at {begins}. Put a copy of the"
        " whole directory back"
    )


def _unflushed_bytes(engine: Engine, committer: Committer) -> int:
    """What the state has to write yet."""
    return engine.unflushed_bytes() + committer.unsettled_bytes


def _close_engine(engine: Engine) -> None:
    """Close the state. What it can't flush stands in the log."""
    try:
        engine.close()
    except EngineFailed as error:
        log.warning("the next start replays more of the log", reason=str(error))


async def _stop_place(place: Supervised[Any]) -> None:
    await stop(place.ref)


async def start(settings: NodeSettings, doors: Doors) -> Node:
    """A node that is open and answers; nobody is told of it yet: that is for the surfaces.

    :raises StoreFault: the directory, log or state can't be opened; the text says why
    :raises StateUnusable: the log no longer holds what the state lacks
    :raises EngineFailed: the state can't be read
    :raises Refusal: the first owner's name or password is refused
    :raises OSError: as the disk says
    """
    node = Node(settings, doors)
    try:
        await node.open()
    except BaseException:
        await node.stop()
        raise
    return node


def _day(time_us: int) -> str:
    """A date for people. A clock that is out of its mind may be beyond the calendar."""
    try:
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_us)).isoformat()
    except OverflowError:
        return f"{time_us} µs after 1970"


def _report(recovery: Recovery) -> None:
    if not recovery.clean and (recovery.last or recovery.cut_bytes):  # a new log was never open
        log.info(
            "log recovered after an unclean stop",
            last=recovery.last,
            copied=recovery.copied,
            cut_bytes=recovery.cut_bytes,
            cut_file=recovery.cut_file,
        )
