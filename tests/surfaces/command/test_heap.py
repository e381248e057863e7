"""Memory that was used once goes back to the system."""

from __future__ import annotations

import gc
import os
import subprocess
import sys

import pytest

from surfaces.command import heap
from tests.architecture.sources import ROOT

THREADS = 4
HASH_MIB = 19
"""What hashing a password takes."""

PROGRAM = f"""
import sys, threading
from pathlib import Path
from surfaces.command import heap

def resident_mib():
    text = Path("/proc/self/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) // 1024

def work():
    for _ in range(3):
        block = b"x" * ({HASH_MIB} << 20)
        together.wait()
        del block
        together.wait()
    together.wait()

if sys.argv[1] == "told":
    assert heap.return_freed_memory()
before, together = resident_mib(), threading.Barrier({THREADS} + 1)
for _ in range({THREADS}):
    threading.Thread(target=work).start()
for _ in range(6):
    together.wait()
print(resident_mib() - before)  # every thread lives, and has freed all it had
together.wait()
"""


AFTER_EACH_OTHER = f"""
import sys, threading
from pathlib import Path
from surfaces.command import heap

def resident_mib():
    text = Path("/proc/self/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) // 1024

def work(done):
    blocks = [b"x" * 60_000 for _ in range({HASH_MIB} * 17)]
    kept.append(blocks[-1])  # so that the end of what was taken is in use
    blocks.clear()
    done.set()
    over.wait()

if sys.argv[1] == "told":
    assert heap.return_freed_memory()
kept, over, before = [], threading.Event(), resident_mib()
for _ in range(2 * {THREADS}):
    done = threading.Event()
    threading.Thread(target=work, args=(done,)).start()
    done.wait()
print(resident_mib() - before)
over.set()
"""


COUNTS = """
import ctypes, sys
from surfaces.command import heap

class Told(ctypes.Structure):  # struct mallinfo2
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "blocks_of_the_system", "hblkhd", "usmblks", "fsmblks",
        "uordblks", "fordblks", "keepcost")]

library = ctypes.CDLL(None)
library.mallinfo2.restype = Told
if sys.argv[1] == "told":
    assert heap.return_freed_memory()
before = library.mallinfo2().blocks_of_the_system
kept = [b"x" * (heap.LARGE_BYTES // 2) for _ in range(8)]
of_half = library.mallinfo2().blocks_of_the_system - before
kept += [b"x" * (2 * heap.LARGE_BYTES) for _ in range(8)]
print(of_half * 10 + library.mallinfo2().blocks_of_the_system - before - of_half)
"""


def _said(program: str, told: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", program, told], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return int(done.stdout)


of_glibc = pytest.mark.skipif(
    "CS_GNU_LIBC_VERSION" not in os.confstr_names, reason="only glibc keeps what is freed"
)


@of_glibc
def test_large_blocks_are_given_back() -> None:
    assert _said(PROGRAM, "told") < HASH_MIB
    assert _said(PROGRAM, "not told") > HASH_MIB, "nothing would be kept anyway"


@of_glibc
def test_what_one_thread_has_freed_another_uses() -> None:
    # Of two arenas, in each of which a block may stay; beside them the interpreter grows a little.
    assert _said(AFTER_EACH_OTHER, "told") <= heap.ARENAS * HASH_MIB + 2
    assert _said(AFTER_EACH_OTHER, "not told") > THREADS * HASH_MIB, "they would anyway"


@of_glibc
def test_only_large_blocks_are_the_systems_own() -> None:
    """Each of those is a call of the system at both of its ends."""
    assert _said(COUNTS, "told") == 8
    assert _said(COUNTS, "not told") == 88, "half of the size would not be anyway"


def test_what_the_start_made_is_not_looked_through_again() -> None:
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    try:
        heap.collect_less_often()
        heap.freeze_startup_objects()
        assert gc.get_freeze_count() > frozen
        assert gc.get_threshold() == heap.COLLECT_AFTER
        cycle: list[object] = []
        cycle.append(cycle)
        del cycle
        assert gc.collect() >= 1, "cycles made later are still found"
    finally:
        gc.freeze()  # as it was: nothing of what tests are is looked through
        gc.set_threshold(*before)


def test_numpy_starts_no_threads() -> None:
    program = (
        "import os; from surfaces.command import heap; heap.start_no_blas_threads(); import numpy;"
        " print(os.listdir('/proc/self/task') == [str(os.getpid())])"
    )
    command = [sys.executable, "-c", program]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert said == "True\n"
