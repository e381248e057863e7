"""Building indexes while the node serves.

One index at a time, one bounded commit at a time, and the next one when that is durable: so a build
never has more in flight than one slice, and writers and readers have their turns in between. What
to go on with stands in the store (`storage/index_builds.py`), nothing here: after a restart the
builder looks there first.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final

from pykka import ActorRef

from actors.commits import NODE, Committer
from actors.runtime import REST_SECONDS, LoopActor, Runtime, handles, tell
from protocol import limits
from protocol.errors import (
    Busy,
    Conflict,
    DiskFull,
    Draining,
    Failed,
    NotEnoughReplicas,
    NotWritable,
    UnknownOutcome,
)
from storage import index_builds
from storage.engine import EngineUnreadable
from storage.transactions import Transaction

AGAIN_SECONDS: Final = 1.0
"""When the disk is full, the node not writable, or a barrier in the way, it is tried again after so
long."""


@dataclass(frozen=True, slots=True)
class BuildOn:
    """Said by the builder to itself, and by whoever declared an index: there may be work."""


class Indexes:
    """How others on the loop reach the builder, whichever actor fills its place."""

    builder: ActorRef[Any] | None = None

    def wake(self) -> None:
        """An index has been declared that is not built yet."""
        if self.builder is not None:
            tell(self.builder, BuildOn())


class IndexesActor(LoopActor):
    """The builder."""

    def __init__(self, runtime: Runtime, indexes: Indexes, committer: Committer) -> None:
        super().__init__(runtime)
        self._committer = committer
        self._unfinished: list[bytes] = []
        self._unreadable: set[bytes] = set()
        """Those whose records could not be read just now."""
        self._waiting: asyncio.Future[None] | asyncio.TimerHandle | None = None
        indexes.builder = self.actor_ref

    def on_start(self) -> None:
        """Go on with what an earlier run has left."""
        tell(self.actor_ref, BuildOn())

    def on_stop(self) -> None:
        """What is not built stays so until the next start."""
        if self._waiting is not None:
            self._waiting.cancel()

    @handles(BuildOn)
    def build_on(self, _message: BuildOn) -> None:
        """The next slice, unless one is on its way."""
        if self._waiting is None:
            self._slice()

    def _slice(self) -> None:
        if self._committer.not_writable() is not None:
            self._unfinished.clear()
            self._later()  # another node leads, say: what it builds is built here as well
            return
        try:
            self._build()
        except EngineUnreadable as error:
            self._rest(error)

    def _build(self) -> None:
        """:raises EngineUnreadable:"""
        committer, now_us = self._committer, self.runtime.clock.monotonic_us
        until_us = now_us() + limits.INDEX_SLICE_US
        with committer.begin() as tx:
            self._unfinished = self._unfinished or self._found(tx)
            if not self._unfinished:
                return
            key = self._unfinished[0]
            goes_on = index_builds.build_slice(tx, key, lambda: now_us() >= until_us)
            try:
                ticket = committer.commit(tx, NODE, reason="index build")
            except (NotWritable, NotEnoughReplicas, Conflict, Busy, DiskFull):  # a barrier, say
                self._unfinished.clear()  # it was begun with, and nothing of that was kept
                self._later()
                return
            except (Failed, Draining):  # the log has, or it was told to: it is on its way down
                return
        if not goes_on:
            # Not before: the commit reads as well, and it is this one that it may find unreadable.
            self._unfinished.pop(0)
        self._waiting = committer.released(ticket)
        self._waiting.add_done_callback(self._written)

    def _written(self, durable: asyncio.Future[None]) -> None:
        self._waiting = None
        if durable.cancelled():
            return
        error = durable.exception()
        if error is None:
            tell(self.actor_ref, BuildOn())
        elif isinstance(error, DiskFull | UnknownOutcome):  # taken back: another leads, say
            self._unfinished.clear()
            self._later()
        elif not isinstance(error, Draining):  # it stops
            raise error

    def _found(self, tx: Transaction) -> list[bytes]:
        return [key for key in index_builds.unfinished(tx) if key not in self._unreadable]

    def _rest(self, error: EngineUnreadable) -> None:
        """A part of the state can't be read. The builds that don't need it go on, and this one is
        tried again later."""
        self.runtime.noticed(type(self).__name__, error)
        if not self._unfinished:
            self._later(REST_SECONDS)  # not even what is declared can be read
            return
        if not self._unreadable:
            self.after(REST_SECONDS, self._rested)
        self._unreadable.add(self._unfinished.pop(0))
        tell(self.actor_ref, BuildOn())

    def _rested(self) -> None:
        self._unreadable.clear()
        tell(self.actor_ref, BuildOn())

    def _later(self, seconds: float | None = None) -> None:
        self._waiting = self.after(AGAIN_SECONDS if seconds is None else seconds, self._again)

    def _again(self) -> None:
        self._waiting = None
        tell(self.actor_ref, BuildOn())
