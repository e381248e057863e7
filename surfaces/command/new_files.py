"""Files that a command makes: complete under their name, or absent.

A file is `name.partial` until all of it is on disk. Its writer holds a lock on it, so that two
commands never write the same file. A partial of a killed command is removed. It is recognized by
its first bytes, so that no user's own file is taken for one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Final

from actors.backups.described import is_backup
from protocol.environment import File, Folder, Fs
from surfaces.command.failures import NotOpened

PARTIAL: Final = ".partial"
"""Suffix of an incomplete file's name."""


class NewFile:
    """A file that is being made. See `made`."""

    def __init__(self, file: File) -> None:
        self.file = file
        """The file, for reading; writes go through this class."""
        self.size = 0
        """Bytes written."""

    def write(self, data: bytes) -> None:
        """Append bytes.

        :raises OSError: the write failed
        """
        self.file.append(data)
        self.size += len(data)

    def sync(self) -> None:
        """Sync the file to disk, and drop its page cache, so that reads come from the disk.

        :raises OSError: the sync failed
        """
        self.file.sync()
        self.file.forget_cache()


def is_within(path: str, directory: str) -> bool:
    """Return True if a path leads into a directory, after resolving symbolic links."""
    store, at = (os.path.realpath(one) for one in (directory, path))
    return os.path.commonpath((store, at)) == store


@contextmanager
def made(fs: Fs, path: str, store: str) -> Iterator[NewFile]:
    """Make a file in the block. It has its name, and is on disk, once the block has ended. It
    replaces no other file, and a block that fails leaves none.

    :param store: data directory that it is made of. The file must not be inside it, where the store
        removes files at each start.
    :raises NotOpened: it is inside, a file has the name or the temporary name, or the write failed
    """
    above, name = os.path.split(path)
    if is_within(above or ".", store):
        raise NotOpened(f"{path} is in the data directory, {store}")
    if os.path.lexists(path):
        raise NotOpened(f"{path} exists; choose another name")
    if not name:
        raise NotOpened(f"{path} is not a file name")
    try:
        with closing(fs.open_folder(above or ".")) as folder:
            _remove_stale(folder, name + PARTIAL, path)
            with closing(folder.create(name + PARTIAL)) as file:
                yield from _made(folder, name, file)
    except OSError as error:
        raise NotOpened(f"{path}: {error.strerror}") from error


def _remove_stale(folder: Folder, partial: str, path: str) -> None:
    """Remove the partial file of a killed command.

    :raises NotOpened: the file with that name is not such a partial
    """
    entry = folder.entry(partial)
    if entry is None:
        return
    if entry.kind == "file":
        if folder.is_held(partial):
            raise NotOpened(f"{path}: another command is writing it")
        with closing(folder.open_read(partial)) as file:
            if not entry.bytes or is_backup(file):
                folder.unlink(partial)
                return
    raise NotOpened(
        f"{path}{PARTIAL} exists and is not a partial backup: remove it, or choose another name"
    )


def _made(folder: Folder, name: str, file: File) -> Iterator[NewFile]:
    try:
        new = NewFile(file)
        yield new
        new.sync()
        folder.rename(name + PARTIAL, name)
        if not folder.is_at(file, name):
            raise NotOpened(f"{name}{PARTIAL} was replaced by another process")
        folder.sync()
    except BaseException:
        # A disk error here repeats an earlier one, and a partial is not a backup.
        with suppress(OSError):
            for left in (name + PARTIAL, name):
                if folder.is_at(file, left):
                    folder.unlink(left)
        raise
