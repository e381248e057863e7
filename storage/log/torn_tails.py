"""Torn tails: bytes that a recovery or a truncation cut off the log, kept for the operator in
`.cut` files."""

from __future__ import annotations

from typing import Final

from protocol.environment import File, Fs
from storage.files.disk_reserve import NO_ROOM, drop_temporary
from storage.files.metadata_file import replace_file
from storage.log.segments import Segment

SUFFIX: Final = ".cut"
KEPT: Final = 8
"""Number of `.cut` files kept, the newest ones."""


def set_aside(
    fs: Fs, folder: str, tmp: str, file: File, segment: Segment, offset: int
) -> str | None:
    """Save the bytes of a segment from `offset` on. Return the path.

    None if the disk is full: the file serves only the operator, so it may be lost.

    :raises OSError: the disk fails other than by being full
    """
    target = f"{folder}/{segment.first:020d}.{offset}{SUFFIX}"
    try:
        data = file.read(offset, segment.size - offset)
        replace_file(fs, tmp, target, data)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        drop_temporary(fs, tmp, target)
        return None
    return target


def drop_old(fs: Fs, folder: str) -> None:
    """Remove all but the newest `KEPT` files."""
    names = [name for name in fs.names(folder) if name.endswith(SUFFIX)]
    for name in names[:-KEPT]:
        fs.unlink(f"{folder}/{name}")
