"""Backup files: the thread that writes a backup part by part, reads it back and names it.

A backup goes to the backup folder under a name (`folder.Draft`), or to an unnamed file that the
node keeps for the client until it is read or forgotten (`Unnamed`). One backup is written at a
time. An unfinished backup leaves nothing behind, whatever ends it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from typing import Any, Final, Protocol

from actors.backups.folder import BackupFolder, Draft
from actors.runtime import Runtime, ThreadActor, handles
from protocol import limits
from protocol.environment import File, Fs, Rng, Room
from protocol.errors import Cancelled, DiskFull, Failed
from protocol.requests import Request
from storage.backups import scripts
from storage.backups.log_file import LogBackupWriter
from storage.backups.snapshot_file import SnapshotPiece, SnapshotWriter
from storage.backups.verify import verify
from storage.files.disk_reserve import NO_ROOM
from storage.formats.container import (
    BackupFileForm,
    LogFacts,
    ScriptFacts,
    Sink,
    SnapshotFacts,
    WrittenBackup,
)
from storage.formats.frames import Frame
from storage.formats.sealing import Key

RESERVE: Final = Room(limits.BACKUP_RESERVE_BYTES, limits.BACKUP_RESERVE_FILES)
"""Disk space that a backup must leave free."""
RESERVE_SHARE: Final = 16
"""Divisor: on a small disk, only this fraction (1/16) of the disk must stay free."""

Part = Sequence[SnapshotPiece] | Sequence[Frame] | bytes
"""Part of a backup: of a snapshot, a log or a script."""
BackupFacts = SnapshotFacts | LogFacts | ScriptFacts
"""Metadata of a backup."""
Over = Callable[[], bool]
"""Returns True once the client has cancelled the backup; called from a thread."""


# --- messages to the thread -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BeginBackup(Request[None]):
    """Begin a backup."""

    facts: BackupFacts
    to: str | None
    """Name in the folder; None: an unnamed file."""
    estimate: int
    """Estimated size in bytes."""


@dataclass(frozen=True, slots=True)
class AddPart(Request[None]):
    """Write the next part."""

    part: Part


@dataclass(frozen=True, slots=True)
class FinishBackup(Request[WrittenBackup]):
    """Complete the file after the last part; if it gets a name, also sync and verify it."""

    over: Over


@dataclass(frozen=True, slots=True)
class PublishBackup(Request[None]):
    """Give the file its name."""


@dataclass(frozen=True, slots=True)
class KeepUnnamed(Request[None]):
    """Keep an unnamed file for the client."""

    file: int
    """Number that identifies the file from now on."""


@dataclass(frozen=True, slots=True)
class ConfirmBackup:
    """End a backup: the client has been answered."""


@dataclass(frozen=True, slots=True)
class AbandonBackup:
    """Remove the backup, even if it has its name already."""


@dataclass(frozen=True, slots=True)
class ReadKept(Request[bytes]):
    """Read a range of a kept file."""

    file: int
    offset: int
    count: int


@dataclass(frozen=True, slots=True)
class RemoveKept:
    """Remove a kept file. Idempotent."""

    file: int


# --- files without a name -------------------------------------------------------------------------


class Unnamed:
    """Anonymous file in the store's own folder, for data that lasts no longer than the process.

    Its name is unlinked before its first byte is written, so nothing remains however the process
    ends.

    :param name: a name that no other file has at the moment
    :raises DiskFull: there is less room than needed
    """

    def __init__(self, fs: Fs, folder: str, name: str, needed: Room) -> None:
        self._fs = fs
        self._folder = folder
        self.bytes = 0
        """Bytes written so far."""
        with _disk_refusals(needed.bytes):
            self._check_room(needed)
            path = f"{folder}/{name}"
            self.file = fs.open(path, exclusive=True)
            fs.unlink(path)

    def append(self, data: bytes, reserve: Room) -> None:
        """Append bytes. :raises DiskFull: the reserve would be used, or the disk is full"""
        with _disk_refusals(len(data)):
            self._check_room(Room(reserve.bytes + len(data), reserve.files))
            self.file.append(data)
        self.bytes += len(data)

    def _check_room(self, needed: Room) -> None:
        if not self._fs.room(self._folder).holds(needed):
            raise _no_room(needed.bytes)

    def sync(self) -> None:
        """Do nothing: the file need not survive the process."""

    def abandon(self) -> None:
        """Close the file, which frees its space."""
        self.file.close()


@contextmanager
def _disk_refusals(needed: int) -> Iterator[None]:
    """Translate errors of the disk into refusals for the client."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM:
            raise _no_room(needed) from error
        raise Failed(
            f"cannot write the temporary file of a backup in the data directory: {error.strerror}"
        ) from error


def _no_room(needed: int) -> DiskFull:
    return DiskFull(
        "no room left on the disk for a backup: it needs a temporary file in the data directory",
        needed=needed,
    )


# --- one backup -----------------------------------------------------------------------------------


def reserve(there: Room) -> Room:
    """Return the room that a backup must leave free.

    :param there: free room and size of the disk
    """
    return Room(min(RESERVE.bytes, there.disk // RESERVE_SHARE), RESERVE.files)


class BackupEncoder(Protocol):
    """Encoder of a backup: makes the bytes of a file from its parts."""

    def add(self, part: Any, /) -> None:
        """Encode the next part."""

    def end(self) -> WrittenBackup:
        """Encode the end, after the last part."""


class _Pieces:
    """Encoder of a snapshot, whose parts are sequences of pieces."""

    def __init__(self, snapshot: SnapshotWriter) -> None:
        self._snapshot = snapshot
        self.end = snapshot.end

    def add(self, part: Sequence[SnapshotPiece], /) -> None:
        for piece in part:
            self._snapshot.add(piece)


class _OpenBackup:
    """Backup being written.

    :param there: free room of its disk before it began
    """

    def __init__(
        self, target: Draft | Unnamed, there: Room, content: Callable[[_OpenBackup], BackupEncoder]
    ) -> None:
        self.target = target
        self._there = there
        self._unsynced = 0
        self.content = content(self)

    def write(self, data: bytes) -> None:
        """Write bytes of the file, with an fsync after every `limits.BACKUP_SYNC_BYTES`."""
        self.target.append(data, reserve(self._there))
        self._unsynced += len(data)
        if self._unsynced >= limits.BACKUP_SYNC_BYTES:
            self.target.sync()
            self._unsynced = 0

    def check(self, written: WrittenBackup, key: Key | None, over: Over) -> None:
        """Read the file back and verify it.

        :raises Failed: its content differs
        :raises Cancelled: the client has cancelled the backup
        """
        file = self.target.file
        file.forget_cache()
        if written.form is BackupFileForm.SCRIPT:
            found = _digest_of(file, over)
        else:
            report = verify(file, key, lambda done: _check_over(over))
            if report.result != "whole":
                raise _not_read_back(report.problem)
            found = report.sha256
        if found != written.sha256:
            raise _not_read_back("its checksum differs")


def _digest_of(file: File, over: Over) -> bytes:
    digest, at = sha256(), 0
    while data := file.read(at, limits.MIB):
        digest.update(data)
        at += len(data)
        _check_over(over)
    return digest.digest()


def _check_over(over: Over) -> None:
    if over():
        raise Cancelled("the backup was cancelled while it was read back")


def _not_read_back(why: str | None) -> Failed:
    return Failed(f"the backup does not read back as it was written: {why}")


class BackupFilesActor(ThreadActor):
    """Writes backups, one at a time, and reads kept files.

    :param tmp: folder of unnamed files
    :param key: key that seals all backups; None: they are written in clear
    :param what: prefix of the temporary names of unnamed files
    """

    low_priority = True

    def __init__(
        self,
        runtime: Runtime,
        fs: Fs,
        rng: Rng,
        folder: BackupFolder,
        tmp: str,
        key: Key | None,
        what: str = "backup",
    ) -> None:
        super().__init__(runtime)
        self._what = what
        self._fs = fs
        self._rng = rng
        self._folder = folder
        self._tmp = tmp
        self._key = key
        self._numbers = count(1)
        self._making: _OpenBackup | None = None
        self._kept: dict[int, Unnamed] = {}

    @handles(BeginBackup)
    def begin_backup(self, asked: BeginBackup) -> None:
        """Begin a backup. :raises Refusal: as `BackupFolder.draft`; then nothing was created"""
        self.abandon(AbandonBackup())  # remains of a backup whose client is gone
        there = self._room(asked.to)
        kept = reserve(there)
        target = self._target(asked.to, Room(asked.estimate + kept.bytes, kept.files + 1))
        try:
            self._making = _OpenBackup(
                target, there, lambda making: self._content(asked.facts, making.write)
            )
        except BaseException:
            target.abandon()
            raise

    def _room(self, to: str | None) -> Room:
        with _disk_refusals(0):
            return self._fs.room(self._tmp) if to is None else self._folder.room()

    def _target(self, to: str | None, needed: Room) -> Draft | Unnamed:
        if to is None:
            return Unnamed(self._fs, self._tmp, f"{self._what}-{next(self._numbers)}", needed)
        return self._folder.draft(to, needed)

    def _content(self, facts: BackupFacts, sink: Sink) -> BackupEncoder:
        match facts:
            case SnapshotFacts():
                return _Pieces(SnapshotWriter(facts, sink, self._rng, self._key))
            case LogFacts():
                return LogBackupWriter(facts, sink, self._rng, self._key)
        return scripts.writing(facts, sink, self._rng, self._key)

    @property
    def _at_hand(self) -> _OpenBackup:
        assert self._making is not None, "no backup has been begun"
        return self._making

    @handles(AddPart)
    def add(self, asked: AddPart) -> None:
        """Write a part. :raises DiskFull: the reserve would be used"""
        self._at_hand.content.add(asked.part)

    @handles(FinishBackup)
    def finish(self, asked: FinishBackup) -> WrittenBackup:
        """Complete the file, and verify a named one. :raises Failed: it does not read back"""
        making = self._at_hand
        written = making.content.end()
        if isinstance(making.target, Draft):
            making.target.sync()
            making.check(written, self._key, asked.over)
        return written

    @handles(PublishBackup)
    def publish(self, _asked: PublishBackup) -> None:
        """Give the file its name. :raises BackupExists: another file has the name by now"""
        target = self._at_hand.target
        assert isinstance(target, Draft), "what has no name is not published"
        target.publish()

    @handles(KeepUnnamed)
    def keep(self, asked: KeepUnnamed) -> None:
        """Keep an unnamed file; another backup may begin meanwhile."""
        target = self._at_hand.target
        assert isinstance(target, Unnamed), "what has a name is kept by that"
        self._making = None
        self._kept[asked.file] = target

    @handles(ConfirmBackup)
    def confirm(self, _message: ConfirmBackup) -> None:
        """End a named backup, after the client was answered."""
        target = self._at_hand.target
        assert isinstance(target, Draft), "what has no name is kept or abandoned"
        target.close()
        self._making = None

    @handles(AbandonBackup)
    def abandon(self, _message: AbandonBackup) -> None:
        """Remove the backup, with its name if it has one already: no client was given that name."""
        making, self._making = self._making, None
        if making is not None:
            making.target.abandon()

    @handles(ReadKept)
    def read_kept(self, asked: ReadKept) -> bytes:
        """Read a range of a kept file."""
        return self._kept[asked.file].file.read(asked.offset, asked.count)

    @handles(RemoveKept)
    def forget(self, message: RemoveKept) -> None:
        """Remove a kept file, which frees its space."""
        kept = self._kept.pop(message.file, None)
        if kept is not None:
            kept.abandon()

    def on_stop(self) -> None:
        """Remove the unfinished backup and all kept files."""
        self.abandon(AbandonBackup())
        for number in list(self._kept):
            self.forget(RemoveKept(number))
