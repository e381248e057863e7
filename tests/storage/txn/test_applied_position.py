"""States that fit a log, and states that are refused with it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from storage.engine.engine import Engine
from storage.engine.rocksdb import RocksEngine
from storage.engine.state_hash import state_hash
from storage.faults import LogDamaged, StateForeign
from storage.files.directory import StoreDirectory
from storage.files.disk import Disk
from storage.formats.effects import Attribution
from storage.formats.frames import NO_DIGEST, Frame
from storage.formats.positions import LogEnd
from storage.indexes import derived
from storage.log.log import Log
from storage.log.state import LogSizes
from storage.txn import applied_position
from storage.txn import ledger as ledger_module
from storage.txn.ledger import Ledger
from tests.simulation.environment import ManualClock, SeededRng
from tests.storage.engine.test_engine import key

BY = Attribution("ana", "wire test")


@dataclass
class OpenStore:
    path: Path
    seed: int = 1

    def open(self) -> OpenStore:
        environment = (Disk(), ManualClock(), SeededRng(self.seed))
        self.directory = StoreDirectory.open(str(self.path), *environment, create=True)
        self.frames: list[Frame] = []
        try:
            self.engine: Engine = RocksEngine(self.directory.state_path)
        except BaseException:
            self.directory.close()
            raise
        try:
            self._join()
        except BaseException:
            self.engine.close()
            self.directory.close()
            raise
        return self

    def _join(self) -> None:
        store_id = self.directory.store_id.bytes
        found = applied_position.read(self.engine, store_id)
        sizes = LogSizes(segment_frames=4, reserve_bytes=0)
        self.log = Log.open(self.directory, sizes, proven=found.proves)
        try:
            applied_position.require_joined(found, self.log.reader.digest_at)
            tail = LogEnd(
                self.log.state.last, self.log.state.epoch, self.log.state.last_time, store_id
            )
            environment = (ManualClock(), SeededRng(1))
            self.ledger = Ledger(self.engine, tail, *environment, self.frames.append, derived.kept)
            for frame in self.log.reader.read(self.ledger.state.committed + 1):
                self.ledger.replay(frame)
        except BaseException:
            self.log.close(clean=False)
            raise

    def commit(self, *values: bytes, settle: bool = True) -> None:
        for value in values:
            tx = self.ledger.begin_transaction()
            tx.put(key(len(value)), value)
            self.ledger.commit(tx, BY)
        self._append(settle)

    def _append(self, settle: bool) -> None:
        digests = self.log.append(self.frames)
        upto = self.frames[-1].sequence
        self.ledger.mark_durable(upto, digests)
        self.ledger.release(upto)
        self.frames.clear()
        while settle and self.ledger.apply_next():
            pass

    def close(self, clean: bool = True) -> None:
        self.log.close(clean)
        self.engine.close()
        self.directory.close()


@pytest.fixture
def store(tmp_path: Path) -> OpenStore:
    return OpenStore(tmp_path / "store").open()


def swap_state(one: OpenStore, other: Path) -> None:
    """Put the state of another directory into a closed store."""
    shutil.rmtree(one.path / "state")
    shutil.copytree(other / "state", one.path / "state")


def test_an_older_state_of_the_same_history_is_brought_up(store: OpenStore, tmp_path: Path) -> None:
    store.commit(b"a", b"bb")
    store.close()
    shutil.copytree(store.path, tmp_path / "old")
    store.open()
    store.commit(b"ccc", b"dddd", b"a")
    wanted = state_hash(store.engine)
    store.close()
    swap_state(store, tmp_path / "old")
    store.open()
    assert (store.engine.applied, state_hash(store.engine)) == (5, wanted)
    store.close()


@pytest.mark.parametrize("count", [2, 3, 4])
def test_another_stores_state_is_refused(store: OpenStore, tmp_path: Path, count: int) -> None:
    """Whether it stands before, at or behind the end of the log."""
    store.commit(b"a", b"bb", b"ccc")
    store.close()
    other = OpenStore(tmp_path / "other", seed=2).open()
    other.commit(*[b"x"] * count)
    other.close()
    swap_state(store, other.path)
    with pytest.raises(StateForeign, match=str(other.directory.store_id)):
        store.open()


def fork(store: OpenStore, path: Path) -> OpenStore:
    """The same store, copied when it held two frames, with another third and fourth."""
    store.commit(b"a", b"bb")
    store.close()
    shutil.copytree(store.path, path)
    other = OpenStore(path, seed=3).open()
    other.commit(b"its own", b"and more")
    other.close()
    store.open()
    return other


@pytest.mark.parametrize("count", [2, 3, 9])
def test_the_state_of_a_fork_is_refused(store: OpenStore, tmp_path: Path, count: int) -> None:
    other = fork(store, tmp_path / "fork")
    store.commit(*[b"x"] * count)
    store.close()
    swap_state(store, other.path)
    with pytest.raises(StateForeign, match="frame 4 has digest"):
        store.open()


def test_the_state_of_a_fork_that_went_further_is_refused(store: OpenStore, tmp_path: Path) -> None:
    other = fork(store, tmp_path / "fork")
    store.commit(b"x")
    store.close(clean=False)
    swap_state(store, other.path)
    before = {p.name: p.read_bytes() for p in (store.path / "log").iterdir()}
    with pytest.raises(LogDamaged, match="or the state is a copy from elsewhere"):
        store.open()
    assert {p.name: p.read_bytes() for p in (store.path / "log").iterdir()} == before


def test_the_state_of_a_fork_is_refused_where_the_log_begins(
    store: OpenStore, tmp_path: Path
) -> None:
    """The frame itself is pruned; the segment after it says which one it was."""
    other = fork(store, tmp_path / "fork")
    store.commit(*[b"x"] * 2)
    store.commit(*[b"x"] * 2)
    store.log.prune(5)
    store.close()
    store.open()
    assert store.log.state.first == 5
    store.close()
    swap_state(store, other.path)
    with pytest.raises(StateForeign, match="frame 4 has digest"):
        store.open()


def test_parts_of_a_forks_commit_are_refused(
    store: OpenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A state that stands where both agree, and holds a part of what only the fork committed."""
    store.commit(b"a", b"bb")
    store.close()
    shutil.copytree(store.path, tmp_path / "fork")
    store.open()
    store.commit(b"ccc")
    store.close()
    monkeypatch.setattr(ledger_module, "APPLY_KEYS", 3)
    other = OpenStore(tmp_path / "fork", seed=3).open()
    tx = other.ledger.begin_transaction()
    for number in range(10):
        tx.put(key(100 + number), b"a part")
    other.ledger.commit(tx, BY)
    other._append(settle=False)
    assert other.ledger.apply_next()
    found = applied_position.read(other.engine, other.directory.store_id.bytes)
    assert (found.sequence, found.proves) == (2, 3)
    other.close()
    swap_state(store, other.path)
    with pytest.raises(StateForeign, match="frame 3 has digest"):
        store.open()


def test_parts_of_a_commit_are_made_whole(
    store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "APPLY_KEYS", 3)
    store.commit(b"a")
    tx = store.ledger.begin_transaction()
    for number in range(10):
        tx.put(key(100 + number), b"a part")
    store.ledger.commit(tx, BY)
    store._append(settle=False)
    assert store.ledger.apply_next()
    store.close(clean=False)
    store.open()
    assert (store.engine.applied, store.engine.get(key(109))) == (2, b"a part")
    found = applied_position.read(store.engine, store.directory.store_id.bytes)
    assert (found.proves, found.begun) == (2, NO_DIGEST)
    store.close()


def test_a_state_that_says_nothing_is_refused(store: OpenStore) -> None:
    store.commit(b"a")
    for stored in (None, b"short"):
        batch = store.engine.batch()
        if stored is None:
            batch.delete(applied_position.NOTE_KEY)
        else:
            batch.put(applied_position.NOTE_KEY, stored)
        store.engine.write(batch, 1)
        with pytest.raises(StateForeign, match="names no store"):
            applied_position.read(store.engine, store.directory.store_id.bytes)
    store.close()


def test_a_state_whose_two_notes_differ_is_refused(store: OpenStore) -> None:
    store.commit(b"a")
    store.engine.write(store.engine.batch(), 2)
    with pytest.raises(StateForeign, match="is at sequence 2, but its lineage names 1"):
        applied_position.read(store.engine, store.directory.store_id.bytes)
    store.close()
