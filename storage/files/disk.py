"""The real disk: the production implementation of `protocol.environment.Fs`.

Every method blocks for one or two system calls; a caller that must not block uses a thread. Files
get mode 0600 and directories 0700.
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

from protocol.environment import Room
from storage.files.disk_files import DIRECTORY_MODE, FILE_MODE, DiskFile, room_of
from storage.files.disk_reserve import NO_ROOM
from storage.files.folders import DiskFolder

OTHERS: Final = 0o077
CAN_NOT_ALLOCATE: Final = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM, errno.EACCES)
"""Errors that mean fallocate is unavailable. All others are reported: a full or failing disk above
all."""
_KEEP_SIZE: Final = 1
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_LIBC.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


class DiskLock:
    """A held flock; the kernel releases it when the process ends, however it ends."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        """Release the lock."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


class Disk:
    """Files and directories of this machine (`protocol.environment.Fs`)."""

    __slots__ = ()

    def open(self, path: str, *, create: bool = False, exclusive: bool = False) -> DiskFile:
        """Open for reading and appending. `exclusive`: create, and fail if it exists."""
        flags = os.O_RDWR | os.O_CLOEXEC
        if create or exclusive:
            flags |= os.O_CREAT
        if exclusive:
            flags |= os.O_EXCL
        descriptor = os.open(path, flags, FILE_MODE)
        os.lseek(descriptor, 0, os.SEEK_END)
        return DiskFile(descriptor)

    def open_read(self, path: str) -> DiskFile:
        """Open for reading only. :raises IsADirectoryError: checked, as the kernel would open it"""
        if os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return DiskFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def exists(self, path: str) -> bool:
        """Return True if anything is at `path`, a dangling symbolic link included."""
        return os.path.lexists(path)

    def is_directory(self, path: str) -> bool:
        """Return True if a directory is at `path`."""
        return os.path.isdir(path)

    def names(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""
        return sorted(os.listdir(path))

    def make_directory(self, path: str) -> None:
        """Create one directory, accessible to its owner only."""
        os.mkdir(path, DIRECTORY_MODE)

    def close_to_others(self, path: str) -> bool:
        """Set mode 0700 on a directory. Return True if others had access before."""
        if not os.stat(path).st_mode & OTHERS:
            return False
        os.chmod(path, DIRECTORY_MODE)
        return True

    def open_folder(self, path: str) -> DiskFolder:
        """Open a directory to work only within it. Links on the way to it are followed."""
        return DiskFolder.open(path)

    def rename(self, source: str, target: str) -> None:
        """Rename `source` to `target` atomically, replacing an existing file."""
        os.rename(source, target)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        os.unlink(path)

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all its content; links are removed, not followed."""
        shutil.rmtree(path)

    def sync_directory(self, path: str) -> None:
        """Make the entries of a directory durable."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lock(self, path: str, sign: str) -> DiskLock | None:
        """Take the flock on the directory `path`; return None if another open file holds it.

        The lock is on the directory itself. A lock on a file in it would be lost once that file is
        removed or replaced, because the next start would lock the new one.

        :param sign: file to record the owner in
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
        """Return the free space and inodes for this process at `path`, ignoring quotas."""
        return room_of(path)

    def takes(self, folder: str, size: int) -> bool:
        """Return True if a directory would accept a new file of `size` bytes, quotas included."""
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
    """Create a file under a unique name, `path` or one derived from it: the log thread and the
    state may ask at the same time."""
    for number in count():
        name = f"{path}-{number}" if number else path
        with suppress(FileExistsError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            return os.open(name, flags, FILE_MODE), name
    raise AssertionError("numbers don't end")


def _allocate(descriptor: int, count: int) -> None:
    """Reserve `count` bytes for a file without changing its size. Does nothing where the file
    system or a system call filter does not support it; then only `room` can tell.
    (`os.posix_fallocate` would write every block instead.)"""
    while count and _LIBC.fallocate(descriptor, _KEEP_SIZE, 0, count):
        number = ctypes.get_errno()
        if number in CAN_NOT_ALLOCATE:
            return
        if number != errno.EINTR:
            raise OSError(number, os.strerror(number))


def _show_owner(sign: str) -> None:
    """Record the lock's owner for people to read. A full disk is ignored."""
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
