"""What the process keeps of memory it no longer uses."""

from __future__ import annotations

import ctypes
from typing import Final

MIB: Final = 1 << 20
LARGE_BYTES: Final = MIB
"""From this size on a block is the system's own and goes back to it when it is freed."""

_MMAP_THRESHOLD: Final = -3
_TRIM_THRESHOLD: Final = -1


def give_back_large_blocks() -> bool:
    """Have the C library return large blocks when they are freed. False where it can't be told.

    Left to itself, glibc raises its threshold to the largest block it has seen freed, and keeps
    blocks below that for each thread that used one: 19 MiB for each thread that ever hashed a
    password, 16 MiB for a long frame.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False  # not glibc: nothing of the above happens there
    told = [mallopt(name, LARGE_BYTES) for name in (_MMAP_THRESHOLD, _TRIM_THRESHOLD)]
    return all(told)
