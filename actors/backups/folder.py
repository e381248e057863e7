"""Backup folder: files that `BACKUP … TO 'name'` writes and `RESTORE SCRIPT FROM 'name'` reads.

A name is a relative path of plain parts, which can't leave the folder. Each part is opened relative
to its open parent, and no symbolic link is followed (`protocol.environment.Folder`). So no file
outside is opened, created or replaced, even if another process renames or links in the folder
meanwhile.

A backup is made in steps, and gets its name only in the last one:

    1. create the subfolders of its name one by one, each durable before the next
    2. create <name>.partial, after removing the remains of an earlier backup of that name
    3. write its bytes; fsync
    4. read it back through the verifier, from the disk and by the descriptor that wrote it
    5. rename <name>.partial to <name>, which must not exist; fsync the folder

A crash before the last step leaves at most a partial and empty subfolders. A partial is never taken
for a backup, since no backup's name may end like one. A partial that another process is writing is
left alone.

Everything here blocks on the disk: call it from threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Final, NamedTuple

from protocol import limits
from protocol.environment import DirectoryEntry, File, Folder, Fs, Room
from protocol.errors import (
    BackupExists,
    BackupNameRefused,
    Busy,
    DiskFull,
    Failed,
    NoBackupFolder,
    Unknown,
)
from storage.files.disk_reserve import NO_ROOM

PARTIAL: Final = ".partial"
"""Suffix of unfinished backups."""


# --- names ----------------------------------------------------------------------------------------


def plain_parts(name: str) -> tuple[str, ...]:
    """Split a backup's name into its parts, the file name last.

    :raises BackupNameRefused: it is absolute, or a part is not plain
    """
    if name.startswith("/"):
        raise _refused(name, "it is absolute, not relative to the backup folder")
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
    """Return the reason why a part is refused; None: it is plain."""
    if part in ("", ".", ".."):
        return f"the part {part!r} is not allowed" if part else "a part of it is empty"
    if not part.isprintable() or "\\" in part:
        # Control characters, lone surrogates, and characters that make names look alike.
        return f"the part {part!r} has a character that is not allowed"
    if len(part.encode()) > limits.BACKUP_PART_BYTES:
        return f"a part of it is longer than {limits.BACKUP_PART_BYTES} bytes"
    if part.endswith(PARTIAL):
        return f"names that end in {PARTIAL} are for unfinished backups"
    return None


def _refused(name: str, why: str) -> BackupNameRefused:
    shown = name if len(name) <= _SHOWN else name[:_SHOWN] + "..."
    return BackupNameRefused(f"{shown!r} is not a valid name of a backup: {why}", name=shown)


_SHOWN: Final = 200
"""Maximum characters of a name in a refusal."""


# --- the folder -----------------------------------------------------------------------------------


class Listed(NamedTuple):
    """A file in the folder."""

    path: str
    entry: DirectoryEntry


class BackupFolder:
    """Folder for the backups of a node.

    :param path: None: the node was started without one
    """

    def __init__(self, fs: Fs, path: str | None) -> None:
        self._fs = fs
        self.path = path

    def check_given(self) -> None:
        """Check that the node has a folder. :raises NoBackupFolder: it was started without one"""
        if self.path is None:
            raise NoBackupFolder("the node was started without a backup folder: --backup-dir")

    def draft(self, name: str, needed: Room) -> Draft:
        """Begin a file with a name.

        :param needed: room that the folder's disk must have
        :raises BackupNameRefused: the name is invalid, or leads through a link or a file
        :raises NoBackupFolder: the node has no folder
        :raises BackupExists: a file with the name exists
        :raises Busy: another process is writing a backup with that name
        :raises DiskFull: there is less room than needed
        """
        parts = plain_parts(name)
        with ExitStack() as undo, _disk_refusals(name):
            draft = Draft(self._open(), parts)
            undo.callback(draft.abandon)
            draft.create_file(needed)
            undo.pop_all()
        return draft

    def open(self, name: str) -> File:
        """Open a file of the folder for reading.

        :raises BackupNameRefused, NoBackupFolder: as `draft`
        :raises Unknown: there is no file with that name
        """
        parts = plain_parts(name)
        with self._opened() as root, _disk_refusals(name), ExitStack() as held:
            folder = root
            try:
                for part in parts[:-1]:
                    folder = _held(held, _entered(folder, part, name))
                return folder.open_read(parts[-1])
            except (FileNotFoundError, IsADirectoryError) as error:
                raise Unknown(f"the backup folder has no file {name}", path=name) from error

    def files(self) -> Iterator[Listed]:
        """Iterate over the files that may be backups, in the folder and its subfolders, by name.
        Links are skipped, and so are names that no backup can have.

        :raises NoBackupFolder: the node has no folder
        """
        with self._opened() as root:
            yield from _files(root, ())

    def room(self) -> Room:
        """Return the free room of the folder's disk. :raises NoBackupFolder: there is no folder"""
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
        """Open the folder again for each use: it may have been mounted over since the start."""
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
    """Enter a subfolder. :raises BackupNameRefused: it is a link or a file"""
    try:
        return folder.enter(part)
    except NotADirectoryError as error:
        raise _refused(name, f"{part} is a link or a file, not a folder") from error


@contextmanager
def _disk_refusals(name: str) -> Iterator[None]:
    """Translate errors of the disk into refusals for the client."""
    try:
        yield
    except FileExistsError as error:
        raise _exists(name) from error
    except OSError as error:
        if error.errno in NO_ROOM:
            raise _full(name, 0) from error
        raise Failed(
            f"the backup folder cannot be used at {name}: {error.strerror}", path=name
        ) from error


# --- a file in the making -------------------------------------------------------------------------


class Draft:
    """Unfinished backup in the folder.

    Its owner ends it with `close` after `publish`, or with `abandon`, which does nothing after
    `close`.

    :param root: the backup folder; closed with the draft
    """

    def __init__(self, root: Folder, parts: tuple[str, ...]) -> None:
        self.name = "/".join(parts)
        self.bytes = 0
        """Bytes written so far."""
        *self._subfolders, self._own = parts
        self._partial = self._own + PARTIAL
        self._folders = [root]
        """Open folders, from the backup folder to that of the file."""
        self._made: list[int] = []
        """Indexes of the subfolders that this draft has created."""
        self._file: File | None = None

    def create_file(self, needed: Room) -> None:
        """Run steps 1 and 2 of the module's list."""
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
        """Check that the name is free before any file is created. :raises BackupExists:"""
        if len(self._folders) > len(self._subfolders) and self._folder.entry(self._own) is not None:
            raise _exists(self.name)

    def _remove_stale(self) -> None:
        """Remove the partial of an interrupted backup.

        :raises Busy: another process is writing it
        :raises BackupExists: it is not a file
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
        """Folder of the file."""
        return self._folders[-1]

    @property
    def file(self) -> File:
        """The file, until it is published or abandoned."""
        assert self._file is not None, "a draft that has ended is used"
        return self._file

    def append(self, data: bytes, reserve: Room) -> None:
        """Append bytes.

        :param reserve: room that must stay free afterwards
        :raises DiskFull: the reserve would be used, or the disk is full
        """
        with _disk_refusals(self.name):
            if not self._folder.room().holds(Room(reserve.bytes + len(data), reserve.files)):
                raise _full(self.name, len(data))
            self.file.append(data)
        self.bytes += len(data)

    def sync(self) -> None:
        """Make the written bytes durable (fsync)."""
        with _disk_refusals(self.name):
            self.file.sync()

    def publish(self) -> None:
        """Run step 5: rename the file, which is synced and verified.

        :raises BackupExists: another file has the name by now
        :raises Failed: the partial was replaced by another process
        """
        folder, file = self._folder, self.file
        with _disk_refusals(self.name):
            folder.rename(self._partial, self._own)
            if not folder.is_at(file, self._own):
                folder.unlink(self._own)  # such as a link put in place of the partial
                raise Failed(
                    f"{self.name}{PARTIAL} was replaced by another process", path=self.name
                )
            folder.sync()

    def close(self) -> None:
        """Close the draft and keep the published file."""
        self._made.clear()
        self._close()

    def abandon(self) -> None:
        """Remove the file, even if published, and the subfolders that were created for it."""
        # A failing disk was reported before, and a remaining partial is not taken for a backup.
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
