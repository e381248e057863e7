"""Ports for servers that can't choose their own: the only module that chooses any.

The kernel may give a port that it has handed out once to the next process, or to an outgoing
connection. So these ports are of another range, below the kernel's ephemeral ports. The range is
split into blocks. A process claims a block, by a name that only one process of the machine can hold
at a time. It uses every port of its block before it uses one again.
"""

from __future__ import annotations

import os
import socket
import threading
from itertools import cycle
from pathlib import Path
from typing import Final

FIRST: Final = 10_000
"""First port of the range: lower ones belong to common servers."""
BLOCK_PORTS: Final = 256
"""Ports of a block: more than the servers of one test or one measurement need."""
LAST: Final = 65_535

_KERNELS = Path("/proc/sys/net/ipv4/ip_local_port_range")


class NoPorts(Exception):
    """No port is left; the message says why."""


def kernels() -> range:
    """Return the kernel's range of ephemeral ports."""
    first, last = _KERNELS.read_text().split()
    return range(int(first), int(last) + 1)


def blocks() -> list[range]:
    """Return all blocks; those of the kernel's own range only if it leaves no other."""
    ends = kernels().start
    if ends < FIRST + BLOCK_PORTS:
        ends = LAST + 1
    return [
        range(first, first + BLOCK_PORTS)
        for first in range(FIRST, ends - BLOCK_PORTS + 1, BLOCK_PORTS)
    ]


class Chooser:
    """Port allocator of one process.

    After the process has ended, its ports are free again as soon as no server listens on them.
    """

    def __init__(self) -> None:
        """:raises NoPorts: other processes have all blocks"""
        self._lock = threading.Lock()
        self._claim, self._block = _claimed()
        self._next = cycle(self._block)

    def free(self) -> int:
        """Return a port that is not in use and not allocated to another caller.

        :raises NoPorts: all are in use
        """
        with self._lock:
            for _ in self._block:
                port = next(self._next)
                if _is_free(port):
                    return port
        raise NoPorts(f"all ports of {self._block} are in use")

    def close(self) -> None:
        """Release the block."""
        self._claim.close()


def claim() -> None:
    """Claim a block now; otherwise the first port claims it.

    :raises NoPorts: other processes have all blocks
    """
    _chooser()


def free_port() -> int:
    """Return a free port of the loopback, reserved as long as this process lives.

    :raises NoPorts: all are in use
    """
    return _chooser().free()


def _chooser() -> Chooser:
    """Return the allocator of this process. A forked process needs a new one."""
    with _claiming:
        pid = os.getpid()
        if pid not in _choosers:
            _choosers[pid] = Chooser()
        return _choosers[pid]


def _claimed() -> tuple[socket.socket, range]:
    """Claim a block; it is reserved as long as the socket is open."""
    found = blocks()
    begins = os.getpid() % len(found)  # prefer a block that was not just released
    for block in [*found[begins:], *found[:begins]]:
        held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            held.bind(f"\0storenode-ports-{block.start}")  # in no folder, and gone with the process
        except OSError:
            held.close()
        else:
            return held, block
    raise NoPorts(f"all {len(found)} port blocks are in use by other processes")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))  # at any address of the machine
        except OSError:
            return False
        return True


_claiming = threading.Lock()
_choosers: dict[int, Chooser] = {}
"""Allocators by process id."""
