"""Ports for servers that are told where to listen: the one place that chooses any.

Whoever asks the kernel for one gets one that the kernel may give away again in the next moment: to
whoever asks then, or to a connection that goes out. So these are of another range, below the one
that the kernel chooses from. It is shared out in blocks; a process claims one, by a name that only
one process of the machine can have at a time, and no port of it is chosen twice before all are.
"""

from __future__ import annotations

import os
import socket
import threading
from itertools import cycle
from pathlib import Path
from typing import Final

FIRST: Final = 10_000
"""Below are those of servers that machines have anyway."""
BLOCK_PORTS: Final = 256
"""More than the servers of one test or one measurement have."""
LAST: Final = 65_535

_KERNELS = Path("/proc/sys/net/ipv4/ip_local_port_range")


class NoPorts(Exception):
    """None can be had; the text says why."""


def kernels() -> range:
    """What the kernel chooses from, for who asks for any port and for connections that go out."""
    first, last = _KERNELS.read_text().split()
    return range(int(first), int(last) + 1)


def blocks() -> list[range]:
    """All there are; of the kernel's own range only where it leaves no other."""
    ends = kernels().start
    if ends < FIRST + BLOCK_PORTS:
        ends = LAST + 1
    return [
        range(first, first + BLOCK_PORTS)
        for first in range(FIRST, ends - BLOCK_PORTS + 1, BLOCK_PORTS)
    ]


class Chooser:
    """What one process chooses from.

    What a process chose that has ended is anybody's again as soon as nobody listens there.
    """

    def __init__(self) -> None:
        """:raises NoPorts: other processes have all blocks"""
        self._lock = threading.Lock()
        self._claim, self._block = _claimed()
        self._next = cycle(self._block)

    def free(self) -> int:
        """A port that nobody listens on now and that nobody else is given. :raises NoPorts:"""
        with self._lock:
            for _ in self._block:
                port = next(self._next)
                if _is_free(port):
                    return port
        raise NoPorts(f"somebody listens on each port of {self._block}")

    def close(self) -> None:
        """Let others have the block."""
        self._claim.close()


def claim() -> None:
    """Have a block from now on, where one is had only with the first port else. :raises NoPorts:"""
    _chooser()


def free_port() -> int:
    """A port of the loopback that nobody listens on now, and that is given to nobody else as long
    as this process lives. :raises NoPorts:"""
    return _chooser().free()


def _chooser() -> Chooser:
    """That of this process: one that was forked needs another than it was forked with."""
    with _claiming:
        pid = os.getpid()
        if pid not in _choosers:
            _choosers[pid] = Chooser()
        return _choosers[pid]


def _claimed() -> tuple[socket.socket, range]:
    """A block that is nobody else's, for as long as the socket is open."""
    found = blocks()
    begins = os.getpid() % len(found)  # not one that somebody just had, where there are others
    for block in [*found[begins:], *found[:begins]]:
        held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            held.bind(f"\0storenode-ports-{block.start}")  # in no folder, and gone with the process
        except OSError:
            held.close()
        else:
            return held, block
    raise NoPorts(f"other processes choose from each of {len(found)} blocks")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))  # at any address of the machine
        except OSError:
            return False
        return True


_claiming = threading.Lock()
_choosers: dict[int, Chooser] = {}
"""By the process that they are of."""
