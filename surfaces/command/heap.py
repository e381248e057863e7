"""What the process keeps of memory it no longer uses, and how it looks for it."""

from __future__ import annotations

import ctypes
import gc
from typing import Final

MIB: Final = 1 << 20
LARGE_BYTES: Final = MIB
"""From this size on a block is the system's own and goes back to it when it is freed."""
COLLECT_AFTER: Final = (5_000, 10, 1_000)
"""New containers before a collection of the young, young ones before one of the middle, and so on.
A bulk insert makes 10 000 containers that no cycle holds; with the interpreter's 700 a quarter of
its time was spent on finding that out. A collection holds the loop for as long as it looks: with
these, 2 ms for the young and the middle. With 20 000 it was 20 to 60 ms beside a statement that
answers 200 000 rows, and with a whole one each 20, which looks through all of them, 300 ms. A whole
one now comes after 50 million new containers: hardly anything here is part of a cycle."""

ARENAS: Final = 2
"""Places that threads take memory from: one for the loop, one for all beside it. glibc would give
each thread its own, up to eight for each core, and what one has freed no other uses."""

_MMAP_THRESHOLD: Final = -3
_TRIM_THRESHOLD: Final = -1
_ARENA_MAX: Final = -8


def keep_little() -> bool:
    """Have the C library return large blocks when they are freed, and threads share what the others
    have freed. False where it can't be told.

    Left to itself, glibc raises its threshold to the largest block it has seen freed, and keeps
    blocks below that for each thread that used one: 19 MiB for each thread that ever hashed a
    password, 16 MiB for a long frame.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False  # not glibc: nothing of the above happens there
    told = [mallopt(name, LARGE_BYTES) for name in (_MMAP_THRESHOLD, _TRIM_THRESHOLD)]
    told.append(mallopt(_ARENA_MAX, ARENAS))
    return all(told)


def collect_less_often() -> None:
    """From the first import on: the start alone would be looked through a hundred times."""
    gc.set_threshold(*COLLECT_AFTER)


def leave_the_start_alone() -> None:
    """Take all that exists now, code and tables above all, out of every later collection. Called
    once the node is ready."""
    gc.collect()
    gc.freeze()
