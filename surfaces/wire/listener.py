"""Accepting connections: a ceiling with a last word, and a descriptor kept in reserve.

At the ceiling a connection is still accepted, told REFUSED, and closed: a client that is told may
go elsewhere, one that is left in the backlog hangs. When the process has run out of descriptors
the spare one is given up for as long as that takes. Without it the loop would spin: a socket that
can't be accepted stays ready for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import Callable, Coroutine
from typing import Any, Final, Generic, TypeVar

import structlog

from protocol import limits

BACKLOG: Final = 1024
ACCEPTS_A_TURN: Final = 128
"""Connections taken before other work gets its turn."""
LAST_WORDS: Final = 256
"""Refused connections kept open at once until their last word is read."""
LAST_WORD_SECONDS: Final = 1.0
PAUSE_SECONDS: Final = 0.1
"""Before accepting again when even the spare descriptor did not help."""
SHUTDOWN_SECONDS: Final = 5.0
"""For a TLS peer to agree to the end."""

Peer = TypeVar("Peer", bound=asyncio.Protocol)
_NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_log = structlog.get_logger()


class Listener(Generic[Peer]):
    """A listening socket whose connections are counted from accept to close.

    :param held: answers how many connections count, from `make` to their end
    :param make: makes the protocol of an admitted connection, which counts from then on
    :param drop: told when a connection that was made never came to stand
    :param refusal: the bytes that say there is no room
    """

    def __init__(
        self,
        held: Callable[[], int],
        make: Callable[[], Peer],
        drop: Callable[[Peer], None],
        refusal: bytes,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._held = held
        self._make = make
        self._drop = drop
        self._refusal = refusal
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._joining: set[asyncio.Task[object]] = set()
        self._refused: set[_Refused] = set()
        self._socket: socket.socket | None = None
        self._spare: socket.socket | None = None
        self._pause: asyncio.TimerHandle | None = None
        self.full = False
        """Whether the last connection was refused for want of room."""

    def open(self, host: str, port: int) -> None:
        """Listen. :raises OSError: the address is taken, not ours, or not allowed"""
        family, kind, number, _, where = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, number)
        try:
            listening.setblocking(False)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(where)
            listening.listen(BACKLOG)
            self._spare = socket.socket()
        except OSError:
            listening.close()
            raise
        self._socket = listening
        self._loop.add_reader(listening.fileno(), self._accept)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port bound to; the port is the real one when 0 was asked for."""
        assert self._socket is not None, "not open"
        host, port = self._socket.getsockname()[:2]
        return host, port

    def close(self) -> None:
        """Accept no more. What has been accepted goes on. Harmless when done twice."""
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        if self._socket is not None:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None
        if self._spare is not None:
            self._spare.close()
            self._spare = None

    async def end(self) -> None:
        """End handshakes and last words that are still under way."""
        self.close()
        for task in self._joining:
            task.cancel()
        await asyncio.gather(*self._joining, return_exceptions=True)
        for refused in list(self._refused):
            refused.abort()

    def _accept(self) -> None:
        for _ in range(ACCEPTS_A_TURN):
            if self._socket is None:
                return
            try:
                peer, _address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _NO_DESCRIPTOR:
                    raise
                self._out_of_descriptors()
                return
            self._admit(peer)

    def _admit(self, peer: socket.socket) -> None:
        peer.setblocking(False)
        if self._held() < limits.CONNECTIONS:
            self.full = False
            self._start(self._join(peer))
            return
        if not self.full:
            self.full = True
            _log.warning("wire surface is full", connections=limits.CONNECTIONS)
        if len(self._refused) < LAST_WORDS:
            refused = _Refused(self._refusal, self._refused)
            self._start(self._connect(peer, refused))
        else:
            peer.close()

    def _start(self, joining: Coroutine[Any, Any, object]) -> None:
        task = self._loop.create_task(joining)
        self._joining.add(task)
        task.add_done_callback(self._joining.discard)

    def _join(self, peer: socket.socket) -> Coroutine[Any, Any, None]:
        protocol = self._make()  # here and not in the task: it counts from now

        async def join() -> None:
            if not await self._connect(peer, protocol):
                self._drop(protocol)

        return join()

    async def _connect(self, peer: socket.socket, protocol: asyncio.Protocol) -> bool:
        try:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is None:
                await self._loop.connect_accepted_socket(lambda: protocol, peer)
            else:
                await self._loop.connect_accepted_socket(
                    lambda: protocol,
                    peer,
                    ssl=self._tls,
                    ssl_handshake_timeout=limits.TLS_SECONDS,
                    ssl_shutdown_timeout=SHUTDOWN_SECONDS,
                )
        except OSError as error:  # a failed or late handshake is the peer's affair; so is a reset
            peer.close()
            _log.debug("wire handshake failed", reason=str(error))
            return False
        return True

    def _out_of_descriptors(self) -> None:
        """Accept one connection with the spare descriptor, tell it, close it, keep the spare."""
        assert self._socket is not None
        _log.warning("out of file descriptors: wire connections are refused")
        if self._spare is not None:
            self._spare.close()
            self._spare = None
            try:
                peer, _address = self._socket.accept()
            except OSError:
                pass  # somebody else took the descriptor, or the peer has gone
            else:
                with peer:
                    peer.setblocking(False)
                    self._tell(peer)
            try:
                self._spare = socket.socket()
            except OSError:
                self._spare = None
        # The next one waits in the backlog for a moment: this must not become all we do.
        self._loop.remove_reader(self._socket.fileno())
        self._pause = self._loop.call_later(PAUSE_SECONDS, self._accept_again)

    def _tell(self, peer: socket.socket) -> None:
        if self._tls is not None:
            return  # a handshake takes a while, and the descriptor is borrowed
        with contextlib.suppress(OSError):  # it has gone, or has said nothing yet: both are well
            peer.send(self._refusal)
            peer.shutdown(socket.SHUT_WR)
            peer.recv(limits.HEAD_BYTES)  # unread bytes would turn the close into a reset

    def _accept_again(self) -> None:
        self._pause = None
        if self._socket is None:
            return
        if self._spare is None:
            try:
                self._spare = socket.socket()
            except OSError:
                self._pause = self._loop.call_later(PAUSE_SECONDS, self._accept_again)
                return
        self._loop.add_reader(self._socket.fileno(), self._accept)


class _Refused(asyncio.Protocol):
    """A connection that is told there is no room, and closed once it has read that."""

    def __init__(self, word: bytes, others: set[_Refused]) -> None:
        self._word = word
        self._others = others

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._others.add(self)
        transport.write(self._word)
        if transport.can_write_eof():
            transport.write_eof()
        else:
            transport.close()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(LAST_WORD_SECONDS, transport.abort)

    def connection_lost(self, error: Exception | None) -> None:
        self._timer.cancel()
        self._others.discard(self)

    def abort(self) -> None:
        """End now."""
        self._transport.abort()
