"""Connects the replica receiver to its leader, again and again, with exponential backoff.

It gives up only when another attempt is useless: this node is stranded, or needs a snapshot copy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from actors.backlog import Backlog
from actors.cluster.backoff import Backoff
from actors.cluster.replica_receiver import CopyMissing, PromisedEpochs, ReplicaReceiver
from actors.cluster.sync_status import SyncStatus
from actors.commits import Committer
from actors.runtime import Runtime
from protocol.environment import Rng
from protocol.errors import DiskFull, Refusal, Stranded
from protocol.links import Link, LinkClosed

log = structlog.get_logger("cluster")


class LeaderConnector:
    """Follows one leader in one epoch. On the loop only.

    :param connect: opens a link to the leader at one of its addresses. :raises LinkClosed:
    :param epoch: leader epoch; None: etcd knows of no leader
    :param backlog: entries to forward to the leader; None: none are
    """

    def __init__(
        self,
        runtime: Runtime,
        rng: Rng,
        committer: Committer,
        epochs: PromisedEpochs,
        connect: Callable[[], Awaitable[Link]],
        epoch: int | None = None,
        backlog: Backlog | None = None,
    ) -> None:
        self._runtime = runtime
        self._committer = committer
        self._epochs = epochs
        self._connect = connect
        self._epoch = epoch
        self._backlog = backlog
        self._backoff = Backoff(rng)
        self._receiving: ReplicaReceiver | None = None
        self._heard_us = runtime.clock.monotonic_us()
        self._was_attached = self._has_caught_up = False
        """True for the links that have ended."""
        self._failed: SyncStatus | None = None
        self.reason = ""
        """Reason why it is stranded or needs a copy, or why the last link ended."""
        self.copy_from: int | None = None
        """First frame of the leader's log, if this node needs a copy because it begins too late."""

    @property
    def sync_status(self) -> SyncStatus:
        """Sync status of this node."""
        if self._failed is not None:
            return self._failed
        at = self._receiving
        return SyncStatus.IN_SYNC if at is not None and at.is_in_sync else SyncStatus.CATCHING_UP

    @property
    def receiving(self) -> ReplicaReceiver | None:
        """The current link; None: there is none."""
        return self._receiving

    @property
    def heard_us(self) -> int:
        """Monotonic time of the leader's last message on any link (µs); at first, the time of
        creation."""
        at = self._receiving
        # A link that is not attached yet has only the time of its creation.
        return self._heard_us if at is None or not at.epoch else at.heard_us

    @property
    def was_attached(self) -> bool:
        """True if this node is attached, or was."""
        at = self._receiving
        return self._was_attached or (at is not None and at.epoch > 0)

    @property
    def has_caught_up(self) -> bool:
        """True once this node shows every frame that it may have shown before it attached."""
        at = self._receiving
        return self._has_caught_up or (at is not None and at.has_caught_up)

    async def run(self) -> None:
        """Follow until cancelled, or until another attempt is useless; `sync_status` tells which.
        Raises bugs."""
        while self._failed is None:
            try:
                await self._follow()
            # Before its base class `Refusal`: a stranded node must not attach again.
            except Stranded as why:
                self._give_up(SyncStatus.STRANDED, why.message)
            except CopyMissing as why:
                self.copy_from = why.begins
                self._give_up(SyncStatus.COPY_FAILED, str(why))
            # All of these may pass, with time or with the next leader.
            except (LinkClosed, Refusal, OSError) as why:
                await self._pause(str(why))

    async def _follow(self) -> None:
        link = await self._connect()
        receiving = ReplicaReceiver(
            self._runtime, self._committer, self._epochs, link, self._epoch, self._backlog
        )
        self._receiving, full = receiving, False
        try:
            await receiving.run()
        except DiskFull:
            full = True
            raise
        finally:
            # Read from the ended link before it is dropped.
            self._was_attached, self._has_caught_up = self.was_attached, self.has_caught_up
            self._heard_us, self._receiving = self.heard_us, None
            # With a full disk each link attaches and then fails: the pauses have to grow.
            if receiving.epoch and not full:
                self._backoff.over()

    def _give_up(self, sync_status: SyncStatus, why: str) -> None:
        self._failed, self.reason = sync_status, why
        log.error("this node stopped following the leader", standing=sync_status.value, reason=why)

    async def _pause(self, why: str) -> None:
        seconds = self._backoff.next_seconds()
        self.reason = why
        log.info("no link to the leader", reason=why, again_after_ms=round(seconds * 1_000))
        await asyncio.sleep(seconds)
