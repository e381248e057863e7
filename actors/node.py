"""One node: how it starts, when it is ready, how it drains, how it stops, and what ends it early.

Order of start: directory → log → state, brought up to the log → its parts (`node_parts.py`) → first
owner. The end is the same backwards.

Fail-stop: when the log, the ledger or the state engine fails, or an actor that can't be replaced,
nothing more is acknowledged, `status` says failed, and `failed` tells whoever runs the node.
"""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64encode
from contextlib import AsyncExitStack, suppress
from typing import Final

import structlog

from actors.checkpoints import CheckpointNow, NoteDamage
from actors.cluster.role import Life
from actors.commits import NODE, Committer
from actors.doors import Doors
from actors.facts import Facts
from actors.node_parts import NodeParts
from actors.runtime import Actor, Runtime, ask, stop, tell
from actors.settings import FirstOwner, NodeSettings
from actors.sign_ins import LetGo
from protocol.errors import DiskFull, Draining, NotWritable, Refusal
from protocol.requests import (
    Caller,
    Health,
    LogEnds,
    NodeStatus,
    Unready,
)
from protocol.text import check_name
from protocol.values import Value
from protocol.version import VERSION
from storage import users
from storage.engine import EngineFailed, EngineSpoiled, EngineUnreadable
from storage.faults import StoreFault
from storage.ledger import Ledger, StateUnusable

log = structlog.get_logger("node")

GENERATED_OWNER: Final = "root"
GENERATED_PASSWORD_BYTES: Final = 18
END_SECONDS: Final = 5
"""Scripts that the drain did not see the end of get so long to reach the end of their slice."""


class PartFailed(Exception):
    """A part of a node ended before the node was open."""

    def __init__(self, actor: str, error: BaseException) -> None:
        super().__init__(f"{actor}: {_reason(error)}" if actor else _reason(error))


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__


class Node(NodeParts):
    """A node. `start` makes one; `stop` ends it, whatever happened to it."""

    def __init__(self, settings: NodeSettings, doors: Doors) -> None:
        runtime = Runtime(doors.scheduler, doors.clock, self._actor_failed, self._noticed)
        super().__init__(settings, doors, runtime, Facts(self.status, self._log_info))
        self.failed = asyncio.Event()
        """Set when the node has failed: stop it and exit with an error."""
        self.failure: BaseException | None = None
        self._failed_actor = ""
        self.first_owner: str | None = None
        """The owner this start gave to a store that had no users."""
        self.generated_owner: FirstOwner | None = None
        """The owner this start has made up: to be shown once."""
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
        except Refusal as refusal:
            if self.failure is None:
                raise
            raise PartFailed(self._failed_actor, self.failure) from refusal

    async def _open(self) -> None:
        await self.store.open()
        await self._replay()
        self.start_parts()
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

    def may_read_node(self, caller: Caller) -> bool:
        """Whether a caller may have what INFO FOR NODE shows."""
        with self.committer.begin() as tx:
            return self.rights.reads_node(tx, caller)

    @property
    def created(self) -> str:
        """When the store was made, as ISO 8601."""
        return self.store.parts.directory.created

    def has_users(self) -> bool:
        """Whether the store belongs to somebody already."""
        with self.committer.begin() as tx:
            return next(users.everyone(tx), None) is not None

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
        check_name(owner.name, "user")
        passhash = await self.passwords.hash(owner.password)
        with self.committer.begin() as tx:
            users.define(tx, owner.name, users.OWNER, passhash)
            ticket = self.committer.commit(tx, NODE, reason="first owner of the store")
        await self.committer.released(ticket)
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
            held_up=self.member.held_up if opened else None,
            roles=self._roles.words if self._roles is not None else (),
            version=VERSION,
            store_id=self.store.id,
            node_id=self._roles.node_id if self._roles is not None else "",
            sequence=self.committer.released_upto if opened else 0,
            log_begins=self.store.begins if self.store.log is not None else 0,
            log_bytes=self.store.log_bytes,
            log_ends=self._log_ends if opened else None,
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

    @property
    def _log_ends(self) -> LogEnds | None:
        present = self.committer.present
        return LogEnds(present.epoch, present.last) if present.last else None

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

    # --- drain and stop -------------------------------------------------------------------------

    def not_ready(self) -> None:
        """First stage of the end: say that no more traffic should come."""
        if self._state is None:
            self._state = "draining"
        if self._topics is not None:
            self._topics.drain()
            tell(self._sessions.ref, LetGo())
            tell(self._vaults.ref, LetGo())

    async def drain(self) -> None:
        """Let what is running finish, for as long as that may take. Surfaces accept nothing new
        by now, and wait for their own answers."""
        self.not_ready()
        if self._commits is not None:
            self.open_feeds.end_all(Draining("the node is stopping"))
        while len(self.running) and self.failure is None:
            await asyncio.sleep(0.01)

    async def end_requests(self) -> None:
        """End at its next slice what outlasted the drain, and wait until it is answered."""
        self.running.end_all(Draining("the node is stopping"))
        until_us = self.doors.clock.monotonic_us() + END_SECONDS * 1_000_000
        while len(self.running) and self.doors.clock.monotonic_us() < until_us:
            await asyncio.sleep(0.001)

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
            closing.push_async_callback(self._stop_places)
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

    async def _stop_places(self) -> None:
        """Backwards, and those too that were filled while the rest was settled: a node that joins
        may have asked for the first copy then."""
        async with AsyncExitStack() as closing:
            for place in self._places:
                closing.push_async_callback(place.stop)

    async def _settle(self) -> None:
        """Wait for the commits in flight, then flush, so that the next start replays nothing."""
        try:
            await self.end_requests()
            self.messages.stop()
            await self._all_released()
            await stop(self._sessions.ref)
            await stop(self._scripts.ref)
            await self.spaces.stop()
            await self.topics.stop()
            await stop(self._vaults.ref)
            await self.statements.close()
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
                await committer.released(committer.ticket(committer.committed))

    # --- failure --------------------------------------------------------------------------------

    def fail(self, error: BaseException, actor: str = "") -> None:
        """End everything that could acknowledge. Called on the loop; the first call counts.

        :param actor: the kind of actor that failed, where one did
        """
        if self.failure is None:
            self.failure, self._failed_actor = error, actor
            log.error("node failed", reason=_reason(error), **({"actor": actor} if actor else {}))
            if isinstance(error, EngineSpoiled):
                self.store.note_for_next_start(error)
            self.committer.lose(error)
            self.failed.set()

    def _actor_failed(self, actor: Actor, error: BaseException) -> None:
        now_us = self.doors.clock.monotonic_us()
        for place in self._supervised():
            if place.ref == actor.actor_ref:
                break
        else:
            place = None
        self._note_damage(error)
        fatal = isinstance(error, EngineFailed) and not isinstance(error, EngineUnreadable)
        # A start waits for answers of its parts, and nobody is served yet: it ends with the reason.
        opening = self._state == "opening"
        try:
            replaced = place is not None and not (fatal or opening) and place.restart(now_us)
        except Exception as refused:  # such as: no thread is to be had
            error, replaced = refused, False
        if not replaced:
            self.fail(error, type(actor).__name__)
        elif place is self._scripts:
            self._forget_scripts()

    def _forget_scripts(self) -> None:
        """Scripts of an actor that is gone: their callers have heard, nobody waits for them."""
        for run in self.running:
            run.turn.cancel(Draining("the scripts' actor failed"))
            self.running.remove(run.request.request)

    def _noticed(self, error: BaseException) -> None:
        self._note_damage(error)
        if isinstance(error, EngineFailed) and not isinstance(error, EngineUnreadable):
            self.fail(error)

    def _note_damage(self, error: BaseException) -> None:
        """A part of the state can't be read. Who asked for it is told; others go on, and the next
        start makes the state anew, if it can."""
        if isinstance(error, EngineUnreadable) and self.store.spoiled(error):
            tell(self._flush.ref, NoteDamage(str(error)))


START_FAULTS: Final = (StoreFault, StateUnusable, EngineFailed, PartFailed, Refusal, OSError)
"""What `start` raises when the world, not a bug, keeps the node from starting. The text of each is
for whoever runs it."""


async def start(settings: NodeSettings, doors: Doors) -> Node:
    """A node that is open and answers; nobody is told of it yet: that is for the surfaces.

    :raises StoreFault: the directory, log or state can't be opened; the text says why
    :raises StateUnusable: the log no longer holds what the state lacks
    :raises EngineFailed: the state can't be read
    :raises PartFailed: an actor has failed
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
