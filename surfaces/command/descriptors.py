"""File descriptors: the limit of the process, and the three standard streams."""

from __future__ import annotations

import io
import os
import resource
import sys
from typing import Any

from protocol import limits

NEEDED = 2 * limits.CONNECTIONS + 4096
"""Descriptors for every connection of both surfaces, and for the state engine's files."""


class OutputLost(OSError):
    """Standard output can't be written: its device is full, or its reader is gone."""


class _Output(io.FileIO):
    """:raises OutputLost: a write failed"""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            # The interpreter offers unwritten data once more at its end.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            raise OutputLost(error.errno, error.strerror) from error


def raise_on_lost_output() -> None:
    """Make writes to a broken standard output raise `OutputLost`, which no other file raises."""
    before = sys.stdout
    if before is not sys.__stdout__ or not isinstance(before, io.TextIOWrapper):
        return  # standard output has been replaced
    raw = _Output(before.fileno(), "wb", closefd=False)
    sys.stdout = io.TextIOWrapper(
        raw if before.write_through else io.BufferedWriter(raw),
        encoding=before.encoding,
        errors=before.errors,
        line_buffering=before.line_buffering,
        write_through=before.write_through,
    )


def for_connections(limit: int) -> int:
    """Return the number below which connections' descriptors must stay, given the limit on open
    files: log and state get the rest, whatever number of clients connects."""
    return limit - min(limits.DESCRIPTORS_KEPT, limit // 2)


def keep_standard_streams() -> None:
    """Open /dev/null in the place of each standard stream that is closed.

    Otherwise the next opened file, perhaps a log segment, gets the number of standard error, and
    the output of any library is written into it.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest free number
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)


def raise_limit() -> int:
    """Raise the limit on open files as far as this process may, up to the number it can use. Return
    the limit in force; below `NEEDED` the connection ceilings can't be reached."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(soft, NEEDED)
    for attempt in ((wanted, max(hard, wanted)), (min(wanted, hard), hard)):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, attempt)
        except (ValueError, OSError):
            continue  # raising the hard limit needs privileges; try up to it
        return attempt[0]
    return soft
