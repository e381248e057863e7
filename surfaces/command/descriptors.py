"""Open files: how many the process may have, and the three it is born with."""

from __future__ import annotations

import os
import resource

from protocol import limits

NEEDED = 2 * limits.CONNECTIONS + 4096
"""Every connection both surfaces may hold, and room for the state engine's files."""


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
