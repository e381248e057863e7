"""Measurements of recall by the leader: those that REBUILD asked for, and stale ones once more.

A row of the state says what is to be measured (`storage/search/recall_rows.py`), so a request
survives a kill, and the next leader goes on. An index is measured when it has no figures for its
present lists, or more than a tenth of its records has changed, or its target has. It waits until
records are folded and lists are trained. Measurements run one at a time, in slices of the loop, and
take at most a twentieth of the time.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from actors.commits.committer import NODE, Committer
from actors.execution.fiber import Fiber
from actors.execution.scheduler import NODE as NODE_RANK
from actors.execution.scheduler import FiberScheduler
from actors.indexes.leader_task import LeaderTask
from actors.indexes.metrics import SearchWork
from actors.indexes.service import LiveQueries
from actors.indexes.vector_training import wants_lists
from actors.memory import MemoryAccount, NodeMemory
from actors.runtime import Runtime
from actors.scripts import arrays
from actors.scripts.search_reading import SeparateReading
from language.sizing import WorkingMemory
from protocol.errors import POSTPONES, Refusal
from protocol.values import Tick
from storage.catalog import places, tables
from storage.catalog.tables import Table
from storage.formats import keys
from storage.indexes import index_rows
from storage.indexes.entries import Index
from storage.indexes.fresh_markers import FRESH
from storage.search import recall_rows, segments
from storage.search.recall_rows import MeasuredFilter, Recall, RecallRequest
from storage.search.trainings import lists_of
from storage.txn.transaction import Transaction


class RecallRenewal:
    """Measurements of one store, one at a time.

    :param queries: query vectors that the node was asked
    """

    def __init__(
        self,
        runtime: Runtime,
        committer: Committer,
        scheduler: FiberScheduler,
        memory: NodeMemory,
        queries: LiveQueries,
        work: SearchWork,
    ) -> None:
        self._runtime, self._committer = runtime, committer
        self._scheduler, self._memory, self._queries = scheduler, memory, queries
        self._work = work
        self._task = LeaderTask(runtime, committer, self._wants, self._renew)
        self._rests_until_us: dict[bytes, int] = {}
        """Ends of the rests of indexes, by the keys of their declarations."""

    def start(self, declared: list[bytes]) -> None:
        """Start a measurement if one of the next few indexes may want it.

        :param declared: keys of the declarations
        """
        if len(self._rests_until_us) > 2 * len(declared):
            self._rests_until_us.clear()
        self._task.start(declared)

    def close(self) -> asyncio.Task[None] | None:
        """End the measurement: nothing of it is kept. Return its task, while that ends."""
        return self._task.close()

    def _wants(self, index: Index) -> bool:
        """True if an index is to be measured now and then, and its records are folded."""
        if self._rests_until_us.get(index.key, 0) > self._runtime.clock.monotonic_us():
            return False
        state = self._committer.ledger.state
        if (
            index.vector is None
            or recall_rows.find_request(state.engine.get, index, state.store) is None
        ):
            return False
        marks = state.marked.indexes.get(index.entries + FRESH)
        # Those of a large backlog are not known.
        if marks is None or marks.keys is None:
            return False
        live = segments.live_count(state.engine.scan, index.entries)
        if len(marks.keys) * recall_rows.FRESH_PART > live:
            return False
        self._rest(index, REST_US)
        return True

    def _has_lists(self, index: Index) -> bool:
        """True if all segments of an index have the lists that it should have."""
        from storage.search.vectors import form_digest

        assert index.vector is not None
        engine = self._committer.ledger.state.engine
        known = segments.heads(engine.scan, index.entries)
        if wants_lists(engine, index, sum(head.live for head in known)):
            return False
        digest = form_digest(index.vector) + lists_of(engine.get, index)
        return all(head.digest == digest for head in known)

    # --- one measurement --------------------------------------------------------------------------

    async def _renew(self, index: Index) -> None:
        # They import numpy.
        await self._runtime.loop.run_in_executor(None, arrays.load)
        if not self._has_lists(index):
            self._rest(index, min(REST_US, _SOON_US))
            return
        began_us = self._runtime.clock.monotonic_us()
        found = await self._measured(index)
        took_us = self._runtime.clock.monotonic_us() - began_us
        rest_us = max(REST_US, took_us * _RESTS)
        if found is not None:
            self._work.add("measurement", took_us)
            with suppress(*POSTPONES):
                await self._commit(index, *found)
        self._rest(index, rest_us)

    def _rest(self, index: Index, rest_us: int) -> None:
        self._rests_until_us[index.key] = self._runtime.clock.monotonic_us() + rest_us

    async def _measured(self, index: Index) -> tuple[Recall, RecallRequest] | None:
        """Measure in a fiber; None: it is not wanted."""
        fiber = Fiber(self._scheduler, NODE_RANK, "")
        memory, found = WorkingMemory(), list[tuple[Recall, RecallRequest] | None]()
        account = MemoryAccount("", fiber.cancel, ())

        def work() -> None:
            with self._committer.begin_released_read() as tx:
                tx.pause()
                reading = SeparateReading(tx, memory, fiber.tick)
                found.append(_found(reading, index, self._queries.of(index.entries)))

        fiber.start_in_line(work, lambda: self._memory.set(account, memory.held, memory.largest))
        try:
            await asyncio.wait((fiber.outcome,))
        except asyncio.CancelledError:
            fiber.cancel()
            # Its view of the engine is released before the node ends.
            await asyncio.wait((fiber.outcome,))
            fiber.outcome.exception()
            raise
        finally:
            self._memory.close(account)
        fiber.outcome.result()
        return found.pop()

    async def _commit(self, index: Index, recall: Recall, request: RecallRequest) -> None:
        committer = self._committer
        with committer.begin_transaction() as tx:
            present = index_rows.find(tx, index.key)
            # It was dropped, rebuilt or trained meanwhile, or measured by a user.
            if present is None or present.entries != index.entries:
                return
            if lists_of(tx.get, present) != recall.lists:
                return
            newer = recall_rows.find(tx, present, recall.lists)
            if newer is not None and newer.sequence >= recall.sequence:
                return
            recall_rows.put(tx, present, recall)
            known = recall_rows.find_request(tx.get, present, tx.store)
            if known is not None and known.filters != request.filters:
                recall_rows.put_request(tx, present, request)
            ticket = committer.commit(tx, NODE, reason="recall measured")
        await committer.released(ticket)


def _found(
    reading: SeparateReading, index: Index, live: list[Any]
) -> tuple[Recall, RecallRequest] | None:
    """Return the recall of an index, and what of its request could be measured; None: its figures
    count, or there are too few vectors."""
    from actors.scripts import recall_measuring as measuring

    tx = reading.transaction
    table = _table(tx, index, reading.tick)
    present = None if table is None else index_rows.find(tx, index.key)
    if table is None or present is None or present.vector is None:
        return None
    request = recall_rows.find_request(tx.get, present, tx.store)
    known = recall_rows.find(tx, present, lists_of(tx.get, present))
    if request is None or present.entries != index.entries:
        return None
    if known is not None and known.target == present.vector.recall:
        changed = measuring.changed_share(reading, table, present, known.sequence)
        if changed <= recall_rows.STALE:
            return None
    request = replace(
        request, filters=tuple(one for one in request.filters if _fits(reading, table, one))
    )
    given = measuring.kept_vectors(recall_rows.given_vectors(tx, present), present.vector)
    found = measuring.Measuring(reading, table, present, live, given)
    if not found.has_enough():
        return None
    return found.recall(request, tx.now), request


def _fits(reading: SeparateReading, table: Table, named: MeasuredFilter) -> bool:
    """True if a filter can still be evaluated: fields and other indexes may have changed."""
    from actors.scripts.recall_measuring import filter_of

    try:
        filter_of(reading, table, named)
    except Refusal:
        return False
    return True


def _table(tx: Transaction, index: Index, tick: Tick) -> Table | None:
    """Return the table of an index."""
    namespace, database, table = keys.index_table(index.key)
    for one in places.every_database(tx, tick):
        if (one.namespace.id, one.id) == (namespace, database):
            found = tables.find_table(tx, one, index.table)
            return found if found is not None and found.id == table else None
    return None


REST_US: Final = 60_000_000
"""Microseconds between two looks at the figures of an index."""
_SOON_US: Final = 1_000_000
"""The same while its lists are made."""
_RESTS: Final = 20
"""An index rests so many times as long as its measurement took."""
