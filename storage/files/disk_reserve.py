"""Disk space: a reserve for writes that must succeed on a full disk, and checks for free room.

A disk is full when it takes no more bytes, no more files (inodes), or no more of either from this
user (quotas). The reserve holds some of both: log/RESERVE, RESERVE.1 and so on, files of zeros.
There are many, because another process may grab the room of a released one. It then has not grabbed
all of it with the first small file that the node must write.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, Protocol, TypeVar

from protocol.environment import Fs, Room
from protocol.errors import DiskFull

T = TypeVar("T")

NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Error numbers of a full file system: no bytes or inodes left, or a quota is used up."""


def disk_full() -> DiskFull:
    """Return the refusal of a write without disk space."""
    return DiskFull("no room left on the disk for the log")


def drop_temporary(fs: Fs, tmp: str, target: str) -> None:
    """Remove the temporary file of a `metadata_file.replace_file` that failed."""
    with suppress(FileNotFoundError):
        fs.unlink(f"{tmp}/{target.rpartition('/')[2]}.new")


class WriterLock(Protocol):
    """Reentrant lock that serializes the writers of a disk that is nearly full."""

    def acquire(self, blocking: bool = True) -> bool:
        """Acquire the lock. True if successful."""

    def release(self) -> None:
        """Release the lock."""


class _Alone:
    """Null lock of a single writer."""

    def acquire(self, blocking: bool = True) -> bool:
        return True

    def release(self) -> None:
        return None


class FreeSpaceCheck:
    """Check of the free disk space for data not written yet. Accesses the disk: use it in threads.

    The reported free space of a file system ignores quotas. So a trial file of the needed size is
    allocated from time to time. Each time would cost more than most writes. During another writer's
    turn it would briefly take the room that this writer was promised.

    :param folder: a directory on the disk
    :param tmp: directory for the trial file
    :param beside: headroom of another writer to the same disk; None: there is none
    """

    ASKED_EVERY: Final = 1 << 20
    """Bytes written, or change of the needed bytes, after which the next trial is due."""
    PLENTY: Final = 5 << 20
    """Spare bytes beyond the need. With this much, both writers may write at the same time."""
    _NEVER: Final = -8 << 20

    def __init__(self, fs: Fs, folder: str, tmp: str, beside: FreeSpaceCheck | None = None) -> None:
        self._fs = fs
        self._folder = folder
        self._tmp = tmp
        self._beside = beside
        self._asked_for = self._NEVER
        self._written = 0
        self._has_turn = True
        self.turns: WriterLock = _Alone() if beside is None else beside.turns

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Hold the turn during a write: alone, or beside the other writer if there is plenty of
        room."""
        # Waits only if no trial has shown `PLENTY`. Otherwise both writers may write at once.
        self._has_turn = self.turns.acquire(self._asked_for == self._NEVER)
        try:
            yield
        finally:
            if self._has_turn:
                self.turns.release()

    def found(self, needed: Room) -> Room | None:
        """Return the free room if it covers `needed`, else None. The caller holds the turn.

        Without `PLENTY` of room beyond that, the other writer must wait for the end of the turn.

        :raises OSError: the disk fails other than by being full
        """
        room = self.left(Room(needed.bytes + self.PLENTY, needed.files))
        if room is None:
            if self._beside is not None:
                # The other writer waits for this one, then makes a trial before it writes.
                self._beside._asked_for = self._NEVER
            if self.left(needed) is not None:
                room = needed
        return room

    def left(self, needed: Room) -> Room | None:
        """Return the free room if a trial shows that it covers `needed`, else None.

        :raises OSError: the disk fails other than by being full
        """
        room = self._fs.room(self._folder)
        takes = room.holds(needed) and self._fs.takes(self._tmp, needed.bytes)
        return room if takes else None

    def covers(self, needed: Room, writing: int) -> bool:
        """True if the free room covers `needed`; for frequent checks between writes.

        :param writing: bytes of it that the caller writes now
        :raises OSError: the disk fails other than by being full
        """
        self._written += writing
        since = max(self._written, abs(needed.bytes - self._asked_for))
        # Without the lock a trial waits for the other writer. So it comes as late as the spare
        # bytes of the last one allow.
        unasked = self.ASKED_EVERY if self._has_turn else self.PLENTY - self.ASKED_EVERY
        if since < unasked:
            return self._fs.room(self._folder).holds(needed)
        if not self._has_turn:
            self._has_turn = self.turns.acquire()
        if self.left(Room(needed.bytes + self.PLENTY, needed.files)) is not None:
            self._asked_for, self._written = needed.bytes, writing
            return True
        # So close to a full disk, make a trial before each write.
        self._asked_for = self._NEVER
        return self.left(needed) is not None


class Reserve:
    """Reserve of one log: several files, each with a part of the bytes.

    It is released by removing files, the only operation that some file systems allow when full.

    :param folder: directory of its files
    :param size: its size; zero bytes: there are no files, and it always counts as held
    """

    def __init__(self, fs: Fs, folder: str, size: Room) -> None:
        self._fs = fs
        self._folder = folder
        files = size.files if size.bytes else 0
        path = f"{folder}/RESERVE"
        self._paths = [path, *(f"{path}.{n}" for n in range(1, files))][:files]
        # Rounded up: together the files hold at least `size`.
        self._part = -(-size.bytes // max(files, 1))
        self.held = False

    def inspect(self) -> None:
        """Check at an open if the reserve files exist."""
        self.held = all(map(self._fs.exists, self._paths))

    def fill(self) -> bool:
        """Fill the reserve as far as the disk has room. True if it is complete.

        :raises OSError: the disk fails other than by being full
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
                        raise OSError(errno.ENOSPC, "the free space is less than the reserve needs")
                    file.append(bytes(missing))
                    file.sync()
            finally:
                file.close()
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            self._give_up(path)  # a partial reserve file is useless
            return False
        if missing < 0:
            # A reserve file of an earlier version, which had all the bytes in one file.
            self._give_up(path)
            return self._hold(path)
        return True

    def release(self) -> bool:
        """Release the whole reserve. True if there was any.

        :raises OSError: the disk fails
        """
        # A list: `any` over a generator would stop after the first file.
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
        """Release one file of the reserve. True if there was any.

        :raises OSError: the disk fails
        """
        # Lazy: `any` stops after the first file that existed, so the rest stays in reserve.
        return any(map(self._give_up, reversed(self._paths)))

    def spend(self, work: Callable[[], T], allowed: bool = True) -> T:
        """Do work that needs disk space, with the reserve as a fallback.

        On a full disk retry with one file of the reserve released, then with all.

        The unused part is filled again at once, before another process takes it.

        :param allowed: True if the work may use the reserve
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
