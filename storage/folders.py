"""A folder that is held open: the production side of the `Folder` door.

    enter, open    openat2 with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS: the kernel itself refuses
                   a way out. Where it has no such call (Linux before 5.6, some sandboxes): openat
                   on the folder's descriptor with O_NOFOLLOW, which comes to the same for a name
                   of one part
    rename         renameat2 with RENAME_NOREPLACE. Where kernel, library or file system has none:
                   a second name that fails when it is taken, and the first one removed

Which of them there is shows at each call: file systems differ under one kernel.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat
from contextlib import suppress
from typing import Final, Self

from protocol.doors import Entry, File, Room
from storage.disk_files import DIRECTORY_MODE, FILE_MODE, DiskFile, room_of

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_OPENAT2: Final = 437
"""The same on every architecture."""
_RESOLVE_NO_SYMLINKS: Final = 0x04
_RESOLVE_BENEATH: Final = 0x08
_RENAME_NOREPLACE: Final = 1
_NOT_THERE: Final = frozenset({errno.ENOSYS, errno.EPERM, errno.EOPNOTSUPP, errno.EINVAL})
"""What a call is answered with that kernel, sandbox or file system doesn't have. One that is
refused for another reason by the same number is refused by its substitute too."""
_LOOKED: Final = 8
"""How often openat2 is asked anew while others rename what is beneath the folder."""


class _How(ctypes.Structure):
    """struct open_how of <linux/openat2.h>."""

    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


assert ctypes.sizeof(_How) == 24


class DiskFolder:
    """A directory of this machine (`protocol.doors.Folder`).

    :param newest: whether the calls are tried that not every kernel has
    """

    __slots__ = ("_descriptor", "_newest")

    def __init__(self, descriptor: int, newest: bool = True) -> None:
        self._descriptor = descriptor
        self._newest = newest

    @classmethod
    def open(cls, path: str, newest: bool = True) -> Self:
        """Hold the directory at a path open; links on the way to it are followed."""
        return cls(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), newest)

    def enter(self, name: str) -> DiskFolder:
        """The directory of that name in it. :raises NotADirectoryError: a link or file has it"""
        try:
            descriptor = self._open(name, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise _failed(errno.ENOTDIR, name) from error
            raise
        return DiskFolder(descriptor, self._newest)

    def make_folder(self, name: str) -> None:
        """Create a directory in it, for its owner only."""
        os.mkdir(name, DIRECTORY_MODE, dir_fd=self._descriptor)

    def remove_folder(self, name: str) -> None:
        """Remove an empty directory in it."""
        os.rmdir(name, dir_fd=self._descriptor)

    def create(self, name: str) -> DiskFile:
        """A new file, locked until it is closed: a process that was killed holds nothing."""
        descriptor = self._open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:  # somebody else was looking whether it is held
            os.close(descriptor)
            raise _failed(errno.EEXIST, name) from error
        return DiskFile(descriptor)

    def open_read(self, name: str) -> DiskFile:
        """Open a file for reading. What would make its opener wait, as a pipe, is no file."""
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
        """Whether some process has created the file of that name and has it open still."""
        file = self.open_read(name)
        try:
            fcntl.flock(file.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            file.close()
        return False

    def names(self) -> list[str]:
        """Names in it, sorted."""
        return sorted(os.listdir(self._descriptor))

    def entry(self, name: str) -> Entry | None:
        """What has the name; None: nothing."""
        try:
            found = os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return None
        mode = found.st_mode
        changed_us = found.st_mtime_ns // 1000
        if stat.S_ISREG(mode):
            return Entry("file", found.st_size, changed_us)
        return Entry("folder" if stat.S_ISDIR(mode) else "other", found.st_size, changed_us)

    def is_at(self, file: File, name: str) -> bool:
        """Whether an open file is what has the name."""
        assert isinstance(file, DiskFile)
        try:
            there = os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return os.path.samestat(os.fstat(file.descriptor), there)

    def rename(self, source: str, target: str) -> None:
        """Give a file in it another name. :raises FileExistsError: something has that name"""
        if self._newest and self._renamed(source, target):
            return
        here = self._descriptor
        os.link(source, target, src_dir_fd=here, dst_dir_fd=here, follow_symlinks=False)
        os.unlink(source, dir_fd=here)

    def _renamed(self, source: str, target: str) -> bool:
        """Whether there is a call for that here."""
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
        """Remove a file or a link in it."""
        os.unlink(name, dir_fd=self._descriptor)

    def sync(self) -> None:
        """Make its entries durable."""
        os.fsync(self._descriptor)

    def room(self) -> Room:
        """What may still be written and made in it, quotas not seen."""
        return room_of(self._descriptor)

    def close(self) -> None:
        """Let go of it."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)

    def _open(self, name: str, flags: int) -> int:
        """The descriptor of what has a name of one part in this directory."""
        assert "/" not in name and name not in ("", ".", ".."), f"{name!r} is no plain part"
        flags |= os.O_CLOEXEC
        if self._newest:
            with suppress(NotImplementedError):
                return self._open_beneath(name, flags)
        return os.open(name, flags | os.O_NOFOLLOW, FILE_MODE, dir_fd=self._descriptor)

    def _open_beneath(self, name: str, flags: int) -> int:
        """:raises NotImplementedError: there is no such call here"""
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
