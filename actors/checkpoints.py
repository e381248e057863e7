"""Checkpoints: the state is flushed now and then, so that a start replays little log.

Only what a flush covers may leave the log. The order is: flush, then prune below it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import structlog
from pykka import ActorRef

from actors.commits import Committer
from actors.log import SPARE_BYTES, Prune
from actors.runtime import LoopActor, Runtime, ThreadActor, ask, handles, tell
from protocol import limits
from protocol.errors import DiskFull
from protocol.requests import Request
from storage.engine import Engine

log = structlog.get_logger("node")

LOOK_SECONDS: Final = 1.0
"""How often it is looked whether a checkpoint is due."""


@dataclass(frozen=True, slots=True)
class Flush(Request[int]):
    """Make the state durable. Answers the sequence it would stand at after a crash."""


@dataclass(frozen=True, slots=True)
class CheckpointNow(Request[int]):
    """Flush and prune. Answers where the log begins after it."""


class FlushActor(ThreadActor):
    """Waits for the disk while the engine writes out its memory.

    :param free_bytes: what the disk of the state has left; None: it needs no disk
    """

    def __init__(
        self, runtime: Runtime, engine: Engine, free_bytes: Callable[[], int] | None = None
    ) -> None:
        super().__init__(runtime)
        self._engine = engine
        self._free_bytes = free_bytes

    @handles(Flush)
    def flush(self, _message: Flush) -> int:
        """Flush the engine.

        :raises DiskFull: there is no room for it; it was not begun, since an engine whose flush
            meets a full disk takes nothing more
        :raises EngineFailed:
        """
        room = None if self._free_bytes is None else self._free_bytes()
        if room is not None and room < self._engine.unflushed_bytes() + SPARE_BYTES // 2:
            raise DiskFull("no room left on the disk to flush the state")
        self._engine.flush(room)
        return self._engine.flushed_sequence()


@dataclass(frozen=True, slots=True)
class _Look:
    pass


class CheckpointsActor(LoopActor):
    """Decides when: after so many seconds or so many bytes of log, and only when there is news.

    :param prune: whether log below the newest frames that are kept may go
    """

    def __init__(
        self,
        runtime: Runtime,
        committer: Committer,
        flusher: ActorRef[Any],
        log: ActorRef[Any],
        *,
        prune: bool,
    ) -> None:
        super().__init__(runtime)
        self._committer = committer
        self._flusher = flusher
        self._log = log
        self._prune = prune
        self._flushed = committer.released_upto
        self._flushed_at_us = runtime.clock.monotonic_us()
        self._waits_for_room = False
        self._running: asyncio.Future[int] | None = None

    def on_start(self) -> None:
        """Begin to look."""
        self.after(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self.after(LOOK_SECONDS, self._look)
        committer = self._committer
        waited_us = self._monotonic_us() - self._flushed_at_us
        due = (
            waited_us >= limits.CHECKPOINT_SECONDS * 1_000_000
            or committer.unflushed_bytes >= limits.CHECKPOINT_BYTES
        )
        if due and self._running is None and committer.released_upto > self._flushed:
            tell(self.actor_ref, _Look())

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
        return await asyncio.shield(self._running)

    async def _work(self) -> int:
        before, self._committer.unflushed_bytes = self._committer.unflushed_bytes, 0
        try:
            flushed = await ask(self._flusher, Flush())
        except DiskFull:
            self._committer.unflushed_bytes += before
            raise
        self._flushed = flushed
        self._flushed_at_us = self._monotonic_us()
        kept_from = self._committer.released_upto - limits.LOG_FRAMES_KEPT + 1
        below = min(flushed + 1, kept_from) if self._prune else 0
        return await ask(self._log, Prune(max(below, 0)))
