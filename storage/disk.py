"""The real disk: the production side of the `Fs` door.

Every call is one or two system calls and blocks; whoever must not block calls from a thread. Files
are made with mode 0600 and directories with 0700.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
from contextlib import suppress
from itertools import count
from typing import Final

from protocol.doors import Room
from storage.disk_files import DIRECTORY_MODE, FILE_MODE, DiskFile, room_of
from storage.folders import DiskFolder
from storage.reserve import NO_ROOM

OTHERS: Final = 0o077
CAN_NOT_ALLOCATE: Final = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM, errno.EACCES)
"""No courtesy: what else is refused, a full or failing disk above all, has to be heard of."""
_KEEP_SIZE: Final = 1
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_LIBC.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


class DiskLock:
    """A held flock; the kernel gives it up when the process ends, however it ends."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        """Give the lock up."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


class Disk:
    """Files and directories of this machine (`protocol.doors.Fs`)."""

    __slots__ = ()

    def open(self, path: str, *, create: bool = False, exclusive: bool = False) -> DiskFile:
        """Open for reading and appending. `exclusive`: create, and fail when it exists."""
        flags = os.O_RDWR | os.O_CLOEXEC
        if create or exclusive:
            flags |= os.O_CREAT
        if exclusive:
            flags |= os.O_EXCL
        descriptor = os.open(path, flags, FILE_MODE)
        os.lseek(descriptor, 0, os.SEEK_END)
        return DiskFile(descriptor)

    def open_read(self, path: str) -> DiskFile:
        """Open for reading only. :raises IsADirectoryError: a directory, which opens as well"""
        if os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return DiskFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def exists(self, path: str) -> bool:
        """Whether anything is at `path`, a dangling link included."""
        return os.path.lexists(path)

    def is_directory(self, path: str) -> bool:
        """Whether a directory is at `path`."""
        return os.path.isdir(path)

    def names(self, path: str) -> list[str]:
        """Names in a directory, sorted."""
        return sorted(os.listdir(path))

    def make_directory(self, path: str) -> None:
        """Create one directory, for its owner only."""
        os.mkdir(path, DIRECTORY_MODE)

    def close_to_others(self, path: str) -> bool:
        """Mode 0700 for a directory. Answers whether it let others in before."""
        if not os.stat(path).st_mode & OTHERS:
            return False
        os.chmod(path, DIRECTORY_MODE)
        return True

    def open_folder(self, path: str) -> DiskFolder:
        """Hold a directory open, to work in it alone. Links on the way to it are followed."""
        return DiskFolder.open(path)

    def rename(self, source: str, target: str) -> None:
        """Give `source` the name `target`, replacing what had it, in one step."""
        os.rename(source, target)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        os.unlink(path)

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all it holds; links are removed, not followed."""
        shutil.rmtree(path)

    def sync_directory(self, path: str) -> None:
        """Make the entries of a directory durable."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lock(self, path: str, sign: str) -> DiskLock | None:
        """Take the flock on the directory `path`; None when another open file holds it.

        On the directory itself: a lock on a file in it would hold nobody off once that file is
        removed or replaced, since the next start locks the new one.
        """
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _show_owner(sign)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        return DiskLock(descriptor)

    def room(self, path: str) -> Room:
        """What this process may still write and make below `path`; quotas are not seen."""
        return room_of(path)

    def takes(self, folder: str, size: int) -> bool:
        """Whether a new file of so many bytes would be taken in a directory, quotas included."""
        try:
            descriptor, path = _new_file(f"{folder}/.takes")
            try:
                _allocate(descriptor, size)
            finally:
                os.close(descriptor)
                os.unlink(path)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            return False
        return True


def _new_file(path: str) -> tuple[int, str]:
    """A file that nobody else has, under that name or one beside it: the log's thread may ask at
    the same moment as the state's."""
    for number in count():
        name = f"{path}-{number}" if number else path
        with suppress(FileExistsError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            return os.open(name, flags, FILE_MODE), name
    raise AssertionError("numbers don't end")


def _allocate(descriptor: int, count: int) -> None:
    """Take so many bytes of the disk for a file, and leave its size. Nothing happens where a file
    system or a filter of system calls does not allow it: what `room` says is all there is to know
    then. (`os.posix_fallocate` would write every block instead.)"""
    while count and _LIBC.fallocate(descriptor, _KEEP_SIZE, 0, count):
        number = ctypes.get_errno()
        if number in CAN_NOT_ALLOCATE:
            return
        if number != errno.EINTR:
            raise OSError(number, os.strerror(number))


def _show_owner(sign: str) -> None:
    """Write down who holds the lock. It is for people only: no room for it is no reason to stop."""
    try:
        descriptor = os.open(sign, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\nstorenode\n".encode(), 0)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
