"""Room on the disk: what is held back for when there is no other, and whether there is enough.

A disk is full when it takes no more bytes, no more files (inodes), or no more of either from this
user (quotas). The reserve holds some of both: log/RESERVE, a file of zeros, and empty files beside
it, RESERVE.1 and so on.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

from protocol.doors import Fs, Room
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


PARTS: Final = 16
"""The bytes of a reserve can be given up in so many: who takes them from the node, as soon as they
are free, has not taken all with the first small file that the node must write."""


class Headroom:
    """Whether a disk has room for what is not written yet. Asks the disk: for threads.

    What the file system says it has left is not what a quota leaves. So it is asked to take a file
    of that size now and then: not each time, which costs more than most writes do.

    :param folder: on the disk that is meant
    :param tmp: where a file may be made for a moment
    """

    ASKED_EVERY: Final = 1 << 20
    """After so many bytes that were written, or that what is needed grew or shrank by."""

    def __init__(self, fs: Fs, folder: str, tmp: str) -> None:
        self._fs = fs
        self._folder = folder
        self._tmp = tmp
        self._asked_for = -2 * self.ASKED_EVERY
        self._written = 0

    def left(self, needed: Room) -> Room | None:
        """What there is, when that is as much as is needed; else None.

        :raises OSError: as the disk says, but for a full one
        """
        room = self._fs.room(self._folder)
        takes = room.holds(needed) and self._fs.takes(self._tmp, needed.bytes)
        return room if takes else None

    def covers(self, needed: Room, writing: int) -> bool:
        """Whether there is as much as is needed; for who asks often, and writes some in between.

        :param writing: bytes that the caller is going to write of it now
        :raises OSError: as the disk says, but for a full one
        """
        self._written += writing
        every = self.ASKED_EVERY
        if self._written < every and abs(needed.bytes - self._asked_for) < every:
            return self._fs.room(self._folder).holds(needed)
        if self.left(Room(needed.bytes + 2 * every, needed.files)) is not None:
            self._asked_for, self._written = needed.bytes, writing
            return True
        # So close to the end each write asks.
        self._asked_for = -2 * every
        return self.left(needed) is not None


class Reserve:
    """The reserve of one log.

    :param folder: where its files are
    :param size: what it holds; no bytes: there is none to hold, and it is always held
    """

    def __init__(self, fs: Fs, folder: str, size: Room) -> None:
        self._fs = fs
        self._folder = folder
        self._path = f"{folder}/RESERVE"
        self._size = size
        self._more = [f"{self._path}.{n}" for n in range(1, size.files)] if size.bytes else []
        self.held = False

    def look(self) -> None:
        """Whether it is there, at an open."""
        self.held = all(map(self._fs.exists, (self._path, *self._more)))

    def fill(self) -> bool:
        """Hold what the disk has room for. Answers whether that is all of it.

        :raises OSError: as the disk says, but for a full one
        """
        held = [self._fill_bytes(), *map(self._make, self._more)]
        self.held = all(held)
        return self.held

    def _fill_bytes(self) -> bool:
        missing = self._size.bytes - self._held_bytes()
        if missing > 0 and self._fs.room(self._folder).bytes < missing:
            return False
        try:
            file = self._fs.open(self._path, create=True)
            try:
                if missing > 0:
                    file.append(bytes(missing))
                    file.sync()
            finally:
                file.close()
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            self._give_up(self._path)  # a part of it is of no use
            return False
        return True

    def _make(self, path: str) -> bool:
        try:
            self._fs.open(path, create=True).close()
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            return False
        return True

    def release(self) -> bool:
        """Give the room up. Answers whether there was any. :raises OSError: as the disk says"""
        given = [self._give_up(path) for path in (self._path, *self._more)]
        self._fs.sync_directory(self._folder)
        return any(given)

    def _give_up(self, path: str) -> bool:
        self.held = False
        if not self._fs.exists(path):
            return False
        self._fs.unlink(path)
        return True

    def lend(self) -> bool:
        """Give up a little of it: a file, and a part of the bytes. Answers whether there was any.

        :raises OSError: as the disk says
        """
        self.held = False
        part = self._size.bytes // PARTS
        lent = any(self._give_up(path) for path in self._more)
        if self._held_bytes() <= part:
            return lent
        file = self._fs.open(self._path)
        try:
            file.truncate(file.size() - part)
            file.sync()
        finally:
            file.close()
        return True

    def spend(self, work: Callable[[], T], allowed: bool = True) -> T:
        """Do something that needs room; if there is none, once more with a part of the reserve
        given up, and then with all of it. What is not used up is held again at once, before
        somebody else has it.

        :param allowed: whether it may have the reserve
        :raises DiskFull: there is no room even so
        """
        try:
            return work()
        except DiskFull:
            if not allowed:
                raise
        try:
            if self.lend():
                with suppress(DiskFull):
                    return work()
            self.release()
            return work()
        finally:
            self.fill()

    def _held_bytes(self) -> int:
        if not self._fs.exists(self._path):
            return 0
        file = self._fs.open_read(self._path)
        try:
            return file.size()
        finally:
            file.close()
