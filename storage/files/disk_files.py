"""Open files and free space, shared by the real disk and by folders of it."""

from __future__ import annotations

import os
from typing import Final

from protocol.environment import COURTESY, Room

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
            data += bytes(ahead)
        written = os.write(self._descriptor, data)
        if written != len(data):
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
