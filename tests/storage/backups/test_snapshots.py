"""Snapshots: the pairs of a view come back, all of them or not at all."""

from __future__ import annotations

import random

import pytest

from protocol.errors import BackupCorrupt
from storage.backups import snapshot_file, verify
from storage.backups.snapshot_file import SnapshotBackup
from storage.engine.memory import MemoryEngine
from storage.formats import container, keys
from storage.formats.keys import Pair
from storage.formats.positions import LogPosition
from storage.formats.sealing import Key
from tests.simulation.environment import SeededRng
from tests.storage.backups import held
from tests.storage.backups.held import KEYS, HeldFile

AT = LogPosition(7, 2, 1_000, bytes(16))
PREFIX = keys.record_prefix(1, 1, 1)


def filled(count: int, largest: int = 300) -> tuple[MemoryEngine, list[Pair]]:
    """A state, and of its pairs those that a snapshot holds."""
    chance = random.Random(count)
    engine = MemoryEngine()
    batch = engine.batch()
    wanted = []
    for n in range(count):
        pair = keys.record(PREFIX, n), chance.randbytes(chance.randrange(largest))
        wanted.append(pair)
        batch.put(*pair)
        batch.put(keys.of_index(keys.INDEX_ENTRY, 1, 1, 1, 1) + b"%d" % n, b"")
    for pair in ((keys.count(1, 1, 1), b"c"), (keys.of_index(keys.INDEX_BUILD, 1, 1, 1, 2), b"b")):
        wanted.append(pair)
        batch.put(*pair)
    engine.write(batch, 7)
    return engine, sorted(wanted)


def backup(engine: MemoryEngine, key: Key | None = None) -> bytes:
    parts: list[bytes] = []
    facts = held.snapshot_facts(AT)
    written = held.finished(
        snapshot_file.write(engine.snapshot(), facts, parts.append, SeededRng(5), key)
    )
    data = b"".join(parts)
    assert (written.size, written.sequence) == (len(data), 7)
    return data


def read(data: bytes, key: Key | None = None) -> list[Pair]:
    return [pair for some in SnapshotBackup(HeldFile(data), key).lists() for pair in some]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of some bytes, so that pairs go over their borders."""
    monkeypatch.setattr(container, "CHUNK_BYTES", 512)


@KEYS
@pytest.mark.parametrize("count", [0, 1, 100])
@pytest.mark.usefixtures("small")
def test_pairs_come_back_without_what_indexes_hold(key: Key | None, count: int) -> None:
    engine, wanted = filled(count)
    assert read(backup(engine, key), key) == wanted


@KEYS
def test_large_values_come_back(key: Key | None) -> None:
    engine, wanted = filled(8, largest=5 * 1024 * 1024)
    assert read(backup(engine, key), key) == wanted


def test_a_snapshot_is_of_one_view_whatever_is_written_meanwhile() -> None:
    engine, wanted = filled(2_000)
    parts: list[bytes] = []
    steps = snapshot_file.write(
        engine.snapshot(), held.snapshot_facts(AT), parts.append, SeededRng(5)
    )
    slices = 0
    for slices, _ in enumerate(steps, 1):
        batch = engine.batch()
        batch.put(keys.record(PREFIX, 3_000 + slices), b"later")
        batch.delete(keys.record(PREFIX, slices))
        engine.write(batch, 7 + slices)
    assert slices >= 4
    assert read(b"".join(parts)) == wanted


@KEYS
@pytest.mark.usefixtures("small")
def test_verify_tells_whole_from_cut_and_corrupt(key: Key | None) -> None:
    engine, _ = filled(40)
    data = backup(engine, key)
    report = verify.verify(HeldFile(data), key)
    assert (report.form, report.result, report.sealed) == ("snapshot", "whole", key is not None)
    assert (report.sequence, report.records, report.at) == (7, 40, None)
    for size in range(8, len(data), 13):
        report = verify.verify(HeldFile(data[:size]), key)
        assert report.result == "cut" and report.at is not None and report.at <= size
    for at in range(container.HEADER_BYTES, len(data), 13):
        broken = data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :]
        report = verify.verify(HeldFile(broken), key)
        assert report.result == "corrupt" and report.at is not None and report.at <= at


@pytest.mark.parametrize(
    "pairs",
    [
        [(b"\0\1\x30b", b""), (b"\0\1\x30a", b"")],
        [(b"\0\1\x30a", b""), (b"\0\1\x30a", b"")],
        [(b"\0\1\x50a", b"")],
        [(b"\0\0lineage", b"")],
    ],
    ids=["backwards", "twice", "derived", "the engine's own"],
)
def test_pairs_that_no_view_holds_are_damage(pairs: list[Pair]) -> None:
    """As only a fault of whoever wrote it could make them: every check holds."""
    parts: list[bytes] = []
    snapshot = snapshot_file.SnapshotWriter(held.snapshot_facts(AT), parts.append, SeededRng(5))
    snapshot.add(snapshot_file._piece(pairs))
    snapshot.end()
    with pytest.raises(BackupCorrupt, match="out of order"):
        read(b"".join(parts))


def test_verify_tells_how_far_it_has_come_and_can_be_stopped() -> None:
    engine, _ = filled(40, largest=1 << 18)
    data = backup(engine)
    told: list[int] = []
    verify.verify(HeldFile(data), None, told.append)
    assert len(told) >= 3 and told == sorted(told) and told[-1] <= len(data)

    def stop(done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        verify.verify(HeldFile(data), None, stop)
