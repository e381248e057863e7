"""Files that a command makes: there with all that they hold, or not there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from surfaces.command.opening import NotOpened

PARTIAL: Final = ".partial"
"""Ends the name of what is not all there yet."""


class NewFile:
    """A file that is being made. See `made`."""

    def __init__(self, path: str, handle: int) -> None:
        self.partial = path
        """What it is called so far."""
        self.size = 0
        """Bytes written."""
        self._handle = handle

    def write(self, data: bytes) -> None:
        """Write on. :raises OSError: as the disk says"""
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._handle, rest) :]
        self.size += len(data)

    def sync(self) -> None:
        """All that was written is on the disk, and is read from there. :raises OSError:"""
        os.fsync(self._handle)
        os.posix_fadvise(self._handle, 0, 0, os.POSIX_FADV_DONTNEED)


@contextmanager
def made(path: str) -> Iterator[NewFile]:
    """Make a file in the block: it has its name, and is on the disk, once the block has ended. It
    takes no other's place, and a block that fails leaves nothing.

    :raises NotOpened: something has the name, or the disk does not take it
    """
    if os.path.lexists(path):
        raise NotOpened(f"{path} exists, and is not replaced")
    try:
        yield from _made(path, path + PARTIAL)
    except OSError as error:
        raise NotOpened(f"{path}: {error.strerror}") from error


def _made(path: str, partial: str) -> Iterator[NewFile]:
    handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        file = NewFile(partial, handle)
        yield file
        file.sync()
        os.link(partial, path)  # unlike a rename, it replaces nothing
    finally:
        os.close(handle)
        os.unlink(partial)
    directory = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
