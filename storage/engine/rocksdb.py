"""RocksDB engine, on disk and in memory, through `rocksdict` in raw mode.

RocksDB's own write-ahead log is off, since the store's log is the write-ahead log. Unflushed
memtables are therefore lost in a crash, and replayed from the log. Memtables are flushed in the
order they were filled, and there is one column family, so the surviving writes are a prefix.

Pitfalls of `rocksdict` (0.3.29), whose names promise otherwise; the test suite checks each:

- `Snapshot.items` and `Snapshot.iter` show the present state, not that of the snapshot; only
  `Snapshot[key]` reads the past. An iterator, however, is a fixed view and can seek again
  and again: views scan through one.
- `ReadOptions.set_iterate_lower_bound` sets the upper bound. Descending scans check their end here.
- The `items` iterator ends without an error when a block can't be read. A second iterator taken at
  the same moment distinguishes the end of a range from a failure.
- An iterator points into its `ReadOptions` for the upper bound without keeping them alive. Freed
  too early, they make it end anywhere: each scan holds its own (`held`) as long as it lasts.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final, cast

from rocksdict import (
    BlockBasedIndexType,
    BlockBasedOptions,
    Cache,
    Checkpoint,
    DBCompressionType,
    Env,
    Options,
    Rdict,
    RdictIter,
    ReadOptions,
    Snapshot,
    WriteBatch,
    WriteOptions,
)

from protocol.environment import Room
from storage.engine.engine import (
    APPLIED_KEY,
    BATCH_BYTES,
    BATCH_PAIRS,
    Batch,
    EngineFailed,
    EngineSpoiled,
    EngineUnreadable,
)
from storage.formats.keys import Pair

_MIB: Final = 1 << 20
CACHE_BYTES: Final = 24 * _MIB
"""Block cache: blocks, indexes and filters together, independent of the size of the store."""
MEMTABLE_BYTES: Final = 8 * _MIB
MEMTABLES: Final = 3
"""Memtables: one being filled, and two that may wait for their flush before writes stall."""
OPEN_FILES: Final = 256
TABLE_BYTES: Final = 32 * _MIB
BLOCK_BYTES: Final = 4 * 1024
"""Bytes that a point read outside the cache reads and decompresses."""
METADATA_BLOCK_BYTES: Final = 4 * 1024
BLOOM_BITS: Final = 10
"""Bits per key of the Bloom filters: one point read in a hundred for an absent key reads a block.
"""
COMPACTION_BYTES: Final = 1024 * _MIB
"""Maximum disk space of a compaction: RocksDB bounds one by 25 tables, and one runs at a time."""
FLUSH_FILES: Final = 8
"""Files of a flush: one table for each memtable, and now and then a manifest and two small files.
"""
STEPPED_OVER: Final = 64
"""Tombstones after which `none_in` gives up. A seek would step over 200 000 in 28 ms."""
_GAVE_UP: Final = "incomplete"
"""Part of RocksDB's error message for such a seek."""
_DAMAGED: Final = "Corruption"
"""Part of RocksDB's error message for damaged files."""
_FIRST_STEP: Final = 32
"""Size of the first step of a descending scan: pairs read below its range are discarded."""


class RocksEngine:
    """`Engine` on RocksDB in the directory `path`, created when missing.

    :param may_compact: False for a state that is unreadable in part: see `leave_alone`
    :raises EngineUnreadable: its files are damaged
    :raises EngineFailed: another process has it open, or the disk fails an open's writes
    """

    def __init__(self, path: str, may_compact: bool = True) -> None:
        self._cache = Cache(CACHE_BYTES)
        options = self._options()
        options.set_disable_auto_compactions(not may_compact)
        try:
            self._db = Rdict(path, options)
            noted: bytes | None = self._db.get(APPLIED_KEY)
        except Exception as error:
            kind = EngineUnreadable if _DAMAGED in str(error) else EngineFailed
            raise kind(f"cannot open the state in {path}: {error}") from error
        self._get = self._db.get
        self._write_options = WriteOptions()
        # The stub of rocksdict calls this a method; it is a property.
        self._write_options.disable_wal = True  # type: ignore[assignment, method-assign]
        self._unbounded = ReadOptions()
        self._applied = int.from_bytes(noted, "big") if noted else 0
        self._flushed = self._applied
        self._compacts = self._may_compact = may_compact

    def _options(self) -> Options:
        return _options(self._cache)

    @property
    def applied(self) -> int:
        return self._applied

    def get(self, key: bytes) -> bytes | None:
        try:
            return self._get(key)
        except Exception as error:
            raise EngineUnreadable(f"the state can't be read: {error}") from error

    def scan(self, start: bytes, end: bytes, reverse: bool = False) -> Iterator[list[Pair]]:
        if start >= end:
            return iter(())
        options = ReadOptions()
        options.set_iterate_upper_bound(end)
        # The proving iterator must see the same state as the rows: no write in between.
        proof = self._db.iter(options)
        if reverse:
            return _descending(
                _pairs(self._db.items(True, read_opt=options)), proof, start, options
            )
        rows = _pairs(self._db.items(from_key=start, read_opt=options))
        return _ascending(rows, proof, start, options)

    def none_in(self, start: bytes, end: bytes) -> bool:
        # Without the bound the seek would go on behind the range, over all tombstones there.
        options = ReadOptions()
        options.set_iterate_upper_bound(end)
        options.set_max_skippable_internal_keys(STEPPED_OVER)
        cursor = self._db.iter(options)
        cursor.seek(start)
        if cursor.valid():
            return False
        try:
            cursor.status()
        except Exception as error:
            if _GAVE_UP in str(error):
                return False
            raise EngineUnreadable(f"the state can't be read: {error}") from error
        return True

    def batch(self) -> Batch:
        return WriteBatch(raw_mode=True)

    def takes_writes(self) -> bool:
        # RocksDB stalls its writers, for seconds on a slow disk, when too many memtables are
        # unflushed or compaction is far behind. A write that finds the last memtable full begins a
        # new one, and then stalls itself: so stop one memtable earlier.
        told = self._db.property_int_value
        return (
            (told("rocksdb.num-immutable-mem-table") or 0) < MEMTABLES - 1
            and not told("rocksdb.is-write-stopped")
            and not told("rocksdb.actual-delayed-write-rate")
        )

    def write(self, batch: Batch, applied: int) -> None:
        assert isinstance(batch, WriteBatch)
        batch.put(APPLIED_KEY, applied.to_bytes(8, "big"))
        try:
            self._db.write(batch, self._write_options)
        except Exception as error:
            raise _failed(f"the state can't be written: {error}") from error
        self._applied = applied

    def snapshot(self) -> _RocksView:
        # Create the cursor now, not on demand: an iterator that rocksdict makes from a snapshot
        # shows the state at its own creation.
        return _RocksView(self._db.snapshot(), self._db.iter(self._unbounded))

    def flush(self, room: Room | None = None) -> None:
        # Read first: the flush may not cover writes that come while it runs.
        covered = self._applied
        try:
            if room is not None:
                self._allow_compaction(room)
            self._db.flush()
        except Exception as error:
            raise _failed(f"the state can't be flushed: {error}") from error
        self._flushed = max(self._flushed, covered)

    def _allow_compaction(self, room: Room) -> None:
        """Allow compaction only with enough free disk space.

        A compaction writes its output before it deletes its input. One that fills the disk fails
        harmlessly, but takes the room from the next flush, whose failure is final.
        """
        tables = self._db.property_int_value("rocksdb.total-sst-files-size") or 0
        most = min(2 * tables, COMPACTION_BYTES)
        files = FLUSH_FILES + 1 + most // TABLE_BYTES
        fits = room.holds(Room(self.unflushed_bytes() + most, files))
        self._compact(fits and self._may_compact)

    def leave_alone(self) -> None:
        # A compaction that hits an unreadable block puts the engine into read-only mode.
        self._may_compact = False
        self._compact(False)

    def _compact(self, compacts: bool) -> None:
        if compacts != self._compacts:
            self._db.set_options({"disable_auto_compactions": "false" if compacts else "true"})
            self._compacts = compacts

    def flush_bytes(self) -> int:
        return 0

    def flushed_sequence(self) -> int:
        return self._flushed

    def unflushed_bytes(self) -> int:
        return self._db.property_int_value("rocksdb.cur-size-all-mem-tables") or 0

    def holds(self, count: int) -> bool:
        # RocksDB flushes a full memtable by itself.
        return self.unflushed_bytes() + count < MEMTABLE_BYTES // 2

    def checkpoint(self, path: str) -> None:
        try:
            Checkpoint(self._db).create_checkpoint(path)
        except Exception as error:
            raise EngineFailed(
                f"cannot write a checkpoint of the state to {path}: {error}"
            ) from error

    def stored_bytes(self) -> int:
        # The tables are compressed, so this underestimates the uncompressed size.
        tables = self._db.property_int_value("rocksdb.estimate-live-data-size") or 0
        return tables + self.unflushed_bytes()

    def memory_bytes(self) -> int:
        readers = self._db.property_int_value("rocksdb.estimate-table-readers-mem") or 0
        return self.unflushed_bytes() + readers + self._cache.get_usage()

    def close(self) -> None:
        try:
            self.flush()
        finally:
            del self._get
            try:
                self._db.close()
            except Exception as error:
                raise EngineFailed(f"the state was not closed cleanly: {error}") from error


class RocksInMemory(RocksEngine):
    """`RocksEngine` without files: its contents are in memory, and lost with the process.

    :param path: a directory to which `rocksdict` writes its own settings, and nothing else. Must be
        absolute, because the in-memory file system knows no other paths
    """

    def _options(self) -> Options:
        options = super()._options()
        options.set_env(Env.mem_env())
        return options

    def memory_bytes(self) -> int:
        tables = self._db.property_int_value("rocksdb.total-sst-files-size") or 0
        return super().memory_bytes() + tables

    def close(self) -> None:
        # `Rdict.close` would fsync a file, which the in-memory file system can't. Deallocation
        # closes the database.
        del self._get
        del self._db


class _RocksView:
    """View: point reads use a snapshot with its filters, scans use one iterator."""

    def __init__(self, snapshot: Snapshot, cursor: RdictIter) -> None:
        self._snapshot: Snapshot | None = snapshot
        self._cursor: RdictIter | None = cursor

    def get(self, key: bytes) -> bytes | None:
        assert self._snapshot is not None, "read from a closed view"
        try:
            value: bytes = self._snapshot[key]
        except Exception as error:
            # rocksdict reports an absent key by an exception without a class or code of its own.
            if error.args == ("key not found",):
                return None
            raise EngineUnreadable(f"the state can't be read: {error}") from error
        return value

    def scan(self, start: bytes, end: bytes, reverse: bool = False) -> Iterator[list[Pair]]:
        if reverse:
            return self._down(start, end)
        return self._up(start, end)

    def _up(self, start: bytes, end: bytes) -> Iterator[list[Pair]]:
        while start < end:
            # All scans of the view share the cursor, so every step seeks its position again.
            cursor = self._sought()
            cursor.seek(start)
            pairs, ended = _collect(cursor, cursor.next, start, end)
            if pairs:
                yield pairs
            if ended:
                return
            # The smallest key behind the last one.
            start = pairs[-1][0] + b"\0"

    def _down(self, start: bytes, end: bytes) -> Iterator[list[Pair]]:
        while start < end:
            cursor = self._sought()
            cursor.seek_for_prev(end)
            # The end is not part of the range.
            if cursor.key() == end:
                cursor.prev()
            pairs, ended = _collect(cursor, cursor.prev, start, end)
            if pairs:
                yield pairs
            if ended:
                return
            end = pairs[-1][0]

    def _sought(self) -> RdictIter:
        assert self._cursor is not None, "scan of a closed view"
        return self._cursor

    def close(self) -> None:
        self._snapshot = None
        self._cursor = None


def _failed(what: str) -> EngineFailed:
    return EngineSpoiled(what) if _DAMAGED in what else EngineFailed(what)


def _options(cache: Cache) -> Options:
    table = BlockBasedOptions()
    table.set_block_cache(cache)
    table.set_block_size(BLOCK_BYTES)
    table.set_bloom_filter(BLOOM_BITS, False)
    table.set_format_version(5)
    # Indexes and filters live in the cache and are charged to it, so memory doesn't grow with data.
    table.set_cache_index_and_filter_blocks(True)
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    # Partition indexes and filters into blocks. The whole filter of a large table exceeds a shard
    # of the cache, so every read would load it again (measured: 176 µs a read instead of 10).
    table.set_index_type(BlockBasedIndexType.two_level_index_search())
    table.set_partition_filters(True)
    table.set_metadata_block_size(METADATA_BLOCK_BYTES)
    table.set_pin_top_level_index_and_filter(True)
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_block_based_table_factory(table)
    options.set_write_buffer_size(MEMTABLE_BYTES)
    options.set_max_write_buffer_number(MEMTABLES)
    options.set_max_open_files(OPEN_FILES)
    options.set_target_file_size_base(TABLE_BYTES)
    options.set_level_compaction_dynamic_level_bytes(True)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_max_background_jobs(2)
    # Compact tables of mostly tombstones soon, since scans step over each of them.
    options.add_compact_on_deletion_collector_factory(1024, 512, 0.5)
    options.set_keep_log_file_num(1)  # RocksDB's diagnostic LOG, without older ones
    options.set_max_log_file_size(_MIB)
    options.set_max_manifest_file_size(4 * _MIB)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    return options


def _pairs(rows: object) -> Iterator[Pair]:
    """Cast rows to pairs of bytes, as they are in raw mode; the stub of rocksdict has no types for
    it."""
    return cast(Iterator[Pair], rows)


def _collect(cursor: RdictIter, step: object, start: bytes, end: bytes) -> tuple[list[Pair], bool]:
    """Read one step of a range from the cursor on. Return the pairs, and True if there are no more.

    Does not read beyond the range, where a million foreign rows may be.
    """
    assert callable(step)
    pairs: list[Pair] = []
    key, value, left = cursor.key, cursor.value, BATCH_BYTES
    while len(pairs) < BATCH_PAIRS and left > 0:
        found = key()
        if found is None:
            _check(cursor)
            return pairs, True
        if not start <= found < end:
            return pairs, True
        data = value()
        pairs.append((found, data))
        left -= len(data)
        step()
    return pairs, False


def _step(rows: Iterator[Pair], most: int) -> list[Pair]:
    """Return up to `most` pairs, fewer if they are large, none at the end."""
    pairs: list[Pair] = []
    left = BATCH_BYTES
    for pair in islice(rows, most):
        pairs.append(pair)
        left -= len(pair[1])
        if left <= 0:
            break
    return pairs


def _ascending(
    rows: Iterator[Pair], proof: RdictIter, start: bytes, held: ReadOptions
) -> Iterator[list[Pair]]:
    last = None
    while pairs := _step(rows, BATCH_PAIRS):
        last = pairs[-1][0]
        yield pairs
    # The proving iterator has no row behind the last one either, or the rows ended early.
    proof.seek(start if last is None else last)
    if last is not None and proof.valid():
        proof.next()
    _prove(proof)


def _descending(
    rows: Iterator[Pair], proof: RdictIter, start: bytes, held: ReadOptions
) -> Iterator[list[Pair]]:
    step = _FIRST_STEP
    last = None
    while pairs := _step(rows, step):
        last = pairs[-1][0]
        # Lower bound by hand: `rocksdict` cannot set one.
        if last < start:
            _cut_below(pairs, start)
            if pairs:
                yield pairs
            return
        yield pairs
        step = min(step * 4, BATCH_PAIRS)
    if last is None:
        proof.seek_to_last()
    else:
        proof.seek_for_prev(last)
        if proof.valid():
            proof.prev()
    _prove(proof)


def _cut_below(pairs: list[Pair], start: bytes) -> None:
    """Drop pairs below `start` from a descending list."""
    while pairs and pairs[-1][0] < start:
        pairs.pop()


def _prove(proof: RdictIter) -> None:
    """Verify that a second iterator ends where the rows ended.

    :raises EngineFailed: the rows ended early
    :raises EngineUnreadable: reading failed
    """
    if proof.valid():
        raise EngineFailed("a scan of the state ended before the end of its range")
    _check(proof)


def _check(cursor: RdictIter) -> None:
    try:
        cursor.status()
    except Exception as error:
        raise EngineUnreadable(f"the state can't be read: {error}") from error
