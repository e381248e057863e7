"""The HTTP surface: its start, its counts and ceilings, its stages of stopping."""

from __future__ import annotations

import asyncio
import math
import ssl
from email.utils import formatdate
from typing import TYPE_CHECKING, Final, Literal

import structlog

from actors.facts import Load
from protocol import limits
from protocol.errors import BadRequest, Full, Refusal
from protocol.jsonvalues import encode_plain
from surfaces.http import answers
from surfaces.http.connection import Connection
from surfaces.http.intake import Intake
from surfaces.http.openapi import document
from surfaces.http.routes import ROUTES
from surfaces.http.serving import Serving
from surfaces.http.shared import HttpSettings
from surfaces.http.shortcuts import Shortcuts
from surfaces.listener import Listener
from surfaces.outbox import Outbox
from surfaces.turns import LongWork

if TYPE_CHECKING:
    from actors.node import Node

log = structlog.get_logger("surfaces.http")

CHECKS_A_SECOND: Final = 2
REFUSALS_HELD: Final = 256
"""Connections over the ceiling that are kept for the moment their refusal takes; further ones are
cut."""


class HttpSurface(Serving[Connection]):
    """One listener and everything behind it.

    Stopping has stages: `stop_accepting`, then `drain`, then `close`; each may be called without
    the ones before it.
    """

    def __init__(self, node: Node, settings: HttpSettings) -> None:
        super().__init__(node, settings)
        self.description = encode_plain(
            document({(route.method, route.path): route.credential for route in ROUTES})
        )
        self.connections: set[Connection] = set()
        self.outbox = Outbox(self.broken)
        self.intake = Intake(self, ROUTES)
        self.shortcuts = Shortcuts(self, self.intake.table.route)
        self._forget_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._listener: Listener | None = None

    # --- stages ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen. Raises OSError when the address is taken or not ours."""
        self.loop = asyncio.get_running_loop()
        self.long_work = LongWork(self.loop)
        self._listener = Listener(
            lambda: Connection(self),
            lambda _connection: None,  # it counts only once it stands
            tls=self.settings.tls,
            tls_seconds=self.deadlines.tls_s,
            refusal=_last_word(Full("the node has no descriptor left for this connection")),
            refused=self._refused,
            in_clear=_last_word(BadRequest("TLS is spoken at this port: ask by https://")),
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
        """Host and port that it listens on."""
        return self.addresses[0]

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """All that it listens on: a name may stand for several."""
        assert self._listener is not None, "not started"
        return self._listener.addresses

    def present(self, tls: ssl.SSLContext) -> None:
        """Present another certificate to whoever connects from now on; connections that stand are
        not touched. Only for a surface that was started with one."""
        assert self._listener is not None, "not started"
        self._listener.present(tls)

    def stop_accepting(self) -> None:
        """No new connections from here on; requests that come on the open ones, probes apart, hear
        `Draining`. What runs, runs on."""
        self.admission.draining = True
        if self._listener is not None:
            self._listener.close()

    async def drain(self, seconds: float = math.inf) -> int:
        """Wait until every request in flight is answered and its answer sent. Answers how many
        connections are still busy.

        :param seconds: at most; the caller decides, as of the wire
        """
        self.admission.draining = True
        for connection in list(self.connections):
            connection.leave()
        until = self.loop.time() + seconds
        while (busy := self._busy()) and (left := until - self.loop.time()) > 0:
            self.intake.quiet.clear()
            try:
                # Answers being sent end without a word here, so look again soon.
                await asyncio.wait_for(self.intake.quiet.wait(), min(left, 0.05))
            except TimeoutError:
                continue
        return busy

    async def close(self) -> None:
        """Cut what is left and be gone."""
        self.admission.draining = True
        if self._listener is not None:
            await self._listener.end()
        for connection in list(self.connections):
            connection.end()
        self.background.cancel()
        await self.background.ended()
        while self.connections:
            await asyncio.sleep(0)  # a transport says that it is gone on the loop's next turn
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.limited_log.close()
        self.refusals.close()

    def unready(self) -> Literal["draining", "full"] | None:
        """Why the surface itself should get no traffic."""
        if self.stopping:
            return "draining"
        if self.admission.full or self.held >= self.settings.connections:
            return "full"
        return "full" if self._listener is not None and self._listener.crowded else None

    # --- connections ----------------------------------------------------------------------------

    def opened(self, connection: Connection) -> bool:
        """Take a connection in. False: there is no room, it is to be refused."""
        self.counters.connections += 1
        held = self.held
        self.connections.add(connection)
        if held < self.settings.connections:
            return True
        self._refused()
        if held >= self.settings.connections + REFUSALS_HELD:
            connection.abort()
        return False

    def lost(self, connection: Connection) -> None:
        """A connection is gone."""
        self.connections.discard(connection)
        self.intake.quiet.set()

    @property
    def held(self) -> int:
        """Connections that stand."""
        return len(self.connections)

    def load(self) -> Load:
        """What it holds, and its ceilings."""
        most = min(self.settings.connections, self.settings.descriptors)
        return Load(self.held, most, self.admission.running, self.settings.running)

    @property
    def sockets(self) -> int:
        """Of these, the ones that are WebSockets."""
        return sum(connection.stream is not None for connection in self.connections)

    def _refused(self) -> None:
        self.counters.refused_connections += 1

    def broken(self, connection: Connection, error: BaseException) -> None:
        """A bug that is no request's: the connection is cut."""
        self.limited_log.error("a connection failed", exc_info=error)
        connection.abort()

    # --- inside ---------------------------------------------------------------------------------

    def _tick(self) -> None:
        """A few times a second: the Date of answers, and every connection's deadlines."""
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
            except Exception as error:  # those behind it in the list have their deadlines too
                self.broken(connection, error)

    def _busy(self) -> int:
        return sum(connection.busy for connection in self.connections)


def _last_word(refusal: Refusal) -> bytes:
    """An answer to a connection of which nothing is read."""
    body = answers.error_json(refusal, "r-0")
    return b"%sStore-Request: r-0\r\n%s%sCache-Control: no-store\r\nContent-Type: %s\r\n" % (
        answers.status_line(refusal.status),
        answers.COMMON,
        answers.error_fields(refusal),
        answers.JSON,
    ) + b"Content-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(body), body)
