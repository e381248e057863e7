"""Committed state: commits of one store, as transactions and pinned snapshots read them.

Multi-version concurrency control (MVCC): a version of the state is an engine snapshot and the
pending write sets over it (`write_set.py`). A transaction that pauses keeps its version until it
ends, and a pinned snapshot until it is released; neither blocks a commit.

Beside them stands what concurrent transactions share: the catalog cache, validation, and the
registers of paused transactions and pinned snapshots. Only the ledger advances the state
(`ledger.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from protocol.environment import Rng
from storage.columns.projections import Projections
from storage.engine.engine import Engine, EngineSnapshot
from storage.formats.keys import Range
from storage.txn.catalog_cache import CatalogCache
from storage.txn.ids import RolledBackIds
from storage.txn.marked_records import MarkedRecords
from storage.txn.read_set import ReadSet
from storage.txn.tickets import RollBacks
from storage.txn.validation import CommitValidator
from storage.txn.write_set import PendingWrites, WriteSet


class Pinned(Protocol):
    """Pinned snapshot of the state; see `snapshots.py`."""

    write_sets: list[WriteSet]
    """Released write sets that the engine had not applied yet, newest first."""

    def end(self) -> None:
        """Release the snapshot once its last reader has ended. Idempotent."""


class CommittedState:
    """Engine, pending commits, and what transactions share.

    :param engine: the applied commits
    :param store_id: id of the store
    """

    def __init__(self, engine: Engine, rng: Rng, store_id: bytes) -> None:
        self.engine = engine
        # Commits that the engine lacks. Reads look here before the engine.
        self.flight = PendingWrites()
        self.rng = rng
        self.store = store_id[:4].hex()
        """First 8 hexadecimal digits of the store's id."""
        self.committed = engine.applied
        """Sequence of the newest commit, durable or not."""
        self.commit_index = engine.applied
        """Commit index: newest commit visible to clients (Raft §5.3)."""
        self.roll_backs = RollBacks()
        self.rolled_back_ids = RolledBackIds()
        self.catalog_cache = CatalogCache(engine.applied)
        self.conflicts = CommitValidator()
        self.projections = Projections()
        """Column projections of records that the engine has."""
        self.marked = MarkedRecords()
        """Fresh markers that the engine has."""
        self.paused: dict[ReadSet, list[WriteSet]] = {}
        """Write sets that each paused transaction reads through, newest first."""
        self.moments: set[Pinned] = set()
        """Pinned snapshots that are kept, or still read."""

    @property
    def catalog_version(self) -> int:
        """Version of the catalog: sequence of the last commit that changed a declaration."""
        return self.catalog_cache.since

    @property
    def users_version(self) -> int:
        """Sequence of the last commit that changed users or grants."""
        return self.catalog_cache.users_since

    def note_applied(
        self, written: Iterable[bytes], ranges: Sequence[Range], sequence: int
    ) -> None:
        """Note what a commit changes in the engine, for all that follows it in memory.

        :param written: keys that are written or deleted, after the ranges
        """
        if self.projections.tables:
            self.projections.note_ranges(ranges)
            self.projections.note(written, sequence)
        if self.marked.indexes:
            self.marked.note_ranges(ranges)
            self.marked.note(written)

    def freeze(self, reads: ReadSet) -> tuple[EngineSnapshot, list[WriteSet]]:
        """Freeze the state that a pausing transaction reads.

        Return an engine snapshot, and the pending write sets over it, newest first.

        From now on the changes of other commits are kept for validation, until `thaw`.
        """
        # After another commit the live reads so far would be of an older state than the view.
        assert reads.since == self.committed, "control was given away without a pause"
        # The same list is registered here, so that `is_frozen` protects its write sets.
        write_sets = self.paused[reads] = list(reversed(self.flight.write_sets))
        return self.engine.snapshot(), write_sets

    def thaw(self, reads: ReadSet) -> None:
        """End a paused transaction, and forget changes that only its validation needed."""
        del self.paused[reads]
        # Nothing older is validated any more: without paused transactions, all of it goes.
        oldest = min((other.since for other in self.paused), default=self.committed)
        self.conflicts.forget(oldest)

    def is_frozen(self, write_set: WriteSet) -> bool:
        """True if a paused transaction or a pinned snapshot reads through a write set."""
        for write_sets in self.paused.values():
            if write_set in write_sets:
                return True
        return any(write_set in moment.write_sets for moment in self.moments)
