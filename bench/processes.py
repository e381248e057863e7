"""Servers in processes of their own on the loopback: nodes, and the peers beside them."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from protocol import values

MEASURED: Final = Path(values.__file__).parents[1]
"""Tree of the node: the installed wheel that `make bench` runs in, or this checkout."""
START_SECONDS: Final = 60
"""Timeout of a peer's start, until its port answers, seconds."""
WAIT_SECONDS: Final = 120
"""Timeout of `wait_for`, seconds."""


class NotStarted(Exception):
    """The peer's process did not come up; the message is its output."""


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used so far, all its threads together.

    It reads the process's clock, by number: CPUCLOCK_SCHED of `linux/posix-timers.h`. The values of
    /proc have a resolution of only 10 ms.
    """
    return time.clock_gettime((~pid << 3) | 2)


@contextmanager
def serving(
    directory: Path, port: int, *words: str, environment: Mapping[str, str] | None = None
) -> Iterator[int]:
    """Run a server in `directory` until the block ends; its port answers from the start of the
    block.

    :param environment: all of it; None: that of this process
    :raises NotStarted: the process ended, or its port does not answer in time
    """
    directory.mkdir(parents=True, exist_ok=True)
    said = directory / "log"
    with said.open("w") as log:
        process = subprocess.Popen(words, cwd=directory, stdout=log, stderr=log, env=environment)
    try:
        late = time.monotonic() + START_SECONDS
        while not _stands(port):
            if process.poll() is not None or time.monotonic() > late:
                raise NotStarted(f"{words[0]}: {said.read_text()[-500:]}")
            time.sleep(0.01)
        yield port
    finally:
        process.terminate()
        process.wait()


def wait_for(holds: Callable[[], bool], what: str, seconds: float = WAIT_SECONDS) -> float:
    """Wait for a condition. Return the seconds it took.

    :raises NotStarted: it never came, with `what`
    """
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > seconds:
            raise NotStarted(what)
        time.sleep(0.02)
    return time.monotonic() - began


def environment(tree: Path, **more: str) -> dict[str, str]:
    """Return the environment for a node: that of this process, without the variables of storenode.

    So settings of another node are not measured or tested by mistake.

    :param tree: the sources that it runs
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("STORE_")}
    return {**kept, "PYTHONPATH": str(tree), **more}


def _stands(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
