"""Room on the disk: what is held back for when there is no other, and whether there is enough.

A disk is full when it takes no more bytes, no more files (inodes), or no more of either from this
user (quotas). The reserve holds some of both: log/RESERVE, RESERVE.1 and so on, files of zeros.
They are many so that who takes from the node what it gives up, as soon as that is free, has not
taken all with the first small file that the node must write.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, Protocol, TypeVar

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


class Turns(Protocol):
    """Who writes what was found to have room, one after the other: a lock that its holder may take
    again."""

    def acquire(self, blocking: bool = True) -> bool:
        """Take it. Answers whether it was to be had."""

    def release(self) -> None:
        """Give it up."""


class _Alone:
    """Nobody else writes."""

    def acquire(self, blocking: bool = True) -> bool:
        return True

    def release(self) -> None:
        return None


class Headroom:
    """Whether a disk has room for what is not written yet. Asks the disk: for threads.

    What the file system says it has left is not what a quota leaves. So it is asked to take a file
    of that size now and then: not each time, which costs more than most writes do, and not while
    somebody writes what was found to have room, who would not find it for that moment.

    :param folder: on the disk that is meant
    :param tmp: where a file may be made for a moment
    :param beside: that of somebody else who writes to the same disk; None: nobody does
    """

    ASKED_EVERY: Final = 1 << 20
    """After so many bytes that were written, or that what is needed grew or shrank by."""
    PLENTY: Final = 5 << 20
    """More than is needed: who found so much lets others write at the same time."""
    _NEVER: Final = -8 << 20

    def __init__(self, fs: Fs, folder: str, tmp: str, beside: Headroom | None = None) -> None:
        self._fs = fs
        self._folder = folder
        self._tmp = tmp
        self._beside = beside
        self._asked_for = self._NEVER
        self._written = 0
        self._has_turn = True
        self.turns: Turns = _Alone() if beside is None else beside.turns

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Write something: when others have written, or beside them where there is plenty."""
        self._has_turn = self.turns.acquire(self._asked_for == self._NEVER)
        try:
            yield
        finally:
            if self._has_turn:
                self.turns.release()

    def found(self, needed: Room) -> Room | None:
        """What there is for who needs so much and has the turn; None: less. Where there is not
        plenty besides, the other one does not write until the turn is over.

        :raises OSError: as the disk says, but for a full one
        """
        room = self.left(Room(needed.bytes + self.PLENTY, needed.files))
        if room is None:
            if self._beside is not None:
                self._beside._asked_for = self._NEVER
            if self.left(needed) is not None:
                room = needed
        return room

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
        since = max(self._written, abs(needed.bytes - self._asked_for))
        unasked = self.ASKED_EVERY if self._has_turn else self.PLENTY - self.ASKED_EVERY
        if since < unasked:
            return self._fs.room(self._folder).holds(needed)
        if not self._has_turn:
            self._has_turn = self.turns.acquire()
        if self.left(Room(needed.bytes + self.PLENTY, needed.files)) is not None:
            self._asked_for, self._written = needed.bytes, writing
            return True
        # So close to the end each write asks.
        self._asked_for = self._NEVER
        return self.left(needed) is not None


class Reserve:
    """The reserve of one log: so many files, each with its part of the bytes. It is given up by
    removing them, which is all that some file systems let be done when they are full.

    :param folder: where its files are
    :param size: what it holds; no bytes: there is none to hold, and it is always held
    """

    def __init__(self, fs: Fs, folder: str, size: Room) -> None:
        self._fs = fs
        self._folder = folder
        files = size.files if size.bytes else 0
        path = f"{folder}/RESERVE"
        self._paths = [path, *(f"{path}.{n}" for n in range(1, files))][:files]
        self._part = -(-size.bytes // max(files, 1))
        self.held = False

    def look(self) -> None:
        """Whether it is there, at an open."""
        self.held = all(map(self._fs.exists, self._paths))

    def fill(self) -> bool:
        """Hold what the disk has room for. Answers whether that is all of it.

        :raises OSError: as the disk says, but for a full one
        """
        self.held = all(map(self._hold, self._paths))
        return self.held

    def _hold(self, path: str) -> bool:
        try:
            file = self._fs.open(path, create=True)
            try:
                missing = self._part - file.size()
                if missing > 0:
                    if self._fs.room(self._folder).bytes < missing:
                        raise OSError(errno.ENOSPC, "less is left than the reserve holds")
                    file.append(bytes(missing))
                    file.sync()
            finally:
                file.close()
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            self._give_up(path)  # a part of it is of no use
            return False
        if missing < 0:
            # An earlier version had all the bytes in one.
            self._give_up(path)
            return self._hold(path)
        return True

    def release(self) -> bool:
        """Give the room up. Answers whether there was any. :raises OSError: as the disk says"""
        given = [self._give_up(path) for path in self._paths]
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
        return any(map(self._give_up, reversed(self._paths)))

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
