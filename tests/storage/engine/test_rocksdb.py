"""The engine on disk: what only it can get wrong."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import rocksdict

from protocol.environment import Room
from storage.engine import rocksdb
from storage.engine.engine import Engine, EngineFailed
from storage.engine.rocksdb import RocksEngine
from tests.storage.engine.test_engine import HIGH, LOW, key, put, rows


def test_opened_once(tmp_path: Path) -> None:
    path = str(tmp_path / "state")
    engine = RocksEngine(path)
    with pytest.raises(EngineFailed, match="cannot open"):
        RocksEngine(path)
    put(engine, {key(1): b"still usable"})
    engine.close()
    RocksEngine(path).close()


def test_checkpoint_is_a_state_of_its_own(tmp_path: Path) -> None:
    engine = RocksEngine(str(tmp_path / "state"))
    put(engine, {key(n): b"%d" % n for n in range(100)}, applied=5)
    engine.checkpoint(str(tmp_path / "copy"))
    put(engine, {key(1): b"later"}, applied=6)
    copy = RocksEngine(str(tmp_path / "copy"))
    assert copy.applied == 5
    assert copy.get(key(1)) == b"1"
    assert len(rows(copy)) == 100
    copy.close()
    with pytest.raises(EngineFailed, match="cannot write a checkpoint"):
        engine.checkpoint(str(tmp_path / "copy"))
    engine.close()


# --- killed -------------------------------------------------------------------------------------

WRITER = """
    import sys
    from storage.engine.rocksdb import RocksEngine
    from tests.storage.engine.test_engine import key

    engine = RocksEngine(sys.argv[1])
    number = engine.applied
    while True:
        number += 1
        batch = engine.batch()
        for n in range(20):
            batch.put(key((number * 31 + n * 17) % 500), b"%d" % number * 50)
        batch.delete_range(key(number % 500), key(number % 500 + 3))
        engine.write(batch, number)
        if number % 300 == 0:
            engine.flush()
            print(engine.flushed_sequence(), flush=True)
"""


def model_at(sequence: int) -> dict[bytes, bytes]:
    state: dict[bytes, bytes] = {}
    for number in range(1, sequence + 1):
        for n in range(20):
            state[key((number * 31 + n * 17) % 500)] = b"%d" % number * 50
        for n in range(number % 500, number % 500 + 3):
            state.pop(key(n), None)
    return state


def test_killed_it_comes_back_as_it_was_after_some_batch(
    tmp_path: Path, figure: Callable[[str, object], None]
) -> None:
    path, lost = str(tmp_path / "state"), 0
    chance = random.Random(4)
    for _ in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", dedent(WRITER), path],
            cwd=Path(__file__).parents[3],
            stdout=subprocess.PIPE,
            text=True,
        ) as writer:
            assert writer.stdout is not None
            for _ in range(chance.randint(1, 4)):
                flushed = int(writer.stdout.readline())
            writer.send_signal(signal.SIGKILL)
            rest = writer.stdout.read().split()
        flushed = int(rest[-1]) if rest else flushed
        engine = RocksEngine(path)
        lost += engine.applied - flushed
        assert engine.applied >= flushed
        assert dict(rows(engine)) == model_at(engine.applied)
        engine.close()
    figure("state engine killed", f"3 kills, 0 states that never were, {lost} batches kept beyond")


# --- damaged ------------------------------------------------------------------------------------


def test_damage_is_never_a_shorter_answer(
    tmp_path: Path, figure: Callable[[str, object], None]
) -> None:
    """Flipped bits in the tables: a read fails by name or is right, a scan as well."""
    model = {key(n): random.Random(n).randbytes(100) for n in range(1_500)}
    engine = RocksEngine(str(tmp_path / "state"))
    put(engine, model)
    engine.close()
    (table,) = (tmp_path / "state").glob("*.sst")
    whole = table.read_bytes()
    chance, failed, wanted = random.Random(1), 0, sorted(model.items())
    for _ in range(40):
        damaged = bytearray(whole)
        damaged[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        table.write_bytes(damaged)
        try:
            failed += not _reads_right(str(tmp_path / "state"), wanted)
        finally:
            table.write_bytes(whole)
    figure("state engine damaged", f"40 bit flips, {failed} refused by name, 0 wrong answers")
    assert failed > 20


def _reads_right(path: str, wanted: list[tuple[bytes, bytes]]) -> bool:
    """Whether everything could be read. What could be read must be right."""
    try:
        engine = RocksEngine(path)
    except EngineFailed:
        return False
    try:
        return all([_scans_right(engine, wanted), _gets_right(engine, wanted)])
    finally:
        engine.close()


def _scans_right(engine: Engine, wanted: list[tuple[bytes, bytes]]) -> bool:
    view, right = engine.snapshot(), True
    for reader in (engine, view):
        for reverse in (False, True):
            try:
                assert rows(reader, LOW, HIGH, reverse) == sorted(wanted, reverse=reverse)
            except EngineFailed:
                right = False
    view.close()
    return right


def _gets_right(engine: Engine, wanted: list[tuple[bytes, bytes]]) -> bool:
    view, right = engine.snapshot(), True
    for name, value in wanted[::10]:
        for reader in (engine, view):
            try:
                assert reader.get(name) == value
            except EngineFailed:
                right = False
    view.close()
    return right


# --- bounded ------------------------------------------------------------------------------------


def test_memory_does_not_grow_with_the_data(tmp_path: Path) -> None:
    engine = RocksEngine(str(tmp_path / "state"))
    most = 0
    for turn in range(40):
        batch = engine.batch()
        chance = random.Random(turn)
        for n in range(4_000):
            batch.put(key(turn * 4_000 + n), chance.randbytes(400))
        engine.write(batch, turn + 1)
        if turn % 10 == 9:
            for _ in engine.scan(LOW, HIGH):
                pass
        most = max(most, engine.memory_bytes())
    bound = rocksdb.CACHE_BYTES + (rocksdb.MEMTABLES + 1) * rocksdb.MEMTABLE_BYTES + (4 << 20)
    assert most < bound
    engine.close()


# --- what rocksdict does, and this engine works around ----------------------------------------


@pytest.fixture
def raw(tmp_path: Path) -> rocksdict.Rdict:
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    made = rocksdict.Rdict(str(tmp_path / "raw"), options)
    for n in range(10):
        made[key(n)] = b"old"
    return made


def test_an_absent_key_of_a_snapshot_raises_a_plain_exception(raw: rocksdict.Rdict) -> None:
    """The view tells absence from failure by these words. They must not change unnoticed."""
    snapshot = raw.snapshot()
    with pytest.raises(Exception, match="key not found") as raised:
        snapshot[b"absent"]
    assert raised.value.args == ("key not found",)
    del snapshot
    raw.close()


def test_an_iterator_is_a_fixed_view_that_can_be_sought_again(raw: rocksdict.Rdict) -> None:
    cursor = raw.iter(rocksdict.ReadOptions())
    raw[key(3)] = b"new"
    raw[key(30)] = b"new"
    for _ in range(2):
        cursor.seek(key(3))
        assert cursor.value() == b"old"
        cursor.seek_to_last()
        assert cursor.key() == key(9)
    del cursor
    raw.close()


def test_a_point_read_of_a_large_table_reads_little(
    tmp_path: Path, figure: Callable[[str, object], None]
) -> None:
    """With one filter for a whole table each read fetches megabytes as soon as it is large."""
    keys, reads = 300_000, 300
    engine = RocksEngine(str(tmp_path / "state"))
    value = bytes(16)
    for first in range(0, keys, 20_000):
        batch = engine.batch()
        for n in range(first, first + 20_000):
            batch.put(key(n), value)
        engine.write(batch, first + 1)
    engine.flush()
    engine._db.compact_range(None, None)
    chance = random.Random(1)
    before = _bytes_read()
    for _ in range(reads):
        assert engine.get(key(chance.randrange(keys))) == value
    each = (_bytes_read() - before) // reads
    figure("point read of 300 000 keys", f"{each} bytes from files")
    assert each < 4 * rocksdb.BLOCK_BYTES
    engine.close()


def _bytes_read() -> int:
    """What this process has read from files so far, cached by the system or not."""
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("rchar:"):
            return int(line.split()[1])
    raise AssertionError("the system does not say how much was read")


def test_an_engine_that_does_not_close_in_order_says_so_by_name(tmp_path: Path) -> None:
    class Unclosed:
        """What RocksDB does whose last sync fails."""

        def __init__(self, real: rocksdict.Rdict) -> None:
            self.real = real
            self.flush = real.flush

        def close(self) -> None:
            self.real.close()
            raise Exception("IO error: While fdatasync")

    engine = RocksEngine(str(tmp_path / "state"))
    put(engine, {key(1): b"a"})
    engine._db = Unclosed(engine._db)  # type: ignore[assignment]
    with pytest.raises(EngineFailed, match="not closed cleanly"):
        engine.close()


PLENTY = Room(1 << 40, 1 << 20)


@pytest.mark.parametrize("room", ["little", "few files", "plenty"])
def test_compaction_waits_for_room(tmp_path: Path, room: str) -> None:
    """A compaction that fills the disk would take the room from the next flush."""
    engine = RocksEngine(str(tmp_path / "state"))
    for number in range(1, 9):
        batch = engine.batch()
        for entry in range(200):
            batch.put(key(1000 * entry + number), bytes(random.Random(entry).randbytes(500)))
        engine.write(batch, number)
        tables = engine._db.property_int_value("rocksdb.total-sst-files-size") or 0
        little = engine.unflushed_bytes() + tables
        scarce = {"little": Room(little, 1 << 20), "few files": Room(1 << 40, 8)}
        engine.flush(scarce.get(room, PLENTY))
    files = int(engine._db.property_value("rocksdb.num-files-at-level0") or 0)
    if room != "plenty":
        assert files > 4, "nothing was compacted"
        engine.flush(PLENTY)
        assert engine._compacts
    else:
        assert engine._compacts
    engine.close()


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_of_a_view_reads_nothing_behind_its_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reverse: bool
) -> None:
    engine = RocksEngine(str(tmp_path / "state"))
    put(engine, {key(n): b"x" for n in range(10_000)})
    view = engine.snapshot()
    steps = 0
    original = rocksdb._collect

    def counted(cursor: Any, step: Callable[[], None], start: bytes, end: bytes) -> Any:
        def stepped() -> None:
            nonlocal steps
            steps += 1
            step()

        return original(cursor, stepped, start, end)

    monkeypatch.setattr(rocksdb, "_collect", counted)
    found = [pair for part in view.scan(key(5_000), key(5_003), reverse) for pair in part]
    assert sorted(k for k, _ in found) == [key(n) for n in range(5_000, 5_003)]
    assert steps == 3
    assert list(view.scan(key(5_000) + b"\0", key(5_001), reverse)) == []
    assert steps == 3
    view.close()
    engine.close()


def test_a_state_whose_writers_would_have_to_wait_says_so(tmp_path: Path) -> None:
    """Too many tables that nobody compacts: RocksDB stops its writers until there are fewer."""
    engine = RocksEngine(str(tmp_path / "state"))
    quiet = {
        "level0_file_num_compaction_trigger": "1000",
        "level0_slowdown_writes_trigger": "1000",
        "level0_stop_writes_trigger": "1000",
    }
    engine._db.set_options(quiet)
    for number in range(4):
        assert engine.takes_writes()
        batch = engine.batch()
        batch.put(b"\0\1\x40" + bytes((number,)), b"1")
        engine.write(batch, number + 1)
        engine.flush()
    for trigger in ("level0_slowdown_writes_trigger", "level0_stop_writes_trigger"):
        engine._db.set_options({**quiet, trigger: "4"})
        assert not engine.takes_writes(), trigger
        engine._db.set_options(quiet)
        assert engine.takes_writes()
    engine.write(engine.batch(), 5)
    engine.close()


def test_it_says_so_before_a_write_finds_every_memtable_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = rocksdb._options

    def gathers(cache: rocksdict.Cache) -> rocksdict.Options:
        options = made(cache)
        options.set_min_write_buffer_number_to_merge(rocksdb.MEMTABLES)  # nothing is flushed before
        return options

    monkeypatch.setattr(rocksdb, "_options", gathers)
    engine = RocksEngine(str(tmp_path / "state"))
    written = 0
    while engine.takes_writes():
        batch = engine.batch()
        batch.put(b"\0\1\x40" + written.to_bytes(4, "big"), bytes(256 * 1024))
        written += 1
        engine.write(batch, written)
    assert engine._db.property_int_value("rocksdb.num-immutable-mem-table") == rocksdb.MEMTABLES - 1
    held = written * 256 * 1024
    assert held > 1.5 * rocksdb.MEMTABLE_BYTES, "it gave up too early"
    engine.flush()
    assert engine.takes_writes()
    engine.close()


def test_rocksdb_keeps_one_diary(tmp_path: Path) -> None:
    for _ in range(3):
        engine = RocksEngine(str(tmp_path / "state"))
        engine.close()
    assert [path.name for path in (tmp_path / "state").glob("LOG*")] == ["LOG"]
