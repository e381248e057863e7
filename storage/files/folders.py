"""Folder held open by descriptor: the production implementation of `protocol.environment.Folder`.

    enter, open    openat2 with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS: the kernel refuses paths
                   that lead out. Without that call (Linux before 5.6, some sandboxes): openat on
                   the folder's descriptor with O_NOFOLLOW, equivalent for a single-part name
    rename         renameat2 with RENAME_NOREPLACE. Without it in kernel, library or file system:
                   a hard link, which fails if the name exists, then unlink of the old name

Availability is tested on each call, because file systems differ under one kernel.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat
from contextlib import suppress
from typing import Final, Self

from protocol.environment import DirectoryEntry, File, Room
from storage.files.disk_files import DIRECTORY_MODE, FILE_MODE, DiskFile, room_of

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_OPENAT2: Final = 437
"""System call number, the same on every architecture."""
_RESOLVE_NO_SYMLINKS: Final = 0x04
_RESOLVE_BENEATH: Final = 0x08
_RENAME_NOREPLACE: Final = 1
_NOT_THERE: Final = frozenset({errno.ENOSYS, errno.EPERM, errno.EOPNOTSUPP, errno.EINVAL})
"""Errors of a call that the kernel, sandbox or file system does not support. If such an error has
another cause, the substitute call fails too."""
_LOOKED: Final = 8
"""Attempts of openat2 while concurrent renames beneath the folder interrupt it."""


class _How(ctypes.Structure):
    """struct open_how of <linux/openat2.h>."""

    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


assert ctypes.sizeof(_How) == 24


class DiskFolder:
    """A directory held open (`protocol.environment.Folder`).

    :param newest: try the calls that not every kernel has
    """

    __slots__ = ("_descriptor", "_newest")

    def __init__(self, descriptor: int, newest: bool = True) -> None:
        self._descriptor = descriptor
        self._newest = newest

    @classmethod
    def open(cls, path: str, newest: bool = True) -> Self:
        """Open the directory at a path; links on the way to it are followed."""
        return cls(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), newest)

    def enter(self, name: str) -> DiskFolder:
        """Open a subdirectory. :raises NotADirectoryError: the name is a link or a file"""
        try:
            descriptor = self._open(name, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise _failed(errno.ENOTDIR, name) from error
            raise
        return DiskFolder(descriptor, self._newest)

    def make_folder(self, name: str) -> None:
        """Create a subdirectory, accessible to its owner only."""
        os.mkdir(name, DIRECTORY_MODE, dir_fd=self._descriptor)

    def remove_folder(self, name: str) -> None:
        """Remove an empty subdirectory."""
        os.rmdir(name, dir_fd=self._descriptor)

    def create(self, name: str) -> DiskFile:
        """Create a file and hold a flock on it until it is closed. The kernel releases the lock of
        a killed process."""
        descriptor = self._open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:  # another process is testing the lock in `is_held`
            os.close(descriptor)
            raise _failed(errno.EEXIST, name) from error
        return DiskFile(descriptor)

    def open_read(self, name: str) -> DiskFile:
        """Open a regular file for reading. Others, such as pipes that could block, are absent."""
        try:
            descriptor = self._open(name, os.O_RDONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO):
                raise _failed(errno.ENOENT, name) from error
            raise
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise _failed(errno.ENOENT, name)
        return DiskFile(descriptor)

    def is_held(self, name: str) -> bool:
        """Return True if some process created the file and still has it open."""
        file = self.open_read(name)
        try:  # shared: two processes that test at once don't see each other
            fcntl.flock(file.descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            file.close()
        return False

    def names(self) -> list[str]:
        """Return the names in the folder, sorted."""
        return sorted(os.listdir(self._descriptor))

    def entry(self, name: str) -> DirectoryEntry | None:
        """Return kind, size and time of a name; None: it does not exist."""
        try:
            found = os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return None
        mode = found.st_mode
        changed_us = found.st_mtime_ns // 1000
        if stat.S_ISREG(mode):
            return DirectoryEntry("file", found.st_size, changed_us)
        return DirectoryEntry(
            "folder" if stat.S_ISDIR(mode) else "other", found.st_size, changed_us
        )

    def is_at(self, file: File, name: str) -> bool:
        """Return True if a name still refers to an open file."""
        assert isinstance(file, DiskFile)
        try:
            there = os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return os.path.samestat(os.fstat(file.descriptor), there)

    def rename(self, source: str, target: str) -> None:
        """Rename a file within the folder. :raises FileExistsError: the target exists"""
        if self._newest and self._renamed(source, target):
            return
        here = self._descriptor
        os.link(source, target, src_dir_fd=here, dst_dir_fd=here, follow_symlinks=False)
        os.unlink(source, dir_fd=here)

    def _renamed(self, source: str, target: str) -> bool:
        """Try renameat2. Return False if it is not supported here."""
        call = getattr(_LIBC, "renameat2", None)
        if call is None:
            return False
        here, names = self._descriptor, (os.fsencode(source), os.fsencode(target))
        if call(here, names[0], here, names[1], _RENAME_NOREPLACE) == 0:
            return True
        number = ctypes.get_errno()
        if number in _NOT_THERE:
            return False
        raise _failed(number, target if number == errno.EEXIST else source)

    def unlink(self, name: str) -> None:
        """Remove a file or a link."""
        os.unlink(name, dir_fd=self._descriptor)

    def sync(self) -> None:
        """Make the entries of the folder durable."""
        os.fsync(self._descriptor)

    def room(self) -> Room:
        """Return the free space and inodes, ignoring quotas."""
        return room_of(self._descriptor)

    def close(self) -> None:
        """Close the folder. A second call has no effect."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)

    def _open(self, name: str, flags: int) -> int:
        """Open a single-part name in the folder and return the descriptor."""
        assert "/" not in name and name not in ("", ".", ".."), f"{name!r} is no plain part"
        flags |= os.O_CLOEXEC
        if self._newest:
            with suppress(NotImplementedError):
                return self._open_beneath(name, flags)
        return os.open(name, flags | os.O_NOFOLLOW, FILE_MODE, dir_fd=self._descriptor)

    def _open_beneath(self, name: str, flags: int) -> int:
        """Call openat2. :raises NotImplementedError: it is not supported here"""
        mode = FILE_MODE if flags & os.O_CREAT else 0
        how = _How(flags, mode, _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS)
        for _ in range(_LOOKED):
            path = os.fsencode(name)
            descriptor: int = _LIBC.syscall(
                _OPENAT2, self._descriptor, path, ctypes.byref(how), ctypes.sizeof(how)
            )
            if descriptor >= 0:
                return descriptor
            number = ctypes.get_errno()
            if number not in (errno.EAGAIN, errno.EINTR):
                break
        if number in _NOT_THERE:
            raise NotImplementedError
        raise _failed(number, name)


def _failed(number: int, name: str) -> OSError:
    return OSError(number, os.strerror(number), name)
