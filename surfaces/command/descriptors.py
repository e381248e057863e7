"""Open files: how many the process may have, and the three it is born with."""

from __future__ import annotations

import io
import os
import resource
import sys
from typing import Any

from protocol import limits

NEEDED = 2 * limits.CONNECTIONS + 4096
"""Every connection both surfaces may hold, and room for the state engine's files."""


class OutputLost(OSError):
    """Standard output takes nothing more: its device is full, or nobody reads it."""


class _Output(io.FileIO):
    """:raises OutputLost: where a write fails"""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            # What was not taken is offered once more at the end of the interpreter.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            raise OutputLost(error.errno, error.strerror) from error


def tell_of_lost_output() -> None:
    """From now on who writes to standard output where that takes nothing more hears `OutputLost`,
    which no other file raises."""
    before = sys.stdout
    if before is not sys.__stdout__ or not isinstance(before, io.TextIOWrapper):
        return  # somebody has put something else in its place
    raw = _Output(before.fileno(), "wb", closefd=False)
    sys.stdout = io.TextIOWrapper(
        raw if before.write_through else io.BufferedWriter(raw),
        encoding=before.encoding,
        errors=before.errors,
        line_buffering=before.line_buffering,
        write_through=before.write_through,
    )


def for_connections(limit: int) -> int:
    """The number below which the descriptors of connections are to stay, of a process that may have
    `limit` open files: log and state get what they need whoever connects."""
    return limit - min(limits.DESCRIPTORS_KEPT, limit // 2)


def keep_standard_streams() -> None:
    """Open /dev/null in the place of each standard stream that is closed.

    Otherwise the next file opened, a log segment perhaps, gets the number of standard error, and
    whatever any library prints there is written into it.
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
    """Raise the limit on open files as far as this process may, up to what it can use. Answers
    the limit in force; below `NEEDED` the connection ceilings can't be reached."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(soft, NEEDED)
    for attempt in ((wanted, max(hard, wanted)), (min(wanted, hard), hard)):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, attempt)
        except (ValueError, OSError):
            continue  # more than the hard limit takes privileges; then as much as it allows
        return attempt[0]
    return soft
