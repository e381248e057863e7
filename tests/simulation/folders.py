"""A folder of the simulated disk (`protocol.environment.Folder`).

It has no links, and no concurrent renames below it: these are tested on the real one.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from protocol.environment import DirectoryEntry, File, Room

if TYPE_CHECKING:
    from tests.simulation.disk import SimulatedDisk


class SimulatedFolder:
    def __init__(self, disk: SimulatedDisk, path: str) -> None:
        if not disk.is_directory(path):
            raise _os_error(errno.ENOTDIR if disk.exists(path) else errno.ENOENT, path)
        self._disk = disk
        self._path = path

    def enter(self, name: str) -> SimulatedFolder:
        return SimulatedFolder(self._disk, self._at(name))

    def make_folder(self, name: str) -> None:
        self._disk.make_directory(self._at(name))

    def remove_folder(self, name: str) -> None:
        if self._disk.names(self._at(name)):
            raise _os_error(errno.ENOTEMPTY, name)
        self._disk.remove_tree(self._at(name))

    def create(self, name: str) -> File:
        return self._disk.open(self._at(name), exclusive=True)

    def open_read(self, name: str) -> File:
        return self._disk.open_read(self._at(name))

    def is_held(self, name: str) -> bool:
        path = self._at(name)
        return any(file.path == path for file in self._disk.open_files)

    def names(self) -> list[str]:
        return self._disk.names(self._path)

    def entry(self, name: str) -> DirectoryEntry | None:
        path = self._at(name)
        if not self._disk.exists(path):
            return None
        if self._disk.is_directory(path):
            return DirectoryEntry("folder", 0, 0)
        return DirectoryEntry("file", len(self._disk.image()[path] or b""), 0)

    def is_at(self, file: File, name: str) -> bool:
        """True if an open file is still the file with the name."""
        return self._disk.is_file_at(file, self._at(name))

    def rename(self, source: str, target: str) -> None:
        """Give a file another name, which nothing has."""
        if self._disk.exists(self._at(target)):
            raise _os_error(errno.EEXIST, target)
        self._disk.rename(self._at(source), self._at(target))

    def unlink(self, name: str) -> None:
        self._disk.unlink(self._at(name))

    def sync(self) -> None:
        self._disk.sync_directory(self._path)

    def room(self) -> Room:
        return self._disk.room(self._path)

    def close(self) -> None:
        """Nothing is held."""

    def _at(self, name: str) -> str:
        assert "/" not in name and name not in ("", ".", ".."), f"{name!r} is no plain part"
        return f"{self._path}/{name}"


def _os_error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
