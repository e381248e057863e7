"""The memory of a node is written down nowhere."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import ctypes, resource
from surfaces.command.privacy import keep_memory_private
libc = ctypes.CDLL(None)
assert libc.prctl(3, 0, 0, 0, 0) == 1, "dumpable at first"
keep_memory_private()
assert libc.prctl(3, 0, 0, 0, 0) == 0
assert resource.getrlimit(resource.RLIMIT_CORE) == (0, 0)
"""


def test_no_core_and_not_dumpable() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)
