"""Transactions, in random histories and one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import Conflict
from storage.engine import memory, rocksdb
from storage.txn import ledger, write_set
from storage.txn.committed_state import CommittedState
from storage.txn.read_set import ReadSet
from storage.txn.scan_snapshot import ScanSnapshot
from storage.txn.snapshots import PinnedSnapshot
from storage.txn.transaction import Transaction
from storage.txn.write_set import PendingWrites, WriteSet
from tests.storage.books import Book
from tests.storage.engines import KINDS, make
from tests.storage.story import Story


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps, chunks and thresholds so small that every path is taken with few keys."""
    monkeypatch.setattr(rocksdb, "BATCH_PAIRS", 5)
    monkeypatch.setattr(rocksdb, "_FIRST_STEP", 2)
    monkeypatch.setattr(write_set, "BATCH_PAIRS", 3)
    monkeypatch.setattr(write_set, "_FEW", 2)
    monkeypatch.setattr(write_set, "_MANY", 6)
    monkeypatch.setattr(write_set, "COPIED", 2)
    monkeypatch.setattr(memory, "CHUNK_KEYS", 3)
    monkeypatch.setattr(ledger, "REPLAY_BATCH_BYTES", 200)
    monkeypatch.setattr(ledger, "APPLY_KEYS", 3)
    monkeypatch.setattr(ledger, "PREPARE_KEYS", 2)


def tombstones_forgotten_in_scans(patch: pytest.MonkeyPatch) -> None:
    real = ScanSnapshot.take

    def take(self: ScanSnapshot, last: bytes, reverse: bool) -> Any:
        found = real(self, last, reverse)
        return {key: value for key, value in found.items() if value is not None}

    patch.setattr(ScanSnapshot, "take", take)


def withdrawn_reads_may_commit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReadSet, "rolled_back", False)


def prepared_changes_outlive_later_ones(patch: pytest.MonkeyPatch) -> None:
    real = Transaction._write

    def write(self: Transaction, key: bytes, value: bytes | None) -> None:
        before = self.prepared
        real(self, key, value)
        self.prepared = before

    patch.setattr(Transaction, "_write", write)


def changes_forgotten_too_soon(patch: pytest.MonkeyPatch) -> None:
    real = CommittedState.thaw

    def thaw(self: CommittedState, reads: ReadSet) -> None:
        real(self, reads)
        self.conflicts.forget(self.committed)

    patch.setattr(CommittedState, "thaw", thaw)


def pause_freezes_no_state(patch: pytest.MonkeyPatch) -> None:
    class Live:
        def __init__(self, engine: Any) -> None:
            self.get, self.scan = engine.get, engine.scan

        def close(self) -> None: ...

    real = CommittedState.freeze

    def freeze(self: CommittedState, reads: ReadSet) -> Any:
        view, frozen = real(self, reads)
        view.close()
        return Live(self.engine), frozen

    patch.setattr(CommittedState, "freeze", freeze)


def newer_writes_leave_with_older(patch: pytest.MonkeyPatch) -> None:
    def take_away(self: PendingWrites, layer: WriteSet) -> None:
        for key in layer.writes:
            self._sequences.pop(key, None)
            self.values.pop(key, None)

    patch.setattr(PendingWrites, "_take_away", take_away)


def chain_of_a_record_broken(patch: pytest.MonkeyPatch) -> None:
    real = Transaction.put_record

    def put_record(self: Transaction, key: bytes, fields: bytes, previous: int) -> None:
        self._changing()
        self._gone.pop(key, None)
        real(self, key, fields, previous)

    patch.setattr(Transaction, "put_record", put_record)


def replay_stops_early(patch: pytest.MonkeyPatch) -> None:
    real = write_set.apply_effects
    patch.setattr(
        "storage.txn.replay.apply_effects",
        lambda found, sequence, batch: real(found[:-1], sequence, batch),
    )


def a_moment_shows_what_is_in_flight(patch: pytest.MonkeyPatch) -> None:
    real = PinnedSnapshot.__init__

    def made(self: PinnedSnapshot, state: CommittedState, now_us: int) -> None:
        real(self, state, now_us)
        self.write_sets = list(reversed(state.flight.write_sets))

    patch.setattr(PinnedSnapshot, "__init__", made)


PATCHES: dict[str, tuple[Any, str, Any]] = {
    "fresh_keys_have_no_order": (write_set.KeyOrder, "add", lambda self, keys, held: None),
    "range_reads_not_validated": (ReadSet, "add_range", lambda self, start, end: None),
    "withdrawn_commits_stay_in_flight": (PendingWrites, "keep", lambda self, upto: None),
    "everything_conflicts": (ReadSet, "touch", lambda self, changed, ordered: True),
    "counters_lost_on_reads": (Transaction, "_added", lambda self, key, value: value),
    "absence_of_many_ignores_what_is_in_flight": (
        PendingWrites, "touches", lambda self, wanted: False,
    ),
}  # fmt: skip
PLANTED: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    one.__name__: one
    for one in (
        tombstones_forgotten_in_scans, withdrawn_reads_may_commit,
        prepared_changes_outlive_later_ones, changes_forgotten_too_soon, pause_freezes_no_state,
        newer_writes_leave_with_older, chain_of_a_record_broken, replay_stops_early,
        a_moment_shows_what_is_in_flight,
    )
}  # fmt: skip


SAMPLE: dict[str, Sequence[int]] = {"memory": [*range(25), 30, 49, 57, 211], "rocks": range(5)}
"""Histories that show every bug above."""


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("planted", [*PATCHES, *PLANTED])
def test_planted_bug_is_caught(planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if planted in PATCHES:
        monkeypatch.setattr(*PATCHES[planted])
    else:
        PLANTED[planted](monkeypatch)
    with pytest.raises((AssertionError, Conflict, KeyError, IndexError)):
        for seed in SAMPLE["memory"]:
            Story(seed).run()


MANY = {"memory": range(500), "rocks": range(40)}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("of", [SAMPLE, pytest.param(MANY, marks=pytest.mark.hard)])
@pytest.mark.parametrize("kind", KINDS)
def test_random_histories(
    kind: str,
    of: dict[str, Sequence[int]],
    tmp_path: Path,
    figure: Callable[[str, object], None],
) -> None:
    seeds = of[kind]
    conflicts = commits = crashes = 0
    for seed in seeds:
        (tmp_path / str(seed)).mkdir()
        store = make(kind, tmp_path / str(seed))
        story = Story(seed, store)
        try:
            story.run()
        except Exception as error:
            raise AssertionError(f"the history of seed {seed} on {kind}") from error
        finally:
            story.give_up()
            store.close()
        conflicts += story.conflicts
        commits += story.commits
        crashes += story.crashes
    figure(
        f"transactions on {kind}",
        f"{len(seeds)} histories, {commits} commits, {conflicts} conflicts, {crashes} crashes",
    )
    assert conflicts > len(seeds)
    assert commits > 5 * len(seeds)
    assert crashes > len(seeds)


def test_places_are_touched_once_however_often_they_come() -> None:
    with Book().begin_transaction() as tx:
        assert list(tx.touched) == []
        tx.touch("a")
        tx.touch("a")
        assert list(tx.touched) == ["a"]
        for _ in range(1000):
            for each in ("b", "a", "c"):
                tx.touch(each)
        assert list(tx.touched) == ["a", "b", "c"]
