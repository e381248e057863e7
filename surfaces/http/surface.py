"""HTTP surface: start, counters and ceilings, stages of the shutdown."""

from __future__ import annotations

import asyncio
import math
import ssl
from email.utils import formatdate
from typing import TYPE_CHECKING, Final, Literal

import structlog

from actors.node_info import Load
from protocol import limits
from protocol.errors import BadRequest, Full, Refusal
from protocol.jsonvalues import encode_plain
from surfaces.flush_queue import FlushQueue
from surfaces.http import answers
from surfaces.http.connection import HttpConnection
from surfaces.http.fast_path import FastPath
from surfaces.http.intake import Intake
from surfaces.http.openapi import document
from surfaces.http.routes import ROUTES
from surfaces.http.serving import Serving
from surfaces.http.shared import HttpSettings
from surfaces.listener import Listener
from surfaces.long_work import LongWork

if TYPE_CHECKING:
    from actors.node import Node

log = structlog.get_logger("surfaces.http")

CHECKS_A_SECOND: Final = 2
REFUSALS_HELD: Final = 256
"""Connections above the ceiling kept until their refusal is sent; further ones are aborted."""


class HttpSurface(Serving[HttpConnection]):
    """Listener of the HTTP surface, and its connections.

    Shutdown in stages: `stop_accepting`, then `drain`, then `close`; each may be called without the
    ones before it.
    """

    def __init__(self, node: Node, settings: HttpSettings) -> None:
        super().__init__(node, settings)
        self.description = encode_plain(document(ROUTES))
        self.connections: set[HttpConnection] = set()
        self.flush_queue = FlushQueue(self.broken)
        self.intake = Intake(self, ROUTES)
        self.shortcuts = FastPath(self, self.intake.table.route)
        self._forget_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._listener: Listener | None = None

    # --- stages ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen.

        :raises OSError: the address is taken or not local
        """
        self.loop = asyncio.get_running_loop()
        self.long_work = LongWork(self.node.scheduler)
        self._listener = Listener(
            lambda: HttpConnection(self),
            lambda _connection: None,  # counted only once established
            tls=self.settings.tls,
            tls_seconds=self.deadlines.tls_s,
            refusal=_last_word(Full("the node is out of file descriptors: retry later")),
            refused=self._refused,
            in_clear=_last_word(BadRequest("this port speaks TLS: use https://")),
            descriptors=self.settings.descriptors,
            limited_log=self.limited_log,
        )
        self._tick()
        try:
            await self._listener.open(self.settings.host, self.settings.port)
        except OSError:
            await self.close()
            raise

    @property
    def address(self) -> tuple[str, int]:
        """Host and port listened on."""
        return self.addresses[0]

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """All addresses listened on: a name may have several."""
        assert self._listener is not None, "not started"
        return self._listener.addresses

    def present(self, tls: ssl.SSLContext) -> None:
        """Use another certificate for new connections; established ones keep theirs. Only for a
        surface that was started with TLS."""
        assert self._listener is not None, "not started"
        self._listener.present(tls)

    def stop_accepting(self) -> None:
        """Accept no new connections. New requests on open ones, except probes, are answered
        `Draining`. Running requests go on."""
        self.admission.draining = True
        if self._listener is not None:
            self._listener.close()

    async def drain(self, seconds: float = math.inf) -> int:
        """Wait until every running request is answered and its response sent. Return the number of
        connections still busy.

        :param seconds: time limit, set by the caller as for the wire
        """
        self.admission.draining = True
        for connection in list(self.connections):
            connection.leave()
        until = self.loop.time() + seconds
        while (busy := self._busy()) and (left := until - self.loop.time()) > 0:
            self.intake.quiet.clear()
            try:
                # The end of a response's sending is not signalled: poll.
                await asyncio.wait_for(self.intake.quiet.wait(), min(left, 0.05))
            except TimeoutError:
                continue
        return busy

    async def close(self) -> None:
        """Abort all connections, and end."""
        self.admission.draining = True
        if self._listener is not None:
            await self._listener.end()
        for connection in list(self.connections):
            connection.end()
        self.background.cancel()
        await self.background.ended()
        while self.connections:
            await asyncio.sleep(0)  # connection_lost comes in the loop's next iteration
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.limited_log.close()
        self.refusals.close()

    def unready(self) -> Literal["draining", "full"] | None:
        """Return the reason why the surface itself should get no traffic."""
        if self.stopping:
            return "draining"
        if self.admission.full or self.held >= self.settings.connections:
            return "full"
        return "full" if self._listener is not None and self._listener.crowded else None

    # --- connections ----------------------------------------------------------------------------

    def opened(self, connection: HttpConnection) -> bool:
        """Register a connection. Return False if it exceeds the ceiling and is to be refused."""
        self.counters.connections += 1
        held = self.held
        self.connections.add(connection)
        if held < self.settings.connections:
            return True
        self._refused()
        if held >= self.settings.connections + REFUSALS_HELD:
            connection.abort()
        return False

    def lost(self, connection: HttpConnection) -> None:
        """Remove a closed connection."""
        self.connections.discard(connection)
        self.intake.quiet.set()

    @property
    def held(self) -> int:
        """Number of open connections."""
        return len(self.connections)

    def load(self) -> Load:
        """Return the number of connections and requests, and their ceilings."""
        most = min(self.settings.connections, self.settings.descriptors)
        return Load(self.held, most, self.admission.running, self.settings.running)

    @property
    def sockets(self) -> int:
        """Number of these that are WebSockets."""
        return sum(connection.stream is not None for connection in self.connections)

    def _refused(self) -> None:
        self.counters.refused_connections += 1

    def broken(self, connection: HttpConnection, error: BaseException) -> None:
        """Log a bug outside of any request, and abort the connection."""
        self.limited_log.error("a connection failed", exc_info=error)
        connection.abort()

    # --- inside ---------------------------------------------------------------------------------

    def _tick(self) -> None:
        """Update the Date line, and enforce every connection's deadlines, a few times a second."""
        self._timer = self.loop.call_later(1 / CHECKS_A_SECOND, self._tick)
        seconds = self.clock.wall_us() // 1_000_000
        self.dated(b"Date: %s\r\n" % formatdate(seconds, usegmt=True).encode("ascii"))
        now = self.loop.time()
        if now >= self._forget_at:
            self._forget_at = now + limits.CREDENTIAL_MEMO_SECONDS
            self.known.forget()
        for connection in list(self.connections):
            try:
                connection.check(now)
            except Exception as error:  # the other connections are still checked
                self.broken(connection, error)

    def _busy(self) -> int:
        return sum(connection.busy for connection in self.connections)


def _last_word(refusal: Refusal) -> bytes:
    """Return the response for a connection that is refused before anything is read."""
    body = answers.error_json(refusal, "r-0")
    return b"%sStore-Request: r-0\r\n%s%sCache-Control: no-store\r\nContent-Type: %s\r\n" % (
        answers.status_line(refusal.status),
        answers.COMMON,
        answers.error_fields(refusal),
        answers.JSON,
    ) + b"Content-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(body), body)
