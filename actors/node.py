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
from functools import partial
from typing import Any, Final

import structlog
from pykka import ActorRef

from actors.backups.starting import begin as begin_backups
from actors.backups.taking import Backups
from actors.certificates import CertificatesActor, Look
from actors.checkpoints import CheckpointNow, CheckpointsActor, FlushActor, NoteDamage
from actors.cluster import copying, renewing
from actors.cluster.copying import Copies
from actors.cluster.desk import Desk
from actors.cluster.member import Life, Member
from actors.cluster.peering import Peering
from actors.cluster.starting import begin_coordination, begin_member
from actors.commits import NODE, CommitsActor, Committer
from actors.doors import Doors
from actors.facts import Facts, Listening
from actors.feeds import Feeds, FeedsActor
from actors.forgetting import ForgettingActor
from actors.indexes import Indexes, IndexesActor
from actors.log import LogActor, LogFigures, has_room
from actors.log_checks import LogChecksActor
from actors.log_pins import Pins
from actors.log_reads import LogChecks, LogReadActor, LogReads
from actors.messages.engine import MessageEngine
from actors.passwords import Passwords
from actors.restores import Unfinished
from actors.rights import Rights
from actors.roles import Roles
from actors.runtime import Actor, Runtime, Supervised, ask, stop, tell
from actors.scripts.actor import ScriptsActor
from actors.scripts.moments import Moments
from actors.scripts.plans import Plans
from actors.scripts.running import Running
from actors.scripts.services import Services
from actors.sessions import Sessions, end_with_users
from actors.settings import FirstOwner, NodeSettings
from actors.sign_ins import LetGo, SessionsActor
from actors.spaces import Spaces
from actors.statements import Statements
from actors.store import Store
from actors.timers import Timers
from actors.topics import Topics
from actors.vaults import Parts as VaultParts
from actors.vaults import begin as begin_vaults
from protocol import limits
from protocol.doors import Room
from protocol.errors import Busy, DiskFull, Draining, NotWritable, Refusal
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
from storage import rebuilding, users
from storage.engine import Engine, EngineFailed, EngineSpoiled, EngineUnreadable
from storage.faults import StoreFault
from storage.ledger import Ledger, StateUnusable
from storage.peer_identity import Identity
from storage.reserve import Headroom

log = structlog.get_logger("node")

GENERATED_OWNER: Final = "root"
GENERATED_PASSWORD_BYTES: Final = 18
END_SECONDS: Final = 5
"""Scripts that the drain did not see the end of get so long to reach the end of their slice."""
TO_OPEN: Final = Room(256 * limits.KIB, 8)
"""What the state engine writes and makes at its open, before it removes what that replaces."""
REPLAY_FRAMES: Final = 256
"""Frames replayed before the loop gets its turn."""


class Node:
    """A node. `start` makes one; `stop` ends it, whatever happened to it."""

    backups: Backups
    cluster: Desk
    committer: Committer
    member: Member
    open_feeds: Feeds
    roles: Roles
    passwords: Passwords
    peering: Peering
    """What other nodes ask of this one, and whom it trusts."""
    reads: LogReads
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
        self.store = Store(settings, doors)
        self._log_figures = LogFigures()
        self.log_checks = LogChecks()
        """What was found in older segments since the start."""
        self._log_ref: ActorRef[LogActor] | None = None
        self._commits: ActorRef[CommitsActor] | None = None
        self._places: list[Supervised[Any]] = []
        self._passwords: Passwords | None = None
        self._roles: Roles | None = None
        self.copies: Copies | None = None
        """What gives copies of the store to nodes that join; None: it is linked with none."""
        self._spaces: Spaces | None = None
        self._topics: Topics | None = None
        self._state: Unready | None = "opening"
        self._began_us = doors.clock.monotonic_us()

    # --- start ----------------------------------------------------------------------------------

    async def open(self) -> None:
        """Everything from the directory to the first owner. See `start`."""
        try:
            await self._open()
        except EngineUnreadable as error:
            self.store.note_for_next_start(error)
            raise

    async def _open(self) -> None:
        await self.store.open()
        await self._replay()
        self._start_actors()
        if self.member.life is Life.ALONE:
            await self._timers.leads(True)
        await self._ensure_owner()
        self._state = None
        log.info("node started", sequence=self.committer.released_upto, store=self.store.id)

    async def _replay(self) -> None:
        """Bring the state up to the log, with the ledger that goes on from there."""
        engine, end = self.store.parts.engine, self.store.end
        self.committer = committer = Committer(self.runtime)
        clock, rng = self.doors.clock, self.doors.rng
        committer.ledger = Ledger(engine, end, clock, rng, committer.hand_over)
        await self.store.replay(committer.ledger)

    def _start_actors(self) -> None:
        self._start_writing()
        self._start_answering()

    def _start_writing(self) -> None:
        """What a change goes through, and what keeps log and state in order."""
        runtime, committer, serves = self.runtime, self.committer, self.settings.serves
        directory, opened, engine = self.store.parts
        unflushed = partial(_unflushed_bytes, engine, committer)
        self._commits = commits = CommitsActor.start(runtime, committer)
        self._log_ref = log_ref = LogActor.start(
            runtime,
            opened,
            commits,
            unflushed,
            engine.flushed_sequence if serves else None,
            self._log_figures,
            lambda count: engine.holds(committer.unsettled_bytes + count),
            pins := Pins(runtime.clock, opened.first),
        )
        self._roles = self.roles = Roles(runtime, directory, self.settings.writes)
        committer.has_room = partial(has_room, opened, unflushed)
        self.member = member = begin_member(
            runtime, committer, self.roles, self.rights, directory, self.store.cluster,
            self._supervise, only_looks=not (serves and self.settings.writes),
        )  # fmt: skip
        committer.attach(committer.ledger, commits, log_ref, member.check_writable)
        committer.check_replicated = member.check_replicated
        headroom = Headroom(self.doors.fs, directory.state_path, directory.tmp_path)
        note = partial(rebuilding.note, directory)
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
                newest_segment=lambda: opened.newest,
            ),
            refoldable=False,
        )
        reader = self._supervise(
            lambda: LogReadActor.start(runtime, opened, self.log_checks), refoldable=True
        )
        self.reads = LogReads(committer, opened, reader, pins)
        committer.may_follow(opened, self.reads.stored)
        if self.store.cluster is not None:
            committer.follow_first(NotWritable("this node is in a cluster, and has no leader yet"))
        if serves:
            self._supervise(
                lambda: LogChecksActor.start(runtime, committer, reader), refoldable=True
            )

    def _start_answering(self) -> None:
        """Who is asked by the surfaces."""
        runtime, committer = self.runtime, self.committer
        self._passwords = self.passwords = Passwords(
            runtime, self.doors.rng, self.doors.cores, self.settings.password_cost
        )
        self.running = Running(committer)
        self.statements = statements = Statements(runtime, committer, self.rights)
        self.peering = Peering(
            runtime, committer, statements, self.roles.node_id, self.store.id, self.doors.rng
        )
        self._open_sessions = sessions = Sessions(self.doors.clock, self.doors.rng)
        self._sessions = self._supervise(
            lambda: SessionsActor.start(
                runtime, sessions, committer, self.passwords, self.doors.rng, statements,
                self._sign_in_aside,
            ),
            refoldable=True,
        )  # fmt: skip
        self._spaces = self.spaces = Spaces(
            runtime, committer, self.roles, sessions, self.rights, statements
        )
        self._topics = self.topics = Topics(runtime, committer, self.roles, self.rights)
        self.unfinished = Unfinished(committer, self.spaces, self.topics)
        indexes = Indexes()
        self._indexes = self._supervise(
            lambda: IndexesActor.start(runtime, indexes, committer), refoldable=True
        )
        self.messages = MessageEngine(
            runtime, committer, self.roles, self.rights, sessions, self.topics, self.running,
            statements, lambda: self.scripts,
        )  # fmt: skip
        committer.on_withdraw.append(self.topics.waits.taken_back)
        sessions.rests = self.running
        end_with_users(sessions, committer)
        self.moments = Moments(runtime, committer)
        self.open_feeds = feeds = Feeds(
            runtime, committer, self.reads, self.rights, sessions, self.running
        )
        self._feeds = self._supervise(
            lambda: FeedsActor.start(
                runtime,
                feeds,
                committer,
                self.rights,
                sessions,
                self.roles,
                self.running,
                self.store.id,
            ),
            refoldable=True,
        )
        vaults = VaultParts(
            runtime, committer, self.rights, self.passwords, sessions, statements, self.doors.rng,
            self.settings.vaults,
        )  # fmt: skip
        self._sealed, self._vaults = begin_vaults(vaults)
        self._places.append(self._vaults)
        self.backups, writing_and_reading = begin_backups(
            runtime, committer, self.reads, self.store, self.settings, self.doors
        )
        self._places += writing_and_reading
        self._timers = Timers(
            self.spaces, self.topics, indexes, self._sealed,
            self.unfinished if self.settings.serves else None,
        )  # fmt: skip
        self.cluster = begin_coordination(
            runtime, committer, self.member, self.reads, self.peering, self.doors.rng,
            self.settings.agree, self._timers.leads, self._supervise,
        )  # fmt: skip
        services = Services(
            committer=committer,
            roles=self.roles,
            rights=self.rights,
            passwords=self.passwords,
            sessions=sessions,
            spaces=self.spaces,
            topics=self.topics,
            vaults=self._sealed,
            unfinished=self.unfinished,
            running=self.running,
            moments=self.moments,
            statements=statements,
            indexes=indexes,
            clock=self.doors.clock,
            facts=self.facts,
            reads=self.reads,
            backups=self.backups,
            peering=self.peering,
            cluster=self.cluster,
            store_id=self.store.id,
            slow_us=self.settings.slow_us,
        )
        if self.settings.serves:
            keep = self.settings.keep_statements
            self._supervise(
                lambda: ForgettingActor.start(runtime, committer, keep), refoldable=True
            )
        plans = Plans()
        self._scripts = self._supervise(
            lambda: ScriptsActor.start(runtime, services, plans), refoldable=True
        )
        self._certificates = self._supervise(
            lambda: CertificatesActor.start(runtime, self.facts), refoldable=True
        )

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

    def listens(self, surfaces: tuple[Listening, ...]) -> None:
        """Where the surfaces listen and what they present, from now on: said when they begin, and
        again with each certificate. INFO FOR NODE and /metrics show it, and the log warns of what
        expires."""
        self.facts.listening = surfaces
        tell(self._certificates.ref, Look())

    async def begin_peering(self, listens_at: str, given: Identity | None) -> None:
        """Be known to other nodes from now on, by a certificate: that of the directory, or a given
        one. Who listens for them is a surface.

        :param listens_at: where it does
        :raises StoreDamaged, OSError: of the file that has the certificate
        """
        directory = self.store.parts.directory
        self._places += await renewing.begin(
            self.runtime, self.peering, self.committer, directory, listens_at, given
        )
        self.copies = copying.begin(
            self.runtime, self.committer, self.reads, self.store, self.settings, self.doors,
            partial(self._supervise, refoldable=True),
        )  # fmt: skip
        self.cluster.copy_with(self.copies)

    @property
    def created(self) -> str:
        """When the store was made, as ISO 8601."""
        return self.store.parts.directory.created

    def has_users(self) -> bool:
        """Whether the store belongs to somebody already."""
        with self.committer.begin() as tx:
            return bool(users.everyone(tx))

    async def _ensure_owner(self) -> None:
        """A store without users gets its first owner; of one in a cluster the leader has cared.

        :raises Refusal: the name or password given for it is none
        """
        if self.has_users() or self.store.cluster is not None:
            return
        owner = self.settings.first_owner
        if owner is None:
            if not self.settings.serves:
                return
            secret = urlsafe_b64encode(self.doors.rng.bytes(GENERATED_PASSWORD_BYTES)).decode()
            owner = self.generated_owner = FirstOwner(GENERATED_OWNER, secret)
            if self.settings.told_owner is not None:
                self.settings.told_owner(owner)
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
        opened = self.store.log is not None and self._roles is not None
        return NodeStatus(
            health=health,
            reason=self._unready(),
            roles=self._roles.words if self._roles is not None else (),
            version=VERSION,
            store_id=self.store.id,
            node_id=self._roles.node_id if self._roles is not None else "",
            sequence=self.committer.released_upto if opened else 0,
            log_begins=self.store.begins if self.store.log is not None else 0,
            log_bytes=self.store.log_bytes,
            log_given_way=self._log_figures.given_way,
            state_damage=self.store.damage,
            log_damage=len(self.log_checks.found(self.store.begins)),
            uptime_seconds=(self.doors.clock.monotonic_us() - self._began_us) / 1_000_000,
            endpoints=self._roles.endpoints if self._roles is not None else (),
            origins=self._roles.origins if self._roles is not None else (),
        )

    def not_writable(self) -> NotWritable | None:
        """Why this node takes no changes; None: it does, now or in a moment."""
        return self.committer.not_writable()

    def _log_info(self) -> dict[str, Value]:
        return self.log_checks.info(self.store.begins)

    def _unready(self) -> Unready | None:
        if self.failure is not None:
            return "failed"
        if self._state is not None:
            return self._state
        if self._roles is None:
            return "opening"
        return self._roles.unready or self.member.unready

    @property
    def scripts(self) -> ActorRef[Any]:
        """Asked to run scripts."""
        return self._scripts.ref

    @property
    def feeds(self) -> ActorRef[Any]:
        """Asked to have a table followed."""
        return self._feeds.ref

    @property
    def sessions(self) -> ActorRef[Any]:
        """Asked who a caller is."""
        return self._sessions.ref

    @property
    def vaults(self) -> ActorRef[Any]:
        """Asked to unseal vaults."""
        return self._vaults.ref

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
                tell(self._vaults.ref, LetGo())

    async def drain(self) -> None:
        """Let what is running finish, for as long as that may take. Surfaces accept nothing new
        by now, and wait for their own answers."""
        self.not_ready()
        if self._commits is not None:
            self.open_feeds.end_all(Draining("the node is stopping"))
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
            closing.callback(self.store.close, has_log=self._log_ref is None)
            if self._commits is not None:
                closing.push_async_callback(stop, self._commits)
            if self._log_ref is not None:
                closing.push_async_callback(stop, self._log_ref)
                closing.callback(self.committer.hand_over_rest)
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
                closing.callback(self.peering.close)
            if self.copies is not None:
                closing.callback(self.copies.close)
            if self._commits is not None and self.failure is None:
                closing.push_async_callback(self._settle)
        await asyncio.sleep(0)  # failures of the last actors arrive
        if self._log_ref is not None:  # a start that was refused has its own line
            log.info("node stopped")

    async def _settle(self) -> None:
        """Wait for the commits in flight, then flush, so that the next start replays nothing."""
        try:
            await self._end_scripts()
            self.messages.stop()
            await self._all_released()
            await stop(self._sessions.ref)
            await stop(self._scripts.ref)
            await self.spaces.stop()
            await self.topics.stop()
            await stop(self._vaults.ref)
            self.statements.close()
            await self._all_released()
            await self.committer.wait_for_nobody(Draining("the node is stopping"))
            await self.cluster.give_up_lead()
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

    async def _all_released(self) -> None:
        """Wait for the commits in flight; in a cluster not for followers that don't come."""
        committer, alone = self.committer, self.member.life is Life.ALONE
        with suppress(TimeoutError):
            async with asyncio.timeout(None if alone else END_SECONDS):
                await committer.released(committer.promise(committer.committed))

    async def _end_scripts(self) -> None:
        """What outlasted the drain is ended at its next slice, and answered."""
        self.running.end_all(Draining("the node is stopping"))
        until_us = self.doors.clock.monotonic_us() + END_SECONDS * 1_000_000
        while len(self.running) and self.doors.clock.monotonic_us() < until_us:
            await asyncio.sleep(0.001)

    # --- failure --------------------------------------------------------------------------------

    def fail(self, error: BaseException) -> None:
        """End everything that could acknowledge. Called on the loop; the first call counts."""
        if self.failure is None:
            self.failure = error
            log.error("node failed", reason=str(error))
            if isinstance(error, EngineSpoiled):
                self.store.note_for_next_start(error)
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
            places += self._spaces.sweepers.places.values()
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
        if isinstance(error, EngineUnreadable) and self.store.spoiled(error):
            with suppress(Busy):
                tell(self._flush.ref, NoteDamage(str(error)))


START_FAULTS: Final = (StoreFault, StateUnusable, EngineFailed, Refusal, OSError)
"""What `start` raises when the world, not a bug, keeps the node from starting. The text of each is
for whoever runs it."""


def _unflushed_bytes(engine: Engine, committer: Committer) -> int:
    """What the state has to write yet."""
    return engine.unflushed_bytes() + committer.unsettled_bytes


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
