"""The files of backups, in a thread: written as their parts come, read back, and given their names.

A backup goes to the backup folder under a name (`folder.Draft`), or to a file without one that the
node keeps for whoever asked, until it was read or forgotten (`Unnamed`). One is written at a time.
Nothing is left of one that is not finished, whatever ends it.
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
from protocol.doors import File, Fs, Rng, Room
from protocol.errors import Cancelled, DiskFull, Failed
from protocol.requests import Request
from storage.backups import script_texts
from storage.backups.container import Sink
from storage.backups.facts import LogFacts, ScriptFacts, SnapshotFacts, Written
from storage.backups.forms import Form
from storage.backups.logs import LogCopy
from storage.backups.snapshots import Piece, Snapshot
from storage.backups.verifying import verify
from storage.frames import Frame
from storage.reserve import NO_ROOM
from storage.sealing import Key

RESERVE: Final = Room(limits.BACKUP_RESERVE_BYTES, limits.BACKUP_RESERVE_FILES)
"""What a backup leaves of a disk to the others on it …"""
RESERVE_SHARE: Final = 16
"""… and of a small one only one part of so many."""

Part = Sequence[Piece] | Sequence[Frame] | bytes
"""Some of what a backup holds: of a snapshot, a log, a script."""
BackupFacts = SnapshotFacts | LogFacts | ScriptFacts
"""What a backup says of itself."""
Over = Callable[[], bool]
"""Whether a backup has been ended by who asked for it; asked from a thread."""


# --- what is asked of the thread ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Begin(Request[None]):
    """Begin a backup."""

    facts: BackupFacts
    to: str | None
    """Its name in the folder; None: it gets none."""
    estimate: int
    """Bytes that it will have, about."""


@dataclass(frozen=True, slots=True)
class Add(Request[None]):
    """Write the next part."""

    part: Part


@dataclass(frozen=True, slots=True)
class Finish(Request[Written]):
    """All parts were written: make the file durable and read it back, if it is to have a name."""

    over: Over


@dataclass(frozen=True, slots=True)
class Publish(Request[None]):
    """Give it its name."""


@dataclass(frozen=True, slots=True)
class Keep(Request[None]):
    """Keep a file without a name for who asked."""

    file: int
    """What it is called from now on."""


@dataclass(frozen=True, slots=True)
class Confirm:
    """The backup is done."""


@dataclass(frozen=True, slots=True)
class Abandon:
    """Leave nothing of the backup behind, nor of its name if it has that already."""


@dataclass(frozen=True, slots=True)
class ReadKept(Request[bytes]):
    """A stretch of a file that is kept."""

    file: int
    offset: int
    count: int


@dataclass(frozen=True, slots=True)
class Forget:
    """Keep a file no longer. One that is not kept is forgotten already."""

    file: int


# --- files without a name -------------------------------------------------------------------------


class Unnamed:
    """A file of the store's own folder for what lasts no longer than the process. Its name is gone
    before its first byte, so that nothing is left of it however the process ends.

    :param name: that nothing else has meanwhile
    :raises DiskFull: there is not as much room as is needed
    """

    def __init__(self, fs: Fs, folder: str, name: str, needed: Room) -> None:
        self._fs = fs
        self._folder = folder
        self.bytes = 0
        """Written so far."""
        with _told(needed.bytes):
            self._check_room(needed)
            path = f"{folder}/{name}"
            self.file = fs.open(path, exclusive=True)
            fs.unlink(path)

    def append(self, data: bytes, reserve: Room) -> None:
        """Write on. :raises DiskFull: the reserve would be touched, or the disk is full"""
        with _told(len(data)):
            self._check_room(Room(reserve.bytes + len(data), reserve.files))
            self.file.append(data)
        self.bytes += len(data)

    def _check_room(self, needed: Room) -> None:
        if not self._fs.room(self._folder).holds(needed):
            raise _no_room(needed.bytes)

    def sync(self) -> None:
        """It need not outlast the process."""

    def abandon(self) -> None:
        """Leave nothing behind."""
        self.file.close()


@contextmanager
def _told(needed: int) -> Iterator[None]:
    """What the disk says, as whoever asked for a backup hears it."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM:
            raise _no_room(needed) from error
        raise Failed(f"a file beside the store can't be written: {error.strerror}") from error


def _no_room(needed: int) -> DiskFull:
    return DiskFull("no room left on the disk for a backup beside the store", needed=needed)


# --- one backup -----------------------------------------------------------------------------------


def reserve(there: Room) -> Room:
    """What a backup leaves to the others.

    :param there: what the disk has left
    """
    return Room(min(RESERVE.bytes, there.disk // RESERVE_SHARE), RESERVE.files)


class Content(Protocol):
    """Makes the bytes of a file of its parts."""

    def add(self, part: Any, /) -> None:
        """The next part."""

    def end(self) -> Written:
        """There are no more."""


class _Pieces:
    """A snapshot's parts are pieces, several at a time."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.end = snapshot.end

    def add(self, part: Sequence[Piece], /) -> None:
        for piece in part:
            self._snapshot.add(piece)


class _Making:
    """The backup that is being written.

    :param there: what its disk had left before
    """

    def __init__(
        self, target: Draft | Unnamed, there: Room, content: Callable[[_Making], Content]
    ) -> None:
        self.target = target
        self._there = there
        self._unsynced = 0
        self.content = content(self)

    def write(self, data: bytes) -> None:
        """Takes the bytes of the file."""
        self.target.append(data, reserve(self._there))
        self._unsynced += len(data)
        if self._unsynced >= limits.BACKUP_SYNC_BYTES:
            self.target.sync()
            self._unsynced = 0

    def check(self, written: Written, key: Key | None, over: Over) -> None:
        """Read it back. :raises Failed: it is not what was written; Cancelled: it was ended"""
        file = self.target.file
        file.forget_cache()
        if written.form is Form.SCRIPT:
            found = _digest_of(file, over)
        else:
            report = verify(file, key, lambda done: _check_over(over))
            if report.result != "whole":
                raise _not_read_back(report.problem)
            found = report.sha256
        if found != written.sha256:
            raise _not_read_back("its bytes are others")


def _digest_of(file: File, over: Over) -> bytes:
    digest, at = sha256(), 0
    while data := file.read(at, limits.MIB):
        digest.update(data)
        at += len(data)
        _check_over(over)
    return digest.digest()


def _check_over(over: Over) -> None:
    if over():
        raise Cancelled("the backup was ended while it was read back")


def _not_read_back(why: str | None) -> Failed:
    return Failed(f"the backup does not read back as it was written: {why}")


class BackupFilesActor(ThreadActor):
    """Writes backups, one at a time, and reads those that are kept.

    :param tmp: where files without a name are made
    :param key: what all of them are sealed with; None: nothing
    :param what: how the names begin that files without one have for a moment
    """

    gives_way = True

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
        self._making: _Making | None = None
        self._kept: dict[int, Unnamed] = {}

    @handles(Begin)
    def begin(self, asked: Begin) -> None:
        """:raises Refusal: as `BackupFolder.draft` does; nothing was made then"""
        self.abandon(Abandon())  # one is taken at a time: whoever took the one before has left
        there = self._room(asked.to)
        kept = reserve(there)
        target = self._target(asked.to, Room(asked.estimate + kept.bytes, kept.files + 1))
        try:
            self._making = _Making(
                target, there, lambda making: self._content(asked.facts, making.write)
            )
        except BaseException:
            target.abandon()
            raise

    def _room(self, to: str | None) -> Room:
        with _told(0):
            return self._fs.room(self._tmp) if to is None else self._folder.room()

    def _target(self, to: str | None, needed: Room) -> Draft | Unnamed:
        if to is None:
            return Unnamed(self._fs, self._tmp, f"{self._what}-{next(self._numbers)}", needed)
        return self._folder.draft(to, needed)

    def _content(self, facts: BackupFacts, sink: Sink) -> Content:
        match facts:
            case SnapshotFacts():
                return _Pieces(Snapshot(facts, sink, self._rng, self._key))
            case LogFacts():
                return LogCopy(facts, sink, self._rng, self._key)
        return script_texts.writing(facts, sink, self._rng, self._key)

    @property
    def _at_hand(self) -> _Making:
        assert self._making is not None, "no backup has been begun"
        return self._making

    @handles(Add)
    def add(self, asked: Add) -> None:
        """:raises DiskFull: the reserve would be touched"""
        self._at_hand.content.add(asked.part)

    @handles(Finish)
    def finish(self, asked: Finish) -> Written:
        """:raises Failed: what was written does not read back"""
        making = self._at_hand
        written = making.content.end()
        if isinstance(making.target, Draft):
            making.target.sync()
            making.check(written, self._key, asked.over)
        return written

    @handles(Publish)
    def publish(self, _asked: Publish) -> None:
        """:raises BackupExists: something else has the name by now"""
        target = self._at_hand.target
        assert isinstance(target, Draft), "what has no name is not published"
        target.publish()

    @handles(Keep)
    def keep(self, asked: Keep) -> None:
        """Another backup may begin meanwhile."""
        target = self._at_hand.target
        assert isinstance(target, Unnamed), "what has a name is kept by that"
        self._making = None
        self._kept[asked.file] = target

    @handles(Confirm)
    def confirm(self, _message: Confirm) -> None:
        """Who asked has been told."""
        target = self._at_hand.target
        assert isinstance(target, Draft), "what has no name is kept or abandoned"
        target.close()
        self._making = None

    @handles(Abandon)
    def abandon(self, _message: Abandon) -> None:
        """Its name is taken back, if it has that already: nobody was told of it."""
        making, self._making = self._making, None
        if making is not None:
            making.target.abandon()

    @handles(ReadKept)
    def read_kept(self, asked: ReadKept) -> bytes:
        """A stretch of a file."""
        return self._kept[asked.file].file.read(asked.offset, asked.count)

    @handles(Forget)
    def forget(self, message: Forget) -> None:
        """Its room is free."""
        kept = self._kept.pop(message.file, None)
        if kept is not None:
            kept.abandon()

    def on_stop(self) -> None:
        """Nothing is left behind."""
        self.abandon(Abandon())
        for number in list(self._kept):
            self.forget(Forget(number))
