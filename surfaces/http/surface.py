"""The HTTP surface: its start, its counts and ceilings, its stages of stopping."""

from __future__ import annotations

import asyncio
import ssl
import sys
from collections.abc import Coroutine
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

import structlog
from tornado.httputil import HTTPInputError

from protocol import limits
from protocol.errors import BadRequest, Busy, Full, MisdirectedRequest, SignInRefused
from surfaces.admission import Admission
from surfaces.holdings import Holdings
from surfaces.http import answers, scripts
from surfaces.http.connection import Connection
from surfaces.http.exchange import Exchange
from surfaces.http.head import Head
from surfaces.http.hosts import Hosts
from surfaces.http.known import KnownHeads
from surfaces.http.metrics import Counters
from surfaces.http.openapi import document
from surfaces.http.routes import ROUTES, Route, Table, application
from surfaces.http.shortcuts import Shortcuts
from surfaces.listener import Listener
from surfaces.logs import SparingLog
from surfaces.turns import LongWork
from surfaces.under_way import UnderWay

if TYPE_CHECKING:
    from actors.node import Node

log = structlog.get_logger("surfaces.http")

CHECKS_A_SECOND: Final = 2
REFUSALS_HELD: Final = 256
"""Connections over the ceiling that are kept for the moment their refusal takes; further ones are
cut."""


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds that a client has for each part. Tests shorten them; nothing else does."""

    tls_s: float = limits.TLS_SECONDS
    head_s: float = limits.HEAD_SECONDS
    body_s: float = limits.BODY_SECONDS
    write_s: float = limits.WRITE_SECONDS
    idle_s: float = limits.IDLE_SECONDS
    linger_s: float = limits.LINGER_SECONDS


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """Where and how the surface listens.

    :ivar tls: HTTPS exactly when given
    :ivar connections, running: the ceilings; tests lower them
    :ivar descriptors: every connection's is below this number: `surfaces/listener.py`
    """

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    deadlines: Deadlines = field(default_factory=Deadlines)
    connections: int = limits.CONNECTIONS
    running: int = limits.RUNNING
    descriptors: int = sys.maxsize


class HttpSurface:
    """One listener and everything behind it.

    Stopping has stages: `stop_accepting`, then `drain`, then `close`; each may be called without
    the ones before it.
    """

    def __init__(self, node: Node, settings: HttpSettings) -> None:
        self.node = node
        self.settings = settings
        self.clock = node.doors.clock
        self.deadlines = settings.deadlines
        self.table = Table()
        self.application = application(self)
        self.description = answers.json_bytes(
            document({(route.method, route.path): route.credential for route in ROUTES})
        )
        self.counters = Counters()
        self.connections: set[Connection] = set()
        self.admission = Admission(settings.running, lambda: node.running.waiting("http"))
        self.bodies_bytes = 0
        """Held in all. Of one that nobody signed in for it is at most a small body."""
        self.requests = Holdings(limits.REQUESTS_BYTES)
        """What requests hold, by user; of what is not judged yet, nobody's."""
        self.answers = Holdings(limits.ANSWERS_BYTES)
        """What was answered and not taken, by user."""
        self.sparing = SparingLog("surfaces.http")
        self.under_way = UnderWay(self.sparing)
        self.known = KnownHeads(node.doors.rng.bytes(32))
        self.shortcuts = Shortcuts(self)
        self.date_field = b""
        self._plain = b""
        """Of an answer with a body of JSON: the head between its request's name and its length."""
        self._hosts = Hosts(settings.host)
        self._prefix = node.doors.rng.bytes(3).hex()
        self._requests = 0
        self._forget_at = 0.0
        self._quiet: asyncio.Event = asyncio.Event()
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
            refusal=_no_room(),
            refused=self._refused,
            descriptors=self.settings.descriptors,
            sparing=self.sparing,
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

    def stop_accepting(self) -> None:
        """No new connections from here on; requests that come on the open ones, probes apart, hear
        `Draining`. What runs, runs on."""
        self.admission.draining = True
        if self._listener is not None:
            self._listener.close()

    async def drain(self, seconds: float = limits.DRAIN_SECONDS) -> int:
        """Wait until every request in flight is answered and its answer sent, at most so long.
        Answers how many connections are still busy."""
        self.admission.draining = True
        until = self.loop.time() + seconds
        while (busy := self._busy()) and (left := until - self.loop.time()) > 0:
            self._quiet.clear()
            try:
                # Answers being sent end without a word here, so look again soon.
                await asyncio.wait_for(self._quiet.wait(), min(left, 0.05))
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
        self.under_way.cancel()
        await self.under_way.ended()
        while self.connections:
            await asyncio.sleep(0)  # a transport says that it is gone on the loop's next turn
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.sparing.close()

    def unready(self) -> Literal["draining", "full"] | None:
        """Why the surface itself should get no traffic."""
        if self.stopping:
            return "draining"
        if self.admission.full or self._held() >= self.settings.connections:
            return "full"
        return "full" if self._listener is not None and self._listener.crowded else None

    # --- connections ----------------------------------------------------------------------------

    def opened(self, connection: Connection) -> bool:
        """Take a connection in. False: there is no room, it is to be refused."""
        self.counters.connections += 1
        held = self._held()
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
        self._quiet.set()

    def _held(self) -> int:
        return len(self.connections)

    def _refused(self) -> None:
        self.counters.refused_connections += 1

    # --- requests -------------------------------------------------------------------------------

    @property
    def stopping(self) -> bool:
        """Whether nothing new is begun."""
        return self.admission.draining

    @property
    def running(self) -> int:
        """Requests running."""
        return self.admission.running

    def next_request(self) -> str:
        """A name for a request, unique in this process and unlikely to be met in another."""
        self._requests += 1
        return f"r-{self._prefix}{self._requests:x}"

    def takes_more(self, host: str) -> bool:
        """Whether a request for a host may run now without being told otherwise."""
        admission = self.admission
        return (
            self._hosts.known(host, self.node.status)
            and not admission.full
            and not admission.draining
        )

    def plain(self, status: int, request: str, body: bytes) -> bytes:
        """A whole answer with a body of JSON, on a connection that goes on."""
        return b"%sStore-Request: %s%s%d\r\n\r\n%s" % (
            answers.status_line(status),
            request.encode("ascii"),
            self._plain,
            len(body),
            body,
        )

    def admit(self, exchange: Exchange, head: Head) -> Route:
        """The route of a request, decided by its head.

        :raises MisdirectedRequest: its Host is not this node
        :raises Refusal: as `Table.find`; SignInRefused when the route needs a credential
        """
        if head.host and not self._hosts.known(head.host, self.node.status):
            raise MisdirectedRequest(f"{head.host} is not this node")
        route = self.table.find(head)
        exchange.route = route
        if route.credential == "required" and b"authorization" not in head.fields:
            raise SignInRefused("this needs a credential: Authorization: Bearer or Basic")
        if self.stopping and not route.probe:
            raise self.admission.leaving()
        return route

    def begin(self, exchange: Exchange, *, judged: bool = False) -> None:
        """Run a request whose turn has come.

        :param judged: it was put off already, for want of room
        """
        if exchange.refusal is not None:
            exchange.refuse(exchange.refusal)
            return
        route, head = exchange.route, exchange.head
        assert route is not None
        assert head is not None
        if not route.probe:
            if self.admission.full and not self._lets_in(exchange):
                if not judged:
                    self.admission.judge_later(partial(self._judge, exchange))
                    return
                exchange.refuse(self.admission.busy())
                return
            self.runs(exchange)
        try:
            if route.lean is not None:
                exchange.delegate = delegate = route.lean(self, exchange)
            else:
                exchange.delegate = delegate = self.application.start_request(
                    exchange.connection, exchange
                )
                delegate.headers_received(*head.tornado())
                if exchange.body:
                    delegate.data_received(exchange.body)
            delegate.finish()
        except HTTPInputError as error:  # Tornado's own judgement, of the query for one
            exchange.refuse(BadRequest(str(error)))
        except Exception as error:
            exchange.fail(error)

    def _judge(self, exchange: Exchange) -> None:
        """Run a request that was put off, or refuse it."""
        if exchange.connection.closed:
            exchange.finished()
        else:
            self.begin(exchange, judged=True)

    def _lets_in(self, exchange: Exchange) -> bool:
        """Whether a request that finds no room is let in all the same."""
        exchange.beside = self.admission.lets_in_beside and scripts.only_administers(exchange)
        return exchange.beside

    def runs(self, exchange: Exchange) -> None:
        """A request is one of those that run, until it is finished."""
        self.admission.begin(beside=exchange.beside)
        exchange.counted = True
        exchange.since = self.loop.time()

    def finished(self, exchange: Exchange) -> None:
        """A request is answered, or nobody waits for its answer any more."""
        self.release(exchange)
        self.counters.request(exchange)
        if exchange.counted:
            exchange.counted = False
            self.admission.end(beside=exchange.beside)
            assert exchange.route is not None
            self.counters.ran(exchange.route.path, self.loop.time() - exchange.since)
            if self.stopping:
                self._quiet.set()

    def hold(self, exchange: Exchange, size: int) -> None:
        """So many bytes more of a body have come. :raises Busy: they are more than its user may
        have held"""
        if exchange.owner is not None and not self.requests.take(exchange.owner, size):
            raise _too_many_bodies()
        exchange.bytes_held += size
        self.bodies_bytes += size

    def own(self, exchange: Exchange, user: str) -> None:
        """It has been found out whose a request is. :raises Busy: as `hold`"""
        if exchange.owner is None:
            if exchange.bytes_held and not self.requests.take(user, exchange.bytes_held):
                raise _too_many_bodies()
            exchange.owner = user

    def weigh(self, exchange: Exchange, size: int) -> None:
        """What a request was read into takes so many bytes. :raises Busy: as `hold`"""
        if size > exchange.bytes_held:
            self.hold(exchange, size - exchange.bytes_held)

    def user_of_token(self, digest: bytes) -> str | None:
        """Whose a token is, when that can be told at once."""
        found = self.node.spaces.sessions.glance(digest, self.node.committer.ledger.users_version)
        return None if found is None else found.user

    def release(self, exchange: Exchange) -> None:
        """Its body is no longer held."""
        self.bodies_bytes -= exchange.bytes_held
        if exchange.owner is not None and exchange.bytes_held:
            self.requests.give(exchange.owner, exchange.bytes_held)
        exchange.bytes_held = 0

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run the work of a request; it answers its own errors."""
        self.under_way.spawn(work)

    def report(self, exchange: Exchange, error: BaseException) -> None:
        """A bug: its trace goes to the log under the request's name. Of those that nobody signed
        in for, at most one a second does."""
        route = exchange.route
        said = log.error if exchange.known else self.sparing.error
        said(
            "request failed",
            request=exchange.request,
            route=route.path if route is not None else None,
            exc_info=error,
        )

    def broken(self, connection: Connection, error: BaseException) -> None:
        """A bug that is no request's: the connection is cut."""
        self.sparing.error("a connection failed", exc_info=error)
        connection.abort()

    # --- inside ---------------------------------------------------------------------------------

    def _tick(self) -> None:
        """A few times a second: the Date of answers, and every connection's deadlines."""
        self._timer = self.loop.call_later(1 / CHECKS_A_SECOND, self._tick)
        seconds = self.clock.wall_us() // 1_000_000
        self.date_field = b"Date: %s\r\n" % formatdate(seconds, usegmt=True).encode("ascii")
        self._plain = b"\r\n%s%sCache-Control: no-store\r\nContent-Type: %s\r\nContent-Length: " % (
            self.date_field,
            answers.COMMON,
            answers.JSON,
        )
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


def _too_many_bodies() -> Busy:
    return Busy("the node holds as many request bodies as it will")


def _no_room() -> bytes:
    refusal = Full("the node has no descriptor left for this connection")
    body = answers.error_json(refusal, "r-0")
    return b"%sStore-Request: r-0\r\n%s%sCache-Control: no-store\r\nContent-Type: %s\r\n" % (
        answers.status_line(503),
        answers.COMMON,
        answers.error_fields(refusal),
        answers.JSON,
    ) + b"Content-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(body), body)
