"""Checkpoints: the state is flushed now and then, so that a start replays little log.

Only what a flush covers may leave the log. The order is: flush, then prune below it.

There is one soon after each segment was begun, so that the state always holds something of the
newest segment, or all before it: a segment, or the end of one, that goes missing then shows (see
recovery.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import structlog
from pykka import ActorRef

from actors.commits import Committer
from actors.log import SPARE_BYTES, SPARE_FILES, GiveWay, Prune
from actors.runtime import LoopActor, Runtime, ThreadActor, ask, handles, tell
from protocol import limits
from protocol.doors import Room
from protocol.errors import DiskFull, Draining
from protocol.requests import Request
from storage.engine import Engine
from storage.reserve import Headroom
from storage.retention import Keep

log = structlog.get_logger("node")

LEAST_PART: Final = 4
"""An engine that writes all of it anew does so when a part as large has come to the log."""
LOOK_SECONDS: Final = 1.0
"""How often it is looked whether a checkpoint is due."""


@dataclass(frozen=True, slots=True)
class Flush(Request[int]):
    """Make the state durable. Answers the sequence it would stand at after a crash."""


@dataclass(frozen=True, slots=True)
class NoteDamage:
    """A part of the state can't be read: have the next start know."""

    what: str


@dataclass(frozen=True, slots=True)
class CheckpointNow(Request[int]):
    """Flush and prune. Answers where the log begins after it."""


class FlushActor(ThreadActor):
    """Waits for the disk while the engine writes out its memory.

    :param headroom: of the disk of the state; None: it needs no disk
    :param note_damage: writes down, durably, what of the state can't be read
    """

    def __init__(
        self,
        runtime: Runtime,
        engine: Engine,
        headroom: Headroom | None = None,
        note_damage: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(runtime)
        self._engine = engine
        self._headroom = headroom
        self._note_damage = note_damage

    @handles(Flush)
    def flush(self, _message: Flush) -> int:
        """Flush the engine.

        :raises DiskFull: there is no room for it; it was not begun, since an engine whose flush
            meets a full disk takes nothing more
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
        """Write it down. Where the disk does not take it, whoever reads there again says it."""
        self._engine.leave_alone()
        if self._note_damage is None:
            return
        try:
            self._note_damage(message.what)
        except OSError as error:
            log.warning("the damage of the state could not be noted", reason=str(error))


@dataclass(frozen=True, slots=True)
class _Look:
    pass


class CheckpointsActor(LoopActor):
    """Decides when: after so many seconds or so many bytes of log, and only when there is news.

    :param keep: what of the log is kept; None: all of it
    :param flushed: what the state has flushed
    :param newest_segment: the first sequence of the log's newest segment
    """

    def __init__(
        self,
        runtime: Runtime,
        committer: Committer,
        flusher: ActorRef[Any],
        log: ActorRef[Any],
        *,
        keep: Keep | None,
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
        """Begin to look."""
        self.after(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self.after(LOOK_SECONDS, self._look)
        if self._running is None and self._due():
            tell(self.actor_ref, _Look())

    def _due(self) -> bool:
        committer, flushed = self._committer, self._flushed()
        engine, unflushed = committer.ledger.engine, committer.unflushed_bytes
        if engine.applied <= flushed:
            return False  # no news
        if committer.disk_full:
            return True
        if unflushed * LEAST_PART < engine.flush_bytes():
            return False  # it would write far more than has changed
        waited_us = self._monotonic_us() - self._flushed_at_us
        return (
            waited_us >= limits.CHECKPOINT_SECONDS * 1_000_000
            or unflushed >= limits.CHECKPOINT_BYTES
            or max(flushed, 1) < self._newest_segment() <= engine.applied
        )

    @handles(_Look)
    async def look(self, _message: _Look) -> None:
        """A checkpoint is due. What fails here fails the actor, and with it the node; but on a
        full disk it stays due, and is tried again at the next look."""
        try:
            await self._checkpoint()
        except DiskFull as refusal:
            if not self._waits_for_room:
                log.warning("the checkpoint waits for room", reason=refusal.message)
            self._waits_for_room = True
        else:
            self._waits_for_room = False

    @handles(CheckpointNow)
    async def now(self, _message: CheckpointNow) -> int:
        """Somebody asks for one. :raises DiskFull:"""
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
            await ask(self._log, GiveWay())
        now_us = self._committer.ledger.log_time()
        return await ask(self._log, Prune(flushed, self._keep, now_us))

    async def _flush(self) -> int:
        """Flush; where there is no room for that, after old log has given way."""
        try:
            return await ask(self._flusher, Flush())
        except DiskFull:
            if self._keep is None or not await ask(self._log, GiveWay()):
                raise
            return await ask(self._flusher, Flush())


def _has_gone_on(running: asyncio.Future[int]) -> None:
    """Whoever asked for a checkpoint waits no more. That the disk was full is asked again, and a
    node that stops needs none; what else came of it is a bug, of which the loop tells."""
    error = None if running.cancelled() else running.exception()
    if error is not None and not isinstance(error, DiskFull | Draining):
        raise error
