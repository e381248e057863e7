"""Training of the lists of VECTOR indexes, by the leader.

An index gets lists when it has more than 10 000 vectors, and new ones when it has four times as
many as at the last training. A sample is read in slices, and k-means runs in a process of its own.
A commit puts the centroids into the state: so all nodes have the same lists. The folds of each node
then make its segments again. A training that is lost, by a kill or another leader, is begun again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from actors.commits.committer import NODE, Committer
from actors.indexes.leader_task import LeaderTask
from actors.indexes.metrics import SearchWork
from actors.runtime import Runtime
from protocol import limits
from protocol.errors import POSTPONES
from storage.engine.engine import EngineReader
from storage.indexes import index_rows
from storage.indexes.entries import Index
from storage.search import segments

if TYPE_CHECKING:
    from storage.search.training import Floats

MODULE: Final = "storage.search.training"


class VectorTraining:
    """Trainings of one store, one at a time."""

    def __init__(self, runtime: Runtime, committer: Committer, work: SearchWork) -> None:
        self._runtime, self._committer, self._work = runtime, committer, work
        self._task = LeaderTask(runtime, committer, self._wants, self._train)
        self._rests_until_us = 0

    def start(self, declared: list[bytes]) -> None:
        """Start a training if one of the next few indexes wants it.

        :param declared: keys of the declarations
        """
        if self._runtime.clock.monotonic_us() >= self._rests_until_us:
            self._task.start(declared)

    @property
    def is_training(self) -> bool:
        """True during a training."""
        return self._task.is_running

    def close(self) -> asyncio.Task[None] | None:
        """End the training: nothing of it is kept. Return its task, while that ends its process."""
        return self._task.close()

    def _wants(self, index: Index) -> bool:
        engine = self._committer.ledger.state.engine
        return index.vector is not None and wants_lists(
            engine, index, segments.live_count(engine.scan, index.entries)
        )

    async def _train(self, index: Index) -> None:
        # What is not kept, by a refusal or a failure, is not tried again at once.
        self._rests_until_us = self._runtime.clock.monotonic_us() + REST_US
        from storage.search import centroids
        from storage.search.training import TrainingRequest, read_answer
        from storage.search.vectors import vectors_of

        assert index.vector is not None
        engine, now_us = self._committer.ledger.state.engine, self._runtime.clock.monotonic_us
        began_us = now_us()
        vectors = segments.live_count(engine.scan, index.entries)
        lists = centroids.lists_for(vectors, index.vector)
        wanted = min(centroids.SAMPLE * lists, centroids.NUMBERS // index.vector.dimension)
        parts: list[Floats] = []
        until_us = now_us() + limits.SLICE_US
        for rows in vectors_of(engine, index, max(vectors // wanted, 1)):
            parts.append(rows)
            if now_us() >= until_us:
                await asyncio.sleep(0)
                until_us = now_us() + limits.SLICE_US
        request = TrainingRequest(index.id, lists, index.vector.distance == "COSINE", parts)
        answer = await self._runtime.compute(MODULE, request.pack())
        rows = read_answer(answer, index.vector.dimension)
        self._work.add("training", now_us() - began_us)
        with suppress(*POSTPONES):
            await self._commit(index, lambda tx, found: centroids.put(tx, found, rows, vectors))
            self._rests_until_us = 0

    async def _commit(self, index: Index, put: Callable[[Any, Index], None]) -> None:
        committer = self._committer
        with committer.begin_transaction() as tx:
            found = index_rows.find(tx, index.key)
            # It was dropped or rebuilt meanwhile.
            if found is None or found.entries != index.entries:
                return
            put(tx, found)
            ticket = committer.commit(tx, NODE, reason="vector lists")
        await committer.released(ticket)


def wants_lists(engine: EngineReader, index: Index, vectors: int) -> bool:
    """True if an index with so many vectors should get new lists."""
    if vectors <= ONE_LIST:
        return False
    # It imports numpy, which nodes without such an index don't load.
    from storage.search.centroids import wants_training

    return wants_training(engine.get, index, vectors)


ONE_LIST: Final = 10_000
"""Most vectors of an index with one list."""
REST_US: Final = 10_000_000
"""Microseconds until a training that was not kept is begun again."""
