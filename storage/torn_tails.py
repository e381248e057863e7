"""Torn tails: the bytes that a recovery cut off the log, kept beside it for people: log/….cut."""

from __future__ import annotations

from typing import Final

from protocol.doors import File, Fs
from storage.facts import replace_file
from storage.reserve import NO_ROOM, drop_temporary
from storage.segments import Segment

SUFFIX: Final = ".cut"
KEPT: Final = 8
"""The newest ones."""


def set_aside(
    fs: Fs, folder: str, tmp: str, file: File, segment: Segment, offset: int
) -> str | None:
    """Keep the bytes of a segment from `offset` on. Answers where, or None: nothing needs them, so
    a full disk may lose them. :raises OSError: as the disk says, but for a full one"""
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
    """Remove all but the newest."""
    names = [name for name in fs.names(folder) if name.endswith(SUFFIX)]
    for name in names[:-KEPT]:
        fs.unlink(f"{folder}/{name}")
