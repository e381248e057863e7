"""Memory protection: vault keys are in the process memory as plaintext, and must not reach a disk.

No core file is written, whatever signal ends the process. No other process of the same user may
attach to it or read its memory. Linux only; elsewhere only the core file limit applies.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from typing import Final

_PR_SET_DUMPABLE: Final = 4


def keep_memory_private() -> None:
    """Protect the process memory. Call once, at the start.

    :raises OSError: the system refuses
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
