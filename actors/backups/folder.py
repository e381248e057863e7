"""The backup folder: what `BACKUP … TO 'name'` writes and `RESTORE SCRIPT FROM 'name'` reads.

A name is a path inside the folder, made of plain parts: it never leads out. Each part is looked up
in the one before, which is held open, and no link is followed (`protocol.doors.Folder`): so nothing
outside is opened, made or replaced, whoever renames and links in the folder meanwhile.

A backup comes to be in steps, and has its name only after the last of them:

    1. the subfolders of its name, made one at a time, each durable before the next
    2. <name>.partial, new; what an earlier backup has left of that name is removed first
    3. its bytes; synced
    4. read back through the verifier, from the disk and by the descriptor that wrote it
    5. <name>.partial renamed to <name>, which nobody has; the folder synced

A crash before the last step leaves at most a partial and empty subfolders. A partial is never taken
for a backup: no name may end like one. One that another process is writing is left alone.

Everything here waits for the disk: for threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Final, NamedTuple

from protocol import limits
from protocol.doors import Entry, File, Folder, Fs, Room
from protocol.errors import (
    BackupExists,
    BackupNameRefused,
    Busy,
    DiskFull,
    Failed,
    NoBackupFolder,
    Unknown,
)
from storage.reserve import NO_ROOM

PARTIAL: Final = ".partial"
"""Ends the name of what is not a backup yet."""


# --- names ----------------------------------------------------------------------------------------


def plain_parts(name: str) -> tuple[str, ...]:
    """The parts of a backup's name, the file's own last.

    :raises BackupNameRefused: it is absolute, or one of them is no plain part
    """
    if name.startswith("/"):
        raise _refused(name, "it is absolute, and a backup's name is relative to the backup folder")
    if len(name.encode("utf-8", "surrogatepass")) > limits.BACKUP_NAME_BYTES:
        raise _refused(name, f"it is longer than {limits.BACKUP_NAME_BYTES} bytes")
    parts = tuple(name.split("/"))
    if len(parts) > limits.BACKUP_NAME_PARTS:
        raise _refused(name, f"it has more than {limits.BACKUP_NAME_PARTS} parts")
    for part in parts:
        why = _not_plain(part)
        if why is not None:
            raise _refused(name, why)
    return parts


def _not_plain(part: str) -> str | None:
    """Why one part is refused; None: it is plain."""
    if part in ("", ".", ".."):
        return f"{part!r} is no plain part" if part else "a part of it is empty"
    if not part.isprintable() or "\\" in part:
        # Control characters, halves of surrogate pairs, and what only looks like another name.
        return f"{part!r} has a character that no plain part has"
    if len(part.encode()) > limits.BACKUP_PART_BYTES:
        return f"a part of it is longer than {limits.BACKUP_PART_BYTES} bytes"
    if part.endswith(PARTIAL):
        return f"a name that ends in {PARTIAL} is that of an unfinished backup"
    return None


def _refused(name: str, why: str) -> BackupNameRefused:
    shown = name if len(name) <= _SHOWN else name[:_SHOWN] + "..."
    return BackupNameRefused(f"{shown!r} is no name for a backup: {why}", name=shown)


_SHOWN: Final = 200
"""Characters of a name that a refusal shows."""


# --- the folder -----------------------------------------------------------------------------------


class Listed(NamedTuple):
    """A file of the folder."""

    path: str
    entry: Entry


class BackupFolder:
    """The folder that a node was given for its backups.

    :param path: None: it was given none
    """

    def __init__(self, fs: Fs, path: str | None) -> None:
        self._fs = fs
        self.path = path

    def check_given(self) -> None:
        """:raises NoBackupFolder: the node was given none"""
        if self.path is None:
            raise NoBackupFolder("the node was started without a backup folder: --backup-dir")

    def draft(self, name: str, needed: Room) -> Draft:
        """Begin a file of that name.

        :param needed: what the folder's disk must have left
        :raises BackupNameRefused: the name is none, or leads through a link or a file
        :raises NoBackupFolder: the node has none
        :raises BackupExists: something has the name
        :raises Busy: another process is writing a backup of that name
        :raises DiskFull: there is not as much room
        """
        parts = plain_parts(name)
        with ExitStack() as undo, _told(name):
            draft = Draft(self._open(), parts)
            undo.callback(draft.abandon)
            draft.begin(needed)
            undo.pop_all()
        return draft

    def open(self, name: str) -> File:
        """A file of the folder, to be read.

        :raises BackupNameRefused, NoBackupFolder: as `draft`
        :raises Unknown: there is no file of that name
        """
        parts = plain_parts(name)
        with self._opened() as root, _told(name), ExitStack() as held:
            folder = root
            try:
                for part in parts[:-1]:
                    folder = _held(held, _entered(folder, part, name))
                return folder.open_read(parts[-1])
            except (FileNotFoundError, IsADirectoryError) as error:
                raise Unknown(f"the backup folder has no file {name}", path=name) from error

    def files(self) -> Iterator[Listed]:
        """Every file in it and in its subfolders that may be a backup, by name. Links are passed
        over, and so is what has a name that no backup can have.

        :raises NoBackupFolder: the node has none
        """
        with self._opened() as root:
            yield from _files(root, ())

    def room(self) -> Room:
        """What its disk has left. :raises NoBackupFolder: the node has none"""
        with self._opened() as root:
            return root.room()

    @contextmanager
    def _opened(self) -> Iterator[Folder]:
        root = self._open()
        try:
            yield root
        finally:
            root.close()

    def _open(self) -> Folder:
        """The folder as it is now: it may have been mounted over since the start."""
        self.check_given()
        assert self.path is not None
        try:
            return self._fs.open_folder(self.path)
        except OSError as error:
            raise NoBackupFolder(
                f"the backup folder can't be used: {error.strerror}", path=self.path
            ) from error


def _files(folder: Folder, above: tuple[str, ...]) -> Iterator[Listed]:
    for name in folder.names():
        entry = folder.entry(name)
        parts = (*above, name)
        if entry is None or _not_plain(name) or len(parts) > limits.BACKUP_NAME_PARTS:
            continue
        if entry.kind == "file":
            yield Listed("/".join(parts), entry)
        elif entry.kind == "folder":
            with suppress(FileNotFoundError, NotADirectoryError, PermissionError), ExitStack() as h:
                yield from _files(_held(h, folder.enter(name)), parts)


def _held(held: ExitStack, folder: Folder) -> Folder:
    held.callback(folder.close)
    return folder


def _entered(folder: Folder, part: str, name: str) -> Folder:
    """:raises BackupNameRefused: a link or a file is in the way"""
    try:
        return folder.enter(part)
    except NotADirectoryError as error:
        raise _refused(name, f"{part} is a link or a file, and not a folder") from error


@contextmanager
def _told(name: str) -> Iterator[None]:
    """What the disk says, as whoever asked for a backup hears it."""
    try:
        yield
    except FileExistsError as error:
        raise _exists(name) from error
    except OSError as error:
        if error.errno in NO_ROOM:
            raise _full(name, 0) from error
        raise Failed(f"the backup folder fails at {name}: {error.strerror}", path=name) from error


# --- a file in the making -------------------------------------------------------------------------


class Draft:
    """A backup in the making. Whoever has one ends it: with `close` once it is published, or with
    `abandon`, which does nothing behind the other.

    :param root: the folder that its name is in; closed with the draft
    """

    def __init__(self, root: Folder, parts: tuple[str, ...]) -> None:
        self.name = "/".join(parts)
        self.bytes = 0
        """Written so far."""
        *self._subfolders, self._own = parts
        self._partial = self._own + PARTIAL
        self._folders = [root]
        """From the outermost to that of the file."""
        self._made: list[int] = []
        """Which of the subfolders this draft has made."""
        self._file: File | None = None

    def begin(self, needed: Room) -> None:
        """Steps 1 and 2 of the head of the file."""
        if not self._folders[0].room().holds(needed):
            raise _full(self.name, needed.bytes)
        self._enter_those_there()
        self._check_absent()
        for at in range(len(self._folders) - 1, len(self._subfolders)):
            part = self._subfolders[at]
            self._folder.make_folder(part)
            self._made.append(at)
            self._folder.sync()
            self._folders.append(_entered(self._folder, part, self.name))
        self._remove_stale()
        self._file = self._folder.create(self._partial)

    def _enter_those_there(self) -> None:
        for part in self._subfolders:
            if self._folder.entry(part) is None:
                return
            self._folders.append(_entered(self._folder, part, self.name))

    def _check_absent(self) -> None:
        """Before anything is made. :raises BackupExists: something has the name"""
        if len(self._folders) > len(self._subfolders) and self._folder.entry(self._own) is not None:
            raise _exists(self.name)

    def _remove_stale(self) -> None:
        """What a backup that was cut off has left.

        :raises Busy: it is not left: another process is writing it
        :raises BackupExists: it is no file at all
        """
        folder, partial = self._folder, self._partial
        entry = folder.entry(partial)
        if entry is None:
            return
        if entry.kind != "file":
            raise _exists(self.name + PARTIAL)
        if folder.is_held(partial):
            raise Busy(f"another node is writing a backup to {self.name}", path=self.name)
        folder.unlink(partial)

    @property
    def _folder(self) -> Folder:
        """Where the file is, or will be."""
        return self._folders[-1]

    @property
    def file(self) -> File:
        """What is written, until it is published or abandoned."""
        assert self._file is not None, "a draft that has ended is used"
        return self._file

    def append(self, data: bytes, reserve: Room) -> None:
        """Write on.

        :param reserve: what must be left free behind it
        :raises DiskFull: the reserve would be touched, or the disk is full
        """
        with _told(self.name):
            if not self._folder.room().holds(Room(reserve.bytes + len(data), reserve.files)):
                raise _full(self.name, len(data))
            self.file.append(data)
        self.bytes += len(data)

    def sync(self) -> None:
        """Make what was written durable."""
        with _told(self.name):
            self.file.sync()

    def publish(self) -> None:
        """Step 5: the file has been synced and found whole.

        :raises BackupExists: something else has the name by now
        """
        folder, file = self._folder, self.file
        with _told(self.name):
            folder.rename(self._partial, self._own)
            if not folder.is_at(file, self._own):
                folder.unlink(self._own)  # a link, say, that was put in the partial's place
                raise Failed(f"somebody has replaced {self.name}{PARTIAL}", path=self.name)
            folder.sync()

    def close(self) -> None:
        """It is done: keep what was published."""
        self._made.clear()
        self._close()

    def abandon(self) -> None:
        """Leave nothing behind, of what was published neither."""
        # What the disk says here it has said before, and a partial is no backup.
        with suppress(OSError):
            for name in (self._partial, self._own):
                if self._file is not None and self._folder.is_at(self._file, name):
                    self._folder.unlink(name)
            while self._made:
                at = self._made.pop()
                self._folders[at].remove_folder(self._subfolders[at])
        self._close()

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        while self._folders:
            self._folders.pop().close()


def _full(name: str, needed: int) -> DiskFull:
    return DiskFull(f"no room left on the disk for the backup {name}", path=name, needed=needed)


def _exists(name: str) -> BackupExists:
    return BackupExists(f"a file exists at {name}", path=name)
