"""Memory that the process keeps after freeing it, garbage collection, and threads of numpy."""

from __future__ import annotations

import ctypes
import gc
import os
from typing import Final

MIB: Final = 1 << 20
LARGE_BYTES: Final = MIB
"""Bytes from which on a block is mapped by itself, and returned to the system when it is freed."""
COLLECT_AFTER: Final = (5_000, 10, 1_000)
"""Thresholds of the garbage collector: new containers before a collection of the youngest
generation, young collections before one of the middle generation, middle ones before a full one.

A bulk insert makes 10 000 containers that no cycle holds. With the interpreter's default of 700 it
spent a quarter of its time in the collector. A collection blocks the loop: with these values, 2 ms
for the young and the middle generation. With 20 000 it took 20 to 60 ms beside a statement that
answers 200 000 rows. A full collection after every 20 took 300 ms, since it visits everything. A
full one comes after 50 million new containers: hardly anything here is part of a cycle.
"""

ARENAS: Final = 2
"""Arenas of glibc: one for the loop, one for all other threads. By default glibc gives each thread
its own, up to eight per core, and memory freed in one is not reused by others."""

_MMAP_THRESHOLD: Final = -3
_TRIM_THRESHOLD: Final = -1
_ARENA_MAX: Final = -8


def return_freed_memory() -> bool:
    """Make the C library return large blocks when they are freed, and share arenas among threads.
    Return False if it can't be configured.

    By default glibc raises its mmap threshold to the largest block it has seen freed, and keeps
    smaller blocks for each thread that used one. That was 19 MiB for each thread that ever hashed a
    password, 16 MiB for a long frame.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False  # not glibc: these problems don't occur
    told = [mallopt(name, LARGE_BYTES) for name in (_MMAP_THRESHOLD, _TRIM_THRESHOLD)]
    told.append(mallopt(_ARENA_MAX, ARENAS))
    return all(told)


def start_no_blas_threads() -> None:
    """Have OpenBLAS, which numpy loads, start no threads. Called before numpy is imported.

    The node multiplies no matrices, and each core would get a thread with a buffer of its own.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def collect_less_often() -> None:
    """Set the collector's thresholds. Called before the first import: the start alone would be
    visited a hundred times."""
    gc.set_threshold(*COLLECT_AFTER)


def freeze_startup_objects() -> None:
    """Exclude all present objects, mostly code and tables, from later collections. Called once the
    node is ready."""
    gc.collect()
    gc.freeze()
