"""Open files of this machine, and what its file systems have left: what the real disk and a folder
of it have in common."""

from __future__ import annotations

import os
from typing import Final

from protocol.doors import COURTESY, Room

FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700
UNCOUNTED: Final = 1 << 62
"""Files that may still be made where nobody counts them."""


class DiskFile:
    """An open file (`protocol.doors.File`)."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @property
    def descriptor(self) -> int:
        """For what only the system knows of it."""
        return self._descriptor

    def append(self, data: bytes, ahead: int = 0) -> None:
        """Write all of `data` at the end, finishing short writes. The end is where the descriptor
        stands: behind it there is nothing but what was put ahead."""
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
        """Up to `count` bytes from `offset`; fewer only at the end of the file."""
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
        """fdatasync: data and size are on the disk on return."""
        os.fdatasync(self._descriptor)

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes; durable after the next `sync`."""
        os.ftruncate(self._descriptor, size)
        os.lseek(self._descriptor, size, os.SEEK_SET)

    def size(self) -> int:
        """Current size in bytes."""
        return os.fstat(self._descriptor).st_size

    def forget_cache(self) -> None:
        """Drop cached pages that are not waiting to be written.

        After a failed sync those pages hold what the disk does not; dropped, the next read tells
        the truth.
        """
        with COURTESY:
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        """Close without syncing. Closing twice does nothing."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


def room_of(where: str | int) -> Room:
    """What this process may still write and make there; quotas are not seen.

    :param where: a path, or an open descriptor
    """
    figures = os.statvfs(where)
    # Some file systems make inodes as they are asked for, and count none.
    files = figures.f_favail if figures.f_files else UNCOUNTED
    size = figures.f_frsize
    return Room(figures.f_bavail * size, files, figures.f_blocks * size)
