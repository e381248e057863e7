"""The real disk: the production implementation of `protocol.environment.Fs`, `File` and `Folder`.

Every method blocks for one or two system calls; a caller that must not block uses a thread. Files
get mode 0600 and directories 0700.

A folder is held open by descriptor:

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
import pwd
import shutil
import stat
from contextlib import suppress
from itertools import count
from typing import Final, Self

from protocol.environment import COURTESY, DirectoryEntry, File, Room
from storage.files.disk_reserve import NO_ROOM

FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700
UNCOUNTED: Final = 1 << 62
"""Number of free inodes reported for file systems that do not count them."""


class DiskFile:
    """An open file (`protocol.environment.File`)."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @property
    def descriptor(self) -> int:
        """File descriptor, for system calls that this class does not wrap."""
        return self._descriptor

    def append(self, data: bytes, ahead: int = 0) -> None:
        """Append all of `data`, finishing short writes, then `ahead` zero bytes that the next
        append overwrites. The descriptor's position is the end of the data."""
        if ahead:
            # In the same write: later appends keep the file size, so their syncs need no journal
            # transaction (docs/decisions/preallocated-segments.md).
            data += bytes(ahead)
        written = os.write(self._descriptor, data)
        if written != len(data):
            # A view, so that the rest of a large batch is not copied for each short write.
            rest = memoryview(data)[written:]
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        if ahead:
            os.lseek(self._descriptor, -ahead, os.SEEK_CUR)

    def read(self, offset: int, count: int) -> bytes:
        """Read up to `count` bytes from `offset`; fewer only at the end of the file."""
        data = os.pread(self._descriptor, count, offset)
        if len(data) == count or not data:
            return data
        parts = [data]
        have = len(data)
        while have < count:
            data = os.pread(self._descriptor, count - have, offset + have)
            if not data:
                break
            parts.append(data)
            have += len(data)
        return b"".join(parts)

    def sync(self) -> None:
        """Call fdatasync: data and size are durable on return."""
        os.fdatasync(self._descriptor)

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes; durable after the next `sync`."""
        os.ftruncate(self._descriptor, size)
        # ftruncate keeps the position: the next append would leave a hole before its data.
        os.lseek(self._descriptor, size, os.SEEK_SET)

    def size(self) -> int:
        """Return the current size in bytes."""
        return os.fstat(self._descriptor).st_size

    def forget_cache(self) -> None:
        """Drop clean pages from the page cache.

        After a failed fdatasync those pages may hold data that the disk does not have. Once they
        are dropped, the next read shows the disk's content.
        """
        with COURTESY:
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        """Close without syncing. A second call has no effect."""
        if self._descriptor >= 0:
            # Forgotten before the close: a number closed twice may belong to another file by then.
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


def room_of(where: str | int) -> Room:
    """Return the free space and inodes for this process, ignoring quotas.

    :param where: a path, or an open descriptor
    """
    figures = os.statvfs(where)
    # Some file systems allocate inodes dynamically and report a count of 0.
    files = figures.f_favail if figures.f_files else UNCOUNTED
    size = figures.f_frsize
    return Room(figures.f_bavail * size, files, figures.f_blocks * size)


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
            # A link is refused with ELOOP; callers expect one error for all that is no folder.
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
            # ELOOP: a link. ENXIO: a socket, or a device without a driver.
            if error.errno in (errno.ELOOP, errno.ENXIO):
                raise _failed(errno.ENOENT, name) from error
            raise
        # By descriptor: between a check by name and the open, another file could get the name.
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
        # Not `os.rename`, which replaces the target. A crash in between leaves both names.
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
        # openat2 refuses a mode without O_CREAT; openat ignores it.
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
            # EAGAIN: a concurrent rename kept the kernel from proving that the path stays inside.
            if number not in (errno.EAGAIN, errno.EINTR):
                break
        if number in _NOT_THERE:
            raise NotImplementedError
        raise _failed(number, name)


def _failed(number: int, name: str) -> OSError:
    return OSError(number, os.strerror(number), name)


OTHERS: Final = 0o077
CAN_NOT_ALLOCATE: Final = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM, errno.EACCES)
"""Errors that mean fallocate is unavailable. All others are reported: a full or failing disk above
all."""
_KEEP_SIZE: Final = 1
# Without declared types ctypes passes a C int, which cuts off sizes from 2 GiB on.
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
        # Not O_APPEND, which would write behind the preallocated zeros.
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

    def other_owner(self, path: str) -> str | None:
        """Return the user that a path belongs to; None: the user of this process."""
        owner = os.stat(path).st_uid
        if owner == os.geteuid():
            return None
        try:
            return pwd.getpwuid(owner).pw_name
        except KeyError:  # an id without a name
            return str(owner)

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
