"""Room on the disk that is given up when there is no other, so that what must be written can be.

It is a file of zeros, log/RESERVE.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

from protocol.doors import Fs
from protocol.errors import DiskFull

T = TypeVar("T")

NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""How a file system says that it is full: of bytes, of files, or of what this user may have."""


def disk_full() -> DiskFull:
    """The refusal of what there is no room for."""
    return DiskFull("no room left on the disk for the log")


def drop_temporary(fs: Fs, tmp: str, target: str) -> None:
    """Take away what `facts.replace_file` could not finish."""
    with suppress(FileNotFoundError):
        fs.unlink(f"{tmp}/{target.rpartition('/')[2]}.new")


class Reserve:
    """The reserve of one log.

    :param folder: where its file is
    :param size: bytes; 0: there is none to hold, and it is always held
    """

    def __init__(self, fs: Fs, folder: str, size: int) -> None:
        self._fs = fs
        self._folder = folder
        self._path = f"{folder}/RESERVE"
        self._bytes = size
        self.held = False

    def look(self) -> None:
        """Whether it is there, at an open."""
        self.held = self._fs.exists(self._path)

    def fill(self) -> bool:
        """Hold it, if the disk has room for it. Answers whether it is held.

        :raises OSError: as the disk says, but for a full one
        """
        try:
            if self._bytes and self._fs.free_bytes(self._folder) < self._bytes:
                self.held = self._fs.exists(self._path) and self._size() >= self._bytes
                return self.held
            file = self._fs.open(self._path, create=True)
            try:
                missing = self._bytes - file.size()
                if missing > 0:
                    file.append(bytes(missing))
                    file.sync()
            finally:
                file.close()
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            self.release()
            return False
        self.held = True
        return True

    def release(self) -> bool:
        """Give the room up. Answers whether there was any. :raises OSError: as the disk says"""
        held, self.held = self.held, False
        with suppress(FileNotFoundError):
            self._fs.unlink(self._path)
        self._fs.sync_directory(self._folder)
        return held

    def spend(self, work: Callable[[], T], allowed: bool = True) -> T:
        """Do something that needs room; if there is none, once more with the reserve given up.

        :param allowed: whether it may have the reserve
        :raises DiskFull: there is no room even so
        """
        try:
            return work()
        except DiskFull:
            if not (allowed and self.release()):
                raise
            return work()

    def _size(self) -> int:
        file = self._fs.open_read(self._path)
        try:
            return file.size()
        finally:
            file.close()
