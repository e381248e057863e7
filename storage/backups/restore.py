"""Restore of a backup: build a data directory from a snapshot, from a log, or from a log on top.

`actors/backups/restoring.py` calls it for the command; `actors/scripts/restoring.py` restores
scripts into a running store.

A file is read twice. The first pass verifies it and refuses an impossible restore before anything
is written. The second pass builds the store:

    of a snapshot   RESTORING · state · the log, which begins behind the snapshot · STORE ·
                    remove RESTORING
    of a log        RESTORING · an empty state and the log from 1 · STORE · then as on top
    on top          RESTORING · frames into the log · the state replays them · a new epoch ·
                    STORE with how far it has come · remove RESTORING

Each step is durable before the next. After a crash the file RESTORING remains, and no node serves
the directory (`directory.py`). Restoring a snapshot or a log from 1 then starts over; a log on top
resumes at the end of the directory's log.

A restored store has an id of its own. Its origin (`RestoreOrigin`) names the history that it
continues. No commit is made to it until a node serves it, so further backups of that history may
follow. A log goes on top if it holds the frame at which the store ends, with the same digest.
Commits after a restore belong to the next epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final

from protocol.environment import File
from protocol.errors import BackupCorrupt, BackupCut
from storage.backups.log_file import LogBackup
from storage.backups.snapshot_file import SnapshotBackup
from storage.backups.state_builder import (
    RestoredState,
    RestoreEnvironment,
    as_backup_corrupt,
    ledger_on,
    make_state,
    opened,
    state_of,
    verify_snapshot,
)
from storage.faults import NotRestored
from storage.files.directory import StoreDirectory, refuse_unless_empty, restored_from
from storage.files.node_file import load_node, save_node
from storage.formats.container import LogFacts
from storage.formats.frames import Frame
from storage.formats.positions import LogPosition, RestoreOrigin
from storage.formats.sealing import Key
from storage.log.log import Log
from storage.txn import applied_position

APPEND_BYTES: Final = 4 << 20
"""Approximate bytes of frame bodies appended to the log per fsync."""
APPEND_FRAMES: Final = 4_096
"""Largest number of frames appended to the log per fsync."""

TICK_FRAMES: Final = 1_024


@dataclass(frozen=True, slots=True)
class Restored:
    """Result of a restore: identity and contents of the directory."""

    store: str
    """Id of the new store, a UUID."""
    origin: RestoreOrigin
    begins: int
    """First sequence in its log."""
    records: int
    """Table records in the snapshot; for a log, the number of frames added."""
    state: RestoredState
    roles: tuple[str, ...] | None
    """Roles declared for its node; None: undeclared."""


# --- snapshots ------------------------------------------------------------------------------------


def restore_snapshot(
    world: RestoreEnvironment, path: str, file: File, key: Key | None = None
) -> Restored:
    """Restore a snapshot into a directory that is empty or missing.

    :param file: closed by the caller
    :raises BackupCut, BackupCorrupt, WrongKey, StoreTooNew: the snapshot is unusable; nothing was
        changed
    :raises NotRestored: the directory is not empty; nothing was changed
    :raises ClockRefused: nothing was changed
    :raises StoreLocked, StoreOpenToOthers: another process, or another user, has the directory
    :raises DiskFull, EngineFailed, OSError: the directory holds an incomplete store; another
        restore removes it
    """
    # All checks come before `begin_restore`, the first change on disk.
    refuse_unless_empty(world.fs, path)
    first = SnapshotBackup(file, key)
    facts = first.facts
    world.check_clock(facts.at.time)
    found = verify_snapshot(world, first, file.size(), "checking the backup")
    origin = RestoreOrigin(facts.store, facts.at, str(facts.place) if facts.place else None)
    directory = StoreDirectory.begin_restore(path, world.fs, world.clock, world.rng, world.key)
    with closing(directory):
        again, state = make_state(world, directory, file, key, found, "restoring")
        # The state is durable first: a log that begins behind the snapshot can't rebuild it.
        Log.begin_after(directory, facts.at)
        log = Log.open(directory)
        try:
            # Commits of the origin may have the same sequences; a higher epoch tells them apart.
            log.begin_epoch()
        finally:
            log.close()
        roles = _finish(world, directory, origin)
    begins = facts.at.sequence + 1
    return Restored(str(directory.store_id), origin, begins, again.records, state, roles)


# --- logs -----------------------------------------------------------------------------------------


def restore_log(
    world: RestoreEnvironment,
    path: str,
    file: File,
    key: Key | None = None,
    upto: int | None = None,
) -> Restored:
    """Restore a log backup, into an empty directory or on top of an earlier restore.

    An empty or missing directory needs a log from sequence 1. A restored store can be brought up to
    a later commit if no commit has been made to it since.

    :param file: closed by the caller
    :param upto: last sequence to restore; None: all
    :raises BackupCut, BackupCorrupt: the file is not whole, or not up to `upto`; nothing was
        changed
    :raises WrongKey, StoreTooNew, ClockRefused: as `restore_snapshot`
    :raises NotRestored: the log does not continue the directory's store; nothing was changed
    :raises StoreLocked, StoreOpenToOthers, StoreDamaged: the directory can't be opened
    :raises DiskFull, LogFailed, EngineFailed, OSError: the directory holds an incomplete store; the
        same restore resumes it
    """
    backup = LogBackup(file, key)
    origin = restored_from(world.fs, path, world.key)
    if origin is None:
        return _restore_whole(world, path, file, key, upto, backup.facts)
    if origin.store != backup.facts.store:
        raise NotRestored(
            f"the log belongs to store {backup.facts.store}, but {path} was restored from store"
            f" {origin.store}"
        )
    if origin.place is not None:
        raise NotRestored(
            f"{path} holds only {origin.place}, not a whole store: a log cannot be applied to it"
        )
    directory = StoreDirectory.reopen_restored(path, world.fs, world.clock, world.rng, world.key)
    with closing(directory):
        log = Log.inspect(directory)
        try:
            at = log.reader.position_at(log.state.last)
            # An interrupted restore may have appended frames that STORE does not name yet.
            if not directory.is_restoring and at.sequence != origin.at.sequence:
                raise NotRestored(
                    f"{path} was restored up to sequence {origin.at.sequence} and written to"
                    f" since, up to {at.sequence}: a log can no longer be applied to it"
                )
            # First the proof, then the mark, then the first change to the log.
            _prove(world, backup, file, upto, at, path)
            directory.mark_restoring()
            log.recover()
            return _append_and_replay(world, directory, log, LogBackup(file, key), file, upto)
        finally:
            # After a failure as after a crash; after success the log is closed already.
            log.close(clean=False)


def _restore_whole(
    world: RestoreEnvironment,
    path: str,
    file: File,
    key: Key | None,
    upto: int | None,
    facts: LogFacts,
) -> Restored:
    """Restore a log from sequence 1 into an empty directory."""
    refuse_unless_empty(world.fs, path)
    if facts.first != 1:
        raise NotRestored(
            f"the log begins at {facts.first}, but {path} holds nothing from before that: restore"
            f" a snapshot of store {facts.store} first"
        )
    _prove(world, LogBackup(file, key), file, upto, facts.before, path)
    directory = StoreDirectory.begin_restore(path, world.fs, world.clock, world.rng, world.key)
    with closing(directory):
        Log.begin_after(directory, facts.before)
        log = Log.open(directory)
        try:
            return _append_and_replay(world, directory, log, LogBackup(file, key), file, upto)
        finally:
            log.close(clean=False)


def _prove(
    world: RestoreEnvironment,
    backup: LogBackup,
    file: File,
    upto: int | None,
    at: LogPosition,
    path: str,
) -> None:
    """Verify a log backup as far as it is wanted, before anything is changed.

    :param at: position that its frames must continue
    :raises NotRestored: it does not continue that position, or ends too early
    :raises BackupCut, BackupCorrupt: as `_read`
    :raises ClockRefused: as `RestoreEnvironment.check_clock`
    """
    facts = backup.facts
    if facts.first > at.sequence + 1:
        raise NotRestored(
            f"the log begins at {facts.first}, but {path} ends at {at.sequence}: the commits"
            " between them are missing"
        )
    last = facts.last if upto is None else upto
    if last < at.sequence:
        what = f"--upto {upto}" if upto is not None else "the log"
        raise NotRestored(f"{what} ends before sequence {at.sequence}, which {path} already holds")
    if last > facts.last:
        raise NotRestored(f"--upto {upto} is beyond the end of the log at {facts.last}")
    # The frame at the seam is in the backup, or is the one before its first.
    # Equal digests prove equal histories: a digest covers all frames before it.
    joins = facts.before.digest if facts.before.sequence == at.sequence else None
    for frame in _read(world, backup, file, upto, "checking the backup"):
        if frame.sequence == at.sequence:
            joins = frame.digest()
    if joins != at.digest:
        raise NotRestored(
            f"frame {at.sequence} of the log differs from that in {path}: their histories have"
            " diverged"
        )
    world.check_clock(backup.time)


def _read(
    world: RestoreEnvironment, backup: LogBackup, file: File, upto: int | None, what: str
) -> Iterator[Frame]:
    """Yield the frames up to `upto`. None: all of them, and verify the end of the file.

    :raises BackupCut, BackupCorrupt: the file is damaged before that; the error names the last
        whole sequence
    """
    told, size = backup.offset, file.size()
    try:
        # With `upto` at the frame before the first there is nothing to read.
        if upto is None or backup.last < upto:
            for frame in backup.frames():
                yield frame
                if backup.offset != told:
                    told = backup.offset
                    world.tick(what, told, size)
                if frame.sequence == upto:
                    break
    except (BackupCut, BackupCorrupt) as problem:
        # No frame is whole, so there is no sequence to advise.
        if backup.last < backup.facts.first:
            raise
        raise type(problem)(
            f"{problem.message}. The backup is intact up to sequence {backup.last}: restore that"
            f" with --upto {backup.last}",
            **{**problem.detail, "sequence": backup.last},
        ) from problem


def _append_and_replay(
    world: RestoreEnvironment,
    directory: StoreDirectory,
    log: Log,
    backup: LogBackup,
    file: File,
    upto: int | None,
) -> Restored:
    """Append the frames, replay them and finish the restore, from RESTORING on."""
    # Appended frames keep the epochs of their history, which may be lower than the begun one.
    log.leave_epoch()
    added = _append(log, _read(world, backup, file, upto, "restoring"))
    # The origin ends here, before the store's own epoch begins.
    at = LogPosition(log.state.last, log.state.last_epoch, log.state.last_time, log.state.digest)
    found = _replay(world, directory, log)
    log.begin_epoch()
    log.close()
    origin = RestoreOrigin(backup.facts.store, at)
    roles = _finish(world, directory, origin)
    return Restored(str(directory.store_id), origin, log.state.first, added, found, roles)


def _append(log: Log, frames: Iterator[Frame]) -> int:
    """Append the frames beyond the log's end. Return their number."""
    some: list[Frame] = []
    size = added = 0
    for frame in frames:
        # The backup may overlap the log; `_prove` has compared the frame at the seam.
        if frame.sequence <= log.state.last:
            continue
        some.append(frame)
        size += len(frame.body)
        if size >= APPEND_BYTES or len(some) >= APPEND_FRAMES:
            log.append(some)
            added += len(some)
            some, size = [], 0
    log.append(some)
    return added + len(some)


def _replay(world: RestoreEnvironment, directory: StoreDirectory, log: Log) -> RestoredState:
    """Replay the log into the state."""
    with opened(world, directory) as engine:
        # A resumed restore finds a state that has applied a part: it must be of this very log.
        applied_position.require_joined(
            applied_position.read(engine, directory.store_id.bytes), log.reader.digest_at
        )
        ledger = ledger_on(world, engine, log.state.end)
        first = ledger.state.committed + 1
        for done, frame in enumerate(log.reader.read(first) if first <= log.state.last else ()):
            with as_backup_corrupt():
                ledger.replay(frame)
            if not done % TICK_FRAMES:
                world.tick("replaying the log", frame.sequence, log.state.last)
        engine.flush()
        return state_of(world, engine, log.state.end)


def _finish(
    world: RestoreEnvironment, directory: StoreDirectory, origin: RestoreOrigin
) -> tuple[str, ...] | None:
    """Write STORE and the node's roles, then remove RESTORING; the rest is durable already.

    Return the roles that are declared.
    """
    # RESTORING goes last: while it is there, no node serves the directory.
    directory.found(origin)
    facts = load_node(directory)
    if world.roles is not None:
        facts = replace(facts, roles=world.roles)
        save_node(directory, facts)
    directory.end_restore()
    return facts.roles
