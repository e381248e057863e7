"""Checkpoints: flush the state periodically, so that a start replays little of the log.

Only log that a flush covers may be pruned. So the order is: flush, then prune below the flushed
sequence.

A checkpoint follows soon after each new segment. Then the state always covers a part of the newest
segment, or all before it: a segment, or its end, that goes missing is detected
(`storage/log/recovery.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import structlog
from pykka import ActorRef

from actors.commits.committer import Committer
from actors.log import SPARE_BYTES, SPARE_FILES, DropFlushedLog, Prune
from actors.runtime import LoopActor, Runtime, ThreadActor, ask, handles, tell
from protocol import limits
from protocol.environment import Room
from protocol.errors import DiskFull, Draining
from protocol.requests import Request
from storage.engine.engine import Engine
from storage.files.disk_reserve import FreeSpaceCheck
from storage.log.retention import LogRetention

log = structlog.get_logger("node")

LEAST_PART: Final = 4
"""Divisor of the engine's flush size, for an engine that rewrites all its data at a flush. Such an
engine flushes only once this fraction has come to the log."""
LOOK_SECONDS: Final = 1.0
"""Interval, in seconds, between checks if a checkpoint is due."""


@dataclass(frozen=True, slots=True)
class Flush(Request[int]):
    """Make the state durable. Replies with the sequence that the state would have after a crash."""


@dataclass(frozen=True, slots=True)
class NoteDamage:
    """Record durably that a part of the state can't be read, for the next start."""

    what: str


@dataclass(frozen=True, slots=True)
class CheckpointNow(Request[int]):
    """Flush and prune. Replies with the first sequence of the log afterwards."""


class FlushActor(ThreadActor):
    """Blocks on the disk while the engine flushes its memtable.

    :param headroom: free space of the state's disk; None: the state needs no disk
    :param note_damage: records durably which part of the state can't be read
    """

    def __init__(
        self,
        runtime: Runtime,
        engine: Engine,
        headroom: FreeSpaceCheck | None = None,
        note_damage: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(runtime)
        self._engine = engine
        self._headroom = headroom
        self._note_damage = note_damage

    @handles(Flush)
    def flush(self, _message: Flush) -> int:
        """Flush the engine. Return the flushed sequence.

        :raises DiskFull: there is no room for the flush; it was not begun, since an engine whose
            flush meets a full disk refuses all later writes
        :raises EngineFailed:
        """
        if self._headroom is None:
            self._engine.flush()
            return self._engine.flushed_sequence()
        needed = Room(self._engine.unflushed_bytes() + SPARE_BYTES // 2, SPARE_FILES)
        with self._headroom.turn():
            room = self._headroom.found(needed)
            if room is None:
                raise DiskFull("no room left on the disk to flush the state")
            self._engine.flush(room)
        return self._engine.flushed_sequence()

    @handles(NoteDamage)
    def note_damage(self, message: NoteDamage) -> None:
        """Record the damage. If the disk refuses that, the next read of the damaged part reports it
        again."""
        self._engine.leave_alone()
        if self._note_damage is None:
            return
        try:
            self._note_damage(message.what)
        except OSError as error:
            log.warning("could not record the damage of the state", reason=str(error))


@dataclass(frozen=True, slots=True)
class _CheckpointDue:
    pass


class CheckpointsActor(LoopActor):
    """Decides when to checkpoint: after so many seconds or bytes of log, and only if commits came.

    :param keep: retention rule of the log; None: all of it is kept
    :param flushed: returns the flushed sequence of the state
    :param newest_segment: returns the first sequence of the log's newest segment
    """

    def __init__(
        self,
        runtime: Runtime,
        committer: Committer,
        flusher: ActorRef[Any],
        log: ActorRef[Any],
        *,
        keep: LogRetention | None,
        flushed: Callable[[], int],
        newest_segment: Callable[[], int],
    ) -> None:
        super().__init__(runtime)
        self._committer = committer
        self._flusher = flusher
        self._log = log
        self._keep = keep
        self._flushed = flushed
        self._newest_segment = newest_segment
        self._flushed_at_us = runtime.clock.monotonic_us()
        self._waits_for_room = False
        self._running: asyncio.Future[int] | None = None

    def on_start(self) -> None:
        """Schedule the first check."""
        self.after(LOOK_SECONDS, self._check_due)

    def _check_due(self) -> None:
        self.after(LOOK_SECONDS, self._check_due)
        if self._running is None and self._due():
            tell(self.actor_ref, _CheckpointDue())

    def _due(self) -> bool:
        committer, flushed = self._committer, self._flushed()
        engine, unflushed = committer.ledger.state.engine, committer.unflushed_bytes
        if engine.applied <= flushed:
            return False  # no commits since the last flush
        if committer.disk_full:
            return True
        if unflushed * LEAST_PART < engine.flush_bytes():
            return False  # the flush would write far more than has changed
        waited_us = self._monotonic_us() - self._flushed_at_us
        # The last condition: a segment began after the last flush, and the state has reached it.
        return (
            waited_us >= limits.CHECKPOINT_SECONDS * 1_000_000
            or unflushed >= limits.CHECKPOINT_BYTES
            or max(flushed, 1) < self._newest_segment() <= engine.applied
        )

    @handles(_CheckpointDue)
    async def take_due_checkpoint(self, _message: _CheckpointDue) -> None:
        """Take a checkpoint that is due.

        A failure here fails the actor, and with it the node. On a full disk the checkpoint stays
        due, and the next check tries again.
        """
        try:
            await self._checkpoint()
        except DiskFull as refusal:
            if not self._waits_for_room:
                log.warning("the checkpoint waits for disk space", reason=refusal.message)
            self._waits_for_room = True
        else:
            self._waits_for_room = False

    @handles(CheckpointNow)
    async def now(self, _message: CheckpointNow) -> int:
        """Take a checkpoint on request. :raises DiskFull:"""
        return await self._checkpoint()

    async def _checkpoint(self) -> int:
        if self._running is None:
            self._running = asyncio.ensure_future(self._work())
            self._running.add_done_callback(lambda _: setattr(self, "_running", None))
        running = self._running
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            running.add_done_callback(_has_gone_on)
            raise

    async def _work(self) -> int:
        before, self._committer.unflushed_bytes = self._committer.unflushed_bytes, 0
        try:
            flushed = await self._flush()
        except DiskFull:
            self._committer.unflushed_bytes += before
            raise
        self._flushed_at_us = self._monotonic_us()
        if self._committer.disk_full and self._keep is not None:
            await ask(self._log, DropFlushedLog())
        now_us = self._committer.ledger.log_time()
        return await ask(self._log, Prune(flushed, self._keep, now_us))

    async def _flush(self) -> int:
        """Flush; if there is no room for that, drop old log and try once more."""
        try:
            return await ask(self._flusher, Flush())
        except DiskFull:
            if self._keep is None or not await ask(self._log, DropFlushedLog()):
                raise
            return await ask(self._flusher, Flush())


def _has_gone_on(running: asyncio.Future[int]) -> None:
    """Handle the outcome of a checkpoint whose caller has stopped waiting.

    A full disk is met again by the next checkpoint, and a node that stops needs none. Any other
    error is a bug, which the loop logs.
    """
    error = None if running.cancelled() else running.exception()
    if error is not None and not isinstance(error, DiskFull | Draining):
        raise error
