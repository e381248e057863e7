"""Probes of a node that is copying a store and serves nothing yet, at the address of its HTTP
surface.

They run in a thread with its own event loop: building the state from the copy blocks the main
thread, and a liveness probe must be answered meanwhile.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Final

from protocol.environment import Clock
from protocol.errors import Busy
from protocol.jsonvalues import encode_plain
from protocol.version import BUILD, VERSION
from surfaces.command import addresses
from surfaces.command.addresses import Address
from surfaces.http import answers
from surfaces.http.probes import NOT_READY

HEAD_BYTES: Final = 16_384
HEAD_SECONDS: Final = 5.0
"""Time limit for receiving a request and for sending its response, seconds. With TLS, handshake and
shutdown may each take as long."""
CONNECTIONS: Final = 64
"""Concurrent connections; further ones are closed."""
END_SECONDS: Final = 5.0
COPYING: Final = "copying"
Tick = Callable[[str, int, int], None]
"""Progress callback: stage, amount done, total."""


class AddressTaken(Exception):
    """The address can't be listened on; the message says why."""


@contextmanager
def probed(address: Address | None, tls: ssl.SSLContext | None, clock: Clock) -> Iterator[Tick]:
    """Answer probes while the block runs; the block reports its progress.

    :param address: None, or port 0: no probes
    :raises AddressTaken: it can't be listened on
    """
    far = _CopyProgress(clock)
    if address is None or not address.port:
        yield far.tick
        return
    probes = _Probes(address, tls, far)
    probes.start()
    try:
        yield far.tick
    finally:
        probes.end()


class _CopyProgress:
    """Progress of the copy. Written by one thread, and read by another."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_us = clock.monotonic_us()
        self._now = ("", 0, 0)

    def tick(self, stage: str, done: int, total: int) -> None:
        """Set the progress of a stage."""
        self._now = stage, done, total

    def health(self) -> dict[str, object]:
        """Return the body of `GET /health`: the process is alive, without a store."""
        up_us = self._clock.monotonic_us() - self._began_us
        uptime = round(up_us / 1_000_000, 3)
        about = {"version": VERSION, "build": BUILD, "sequence": 0, "uptime": uptime}
        return {"status": COPYING, **about}

    def ready(self) -> dict[str, object]:
        """Return the body of `GET /ready`."""
        stage, done, total = self._now
        copied = {"stage": stage, "done": done, "of": total}
        return {"ready": False, "reason": COPYING, "roles": [], "held_up": None, "copied": copied}

    def busy(self) -> dict[str, object]:
        """Return the body of the refusal for every other request."""
        stage, done, total = self._now
        far = f", {stage}: {done} of {total}" if stage else ""
        told = Busy(f"this node is joining a cluster and has no store yet{far}; retry later")
        return {"error": told.answer()}


class _Probes:
    """Server of the probes, in a thread."""

    def __init__(self, address: Address, tls: ssl.SSLContext | None, far: _CopyProgress) -> None:
        self._address = address
        self._tls = tls
        self._far = far
        self._loop: Future[asyncio.AbstractEventLoop] = Future()
        self._over: asyncio.Event
        self._count = 0
        self._thread = Thread(target=self._run, name="copying", daemon=True)

    def start(self) -> None:
        """Listen.

        :raises AddressTaken: the address can't be listened on
        """
        self._thread.start()
        try:
            self._loop.result()
        except OSError as error:
            self._thread.join(END_SECONDS)  # its loop holds descriptors until then
            raise AddressTaken(f"{self._address}: {addresses.reason(error)}") from error

    def end(self) -> None:
        """Stop listening: the address is free."""
        self._loop.result().call_soon_threadsafe(self._over.set)
        self._thread.join(END_SECONDS)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._over = asyncio.Event()
        seconds = None if self._tls is None else HEAD_SECONDS
        try:
            server = await asyncio.start_server(
                self._answer, self._address.host, self._address.port, ssl=self._tls,
                ssl_handshake_timeout=seconds, ssl_shutdown_timeout=seconds, limit=HEAD_BYTES,
            )  # fmt: skip
        except OSError as error:
            self._loop.set_exception(error)
            return
        self._loop.set_result(asyncio.get_running_loop())
        async with server:
            await self._over.wait()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._count += 1
        try:
            if self._count <= CONNECTIONS:
                async with asyncio.timeout(HEAD_SECONDS):
                    writer.write(self._response(await reader.readuntil(b"\r\n\r\n")))
                    await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return  # a malformed or late request gets no response
        finally:
            self._count -= 1
            writer.close()
            # It ends with the loop at the latest. asyncio asks a cancelled task for its exception
            # here, and raises the cancellation.
            with suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    def _response(self, head: bytes) -> bytes:
        """Return the response to a request; only its first line matters."""
        method, _, rest = head.partition(b"\r\n")[0].partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        far = self._far
        if method in (b"GET", b"HEAD") and path == b"/health":
            status, said = 200, far.health()
        else:
            asks = method in (b"GET", b"HEAD") and path == b"/ready"
            status, said = 503, far.ready() if asks else far.busy()
        body = encode_plain(said)
        fields = b"".join(
            (
                answers.status_line(status),
                answers.COMMON,
                b"Cache-Control: no-store\r\nContent-Type: %s\r\n" % answers.JSON,
                b"Content-Length: %d\r\n" % len(body),
                NOT_READY if status == 503 else b"",
                b"Connection: close\r\n\r\n",
            )
        )
        return fields if method == b"HEAD" else fields + body
