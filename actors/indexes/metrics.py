"""FULLTEXT and VECTOR indexes in GET /metrics: those declared first, each by name.

A monitoring system keeps each series for weeks, so a scrape names a bounded number of indexes, and
always the same. Also the work of the index builder, counted since the start of the node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heappush, heappushpop
from typing import Final

from actors.commits.committer import Committer
from actors.rights import Rights
from actors.roles import Roles
from protocol import limits
from protocol.requests import Caller
from protocol.rights import READ
from protocol.values import Tick
from storage.catalog.tables import Table
from storage.indexes.entries import Index
from storage.search import recall_rows, segments
from storage.search.caches import search_memory
from storage.search.trainings import lists_of, trainings
from storage.txn.tickets import CommitTicket
from storage.txn.transaction import Transaction

FRESH_COUNTED: Final = 100_000
"""Most records of a backlog that are counted."""
KINDS: Final = ("fold", "merge", "training", "measurement")


class SearchWork:
    """Work of the index builder since the start: by kind how often it ended, and how long it took
    (µs)."""

    def __init__(self) -> None:
        self.ended = Counter[str]()
        self.took_us = Counter[str]()

    def add(self, kind: str, took_us: int) -> None:
        """Count work that ended."""
        self.ended[kind] += 1
        self.took_us[kind] += took_us

    def figures(self) -> Iterator[tuple[str, int, float]]:
        """Yield each kind with its number and seconds."""
        for kind in KINDS:
            yield kind, self.ended[kind], self.took_us[kind] / 1_000_000


@dataclass(frozen=True, slots=True)
class IndexFigures:
    """Figures of an index for /metrics.

    :ivar records: records in its segments
    :ivar fresh: records that are in no segment yet, at most `FRESH_COUNTED`
    :ivar lists: lists of a VECTOR index; None: it is another one
    :ivar recall: low end, value and high end of its recall; None: it is unmeasured
    """

    namespace: str
    database: str
    table: str
    name: str
    records: int
    segments: int
    fresh: int
    lists: int | None = None
    recall: tuple[float, float, float] | None = None


class SearchMetrics:
    """Figures of search for /metrics.

    :ivar work: work of the index builder
    """

    def __init__(
        self, committer: Committer, roles: Roles, rights: Rights, work: SearchWork
    ) -> None:
        self._committer, self._roles, self._rights = committer, roles, rights
        self.work = work

    @property
    def memory(self) -> int:
        """Bytes of decoded parts of indexes."""
        return search_memory()

    def figures(self, caller: Caller, tick: Tick) -> tuple[list[IndexFigures], CommitTicket | None]:
        """Return the figures of the indexes whose tables a caller may read, and the ticket to wait
        for. Empty on a node that may not answer the caller.

        :param tick: called for each item read: others may commit meanwhile
        """
        if not self._roles.answers(caller):
            return [], None
        with self._committer.begin_transaction() as tx:
            # The caller's `tick` may yield to the loop.
            tx.pause()
            found = index_figures(tx, self._rights.tables(tx, caller, READ, tick), tick)
        return found, tx.ticket


def index_figures(tx: Transaction, every: Iterable[Table], tick: Tick) -> list[IndexFigures]:
    """Return the figures of the indexes of some tables.

    :param tick: called for each item read: others may commit meanwhile
    """
    first: list[tuple[int, Index, Table]] = []  # a heap: the one that was declared last on top
    for table in every:
        for index in table.indexes:
            if index.segmented and index.is_complete:
                # Ids grow with declarations, so the names stay the same.
                one = -index.id, index, table
                if len(first) < limits.METRICS_NAMED:
                    heappush(first, one)
                else:
                    heappushpop(first, one)
    named = sorted(first, key=lambda one: -one[0])
    return [_of(tx, table, index, tick) for _, index, table in named]


def _of(tx: Transaction, table: Table, index: Index, tick: Tick) -> IndexFigures:
    heads = segments.heads_of(tx, index.entries)
    tick()
    fresh = 0
    for ids in segments.marked_ids(tx, index.entries):
        fresh += len(ids)
        tick()
        if fresh >= FRESH_COUNTED:
            break
    lists = recall = None
    if index.vector is not None:
        known = trainings(tx.value_over, index)
        lists = known[-1].lists if known else 1
        measured = recall_rows.find(tx, index, lists_of(tx.value_over, index))
        recall = None if measured is None else (measured.low, measured.value, measured.high)
    database = table.database
    return IndexFigures(
        database.namespace.name, database.name, table.name, index.name,
        sum(head.live for head in heads), len(heads), min(fresh, FRESH_COUNTED), lists, recall,
    )  # fmt: skip
