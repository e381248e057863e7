"""Build of a store's state from a snapshot; shared by restore and copy.

A snapshot is read twice. The first pass verifies it before the directory is changed. The second
pass builds the state and compares its hash with that of the first.

Pairs arrive in key order. The catalog precedes the records, so index entries are made while records
are put. The progress of index builds follows the records in the stream. It is known nevertheless
(`VerifiedSnapshot.reached`), from the first pass.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, NoReturn

from msgspec import MsgspecError

from protocol import binary
from protocol.environment import Clock, File, Fs, Rng
from protocol.errors import BackupCorrupt
from storage.backups.due_work import PendingExpiry, awaiting, read_whole_catalog
from storage.backups.snapshot_file import SnapshotBackup
from storage.catalog import restores
from storage.engine.engine import Engine, EngineFailed
from storage.engine.sealed import open_state
from storage.engine.state_hash import state_hash
from storage.faults import ClockRefused
from storage.files.directory import StoreDirectory
from storage.formats import keys
from storage.formats.effects import EffectsDamaged
from storage.formats.frames import Frame
from storage.formats.keys import Pair
from storage.formats.positions import LogEnd, LogPosition
from storage.formats.sealing import Key
from storage.indexes import derived
from storage.indexes.derived import MaintainedIndexes
from storage.txn.applied_position import Lineage
from storage.txn.ledger import Ledger
from storage.txn.transaction import Transaction

UNFIT: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EffectsDamaged,
    LookupError,
    MsgspecError,
    RecursionError,
    struct.error,
    TypeError,
    ValueError,
)
"""Exceptions raised when data that no store has written is decoded as a store."""

Tick = Callable[[str, int, int], None]
"""Progress callback: activity (`checking …`, `restoring`), bytes done, bytes in all."""


def no_progress(_what: str, _done: int, _all: int) -> None:
    """Discard progress; the default callback."""


@dataclass(frozen=True, slots=True)
class RestoreEnvironment:
    """Environment and options of a restore."""

    fs: Fs
    clock: Clock
    rng: Rng
    open_engine: Callable[[str], Engine]
    """Opens the state in a directory."""
    open_in_memory: Callable[[str], Engine]
    """Opens an empty state in memory, as a sealed store needs."""
    tick: Tick = no_progress
    key: Key | None = None
    """Key of the restored store; None: in clear. The backup may have a different key."""
    accept_clock: bool = False
    """True to accept a wall clock behind the newest restored commit."""
    roles: tuple[str, ...] | None = None
    """Roles to declare for the node. None: leave them as they are, which is undeclared for a new
    node."""

    def open_state(self, directory: StoreDirectory) -> Engine:
        """Open the state of a directory.

        :raises EngineFailed: the engine fails to open
        """
        return open_state(directory, self.open_engine, self.open_in_memory)

    def check_clock(self, time_us: int) -> None:
        """Check the wall clock against the restored log.

        :param time_us: log time of the newest frame
        :raises ClockRefused: the wall clock is behind it, and `accept_clock` is False
        """
        # Log time would start at the newest frame, and run ahead of the clock from then on.
        behind_s = (time_us - self.clock.wall_us()) // 1_000_000
        if behind_s > 0 and not self.accept_clock:
            raise ClockRefused(
                f"the newest commit of the backup is {behind_s} seconds ahead of this machine's"
                " clock: set the clock, or restore with --accept-clock-jump if the clock is"
                " right; log time never goes back"
            )


@dataclass(frozen=True, slots=True)
class RestoredState:
    """Summary of a restored state."""

    hash: str
    """State hash, see `state_hash.py`."""
    awaiting: tuple[PendingExpiry, ...]
    """Pending expirations, which the node processes as soon as it takes writes; by the current
    time."""
    unfinished: tuple[str, ...]
    """Namespaces and databases that an unfinished script was filling. The node drops them then."""


@dataclass(slots=True)
class VerifiedSnapshot:
    """Findings of the first pass over a snapshot."""

    stream: bytes = b""
    """Digest of the stream: the state hash of the store built from it."""
    reached: dict[bytes, bytes] = field(default_factory=dict)
    """Progress of index builds, see `fill`."""


def verify_snapshot(
    world: RestoreEnvironment, backup: SnapshotBackup, size: int, what: str
) -> VerifiedSnapshot:
    """Read a snapshot through and verify it.

    :param size: bytes of its file
    :param what: activity to report as progress
    :raises BackupCut, BackupCorrupt: the file is incomplete, or not what a store writes
    """
    found = VerifiedSnapshot()
    for pairs in backup.lists():
        for name, value in pairs:
            # The records need this progress, but the stream has it behind them.
            if keys.is_build(name):
                with as_backup_corrupt():
                    found.reached[name] = _reached(value)
        world.tick(what, backup.offset, size)
    found.stream = backup.stream
    return found


def make_state(
    world: RestoreEnvironment,
    directory: StoreDirectory,
    file: File,
    key: Key | None,
    found: VerifiedSnapshot,
    what: str,
) -> tuple[SnapshotBackup, RestoredState]:
    """Build the state from a verified snapshot. Durable on return.

    :param directory: a directory with an empty state
    :param key: key of the snapshot, if sealed
    :param what: activity to report as progress
    :raises BackupCut, BackupCorrupt: the file differs from the verified one
    :raises EngineFailed: the engine fails to write
    """
    backup, size = SnapshotBackup(file, key), file.size()
    at, store_id = backup.facts.at, directory.store_id.bytes
    with opened(world, directory) as engine:
        ledger = ledger_on(world, engine, LogEnd(store_id=store_id))
        with as_backup_corrupt():
            fill(ledger, _with_progress(world, backup, size, what), found.reached, store_id, at)
        state = state_of(world, engine, LogEnd(at.sequence, at.epoch, at.time, store_id))
    # The file may have changed between the passes, and the engine may have kept other bytes.
    if state.hash != found.stream.hex() or backup.stream != found.stream:
        raise BackupCorrupt(
            "the digest of the restored state does not match that of the backup", offset=0
        )
    return backup, state


def _with_progress(
    world: RestoreEnvironment, backup: SnapshotBackup, size: int, what: str
) -> Iterator[list[Pair]]:
    for pairs in backup.lists():
        yield pairs
        world.tick(what, backup.offset, size)


def _reached(value: bytes) -> bytes:
    last = binary.unpack_object(value)["last"]
    assert isinstance(last, bytes)
    return last


# --- the state ------------------------------------------------------------------------------------


@contextmanager
def opened(world: RestoreEnvironment, directory: StoreDirectory) -> Iterator[Engine]:
    """Open the state of a directory for a block.

    An error in the block propagates; a following error of closing the engine is suppressed.
    """
    engine = world.open_state(directory)
    try:
        yield engine
    except BaseException:
        with suppress(EngineFailed):
            engine.close()
        raise
    engine.close()


def ledger_on(world: RestoreEnvironment, engine: Engine, end: LogEnd) -> Ledger:
    """Return a ledger on the engine for reads and replay; it refuses to commit."""
    return Ledger(engine, end, world.clock, world.rng, _no_commit, derived.kept)


def state_of(world: RestoreEnvironment, engine: Engine, end: LogEnd) -> RestoredState:
    """Summarize a restored state.

    :raises BackupCorrupt: its catalog is unreadable
    """
    # A row that no node can read is found here, and not when the store is served.
    with ledger_on(world, engine, end).begin_transaction() as tx, as_backup_corrupt():
        read_whole_catalog(tx)
        unfinished = tuple(".".join(mark.names) for mark in restores.marks(tx))
        return RestoredState(state_hash(engine), tuple(awaiting(tx)), unfinished)


@contextmanager
def as_backup_corrupt() -> Iterator[None]:
    """Turn decoding errors of the block into `BackupCorrupt`.

    Checksums prove that a backup is as written, but not that a store wrote it.

    :raises BackupCorrupt: the data can't come from a store
    """
    try:
        yield
    except UNFIT as problem:
        what = f"{type(problem).__name__} {problem}".strip()
        raise BackupCorrupt(
            f"the checksums match, but the content is invalid: {what[:200]}", offset=0
        ) from problem


def _no_commit(_frame: Frame) -> NoReturn:
    raise AssertionError("nothing is committed while a backup is restored")


def fill(
    ledger: Ledger,
    lists: Iterator[list[Pair]],
    reached: Mapping[bytes, bytes],
    store_id: bytes,
    at: LogPosition,
) -> None:
    """Load all pairs into an empty state, with their index entries. Durable on return.

    :param ledger: ledger on that state
    :param reached: progress keys of index builds, each with the id of the last indexed record
    :param at: log position of the loaded state
    :raises EngineFailed: the engine fails to write
    """
    filling = _Filling(ledger, reached)
    for pairs in lists:
        filling.add(pairs)
    engine = ledger.state.engine
    batch = engine.batch()
    # The position comes last, with its lineage: until then the state counts as empty.
    Lineage(store_id, at.sequence, at.digest).note(batch)
    engine.write(batch, at.sequence)
    engine.flush()


class _Filling:
    def __init__(self, ledger: Ledger, reached: Mapping[bytes, bytes]) -> None:
        self._ledger = ledger
        self._engine: Engine = ledger.state.engine
        self._reached = reached
        self._tables: dict[bytes, MaintainedIndexes | None] = {}
        self._catalog: Transaction | None = None
        """Transaction that reads the catalog; begun at the first record, when the catalog is
        complete."""

    def add(self, pairs: list[Pair]) -> None:
        # A batch has records or other pairs: the catalog is in the engine before the first record.
        for is_record, some in groupby(pairs, lambda pair: keys.is_record(pair[0])):
            batch = self._engine.batch()
            found = list(some)
            for key, value in found:
                batch.put(key, value)
            if is_record:
                for entry, holder in self._entries(found):
                    batch.put(entry, holder)
            # No position yet, see `fill`.
            self._engine.write(batch, 0)

    def _entries(self, records: list[Pair]) -> Iterator[Pair]:
        prefix_of = keys.RECORD_PREFIX_BYTES
        # Pairs come in key order, so the records of a table are adjacent.
        for prefix, some in groupby(records, lambda pair: pair[0][:prefix_of]):
            kept = self._kept(prefix)
            if kept is not None:
                yield from kept.of_loaded(list(some), self._reached).items()

    def _kept(self, prefix: bytes) -> MaintainedIndexes | None:
        # Once per table, not per chunk: a look-up reads all index declarations of the table.
        if prefix not in self._tables:
            if self._catalog is None:
                self._catalog = self._ledger.begin_transaction()
            self._tables[prefix] = derived.kept(self._catalog, prefix)
        return self._tables[prefix]
