"""Node: start, readiness, drain, stop and failure of one node.

Order of a start: directory → log → state, replayed up to the log → parts (`node_parts.py`) → first
owner. A stop is the reverse.

Fail-stop: if the log, the ledger, the state engine or an actor that can't be replaced fails,
nothing more is acknowledged. `status` then reports failed, and `failed` notifies the process that
runs the node.
"""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64encode
from contextlib import AsyncExitStack, suppress
from typing import Final

import structlog

from actors.checkpoints import CheckpointNow, NoteDamage
from actors.cluster.role import RoleName
from actors.commits.committer import NODE, Committer
from actors.environment import Environment
from actors.node_info import NodeInfo
from actors.node_parts import NodeParts
from actors.runtime import Actor, Runtime, ask, stop, tell
from actors.scripts.request import ScriptRequest
from actors.settings import FirstOwner, NodeSettings
from actors.sign_ins import ReleaseDelayed
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
from storage.catalog import users
from storage.engine.engine import EngineFailed, EngineSpoiled, EngineUnreadable
from storage.faults import StoreFault
from storage.indexes import derived
from storage.txn.ledger import Ledger, StateUnusable

log = structlog.get_logger("node")

GENERATED_OWNER: Final = "root"
GENERATED_PASSWORD_BYTES: Final = 18
END_SECONDS: Final = 5
"""Seconds for scripts that outlast the drain to reach the end of their slice."""


class PartFailed(Exception):
    """A part of the node failed before the node was open."""

    def __init__(self, actor: str, error: BaseException) -> None:
        super().__init__(f"{actor}: {_reason(error)}" if actor else _reason(error))


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__


class Node(NodeParts):
    """A node. Made by `start`; `stop` closes it in any condition."""

    def __init__(self, settings: NodeSettings, environment: Environment) -> None:
        runtime = Runtime(
            environment.scheduler, environment.clock, self._actor_failed, self._report_error
        )
        super().__init__(settings, environment, runtime, NodeInfo(self.status, self._log_info))
        self.failed = asyncio.Event()
        """Set when the node has failed: stop it and exit with an error."""
        self.failure: BaseException | None = None
        self._failed_actor = ""
        self.first_owner: str | None = None
        """Name of the owner that this start created, in a store without users."""
        self.generated_owner: FirstOwner | None = None
        """Owner with a generated password, to be shown once."""
        self._state: Unready | None = "opening"
        self._began_us = environment.clock.monotonic_us()

    # --- start ----------------------------------------------------------------------------------

    async def open(self) -> None:
        """Open everything from the directory to the first owner. See `start`."""
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
        if self.member.life is RoleName.ALONE:
            await self._timers.leads(True)
        await self._ensure_owner()
        self._state = None
        log.info("node started", sequence=self.committer.commit_index, store=self.store.id)

    async def _replay(self) -> None:
        """Create the ledger and replay the log into the state."""
        engine, end = self.store.parts.engine, self.store.end
        self.committer = committer = Committer(self.runtime, self.registry)
        clock, rng = self.environment.clock, self.environment.rng
        committer.ledger = Ledger(engine, end, clock, rng, committer.hand_over, derived.kept)
        await self.store.replay(committer.ledger)

    def may_read_node(self, caller: Caller) -> bool:
        """True if a caller may see INFO FOR NODE."""
        with self.committer.begin_transaction() as tx:
            return self.rights.reads_node(tx, caller)

    @property
    def created(self) -> str:
        """Creation time of the store, as ISO 8601."""
        return self.store.parts.directory.created

    def has_users(self) -> bool:
        """True if the store has any user."""
        with self.committer.begin_transaction() as tx:
            return next(users.everyone(tx), None) is not None

    async def _ensure_owner(self) -> None:
        """Create the first owner of a store without users. In a cluster that is the leader's task.

        :raises Refusal: the configured name or password is invalid
        """
        if self.has_users() or self.store.cluster is not None:
            return
        owner = self.settings.first_owner
        if owner is None:
            if not self.settings.serves:
                return
            secret = urlsafe_b64encode(
                self.environment.rng.bytes(GENERATED_PASSWORD_BYTES)
            ).decode()
            owner = self.generated_owner = FirstOwner(GENERATED_OWNER, secret)
            if self.settings.told_owner is not None:
                self.settings.told_owner(owner)
        check_name(owner.name, "user")
        passhash = await self.passwords.hash(owner.password)
        with self.committer.begin_transaction() as tx:
            users.define(tx, owner.name, users.OWNER, passhash)
            ticket = self.committer.commit(tx, NODE, reason="first owner of the store")
        await self.committer.released(ticket)
        self.first_owner = owner.name

    # --- ready ----------------------------------------------------------------------------------

    def status(self) -> NodeStatus:
        """Return the node's status. It asks no actor, so it responds even if all are busy."""
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
            sequence=self.committer.commit_index if opened else 0,
            log_begins=self.store.begins if self.store.log is not None else 0,
            log_bytes=self.store.log_bytes,
            log_ends=self._log_ends if opened else None,
            log_given_way=self._log_figures.given_way,
            state_damage=self.store.damage,
            log_damage=len(self.log_checks.found(self.store.begins)),
            uptime_seconds=(self.environment.clock.monotonic_us() - self._began_us) / 1_000_000,
            endpoints=self._roles.endpoints if self._roles is not None else (),
            origins=self._roles.origins if self._roles is not None else (),
        )

    def not_writable(self) -> NotWritable | None:
        """Return the reason why this node takes no writes; None if it does, now or in a moment."""
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
        """Report not ready, so that no more traffic arrives: the first stage of a shutdown."""
        if self._state is None:
            self._state = "draining"
        if self._topics is not None:
            self._topics.drain()
            tell(self._sessions.ref, ReleaseDelayed())
            tell(self._vaults.ref, ReleaseDelayed())

    async def drain(self) -> None:
        """Wait until all running requests have finished, without a limit.

        The surfaces accept no new requests by now, and wait for their own responses.
        """
        self.not_ready()
        if self._commits is not None:
            self.open_feeds.end_all(Draining("the node is stopping"))
        while self.registry.unfinished and self.failure is None:
            await asyncio.sleep(0.01)

    async def end_requests(self) -> None:
        """End requests that outlasted the drain, at their next slice, and wait until they are
        answered."""
        self.registry.end_all(Draining("the node is stopping"))
        until_us = self.environment.clock.monotonic_us() + END_SECONDS * 1_000_000
        while self.registry.unfinished and self.environment.clock.monotonic_us() < until_us:
            await asyncio.sleep(0.001)

    async def stop(self) -> None:
        """Close the store. Running requests are ended; acknowledged commits are on the disk.

        A part that can't be closed in order is closed as far as possible, and `failure` says so.
        """
        self.not_ready()
        async with AsyncExitStack() as closing:  # runs its callbacks in reverse order
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
            if self._executor is not None:
                closing.push_async_callback(self._executor.stop)
            if self._topics is not None:
                closing.push_async_callback(self._topics.stop)
                closing.callback(self.peering.close)
            if self.copies is not None:
                closing.callback(self.copies.close)
            if self._commits is not None and self.failure is None:
                closing.push_async_callback(self._finish_commits)
        await asyncio.sleep(0)  # let failures of the last actors arrive
        if self._log_ref is not None:  # a refused start logs its own line
            log.info("node stopped")

    async def _stop_places(self) -> None:
        """Stop supervised actors in reverse order, including those started during the final flush.

        A node that joins the cluster may have requested the first copy meanwhile.
        """
        async with AsyncExitStack() as closing:
            closing.push_async_callback(self._index_builds.ended)
            for place in self._places:
                closing.push_async_callback(place.stop)

    async def _finish_commits(self) -> None:
        """Wait for pending commits, then flush, so that the next start replays nothing."""
        try:
            await self.end_requests()
            self.messages.stop()
            await self._all_released()
            await stop(self._sessions.ref)
            await stop(self._scripts.ref)
            await self.executor.stop()
            await self.spaces.stop()
            await self.topics.stop()
            await stop(self._vaults.ref)
            await self.statements.close()
            await self._all_released()
            await self.committer.stop_waiting_for_replicas(Draining("the node is stopping"))
            await self.cluster.give_up_lead()
        except Refusal as refusal:
            log.warning("the last commits were refused", reason=refusal.message)
        except Exception as error:
            self.fail(error)
        try:
            await ask(self._checkpoints.ref, CheckpointNow())
        except DiskFull as refusal:
            log.warning(
                "no checkpoint was taken: the next start replays more of the log",
                reason=refusal.message,
            )
        except Exception as error:
            self.fail(error)

    async def _all_released(self) -> None:
        """Wait for pending commits. In a cluster, absent followers are waited for END_SECONDS at
        most."""
        committer, alone = self.committer, self.member.life is RoleName.ALONE
        with suppress(TimeoutError):
            async with asyncio.timeout(None if alone else END_SECONDS):
                await committer.released(committer.ticket(committer.committed))

    # --- failure --------------------------------------------------------------------------------

    def fail(self, error: BaseException, actor: str = "") -> None:
        """Stop all acknowledgements for good. Called on the loop; only the first call has an
        effect.

        :param actor: class name of the actor that failed, if one did
        """
        if self.failure is None:
            self.failure, self._failed_actor = error, actor
            log.error("node failed", reason=_reason(error), **({"actor": actor} if actor else {}))
            if isinstance(error, EngineSpoiled):
                self.store.note_for_next_start(error)
            self.committer.lose(error)
            self.failed.set()

    def _actor_failed(self, actor: Actor, error: BaseException) -> None:
        now_us = self.environment.clock.monotonic_us()
        for place in self._supervised():
            if place.ref == actor.actor_ref:
                break
        else:
            place = None
        self._note_damage(error)
        fatal = isinstance(error, EngineFailed) and not isinstance(error, EngineUnreadable)
        # A start waits for replies of its parts and serves no client yet: fail it with the reason
        # instead of a restart of the actor.
        opening = self._state == "opening"
        try:
            replaced = place is not None and not (fatal or opening) and place.restart(now_us)
        except Exception as refused:  # such as: no thread can be started
            error, replaced = refused, False
        if not replaced:
            self.fail(error, type(actor).__name__)
        elif place is self._scripts:
            self._forget_scripts()

    def _forget_scripts(self) -> None:
        """Cancel the scripts of a failed actor: their callers have been answered."""
        for one in self.registry:
            if isinstance(one, ScriptRequest) and one.is_running:
                one.end(Draining("the scripts' actor failed"))
                one.delist()

    def _report_error(self, error: BaseException) -> None:
        self._note_damage(error)
        if isinstance(error, EngineFailed) and not isinstance(error, EngineUnreadable):
            self.fail(error)

    def _note_damage(self, error: BaseException) -> None:
        """Note that a part of the state can't be read.

        The request that read it fails; others go on. The next start rebuilds the state if it can.
        """
        if isinstance(error, EngineUnreadable) and self.store.note_read_error(error):
            tell(self._flush.ref, NoteDamage(str(error)))


START_FAULTS: Final = (StoreFault, StateUnusable, EngineFailed, PartFailed, Refusal, OSError)
"""Exceptions of `start` that are caused by the environment, not by a bug. Their texts are for the
operator."""


async def start(settings: NodeSettings, environment: Environment) -> Node:
    """Return an open node that serves requests. No surface listens yet.

    :raises StoreFault: the directory, log or state can't be opened; the text says why
    :raises StateUnusable: the log no longer holds frames that the state lacks
    :raises EngineFailed: the state can't be read
    :raises PartFailed: an actor has failed
    :raises Refusal: the first owner's name or password is refused
    :raises OSError: from the disk
    """
    node = Node(settings, environment)
    try:
        await node.open()
    except BaseException:
        await node.stop()
        raise
    return node
