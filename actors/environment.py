"""Production environment: the system's clock, randomness, network and event loop.

`storage/files/disk.py` implements the file system. No other module of the node uses these directly.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import ssl
import sys
import threading
import time
from asyncio.subprocess import PIPE
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from protocol.environment import COURTESY, Clock, Fs, Listener, Net, Rng, Scheduler
from storage.engine.engine import Engine
from storage.engine.rocksdb import RocksEngine, RocksInMemory
from storage.files.disk import Disk

SWITCH_SECONDS: Final = 0.0001
"""Python's thread switch interval: how long a thread waits before it requests the GIL.

The log thread needs the GIL three times per batch: to take it, to sync it, to report it. With
Python's default of 5 ms a busy loop delays a commit by 15 ms. Measured with 64 writers, 5 ms gave
260 batches a second and this value 2 000, for the same number of commits. A smaller value gains
nothing: the system's timers don't fire earlier.
"""

NICE: Final = 5
"""Added to the niceness of background threads.

On a contended core they get a third of the loop's share; on an idle machine, all of it. With 10, a
sign-in beside other load on the machine waits for seconds.
"""

ACCEPTS_WAITING: Final = 1024
"""Backlog of the listening socket: connections that wait until the node accepts them."""


_BOOTTIME: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Clock that counts suspended time. Only Linux has it; elsewhere the monotonic clock is used."""
SUPPLY_BYTES: Final = 4096
FEW_BYTES: Final = 8


class SystemClock:
    """Clock that reads the system's clocks."""

    def wall_us(self) -> int:
        """Return microseconds since 1970-01-01 UTC by the system's clock."""
        return time.time_ns() // 1000

    def monotonic_us(self) -> int:
        """Return microseconds since the machine started, without the time it was suspended."""
        return time.monotonic_ns() // 1000

    def boottime_us(self) -> int:
        """Return microseconds since the machine started, including the time it was suspended."""
        return time.clock_gettime_ns(_BOOTTIME) // 1000


class SystemRng:
    """Operating system randomness, fit for secrets. Thread-safe.

    Requests of a few bytes, such as the id of every new record, are served from a buffer: one
    system call each cost a twentieth of creating the record. Requests long enough to be a secret
    are never buffered.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._supply = b""
        self._at = 0

    def bytes(self, count: int) -> bytes:
        """Return `count` random bytes, never returned before."""
        if count > FEW_BYTES:
            return secrets.token_bytes(count)
        with self._lock:
            if self._at + count > len(self._supply):
                self._supply = secrets.token_bytes(SUPPLY_BYTES)
                self._at = 0
            self._at += count
            return self._supply[self._at - count : self._at]

    def below(self, bound: int) -> int:
        """Return a random integer n, 0 <= n < bound."""
        return secrets.randbelow(bound)


class _SystemListener:
    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        host, port = server.sockets[0].getsockname()[:2]
        self._address = (str(host), int(port))

    @property
    def address(self) -> tuple[str, int]:
        """The bound host and port."""
        return self._address

    def close(self) -> None:
        """Stop accepting; established connections stay open."""
        self._server.close()


class SystemNet:
    """TCP network of the machine."""

    async def listen(
        self,
        host: str,
        port: int,
        make_protocol: Callable[[], asyncio.Protocol],
        tls: ssl.SSLContext | None = None,
    ) -> Listener:
        """Listen on an address. :raises OSError: it is in use or not an address of this machine"""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            make_protocol, host, port, ssl=tls, backlog=ACCEPTS_WAITING
        )
        return _SystemListener(server)

    async def connect(
        self, host: str, port: int, make_protocol: Callable[[], asyncio.Protocol]
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """Open a connection. :raises OSError:"""
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
        """Loop that runs every loop actor."""
        return self._loop

    def ready(self) -> int:
        """Return the number of callbacks that the loop will run before it waits."""
        return ready_calls(self._loop)

    async def compute(self, module: str, request: Sequence[bytes]) -> bytes:
        """Return the answer of a module to a request, computed in a process of its own."""
        environment = {
            **os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OPENBLAS_NUM_THREADS": "1",
        }  # fmt: skip
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", module, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=environment
        )
        try:
            if sys.platform == "linux":
                with COURTESY:
                    os.setpriority(os.PRIO_PROCESS, process.pid, NICE)
            assert process.stdin is not None
            # One that has ended says why below.
            with suppress(BrokenPipeError, ConnectionResetError):
                for part in request:
                    process.stdin.write(part)
                    await process.stdin.drain()
            process.stdin.close()
            answer, said = await process.communicate()
        finally:
            # Cancelled: its pipes are closed when it has ended.
            if process.returncode is None:
                process.kill()
                await process.communicate()
        if process.returncode:
            why = said.decode(errors="replace").strip().rpartition("\n")[2]
            raise OSError(f"{module} ended with {process.returncode}: {why}")
        return answer

    def lower_priority(self) -> None:
        """Lower the priority of the calling thread; only Linux has this for a single thread."""
        if sys.platform == "linux":
            thread = threading.get_native_id()
            with COURTESY:
                nice = os.getpriority(os.PRIO_PROCESS, thread) + NICE
                os.setpriority(os.PRIO_PROCESS, thread, nice)


_LOOKED_AT: Final = 4
"""Up to this many ready callbacks, cancelled ones are not counted. With more, the difference is
irrelevant."""


def ready_calls(loop: asyncio.AbstractEventLoop) -> int:
    """Return the number of callbacks that an asyncio loop will run before it waits, without the
    current one.

    asyncio keeps its queue private; for a loop that has none under that name the result is
    `sys.maxsize`.
    """
    ready: Collection[asyncio.Handle] | None = getattr(loop, "_ready", None)
    if ready is None:
        return sys.maxsize
    if len(ready) > _LOOKED_AT:
        return len(ready)
    # Iterate over a copy: any thread may add callbacks meanwhile.
    return sum(not handle.cancelled() for handle in tuple(ready))


def in_memory(path: str) -> Engine:
    """Return an empty in-memory state engine. :param path: directory for its settings"""
    return RocksInMemory(os.path.abspath(path))


@dataclass(frozen=True, slots=True)
class Environment:
    """Environment of a node: everything that reaches it from outside."""

    scheduler: Scheduler
    clock: Clock
    rng: Rng
    fs: Fs
    net: Net
    open_engine: Callable[..., Engine]
    """Opens the state engine in a directory."""
    cores: int
    """Number of processor cores."""
    open_in_memory: Callable[[str], Engine] = in_memory
    """Opens an empty state engine that is only in memory, given a directory for its settings."""


def system_environment() -> Environment:
    """Return the production environment, on the running event loop."""
    return Environment(
        SystemScheduler(),
        SystemClock(),
        SystemRng(),
        Disk(),
        SystemNet(),
        RocksEngine,
        os.cpu_count() or 1,
    )
