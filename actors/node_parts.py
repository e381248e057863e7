"""Node parts: the components of a node and their start order, each after those it depends on.

First come the commit path and maintenance of log and state, then the components that surfaces call.
`node.py` decides when they start and handles their failures.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from threading import RLock
from typing import Any

from pykka import ActorRef

from actors.backups.starting import start_backups
from actors.backups.taking import Backups
from actors.certificates import CertificatesActor, CheckCertificates
from actors.checkpoints import CheckpointsActor, FlushActor
from actors.cluster import identity, snapshot_transfer
from actors.cluster.membership import Peering
from actors.cluster.role import ClusterMember
from actors.cluster.service import ClusterService, begin_coordination, begin_member
from actors.cluster.snapshot_transfer import SnapshotCopies
from actors.commits.actor import CommitsActor
from actors.commits.committer import Committer
from actors.entry_retention import EntryRetentionActor
from actors.environment import Environment
from actors.execution.executor import Executor
from actors.execution.registry import Registry
from actors.execution.scheduler import FiberScheduler
from actors.feeds.actor import FeedsActor
from actors.feeds.hub import Feeds
from actors.indexes.actor import IndexesActor
from actors.indexes.metrics import SearchMetrics
from actors.indexes.service import IndexBuilderHandle
from actors.log import LogActor, LogFigures, has_room
from actors.log_checks import LogChecksActor
from actors.log_pins import Pins
from actors.log_reads import LogChecks, LogReadActor, LogReads
from actors.messages.engine import MessageEngine
from actors.node_info import Listening, NodeInfo
from actors.passwords import Passwords
from actors.restores import UnfinishedRestores
from actors.rights import Rights
from actors.roles import Roles
from actors.runtime import Runtime, Supervised, tell
from actors.scripts.actor import ScriptsActor
from actors.scripts.named_snapshots import NamedSnapshots
from actors.scripts.plans import Plans
from actors.scripts.services import Services
from actors.sessions import Sessions, end_with_users
from actors.settings import NodeSettings
from actors.sign_in_throttle import network
from actors.sign_ins import SessionsActor
from actors.spaces import SpaceService
from actors.statements import Statements
from actors.store import Store
from actors.timers import Timers
from actors.topics.service import TopicService
from actors.vaults.parts import VaultParts
from actors.vaults.starting import start_vaults
from protocol.errors import NotWritable
from protocol.requests import Caller, Surface
from storage.engine.engine import Engine
from storage.files import rebuild_marker
from storage.files.disk_reserve import FreeSpaceCheck
from storage.files.peer_file import Identity
from storage.formats.sealing import name_of


class NodeParts:
    """Components of a node.

    :param runtime: runs its actors
    :param facts: data of INFO FOR NODE
    """

    backups: Backups
    cluster: ClusterService
    committer: Committer
    executor: Executor
    member: ClusterMember
    open_feeds: Feeds
    roles: Roles
    passwords: Passwords
    peering: Peering
    """Links with other nodes: their requests, and trust in them."""
    reads: LogReads
    spaces: SpaceService
    topics: TopicService
    search: SearchMetrics

    def __init__(
        self, settings: NodeSettings, environment: Environment, runtime: Runtime, facts: NodeInfo
    ) -> None:
        self.settings = settings
        self.environment = environment
        self.runtime = runtime
        self.facts = facts
        self.facts.settings["directory"] = settings.data_dir
        self.rights = Rights()
        """Authorizes callers."""
        self.store = Store(settings, environment)
        self.registry = Registry()
        """Live requests."""
        self.scheduler = FiberScheduler(runtime.loop, runtime.clock)
        """Slices of the loop for scripts, feeds and surfaces."""
        self._log_figures = LogFigures()
        self.log_checks = LogChecks()
        """Damage found in older segments since the start."""
        self._log_ref: ActorRef[LogActor] | None = None
        self._commits: ActorRef[CommitsActor] | None = None
        self._places: list[Supervised[Any]] = []
        self._passwords: Passwords | None = None
        self._roles: Roles | None = None
        self.copies: SnapshotCopies | None = None
        """Serves snapshot copies to nodes that join; None: this node has no links."""
        self._executor: Executor | None = None
        self._spaces: SpaceService | None = None
        self._topics: TopicService | None = None
        self._index_builds = IndexBuilderHandle()

    def start_parts(self) -> None:
        """Start all components. The store is open, and the state replayed up to the log."""
        self._start_writing()
        self._start_letting_in()
        self._start_keys_and_messages()
        self._start_feeds()
        self._start_vaults_and_backups()
        self._start_coordination()
        self._start_scripts()

    def _supervise(
        self, begin: Callable[[], ActorRef[Any]], *, refoldable: bool
    ) -> Supervised[Any]:
        place: Supervised[Any] = Supervised(begin, refoldable=refoldable)
        self._places.append(place)
        return place

    # --- commit path and log ----------------------------------------------------------------------

    def _start_writing(self) -> None:
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
            lambda count: engine.holds(committer.unapplied_bytes + count),
            pins := Pins(runtime.clock, opened.state.first),
        )
        self._roles = self.roles = Roles(runtime, directory, self.settings.writes)
        committer.has_room = partial(has_room, opened, unflushed)
        self.member = member = begin_member(
            runtime, committer, self.roles, self.rights, directory, self.store.cluster,
            self._supervise, only_looks=not (serves and self.settings.writes),
        )  # fmt: skip
        committer.attach(committer.ledger, commits, log_ref, member.check_writable)
        committer.check_replicated = member.check_replicated
        self._start_keeping_order(log_ref, pins)

    def _start_keeping_order(self, log_ref: ActorRef[LogActor], pins: Pins) -> None:
        """Start the actors that flush the state, prune the log, and read and check it."""
        runtime, committer, serves = self.runtime, self.committer, self.settings.serves
        directory, opened, engine = self.store.parts
        opened.tail.headroom.turns = RLock()
        headroom = FreeSpaceCheck(
            self.environment.fs, directory.state_path, directory.tmp_path, opened.tail.headroom
        )
        note = partial(rebuild_marker.record_damage, directory)
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
                newest_segment=lambda: opened.state.newest,
            ),
            refoldable=False,
        )
        reader = self._supervise(
            lambda: LogReadActor.start(runtime, opened.reader, self.log_checks), refoldable=True
        )
        self.reads = LogReads(committer, opened.reader, reader, pins)
        committer.set_log_readers(opened.reader, self.reads.stored)
        if self.store.cluster is not None:
            committer.follow_first(NotWritable("this node is in a cluster and has no leader yet"))
        if serves:
            self._supervise(
                lambda: LogChecksActor.start(runtime, committer, reader), refoldable=True
            )

    # --- services of the surfaces -----------------------------------------------------------------

    def _start_letting_in(self) -> None:
        """Start authentication of callers and nodes."""
        runtime, committer = self.runtime, self.committer
        self._passwords = self.passwords = Passwords(
            runtime, self.environment.rng, self.environment.cores, self.settings.password_cost
        )
        self.statements = statements = Statements(
            runtime, committer, self.rights, self.roles.node_id, self.environment.rng
        )
        self.peering = Peering(
            runtime, committer, statements, self.roles.node_id, self.store.id,
            name_of(self.settings.key), self.environment.rng, self.settings.links,
        )  # fmt: skip
        self._open_sessions = sessions = Sessions(self.environment.clock, self.environment.rng)
        sessions.rests = self.registry
        end_with_users(sessions, committer)
        self._sessions = self._supervise(
            lambda: SessionsActor.start(
                runtime, sessions, committer, self.roles, self.passwords, self.environment.rng,
                statements, self._sign_in_aside,
            ),
            refoldable=True,
        )  # fmt: skip

    def _start_keys_and_messages(self) -> None:
        """Start cache spaces, topics and index builds."""
        runtime, committer, sessions = self.runtime, self.committer, self._open_sessions
        self._executor = self.executor = Executor(runtime, committer, self.scheduler)
        self._spaces = self.spaces = SpaceService(
            runtime, committer, self.executor, self.roles, sessions, self.rights, self.statements
        )
        self._topics = self.topics = TopicService(runtime, committer, self.roles, self.rights)
        indexes = self._index_builds
        self.search = SearchMetrics(committer, self.roles, self.rights, indexes.work)
        self._indexes = self._supervise(
            lambda: IndexesActor.start(
                runtime, indexes, committer, self.scheduler, self.registry.memory
            ),
            refoldable=True,
        )
        self.messages = MessageEngine(
            runtime, committer, self.executor, self.roles, self.rights, sessions, self.topics,
            self.statements, lambda: self.scripts,
        )  # fmt: skip
        committer.on_roll_back.append(self.topics.waits.on_roll_back)

    def _start_feeds(self) -> None:
        """Start pinned snapshots and feeds."""
        runtime, committer, sessions = self.runtime, self.committer, self._open_sessions
        self.moments = NamedSnapshots(runtime, committer)
        self.open_feeds = feeds = Feeds(
            runtime, self.scheduler, committer, self.reads, self.rights, sessions, self.registry
        )
        self._feeds = self._supervise(
            lambda: FeedsActor.start(
                runtime,
                feeds,
                committer,
                self.rights,
                sessions,
                self.roles,
                self.registry,
                self.store.id,
            ),
            refoldable=True,
        )

    def _start_vaults_and_backups(self) -> None:
        runtime, committer = self.runtime, self.committer
        vaults = VaultParts(
            runtime, committer, self.roles, self.rights, self.passwords,
            self._open_sessions, self.statements, self.environment.rng, self.settings.vaults,
        )  # fmt: skip
        self._sealed, self._vaults = start_vaults(vaults)
        self._places.append(self._vaults)
        self.unfinished = UnfinishedRestores(
            runtime, committer, self._open_sessions, self._sealed, self.spaces, self.topics
        )
        self.backups, writing_and_reading = start_backups(
            runtime, committer, self.reads, self.store, self.settings, self.environment
        )
        self._places += writing_and_reading

    def _start_coordination(self) -> None:
        """Start cluster coordination, and the work that only the leader does."""
        self._timers = Timers(
            self.spaces, self.topics, self._index_builds, self._sealed,
            self.unfinished if self.settings.serves else None,
        )  # fmt: skip
        self.cluster = begin_coordination(
            self.runtime, self.committer, self.member, self.reads, self.peering,
            self.statements.backlog, self.environment.rng, self.settings.agree, self._timers.leads,
            self._supervise,
        )  # fmt: skip

    def _start_scripts(self) -> None:
        """Start scripts, with the services of their statements, and retention of their entries."""
        runtime, committer = self.runtime, self.committer
        services = Services(
            committer=committer,
            executor=self.executor,
            roles=self.roles,
            rights=self.rights,
            passwords=self.passwords,
            sessions=self._open_sessions,
            spaces=self.spaces,
            topics=self.topics,
            vaults=self._sealed,
            unfinished=self.unfinished,
            registry=self.registry,
            moments=self.moments,
            statements=self.statements,
            indexes=self._index_builds,
            clock=self.environment.clock,
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
                lambda: EntryRetentionActor.start(runtime, committer, keep), refoldable=True
            )
        plans = Plans()
        self._scripts = self._supervise(
            lambda: ScriptsActor.start(runtime, services, plans), refoldable=True
        )
        self._certificates = self._supervise(
            lambda: CertificatesActor.start(runtime, self.facts), refoldable=True
        )

    def _sign_in_aside(self, surface: Surface, address: str) -> AbstractContextManager[None]:
        """Count a waiting HTTP sign-in among the waiting requests.

        Over the wire each connection has at most one sign-in, so these are not counted.
        """
        if surface != "http":
            return nullcontext()
        return self.registry.signing_in(surface, network(address))

    # --- listeners and peers ---------------------------------------------------------------------

    def listens(self, surfaces: tuple[Listening, ...]) -> None:
        """Note where the surfaces listen and which certificates they present.

        Called when they begin, and again for each new certificate. INFO FOR NODE and /metrics show
        it, and the log warns of expiring certificates.
        """
        self.facts.listening = surfaces
        tell(self._certificates.ref, CheckCertificates())

    async def begin_peering(self, listens_at: str, given: Identity | None) -> None:
        """Present a certificate to other nodes from now on: a given one, or that of the directory.
        The listener itself is a surface.

        :param listens_at: address of the listener
        :raises StoreDamaged, OSError: from the file of the certificate
        """
        directory = self.store.parts.directory
        self._places += await identity.begin_renewing(
            self.runtime, self.peering, self.committer, directory, listens_at, given
        )
        self.copies = snapshot_transfer.begin_copies(
            self.runtime, self.committer, self.reads, self.store, self.settings, self.environment,
            partial(self._supervise, refoldable=True),
        )  # fmt: skip
        self.cluster.copy_with(self.copies)

    # --- actors that surfaces call ---------------------------------------------------------------

    @property
    def scripts(self) -> ActorRef[Any]:
        """Actor that runs scripts."""
        return self._scripts.ref

    @property
    def feeds(self) -> ActorRef[Any]:
        """Actor that opens feeds on tables."""
        return self._feeds.ref

    @property
    def sessions(self) -> ActorRef[Any]:
        """Actor that authenticates callers."""
        return self._sessions.ref

    @property
    def vaults(self) -> ActorRef[Any]:
        """Actor that unseals vaults."""
        return self._vaults.ref

    def caller(self, digest: bytes, surface: Surface, address: str) -> Caller | None:
        """Return the caller that a token authenticates, without a message; None: ask the `sessions`
        actor.

        :param digest: `token_digest` of the token
        :raises SessionEnded:
        """
        version = self.committer.ledger.state.users_version
        return self._open_sessions.unchanged(digest, surface, address, version)

    @property
    def checkpoints(self) -> ActorRef[Any]:
        """Actor that flushes the state on request."""
        return self._checkpoints.ref

    def _supervised(self) -> list[Supervised[Any]]:
        places = list(self._places)
        if self._passwords is not None:
            places += self._passwords.actors
        if self._roles is not None:
            places.append(self._roles.actor)
        if self._spaces is not None:
            places += self._spaces.sweepers.places()
        if self._topics is not None:
            places += self._topics.schedules.places()
        return places


def _unflushed_bytes(engine: Engine, committer: Committer) -> int:
    """Return the bytes that the state has yet to write to disk."""
    return engine.unflushed_bytes() + committer.unapplied_bytes
