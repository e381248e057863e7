"""Files that a command makes: there with all that they hold, or not there.

A file is `name.partial` until all of it is on the disk, and that is held by whoever makes it: two
commands never write the same one. What another one has left that was killed is removed; it is told
by how it begins, so that nobody's own file is taken for it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Final

from actors.backups.described import is_backup
from protocol.doors import File, Folder, Fs
from surfaces.command.opening import NotOpened

PARTIAL: Final = ".partial"
"""Ends the name of what is not all there yet."""


class NewFile:
    """A file that is being made. See `made`."""

    def __init__(self, file: File) -> None:
        self.file = file
        """To be read; what is written goes through here."""
        self.size = 0
        """Bytes written."""

    def write(self, data: bytes) -> None:
        """Write on. :raises OSError: as the disk says"""
        self.file.append(data)
        self.size += len(data)

    def sync(self) -> None:
        """All that was written is on the disk, and is read from there. :raises OSError:"""
        self.file.sync()
        self.file.forget_cache()


def is_within(path: str, directory: str) -> bool:
    """Whether a path leads into a directory, links followed."""
    store, at = (os.path.realpath(one) for one in (directory, path))
    return os.path.commonpath((store, at)) == store


@contextmanager
def made(fs: Fs, path: str, store: str) -> Iterator[NewFile]:
    """Make a file in the block: it has its name, and is on the disk, once the block has ended. It
    takes no other's place, and a block that fails leaves nothing.

    :param store: the data directory that it is made of, and is not in: what the store removes of
        its own at each start must never be somebody's backup
    :raises NotOpened: it is, something has the name, or the name until then, or the disk does not
        take it
    """
    above, name = os.path.split(path)
    if is_within(above or ".", store):
        raise NotOpened(f"{path} is in the data directory, {store}")
    if os.path.lexists(path):
        raise NotOpened(f"{path} exists, and is not replaced")
    if not name:
        raise NotOpened(f"{path} is no name for a file")
    try:
        with closing(fs.open_folder(above or ".")) as folder:
            _remove_stale(folder, name + PARTIAL, path)
            with closing(folder.create(name + PARTIAL)) as file:
                yield from _made(folder, name, file)
    except OSError as error:
        raise NotOpened(f"{path}: {error.strerror}") from error


def _remove_stale(folder: Folder, partial: str, path: str) -> None:
    """:raises NotOpened: what has that name is not left by a command that was killed"""
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
    raise NotOpened(f"{path}{PARTIAL} is in the way: it is no backup that was cut off")


def _made(folder: Folder, name: str, file: File) -> Iterator[NewFile]:
    try:
        new = NewFile(file)
        yield new
        new.sync()
        folder.rename(name + PARTIAL, name)
        if not folder.is_at(file, name):
            raise NotOpened(f"somebody has replaced {name}{PARTIAL}")
        folder.sync()
    except BaseException:
        # What the disk says here it has said before, and a partial is no backup.
        with suppress(OSError):
            for left in (name + PARTIAL, name):
                if folder.is_at(file, left):
                    folder.unlink(left)
        raise
