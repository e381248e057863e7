"""VECTOR indexes after any history find the records that brute force finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from actors.scripts.index_snapshot import IndexSnapshot
from storage.indexes.fresh_markers import FreshMarkers
from storage.search.segments import Head, Segment
from storage.search.vectors import Compared, VectorBuilder, VectorSegment
from storage.txn.marked_records import MarkedRecords
from tests.storage.search.vector_history import run_history
from tests.sweeps import share

SEEDS = range(12)
SWEEP = share(range(1_000, 11_000), 20)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_index_finds_what_brute_force_finds(seed: int) -> None:
    assert run_history(seed) == []


@pytest.mark.hard
@pytest.mark.parametrize("part", range(10))
def test_many_histories(part: int) -> None:
    wrong = [(seed, found) for seed in SWEEP[part::10] if (found := run_history(seed))]
    assert wrong == []


def _no_marker_at_a_delete(
    self: FreshMarkers, old: Any, new: Any, id: bytes, *, written: bool = False
) -> dict[bytes, bytes]:
    return {} if new is None else MOVED(self, old, new, id, written=written)


def _without_a_list(self: VectorSegment, number: int) -> Any:
    return iter(list(PARTS(self, number))[1:])


def _another_record(self: VectorBuilder) -> Any:
    self._rows = [*self._rows[1:], *self._rows[:1]]
    return FINISH(self)


def _larger_distances(self: Compared, rows: Any) -> Any:
    found, error = DISTANCES(self, rows)
    return found + 2 * abs(found), error


MOVED, PARTS, FINISH = FreshMarkers.moved, VectorSegment.parts, VectorBuilder.finish
DISTANCES, LIVE_IDS, LIVE = Compared.distances, Segment.live_ids, IndexSnapshot.live
FAULTS: dict[str, Callable[[], Any]] = {
    "no marker at a delete": lambda: patch.object(FreshMarkers, "moved", _no_marker_at_a_delete),
    "a marker removed under a newer record": lambda: patch.object(
        MarkedRecords, "note", lambda self, written: None
    ),
    "deleted bits not set": lambda: patch.object(Head, "without", lambda self, numbers: self),
    "a merge that keeps deleted records": lambda: patch.object(
        Segment, "live_ids",
        lambda self: LIVE_IDS(
            Segment(self._get, self._scan, self._prefix, replace(self.head, deleted=0))
        ),
    ),
    "a part of a list lost": lambda: patch.object(VectorSegment, "parts", _without_a_list),
    "vectors of other records": lambda: patch.object(VectorBuilder, "finish", _another_record),
    "distances beyond their error": lambda: patch.object(
        Compared, "distances", _larger_distances
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str) -> None:
    with FAULTS[fault]():
        assert any(map(_fails, range(40)))


def _fails(seed: int) -> bool:
    try:
        return bool(run_history(seed))
    except AssertionError:
        return True
