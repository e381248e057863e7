"""FULLTEXT indexes after any history lead to the records that a plain search finds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import storage.search.folding
import storage.txn.ledger
import tests.storage.search.history
from language.search.retrieval import SegmentSearch
from language.search.scoring import Statistics
from language.search.terms import Term
from protocol.errors import Conflict
from protocol.values import unpaced
from storage.formats.keys import RECORD_PREFIX_BYTES, within
from storage.indexes import derived
from storage.indexes.entries import IndexMaintainer
from storage.indexes.fresh_markers import FRESH, FreshMarkers
from storage.records import records
from storage.records.records import RecordChanges
from storage.search.folding import Fold
from storage.search.segments import Head, Segment
from storage.txn.ledger import Ledger
from storage.txn.marked_records import IndexMarks, MarkedRecords
from storage.txn.transaction import Transaction
from tests.storage.books import digests
from tests.storage.search.history import TextBook, asked, may_write, run_history
from tests.sweeps import share

SWEEP = share(range(1_000, 21_000), 20)


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize(
    "seeds",
    [range(12)] + [pytest.param(SWEEP[part::20], marks=pytest.mark.hard) for part in range(20)],
)
def test_an_index_leads_to_what_a_plain_search_finds(
    seeds: Sequence[int], figure: Callable[[str, object], None]
) -> None:
    for seed in seeds:
        assert run_history(seed) == [], f"seed {seed}"
    figure("histories of a FULLTEXT index", len(seeds))


def _no_marker_at_a_delete(
    self: FreshMarkers, old: Any, new: Any, id: bytes, *, written: bool = False
) -> dict[bytes, bytes]:
    return {} if new is None else MOVED(self, old, new, id, written=written)


def _without_markers(self: IndexMaintainer, *arguments: Any) -> None:
    with patch.object(FreshMarkers, "moved", lambda self, *some: {}):
        DELETE(self, *arguments)


def _of_any_state(self: Transaction, prefix: bytes) -> IndexMarks | None:
    return self._state.marked.indexes.get(prefix)


def _count_deleted(self: SegmentSearch, live: Any, leaves: Any, known: Statistics) -> None:
    COUNT(self, np.ones_like(live), leaves, known)


DELETE = IndexMaintainer.delete_together
COUNT = SegmentSearch.count
MOVED = FreshMarkers.moved
LIVE_IDS = Segment.live_ids
FAULTS: dict[str, tuple[int, Any]] = {
    "no marker at a delete": (
        0, lambda: patch.object(FreshMarkers, "moved", _no_marker_at_a_delete),
    ),
    "no markers of records that are deleted together": (
        2, lambda: patch.object(IndexMaintainer, "delete_together", _without_markers),
    ),
    "a marker removed under a newer record": (
        0, lambda: patch.object(MarkedRecords, "note", lambda self, written: None),
    ),
    "segments of a newer state than is read": (
        0, lambda: patch.object(Transaction, "marks", _of_any_state),
    ),
    "markers of commits beside a fold that are not known": (
        0, lambda: patch.object(IndexMarks, "remove", lambda self: self.know(())),
    ),
    "a fold that removes the markers of others": (
        1, lambda: patch.object(IndexMarks, "limit_fold", lambda self, end: None),
    ),
    "deleted bits not set": (
        0, lambda: patch.object(Head, "without", lambda self, numbers: self),
    ),
    "a merge that keeps deleted records": (
        1,
        lambda: patch.object(
            Segment, "live_ids",
            lambda self: LIVE_IDS(
                Segment(self._get, self._scan, self._prefix, replace(self.head, deleted=0))
            ),
        ),
    ),
    "a rarity that counts deleted records": (
        0, lambda: patch.object(SegmentSearch, "count", _count_deleted),
    ),
    "a rarity without fresh records": (
        0, lambda: patch.object(Statistics, "add", lambda self, field, words: None),
    ),
    "a phrase of scattered words": (
        0,
        lambda: patch.object(
            SegmentSearch, "_phrase",
            lambda self, phrase, field: self.hits(Term(phrase.parts[0][1]), field),
        ),
    ),
    "a fold that goes on below a rebuilt index": (
        4, lambda: patch.object(Fold, "_still", lambda self, index: True),
    ),
}  # fmt: skip
"""Faults that histories have to show, each with a seed that shows it."""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_seen(fault: str) -> None:
    seed, plant = FAULTS[fault]
    with plant():
        try:
            wrong = run_history(seed)
        except (AssertionError, IndexError, ValueError) as failed:
            wrong = [repr(failed)]
    assert wrong


def folded_in_the_middle_of_a_commit(guard: Callable[[Ledger], bool]) -> list[bytes]:
    """Return the ids that are found after a fold while a large commit was applied in parts."""
    store = TextBook()
    store.define_text()
    for id in range(6):
        store.put(id, a="tin")
    store.settle()
    with store.begin_transaction() as tx:
        table = store.table(tx)
        changes = RecordChanges(tx, table)
        for id in range(6):
            changes.put(id, {"a": "gold"}, records.stored(tx, table, id))
        changes.write(unpaced)
        store.commit(tx)
    committed = store.ledger.state.committed
    store.ledger.mark_durable(committed, digests(store.frames))
    store.ledger.release(committed)
    with patch.object(tests.storage.search.history, "may_write", guard):
        # Entries come first: all markers are in the engine now, and no record is.
        for _ in range(7):
            assert store.ledger.apply_next()
        store.fold(50)
        store.stop_folds()
        while store.ledger.apply_next():
            pass
    store.settle()
    with store.begin_transaction() as tx:
        return list(asked(tx, store.table(tx), "gold").search.ids())


def test_no_fold_writes_while_a_commit_is_applied_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage.txn.ledger, "APPLY_KEYS", 2)
    assert len(folded_in_the_middle_of_a_commit(may_write)) == 6
    assert len(folded_in_the_middle_of_a_commit(lambda ledger: True)) < 6


def test_a_search_conflicts_with_text_that_another_commit_changes() -> None:
    store = TextBook()
    store.define_text()
    store.put(1, a="tin")
    store.settle()
    with store.begin_transaction() as tx:
        tx.pause()
        table = store.table(tx)
        assert list(asked(tx, table, "gold").search.ids()) == []
        store.put(2, a="gold")
        records.create(tx, table, 3, {"a": "none was there"})
        with pytest.raises(Conflict):
            store.commit(tx)
    # A fold is no commit: what it moves has been read all the same.
    with store.begin_transaction() as tx:
        tx.pause()
        table = store.table(tx)
        assert len(list(asked(tx, table, "gold").search.ids())) == 1
        store.durable()
        while store.fold(100):
            pass
        assert len(list(asked(tx, table, "gold").search.ids())) == 1
        records.create(tx, table, 3, {"a": "one was there"})
        store.commit(tx)


def test_a_state_that_is_loaded_has_its_records_marked() -> None:
    store = TextBook()
    store.define_text()
    for id, text in enumerate(["tin", 7, ["gold"], None]):
        store.put(id, a=text)
    with store.begin_transaction() as tx:
        table = store.table(tx)
        pairs = [pair for some in tx.scan(*within(table.prefix)) for pair in some]
        kept = derived.kept(tx, table.prefix)
        assert kept is not None
        loaded = kept.of_loaded(pairs, {})
        (index,) = table.indexes
        start = index.entries + FRESH
    assert set(loaded) == {start + pairs[at][0][RECORD_PREFIX_BYTES:] for at in (0, 2)}
