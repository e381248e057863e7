"""Faults of a running node's disk: strace makes its system calls fail, or late."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

WRITES: Final = ("write", "pwrite64", "writev", "pwritev")
SYNCS: Final = ("fdatasync", "fsync")


def is_available() -> bool:
    """True if this process may trace others."""
    return shutil.which("strace") is not None and os.geteuid() == 0


@contextmanager
def injected(pid: int, calls: Sequence[str], fault: str, files: Sequence[Path]) -> Iterator[None]:
    """Have the given system calls of a process meet a fault inside the block.

    :param fault: as in `strace --inject`
    :param files: the calls on these files only; empty: on any
    """
    names = ",".join(calls)
    words = ["strace", "-f", "-q", "-o", os.devnull, "-p", str(pid), "-e", f"trace={names}"]
    words += ["-e", f"inject={names}:{fault}"]
    words += [word for file in files for word in ("-P", str(file))]
    tracer = subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        tracer.terminate()  # it lets go of the process first
        tracer.wait()
