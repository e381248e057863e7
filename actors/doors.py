"""The real doors: the system's clock, randomness, network and event loop.

The real files are `storage/disk.py`. Nothing else in the node touches these directly.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import ssl
import sys
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from protocol.doors import COURTESY, Clock, Fs, Listener, Net, Rng, Scheduler
from storage.disk import Disk
from storage.engine import Engine
from storage.rocks import RocksEngine, RocksInMemory

SWITCH_SECONDS: Final = 0.0001
"""How long a thread that wants the interpreter waits before it asks for it.

The log's thread wants it three times for each batch: to take it, to sync it, to report it. With
Python's 5 ms a busy loop holds a commit up for 15 ms; measured with 64 writers, 5 ms gave 260
batches a second and this gives 2 000, for the same number of commits. Smaller gains nothing: the
system's timers don't fire earlier.
"""

NICE: Final = 5
"""Added to the niceness of threads that give way. They get a third of what the loop gets where both
want one core, and all of it where nobody does. With 10 a sign-in beside others' work on the machine
waits for seconds."""

ACCEPTS_WAITING: Final = 1024
"""Connections that the system holds until the node accepts them."""


_BOOTTIME: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Elsewhere than on Linux no clock counts the time of a suspension, and what is measured by stands
for it."""
SUPPLY_BYTES: Final = 4096
FEW_BYTES: Final = 8


class SystemClock:
    """The system's clocks."""

    def wall_us(self) -> int:
        """Microseconds since 1970-01-01 UTC, as the system has them."""
        return time.time_ns() // 1000

    def monotonic_us(self) -> int:
        """Microseconds since the machine started."""
        return time.monotonic_ns() // 1000

    def boottime_us(self) -> int:
        """The same with the time in which it was suspended."""
        return time.clock_gettime_ns(_BOOTTIME) // 1000


class SystemRng:
    """The operating system's randomness; fit for secrets. For any number of threads.

    A few bytes, such as every new record's id takes, come from a supply: fetching each alone cost
    a twentieth of making the record. What is long enough to be a secret is never kept here.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._supply = b""
        self._at = 0

    def bytes(self, count: int) -> bytes:
        """`count` random bytes, given out once."""
        if count > FEW_BYTES:
            return secrets.token_bytes(count)
        with self._lock:
            if self._at + count > len(self._supply):
                self._supply = secrets.token_bytes(SUPPLY_BYTES)
                self._at = 0
            self._at += count
            return self._supply[self._at - count : self._at]

    def below(self, bound: int) -> int:
        """A random integer, 0 <= n < bound."""
        return secrets.randbelow(bound)


class _SystemListener:
    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        host, port = server.sockets[0].getsockname()[:2]
        self._address = (str(host), int(port))

    @property
    def address(self) -> tuple[str, int]:
        """The address bound to."""
        return self._address

    def close(self) -> None:
        """Stop accepting; connections already made go on."""
        self._server.close()


class SystemNet:
    """The machine's network."""

    async def listen(
        self,
        host: str,
        port: int,
        make_protocol: Callable[[], asyncio.Protocol],
        tls: ssl.SSLContext | None = None,
    ) -> Listener:
        """Listen on an address. Raises OSError when it is taken or not ours."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            make_protocol, host, port, ssl=tls, backlog=ACCEPTS_WAITING
        )
        return _SystemListener(server)

    async def connect(
        self, host: str, port: int, make_protocol: Callable[[], asyncio.Protocol]
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """Open a connection. Raises OSError."""
        loop = asyncio.get_running_loop()
        return await loop.create_connection(make_protocol, host, port)


class SystemScheduler:
    """The running event loop, and real threads beside it."""

    threads = True

    def __init__(self) -> None:
        sys.setswitchinterval(SWITCH_SECONDS)
        self._loop = asyncio.get_running_loop()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that drains every loop actor."""
        return self._loop

    def ready(self) -> int:
        """How many calls the loop is going to make without waiting for anything."""
        return ready_calls(self._loop)

    def give_way(self) -> None:
        """Be nice: of the systems that Python runs on, only Linux is so of single threads."""
        if sys.platform == "linux":
            thread = threading.get_native_id()
            with COURTESY:
                nice = os.getpriority(os.PRIO_PROCESS, thread) + NICE
                os.setpriority(os.PRIO_PROCESS, thread, nice)


_LOOKED_AT: Final = 4
"""Calls that are told from those that were cancelled; where there are more it does not matter."""


def ready_calls(loop: asyncio.AbstractEventLoop) -> int:
    """How many calls one of asyncio's loops is going to make without waiting for anything, beside
    the one that it makes now. asyncio keeps to itself what it knows of this; of a loop that has it
    elsewhere there are always many."""
    ready: Collection[asyncio.Handle] | None = getattr(loop, "_ready", None)
    if ready is None:
        return sys.maxsize
    if len(ready) > _LOOKED_AT:
        return len(ready)
    # Of a copy: any other thread may have the loop call something meanwhile.
    return sum(not handle.cancelled() for handle in tuple(ready))


def in_memory(path: str) -> Engine:
    """An empty state that is in memory alone. :param path: a directory for its settings"""
    return RocksInMemory(os.path.abspath(path))


@dataclass(frozen=True, slots=True)
class Doors:
    """All that a node gets from outside."""

    scheduler: Scheduler
    clock: Clock
    rng: Rng
    fs: Fs
    net: Net
    open_engine: Callable[..., Engine]
    """Opens the state in a directory."""
    cores: int
    """How much may be computed at once."""
    open_in_memory: Callable[[str], Engine] = in_memory
    """Opens an empty state that is in memory alone; is told a directory for its settings."""


def system_doors() -> Doors:
    """The real ones, on the running event loop."""
    return Doors(
        SystemScheduler(),
        SystemClock(),
        SystemRng(),
        Disk(),
        SystemNet(),
        RocksEngine,
        os.cpu_count() or 1,
    )
