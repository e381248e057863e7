"""Accepts connections for a surface, also when descriptors run out.

A node whose connections took the last descriptor could not open the next table of its state: it
would fail, for a crowd that need not even have signed in. So connections get the lower numbers
only. The system gives out the lowest that is free: one that is not below `descriptors` says that
all those are taken. It is told so and closed.

Whatever else takes descriptors may still bring the process to its limit, where it can neither
accept nor refuse: the connection stays in the backlog, the socket stays readable, and a loop that
only retries spins. One descriptor is therefore kept in reserve: it is given up, the connection
accepted, told and closed, and the reserve taken back. When even that fails the socket is left alone
for a moment.

How many connections there may be is for the surface to say, when it is asked for a protocol.
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
"""Seconds until the system asks a quiet peer's, between two attempts, and how many it makes: a
machine that is gone without a word holds its connection, and what is open there, two minutes. The
system asks nothing while something it sent is not acknowledged, as the beat of a feed always is
then: for that the last, in milliseconds. It also ends the connection to a peer whose own system has
no room for what it is sent, for so long; WRITE_SECONDS is shorter."""
ACCEPTS_A_TURN: Final = 16
"""Connections accepted before others on the loop get their turn."""
HANDSHAKES: Final = 1024
"""Connections on their way to a protocol, with TLS a costly way; more wait in the backlog."""
REST_SECONDS: Final = 0.1
SHUTDOWN_SECONDS: Final = 2.0
"""For the goodbye of TLS, after which the connection is cut."""
_LEAST_SECONDS: Final = 0.001
"""What is left of a handshake's time when its first byte came with the last of it."""

_NOBODY: Final = (BlockingIOError, InterruptedError, ConnectionAbortedError)
_NO_ROOM: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

_HANDSHAKE: Final = b"\x16"
"""The first byte of TLS, of a record of its handshake."""


class InClear(OSError):
    """A peer does not begin TLS where that is spoken."""


Make = Callable[[], asyncio.Protocol | None]
Lost = Callable[[asyncio.Protocol], None]


class Listener:
    """Listening sockets, one for each address of a host.

    :param make: makes the protocol of a connection as soon as that is accepted, before any
        handshake; None: it is cut without a word
    :param lost: told of a protocol whose connection never came to stand
    :param refusal: all that is said to a connection that there is no descriptor for
    :param in_clear: all that is said, in clear, to one that does not begin TLS where that is spoken
    :param refused: called for each of those
    :param descriptors: every connection's is below this number
    :param limited_log: hears what anybody who connects can cause
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
        if tls is not None:  # asyncio's own name for it, which is no part of its promise
            setattr(sslproto.SSLProtocol, "max_size", limits.TLS_READ_BYTES)  # noqa: B010
        self._tls_seconds = tls_seconds
        self._refusal = refusal
        self._refused = refused
        self._in_clear = in_clear
        self._descriptors = descriptors
        self._limited_log = limited_log
        self.crowded = False
        """Whether there was no descriptor for the last who came."""
        self._sockets: list[socket.socket] = []
        self._reserve: socket.socket | None = None
        self._handshakes: set[asyncio.Task[None]] = set()
        self._resting: dict[socket.socket, asyncio.TimerHandle] = {}

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """What it listens on; the port is the real one when 0 was asked for."""
        return [listening.getsockname()[:2] for listening in self._sockets]

    async def open(self, host: str, port: int) -> None:
        """Listen. :raises OSError: an address is taken, not ours, or not allowed"""
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
        """Speak TLS by this context with whoever is accepted from now on. Connections that stand,
        and handshakes under way, go on as they began. Only for a listener that speaks TLS."""
        assert self._tls is not None
        self._tls = tls

    def close(self) -> None:
        """Stop accepting; connections already made go on. Harmless when done twice."""
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
        """Stop accepting, and cut what has not come as far as a connection."""
        self.close()
        handshakes = list(self._handshakes)
        for task in handshakes:
            task.cancel()
        await asyncio.gather(*handshakes, return_exceptions=True)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_A_TURN):
            if len(self._handshakes) >= HANDSHAKES:
                self._rest(listening)
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
        """Wait for the first byte, which is left to be read. Return the seconds that remain for the
        handshake.

        :raises InClear: it begins none
        :raises TimeoutError, OSError: none has come
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
            raise InClear
        return max(ends - self._loop.time(), _LEAST_SECONDS)

    def _joined(
        self, accepted: socket.socket, protocol: asyncio.Protocol, task: asyncio.Task[None]
    ) -> None:
        self._handshakes.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, InClear):
            self._say(accepted, self._in_clear)
        if task.cancelled() or error is not None:
            accepted.close()
            self._lost(protocol)
        # A failed or late handshake (ssl.SSLError and TimeoutError are OSErrors) is the client's
        # affair; there is nobody to answer.
        if error is not None and not isinstance(error, OSError):
            self._limited_log.error("a connection failed before it stood", exc_info=error)

    def _refuse(self, listening: socket.socket) -> None:
        """Answer one connection that there is no descriptor for, out of the reserve."""
        self.crowded = True
        if self._reserve is not None:
            self._reserve.close()
            self._reserve = None
            try:
                accepted, _ = listening.accept()
            except OSError:
                pass  # nobody waits any more, or another took the descriptor just given up
            else:
                self._turn_away(accepted)
        if not self._take_reserve():
            self._rest(listening)

    def _turn_away(self, accepted: socket.socket) -> None:
        self._limited_log.warning("out of file descriptors: connections are refused")
        self._refused()
        # With TLS nothing can be said in time.
        self._say(accepted, self._refusal if self._tls is None else b"")

    def _say(self, accepted: socket.socket, word: bytes) -> None:
        """The last word to a connection, without waiting."""
        with contextlib.closing(accepted), contextlib.suppress(OSError):  # it may be gone already
            accepted.setblocking(False)
            if word:
                accepted.send(word)
                accepted.shutdown(socket.SHUT_WR)
                accepted.recv(65_536)  # unread bytes would turn the close into a reset

    def _take_reserve(self) -> bool:
        try:
            self._reserve = socket.socket(socket.AF_UNIX)
        except OSError:
            self._reserve = None
        return self._reserve is not None

    def _rest(self, listening: socket.socket) -> None:
        """Leave the socket alone for a moment."""
        self._loop.remove_reader(listening)

        def resume() -> None:
            del self._resting[listening]
            if self._reserve is None:
                self._take_reserve()
            self._loop.add_reader(listening, self._accept, listening)

        self._resting[listening] = self._loop.call_later(REST_SECONDS, resume)
