"""Index builder: builds indexes while the node serves, and folds those made of segments.

It builds one index at a time, in bounded commits, and begins the next once the last is durable. So
a build never has more in flight than one slice, and writers and readers get their turns in between.
Its progress is kept in the store (`storage/records/index_builds.py`) and nowhere else: after a
restart the builder searches it first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from actors.commits.committer import NODE, Committer
from actors.execution.scheduler import FiberScheduler
from actors.indexes.recall_renewal import RecallRenewal
from actors.indexes.segment_folds import SegmentFolds
from actors.indexes.service import FoldRecords, IndexBuilderHandle, SearchIndexes
from actors.indexes.vector_training import VectorTraining
from actors.memory import NodeMemory
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
from storage.engine.engine import EngineUnreadable
from storage.records import index_builds
from storage.txn.transaction import Transaction

AGAIN_SECONDS: Final = 1.0
"""Delay before a retry, seconds, while the disk is full, the node not writable, or a priority lock
blocks the commit."""
LOOK_US: Final = 1_000_000
"""Microseconds between two looks for an index to train, while folds don't rest."""


@dataclass(frozen=True, slots=True)
class ContinueBuild:
    """Message of the builder to itself: there may be more work."""


class IndexesActor(LoopActor):
    """The index builder."""

    def __init__(
        self,
        runtime: Runtime,
        indexes: IndexBuilderHandle,
        committer: Committer,
        scheduler: FiberScheduler,
        memory: NodeMemory,
    ) -> None:
        super().__init__(runtime)
        self._handle = indexes
        self._committer = committer
        self._unfinished: list[bytes] = []
        """Keys of the declarations that the search has found, to be built next."""
        self._searched_to: bytes | None = b""
        """Key of the last declaration that was searched; empty: none yet; None: it has ended."""
        self._search_again = False
        """True if an index was declared since the search began: the search may have passed it."""
        self._unreadable: set[bytes] = set()
        """Keys of the declarations whose build has met an unreadable part of the state."""
        self._waiting: asyncio.Future[None] | asyncio.TimerHandle | None = None
        self._training = VectorTraining(runtime, committer, indexes.work)
        self._renewal = RecallRenewal(
            runtime, committer, scheduler, memory, indexes.queries, indexes.work
        )
        self._folds = SegmentFolds(committer, runtime.clock.monotonic_us, indexes.work)
        self._next_fold: asyncio.TimerHandle | None = None
        """Timer of the next slice of folds."""
        self._folds_on = False
        """True if the next slice of folds is on its way as a message."""
        self._next_look_us = 0
        """Time from which on a training may begin although folds don't rest."""
        indexes.builder = self.actor_ref

    def on_start(self) -> None:
        """Resume the builds of an earlier run, and its folds."""
        tell(self.actor_ref, ContinueBuild())

    def on_stop(self) -> None:
        """Cancel the wait. Unfinished indexes stay unfinished until the next start."""
        if self._waiting is not None:
            self._waiting.cancel()
        if self._next_fold is not None:
            self._next_fold.cancel()
        self._folds.close()
        for task in (self._training.close(), self._renewal.close()):
            if task is not None:
                self._handle.ending.add(task)
                task.add_done_callback(self._handle.ending.discard)

    @handles(FoldRecords)
    def fold(self, _message: FoldRecords) -> None:
        """Fold a slice of fresh records."""
        self._folds_on = False
        if self._next_fold is not None:
            self._next_fold.cancel()
            self._next_fold = None
        delay = self._fold_slice()
        if delay is None:
            return
        now_us = self.runtime.clock.monotonic_us()
        # Under load some records are always fresh: folds never rest, and lists are trained anyhow.
        if delay > 0 or now_us >= self._next_look_us:
            self._next_look_us = now_us + LOOK_US
            self._training.start(self._folds.indexes)
            if not self._training.is_training:
                self._renewal.start(self._folds.indexes)
        if delay > 0:
            self._next_fold = self.after(delay, self._fold_soon)
        else:
            self._fold_soon()

    def _fold_slice(self) -> float | None:
        try:
            return self._folds.slice()
        except EngineUnreadable as error:
            # A part of the state can't be read: queries read these records themselves.
            self.runtime.report_error(type(self).__name__, error)
            return REST_SECONDS

    def _find_segmented(self) -> None:
        """Look for indexes of segments that came with the log; without one, schedule nothing."""
        if self._next_fold is None and not self._folds_on:
            self._fold_slice()
            if self._folds.any:
                self._fold_soon()

    def _fold_soon(self) -> None:
        if self._next_fold is not None:
            self._next_fold.cancel()
            self._next_fold = None
        if not self._folds_on:
            self._folds_on = True
            tell(self.actor_ref, FoldRecords())

    @handles(SearchIndexes)
    def search(self, _message: SearchIndexes) -> None:
        """Search all declared indexes; once more afterwards if a search is under way."""
        self._search_again = True
        self._start_slice()

    @handles(ContinueBuild)
    def build_on(self, _message: ContinueBuild) -> None:
        """Build the next slice."""
        self._start_slice()

    def _start_slice(self) -> None:
        """Begin the next slice, unless one is under way."""
        if self._waiting is None:
            self._slice()

    def _slice(self) -> None:
        self._find_segmented()
        if self._committer.not_writable() is not None:
            self._restart_search()
            self._later()  # another node leads, say: its builds arrive with its log
            return
        try:
            self._build()
        except EngineUnreadable as error:
            self._set_aside(error)

    def _build(self) -> None:
        """Build one slice of one index and commit it.

        :raises EngineUnreadable: a part of the state can't be read
        """
        committer, now_us = self._committer, self.runtime.clock.monotonic_us
        until_us = now_us() + limits.INDEX_SLICE_US
        with committer.begin_transaction() as tx:
            over = lambda: now_us() >= until_us  # noqa: E731
            if not self._unfinished and not self._find(tx, over):
                return
            key = self._unfinished[0]
            goes_on = index_builds.build_slice(tx, key, over)
            try:
                ticket = committer.commit(tx, NODE, reason="index build")
            except (NotWritable, NotEnoughReplicas, Conflict, Busy, DiskFull):  # a lock, say
                self._restart_search()  # it was begun with, and nothing of that was kept
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
            tell(self.actor_ref, ContinueBuild())
        elif isinstance(error, DiskFull | UnknownOutcome):  # rolled back: another leads, say
            self._restart_search()
            self._later()
        elif not isinstance(error, Draining):  # it stops
            raise error

    def _find(self, tx: Transaction, over: Callable[[], bool]) -> bool:
        """Search a slice of the declarations for indexes to build. Return True if there are any.

        :raises EngineUnreadable: a part of the state can't be read
        """
        if self._searched_to is None:
            if not self._search_again:
                return False
            self._restart_search()
        if self._searched_to == b"":
            self._search_again = False
        found, self._searched_to = index_builds.unfinished(tx, self._searched_to or b"", over)
        self._unfinished = [key for key in found if key not in self._unreadable]
        if not self._unfinished:
            tell(self.actor_ref, ContinueBuild())
        return bool(self._unfinished)

    def _restart_search(self) -> None:
        """Discard the results of the search; the next one starts from the beginning."""
        self._unfinished, self._searched_to = [], b""

    def _set_aside(self, error: EngineUnreadable) -> None:
        """Set the current index aside because a part of the state can't be read.

        Builds that don't need that part go on. This one is retried after `REST_SECONDS`.
        """
        self.runtime.report_error(type(self).__name__, error)
        if not self._unfinished:
            self._later(REST_SECONDS)  # not even the declarations can be read
            return
        if not self._unreadable:
            self.after(REST_SECONDS, self._retry_set_aside)
        self._unreadable.add(self._unfinished.pop(0))
        tell(self.actor_ref, ContinueBuild())

    def _retry_set_aside(self) -> None:
        self._unreadable.clear()
        self._search_again = True
        tell(self.actor_ref, ContinueBuild())

    def _later(self, seconds: float | None = None) -> None:
        self._waiting = self.after(AGAIN_SECONDS if seconds is None else seconds, self._again)

    def _again(self) -> None:
        self._waiting = None
        tell(self.actor_ref, ContinueBuild())
