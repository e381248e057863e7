"""Keeps the memory of a process from being written down: keys of vaults stand in it in the clear.

No core file is written, by whatever signal it ends, and nobody else of the same user may attach to
it or read its memory. Linux only; elsewhere the limit of core files is all there is.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from typing import Final

_PR_SET_DUMPABLE: Final = 4


def keep_memory_private() -> None:
    """Once, at the start. :raises OSError: the system refuses"""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
