"""Exchange: one request and its response, with the methods of Tornado's `HTTPConnection`.

A lean delegate answers with `reply` or `refuse`, in one piece. Tornado's handlers answer through
`write_headers`, `write` and `finish`. Both end in `finished`, after which the connection goes on
with the next request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

import structlog
from tornado.httputil import HTTPHeaders, RequestStartLine, ResponseStartLine
from tornado.web import RequestHandler

from protocol import binary, limits
from protocol.errors import AnswerTooLarge, Busy, Failed, Refusal, after
from protocol.jsonvalues import encode_plain, to_json
from surfaces.http import answers, cors
from surfaces.http.head import RequestHead
from surfaces.http.operation import Json, Operation, RouteParameter
from surfaces.http.queries import parameters
from surfaces.http.shared import Http
from surfaces.http.stream import Stream

SWITCHING: Final = 101

log = structlog.get_logger("surfaces.http")

Credential = Literal["none", "optional", "required"]


class Delegate(Protocol):
    """Delegate of a request, as far as its exchange needs it. Tornado's delegates conform to it."""

    def finish(self) -> None:
        """Handle the complete request."""

    def on_connection_close(self) -> None:
        """Stop, and finish the exchange nevertheless: the client has disconnected."""


Lean = Callable[[Http, "Exchange"], Delegate]
"""Makes the delegate of a request."""


@dataclass(frozen=True, slots=True)
class Route:
    """Method and path of a route.

    :ivar handler: answers through Tornado's `Application`; without it, `lean` makes the delegate
    :ivar probe: does not count among the running requests and is answered while draining
    :ivar accepts: media types of the body; empty: a body is read and ignored
    :ivar body_max: maximum size of the body, bytes
    :ivar upgrades: a WebSocket, whose handler itself answers refusals: `Socket`
    :ivar query: parameters that its query may have
    :ivar body: schema of its body; None: a body is ignored
    :ivar operation: description of it; None: it is not in `/openapi.json`
    """

    method: str
    path: str
    handler: type[RequestHandler] | None = None
    lean: Lean | None = None
    credential: Credential = "none"
    probe: bool = False
    accepts: tuple[str, ...] = ()
    body_max: int = limits.SMALL_BODY_BYTES
    upgrades: bool = False
    query: tuple[RouteParameter, ...] = ()
    body: Json | None = None
    operation: Operation | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """Attributes of a connection that Tornado's `HTTPServerRequest` reads."""

    remote_ip: str
    protocol: str


class HttpLink(Protocol):
    """The connection of a request, as far as its response needs it."""

    context: Context
    address: str
    known: bool
    """True if the last request was authenticated."""
    closed: bool
    """True if the connection is closed."""

    @property
    def surface(self) -> Http:
        """State shared with the other connections."""

    @property
    def closing(self) -> bool:
        """True if bytes sent now would not leave."""

    @property
    def is_last(self) -> bool:
        """True if no request is queued behind the one being answered."""

    @property
    def may_begin(self) -> bool:
        """True if the present request may run before this call returns."""

    @property
    def user(self) -> str:
        """User of the last request, or `NOBODY`."""

    def takes(self, size: int) -> bool:
        """Return True if there is room for a response of `size` bytes."""

    def send(self, data: bytes) -> None:
        """Queue bytes of the current response."""

    def written(self) -> asyncio.Future[None]:
        """Return a future that is done when the client keeps up with the sent bytes."""

    def knows(self, user: str | None) -> None:
        """Set the authenticated user."""

    def finished(self, exchange: Exchange) -> None:
        """Go on with the next request: the current response is complete."""

    def abort(self) -> None:
        """Abort the connection."""

    def detach(self) -> Stream:
        """Detach the connection from HTTP."""


class Exchange:
    """HTTP request and its response.

    :ivar body: the complete body once it has arrived; before that a part received in one piece
    :ivar parts: buffer of a body received in several pieces
    :ivar discard: the body is read and thrown away, because the response does not need it
    :ivar refusal: set if the head alone decided the response
    :ivar since: start of the execution, on the loop's clock
    :ivar known: True if the caller is authenticated
    :ivar large: the body may be larger than the limit for unauthenticated clients
    :ivar owner: user whose memory quota the body is charged to, authenticated while it is received
    :ivar user: user that it counts for among the running requests
    :ivar aside: True if it is admitted, but only waits for its authentication
    :ivar waits_with: bytes that it takes while queued, besides the body
    """

    def __init__(self, connection: HttpLink, head: RequestHead | None, request: str) -> None:
        self.connection = connection
        self.head = head
        self.request = request
        self.route: Route | None = None
        self.refusal: Refusal | None = None
        self.delegate: Delegate | None = None
        self.parts: bytearray | None = None
        self.bytes_in = 0
        self.bytes_held = 0
        self.waits_with = 0
        self.body_limit = 0
        self.body = b""
        self.discard = False
        self.wants_continue = False
        self.since = 0.0
        self.complete = False
        self.known = False
        self.large = False
        self.owner: str | None = None
        self.counted = False
        self.user = ""
        self.beside = False
        self.aside = False
        self.close_after = head is None or not head.keep_alive
        self.msgpack = False
        self.headers_sent = False
        self.done = False
        self.status = 0
        self.committed = 0
        """Sequence of its script's newest durable commit, for a response that can't be sent."""
        self._close_callback: Callable[[], None] | None = None

    # --- Tornado's side -------------------------------------------------------------------------

    @property
    def context(self) -> Context:
        """Address and scheme of the client."""
        return self.connection.context

    def parameters(self) -> dict[str, str]:
        """Return the parameters of the query.

        :raises BadRequest: they are not those of the route
        """
        assert self.head is not None and self.route is not None
        return parameters(self.head.query, self.route.query)

    def set_close_callback(self, callback: Callable[[], None] | None) -> None:
        """Set the callback for a client that disconnects before the response is finished."""
        self._close_callback = callback

    def write_headers(
        self,
        start_line: RequestStartLine | ResponseStartLine,
        headers: HTTPHeaders,
        chunk: bytes | None = None,
    ) -> asyncio.Future[None]:
        """Send the head of the response, and `chunk` with it."""
        assert isinstance(start_line, ResponseStartLine)
        assert "Content-Length" in headers or start_line.code in (101, 204, 304)
        lines = b"".join(answers.field(name, value) for name, value in headers.get_all())
        if "Cache-Control" not in headers:
            lines += b"Cache-Control: no-store\r\n"
        self._send(self._head(start_line.code, lines) + (chunk or b""))
        return self.connection.written()

    def write(self, chunk: bytes) -> asyncio.Future[None]:
        """Send more of the body."""
        self._send(chunk)
        return self.connection.written()

    def finish(self) -> None:
        """Finish the response."""
        self.finished()

    def detach(self) -> Stream:
        """Return the connection's stream after a response that switches protocols (upgrade)."""
        return self.connection.detach()

    # --- the lean side --------------------------------------------------------------------------

    def reply(
        self,
        status: int,
        body: bytes = b"",
        kind: bytes = answers.JSON,
        fields: bytes = b"",
        cache: bytes = answers.NO_STORE,
    ) -> None:
        """Answer in one piece.

        :param fields: further header lines, each with its line end
        """
        # The client would take a second response for that of its next request.
        assert not self.headers_sent, f"{self.request} is answered twice"
        if not self.connection.takes(len(body)):
            self.refuse(_no_room(len(body)))
            return
        surface, head = self.connection.surface, self.head
        if (
            kind is answers.JSON
            and cache is answers.NO_STORE
            and not (fields or self.close_after or surface.stopping)
            and status not in (204, 304)
            and head is not None
            and head.method != "HEAD"
            and head.version == "HTTP/1.1"
            and b"origin" not in head.fields
        ):
            self.status = status
            self.headers_sent = True
            self._send(surface.plain(status, self.request, body))
            self.finished()
            return
        lines = b"%sCache-Control: %s\r\n" % (fields, cache)
        if status not in (204, 304):
            lines += b"Content-Type: %s\r\nContent-Length: %d\r\n" % (kind, len(body))
        begins = self._head(status, lines)
        without_body = head is not None and head.method == "HEAD"
        self._send(begins if without_body else begins + body)
        self.finished()

    def refuse(self, refusal: Refusal) -> None:
        """Answer with an error."""
        kind = answers.MSGPACK if self.msgpack else answers.JSON
        refusal = after(refusal, self.committed)
        try:
            fields = answers.error_fields(refusal)
            shape = {"error": answers.error(refusal, self.request)}
            self.log_refusal(shape["error"])
            body = binary.pack(shape) if self.msgpack else encode_plain(to_json(shape))
        except Exception as error:  # a detail that can't be encoded
            self.fail(error)
        else:
            status = answers.status_of(refusal, self.by_page)
            self.reply(status, body, kind, fields)

    def log_refusal(self, error: dict[str, Any]) -> None:
        """Log a refusal, so that the request is found in the log.

        :param error: error object of the response
        """
        route = self.route.path if self.route is not None else None
        self.connection.surface.refusals.say(error, self.request, self.known, route=route)

    def fail(self, error: BaseException) -> None:
        """Answer for a bug: the traceback goes to the log, the request id to the client. If part of
        the response has been sent, the connection is aborted, since nothing else signals the
        failure. If all of it has been sent, the connection belongs to the next request."""
        self.report(error)
        if self.done:
            return
        if self.headers_sent:
            self.connection.abort()
        else:
            self.refuse(self.failed())

    def failed(self) -> Failed:
        """Return the error that a client gets for a bug."""
        return Failed(f"internal error: the node's log has the trace under {self.request}")

    # --- both -----------------------------------------------------------------------------------

    def gone(self) -> None:
        """Stop the delegate, which finishes nevertheless: the client has disconnected."""
        if self._close_callback is not None:
            callback, self._close_callback = self._close_callback, None
            callback()
        if self.delegate is not None:
            self.delegate.on_connection_close()

    def finished(self) -> None:
        """End the exchange. A request without a response is a bug and is answered `Failed`;
        otherwise the client would take the next response for this one."""
        if self.done:
            return
        if not (self.headers_sent or self.connection.closing):
            self.fail(RuntimeError("a request was finished without an answer"))
            return
        self.done = True
        self._close_callback = None
        self.connection.finished(self)

    # --- memory and admission -------------------------------------------------------------------

    def hold(self, size: int) -> None:
        """Charge `size` more bytes of the body.

        :raises Busy: the user's memory quota is exceeded
        """
        surface = self.connection.surface
        if self.owner is not None and not surface.requests.take(self.owner, size):
            raise _too_many_bodies()
        self.bytes_held += size
        surface.bodies_bytes += size

    def own(self, user: str) -> None:
        """Charge the body to its authenticated user.

        :raises Busy: as `hold`
        """
        if self.owner is None:
            held, requests = self.bytes_held, self.connection.surface.requests
            if held and not requests.take(user, held):
                raise _too_many_bodies()
            self.owner = user

    def weigh(self, size: int) -> None:
        """Charge the decoded size of the body, if it is larger than the received one.

        :raises Busy: as `hold`
        """
        if size > self.bytes_held:
            self.hold(size - self.bytes_held)

    def release(self) -> None:
        """Release the memory of the body."""
        surface = self.connection.surface
        surface.bodies_bytes -= self.bytes_held
        if self.owner is not None and self.bytes_held:
            surface.requests.give_back_bytes(self.owner, self.bytes_held)
        self.bytes_held = 0

    def runs(self, user: str) -> None:
        """Count as a running request until it is finished.

        :param user: its user, as far as known without a check
        """
        surface = self.connection.surface
        surface.admission.admit(user, beside=self.beside)
        self.counted, self.user = True, user
        self.since = surface.loop.time()

    def runs_for(self, user: str) -> None:
        """Move it to its authenticated user among the running requests."""
        if self.counted and user != self.user:
            self.connection.surface.admission.pass_on(self.user, user)
            self.user = user

    def set_authenticating(self, aside: bool) -> None:
        """Set whether it only waits for its authentication. Then it does not count as running."""
        if aside is not self.aside and self.counted:
            self.aside = aside
            self.connection.surface.admission.aside += 1 if aside else -1

    def report(self, error: BaseException) -> None:
        """Log a bug with its traceback and the request id. For unauthenticated clients at most one
        a second is logged."""
        route = self.route
        said = log.error if self.known else self.connection.surface.limited_log.error
        said(
            "request failed",
            request=self.request,
            route=route.path if route is not None else None,
            exc_info=error,
        )

    @property
    def by_page(self) -> bool:
        """True if a page sent the request: its browser sends Origin, except with simple reads."""
        return self.head is not None and b"origin" in self.head.fields

    @property
    def unjudged(self) -> int:
        """Bytes charged as anonymous."""
        return self.waits_with + (self.bytes_held if self.owner is None else 0)

    @property
    def _probe(self) -> bool:
        return self.route is not None and self.route.probe

    def _head(self, status: int, lines: bytes) -> bytes:
        self.status = status
        self.headers_sent = True
        connection = self.connection
        surface = connection.surface
        if self.head is not None and b"origin" in self.head.fields:
            lines += cors.fields(self.head, surface.node.status().origins)
        ending = surface.stopping and connection.is_last and not self._probe
        if status == SWITCHING:
            pass  # the response has its own Connection: Upgrade
        elif self.close_after or ending:
            self.close_after = True
            lines += b"Connection: close\r\n"
        elif self.head is not None and self.head.version == "HTTP/1.0":
            lines += b"Connection: keep-alive\r\n"
        return b"%sStore-Request: %s\r\n%s%s%s\r\n" % (
            answers.status_line(status),
            self.request.encode("ascii"),
            surface.date_field,
            answers.COMMON,
            lines,
        )

    def _send(self, data: bytes) -> None:
        self.connection.send(data)


def _too_many_bodies() -> Busy:
    return Busy("too many request bodies in memory: retry later")


def _no_room(size: int) -> AnswerTooLarge:
    return AnswerTooLarge(
        f"the answer has {size} bytes, more than the user's unread answers leave room"
        " for: read those first",
        bytes=size,
    )
