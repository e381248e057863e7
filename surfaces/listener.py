"""Listener: accepts connections for a surface, also when file descriptors run out.

A node whose connections took the last descriptor could not open the next table of its state. It
would fail because of a crowd that need not even have signed in. So connections may use only the
lower descriptors. The system hands out the lowest free number: a number not below `descriptors`
means that all lower ones are taken. That connection is refused and closed.

Other users of descriptors may still bring the process to its limit (EMFILE). It can then neither
accept nor refuse: the connection stays in the backlog, the socket stays readable, and a loop that
only retries spins. One descriptor is therefore kept in reserve. It is closed, the connection is
accepted, refused and closed, and the reserve is opened again. If even that fails, the socket is
left alone for a moment.

The surface limits the number of connections when it is asked for a protocol.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from asyncio import sslproto
from collections.abc import Callable
from functools import partial
from typing import Final

from actors.rate_limited_log import RateLimitedLog
from protocol import limits
from surfaces.sockets import bind_each

BACKLOG: Final = 1024
KEEPALIVE: Final = {
    socket.TCP_KEEPIDLE: 60,
    socket.TCP_KEEPINTVL: 15,
    socket.TCP_KEEPCNT: 4,
    socket.TCP_USER_TIMEOUT: 120_000,
}
"""TCP keep-alive of client connections: idle seconds before the first probe, seconds between
probes, number of probes. A vanished peer holds its connection, and its open work, for two minutes.

The system sends no probes while sent data is unacknowledged, as a feed's heartbeat then always is.
TCP_USER_TIMEOUT (ms) covers that case. It also ends a connection whose peer's receive window stays
closed for so long; WRITE_SECONDS is shorter.
"""
ACCEPTS_A_TURN: Final = 16
"""Connections accepted per iteration of the loop, before other callbacks run."""
HANDSHAKES: Final = 1024
"""Concurrent handshakes, expensive ones with TLS. Further connections wait in the backlog."""
REST_SECONDS: Final = 0.1
SHUTDOWN_SECONDS: Final = 2.0
"""Time limit of the TLS shutdown, after which the connection is aborted."""
_LEAST_SECONDS: Final = 0.001
"""Remaining handshake time when the first byte came at the very end of it."""

_NOBODY: Final = (BlockingIOError, InterruptedError, ConnectionAbortedError)
_NO_ROOM: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

_HANDSHAKE: Final = b"\x16"
"""First byte of a TLS handshake record."""


class PlaintextPeer(OSError):
    """The peer does not start TLS on a TLS port."""


Make = Callable[[], asyncio.Protocol | None]
Lost = Callable[[asyncio.Protocol], None]


class Listener:
    """Listening sockets, one for each address of a host.

    :param make: makes the protocol of a connection when it is accepted, before any handshake; None
        closes the connection without a response
    :param lost: called with a protocol whose connection was never established
    :param refusal: bytes sent to a connection refused for lack of descriptors
    :param in_clear: plaintext bytes sent to a peer that does not start TLS on a TLS port
    :param refused: called for each connection refused for lack of descriptors
    :param descriptors: every connection's descriptor is below this number
    :param limited_log: rate-limited log for events that unauthenticated peers can cause
    """

    def __init__(
        self,
        make: Make,
        lost: Lost,
        *,
        tls: ssl.SSLContext | None,
        tls_seconds: float,
        refusal: bytes,
        refused: Callable[[], None],
        in_clear: bytes,
        descriptors: int,
        limited_log: RateLimitedLog,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._make = make
        self._lost = lost
        self._tls = tls
        if tls is not None:  # not a public attribute of asyncio
            setattr(sslproto.SSLProtocol, "max_size", limits.TLS_READ_BYTES)  # noqa: B010
        self._tls_seconds = tls_seconds
        self._refusal = refusal
        self._refused = refused
        self._in_clear = in_clear
        self._descriptors = descriptors
        self._limited_log = limited_log
        self.crowded = False
        """True if there was no descriptor for the newest connection."""
        self._sockets: list[socket.socket] = []
        self._reserve: socket.socket | None = None
        self._handshakes: set[asyncio.Task[None]] = set()
        self._resting: dict[socket.socket, asyncio.TimerHandle] = {}

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Addresses listened on; the port is the real one where 0 was requested."""
        return [listening.getsockname()[:2] for listening in self._sockets]

    async def open(self, host: str, port: int) -> None:
        """Listen.

        :raises OSError: an address is taken, not local, or not allowed
        """
        found = await self._loop.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        try:
            bind_each(found, port, self._sockets)
            for listening in self._sockets:
                listening.setblocking(False)
                listening.listen(BACKLOG)
        except OSError:
            self.close()
            raise
        self._take_reserve()
        for listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def present(self, tls: ssl.SSLContext) -> None:
        """Use this TLS context for connections accepted from now on. Established connections and
        running handshakes keep theirs. Only for a listener with TLS."""
        assert self._tls is not None
        self._tls = tls

    def close(self) -> None:
        """Stop accepting; established connections go on. Idempotent."""
        for listening in self._sockets:
            self._loop.remove_reader(listening)
            listening.close()
        self._sockets.clear()
        for timer in self._resting.values():
            timer.cancel()
        self._resting.clear()
        if self._reserve is not None:
            self._reserve.close()
            self._reserve = None

    async def end(self) -> None:
        """Stop accepting, and abort connections that are not established yet."""
        self.close()
        handshakes = list(self._handshakes)
        for task in handshakes:
            task.cancel()
        await asyncio.gather(*handshakes, return_exceptions=True)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_A_TURN):
            if len(self._handshakes) >= HANDSHAKES:
                self._pause_accepting(listening)
                return
            try:
                accepted, _ = listening.accept()
            except _NOBODY:
                return
            except OSError as error:
                if error.errno not in _NO_ROOM:
                    raise
                self._refuse(listening)
                return
            self.crowded = accepted.fileno() >= self._descriptors
            if self.crowded:
                self._turn_away(accepted)
            else:
                self._join(accepted)

    def _join(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        protocol = self._make()
        if protocol is None:
            accepted.close()
            return
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in KEEPALIVE.items():
            accepted.setsockopt(socket.IPPROTO_TCP, option, value)
        task = self._loop.create_task(self._connect(accepted, protocol))
        self._handshakes.add(task)
        task.add_done_callback(partial(self._joined, accepted, protocol))

    async def _connect(self, accepted: socket.socket, protocol: asyncio.Protocol) -> None:
        tls = self._tls
        seconds = None if tls is None else await self._begin_tls(accepted)
        await self._loop.connect_accepted_socket(
            lambda: protocol,
            accepted,
            ssl=tls,
            ssl_handshake_timeout=seconds,
            ssl_shutdown_timeout=None if tls is None else SHUTDOWN_SECONDS,
        )

    async def _begin_tls(self, accepted: socket.socket) -> float:
        """Wait for the first byte, without consuming it. Return the seconds left for the handshake.

        :raises PlaintextPeer: the peer does not start TLS
        :raises TimeoutError, OSError: no byte arrived
        """
        ends = self._loop.time() + self._tls_seconds
        readable = asyncio.Event()
        self._loop.add_reader(accepted, readable.set)
        try:
            async with asyncio.timeout_at(ends):
                await readable.wait()
        finally:
            self._loop.remove_reader(accepted)
        if accepted.recv(1, socket.MSG_PEEK) not in (_HANDSHAKE, b""):
            raise PlaintextPeer
        return max(ends - self._loop.time(), _LEAST_SECONDS)

    def _joined(
        self, accepted: socket.socket, protocol: asyncio.Protocol, task: asyncio.Task[None]
    ) -> None:
        self._handshakes.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, PlaintextPeer):
            self._say(accepted, self._in_clear)
        if task.cancelled() or error is not None:
            accepted.close()
            self._lost(protocol)
        # A failed or late handshake (ssl.SSLError and TimeoutError are OSErrors) is the client's
        # affair; there is no connection to answer on.
        if error is not None and not isinstance(error, OSError):
            self._limited_log.error("a connection failed during its setup", exc_info=error)

    def _refuse(self, listening: socket.socket) -> None:
        """Refuse one connection that there is no descriptor for, by using the reserve."""
        self.crowded = True
        if self._reserve is not None:
            self._reserve.close()
            self._reserve = None
            try:
                accepted, _ = listening.accept()
            except OSError:
                pass  # the client is gone, or another thread took the descriptor just freed
            else:
                self._turn_away(accepted)
        if not self._take_reserve():
            self._pause_accepting(listening)

    def _turn_away(self, accepted: socket.socket) -> None:
        self._limited_log.warning("out of file descriptors: connections are refused")
        self._refused()
        # With TLS there is no time for a handshake and an error.
        self._say(accepted, self._refusal if self._tls is None else b"")

    def _say(self, accepted: socket.socket, word: bytes) -> None:
        """Send the last bytes to a connection, without waiting."""
        with contextlib.closing(accepted), contextlib.suppress(OSError):  # it may be gone already
            accepted.setblocking(False)
            if word:
                accepted.send(word)
                accepted.shutdown(socket.SHUT_WR)
                accepted.recv(65_536)  # closing with unread bytes would send a reset

    def _take_reserve(self) -> bool:
        try:
            self._reserve = socket.socket(socket.AF_UNIX)
        except OSError:
            self._reserve = None
        return self._reserve is not None

    def _pause_accepting(self, listening: socket.socket) -> None:
        """Stop accepting on the socket for `REST_SECONDS`."""
        self._loop.remove_reader(listening)

        def resume() -> None:
            del self._resting[listening]
            if self._reserve is None:
                self._take_reserve()
            self._loop.add_reader(listening, self._accept, listening)

        self._resting[listening] = self._loop.call_later(REST_SECONDS, resume)
