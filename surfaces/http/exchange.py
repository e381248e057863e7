"""One request and the answer to it, with the methods of Tornado's `HTTPConnection`.

A lean delegate answers with `reply` or `refuse`, in one piece. Tornado's handlers answer through
`write_headers`, `write` and `finish`. Either way `finished` is the end: the connection then turns
to the next request.
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
from surfaces.http.head import Head
from surfaces.http.shared import Http
from surfaces.http.stream import Stream

SWITCHING: Final = 101

log = structlog.get_logger("surfaces.http")

Credential = Literal["none", "optional", "required"]


class Delegate(Protocol):
    """What answers a request, as far as its exchange needs it: those of Tornado are some too."""

    def finish(self) -> None:
        """The request is there: do it."""

    def on_connection_close(self) -> None:
        """The client went away: stop, and finish the exchange all the same."""


Lean = Callable[[Http, "Exchange"], Delegate]
"""Makes the delegate of a request."""


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path.

    :ivar handler: answers through Tornado's `Application`; without one, `lean` makes the delegate
    :ivar probe: does not count among the running requests and is answered while draining
    :ivar accepts: media types of the body; empty: a body is read and ignored
    :ivar body_max: bytes
    :ivar upgrades: a WebSocket, whose handler says itself why it refuses one: `Socket`
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


@dataclass(frozen=True, slots=True)
class Context:
    """What Tornado's `HTTPServerRequest` reads of a connection."""

    remote_ip: str
    protocol: str


class Link(Protocol):
    """The connection of a request, as far as its answer needs it."""

    context: Context
    address: str
    known: bool
    """Whether it is known who asked here last."""
    closed: bool
    """Whether nobody is there."""

    @property
    def surface(self) -> Http:
        """What it shares with the others."""

    @property
    def closing(self) -> bool:
        """Whether nothing that is sent now would leave."""

    @property
    def is_last(self) -> bool:
        """Whether nothing waits behind the request that is being answered."""

    @property
    def may_begin(self) -> bool:
        """Whether it may begin before the call returns that says so."""

    @property
    def user(self) -> str:
        """Who asked here last, or `NOBODY`."""

    def takes(self, size: int) -> bool:
        """Whether there is room for an answer of so many bytes."""

    def send(self, data: bytes) -> None:
        """Send bytes of the current answer."""

    def written(self) -> asyncio.Future[None]:
        """Done when the client keeps up with what was sent."""

    def knows(self, user: str | None) -> None:
        """It has been found out who asks here."""

    def finished(self, exchange: Exchange) -> None:
        """The current answer is complete."""

    def abort(self) -> None:
        """Cut the connection."""

    def detach(self) -> Stream:
        """The connection is no longer one of requests."""


class Exchange:
    """One request and its answer.

    :ivar body: the whole body, once it has arrived; before that what has come of it in one piece
    :ivar parts: what has come of a body in several pieces: one buffer, whatever they were cut into
    :ivar discard: the body is read and thrown away, because the answer does not need it
    :ivar refusal: set when the answer was decided by the head alone
    :ivar since: when the request began to run, on the loop's clock
    :ivar known: whether it is known who asks
    :ivar large: the body may be larger than what is read of anybody's
    :ivar owner: the user whose holdings the body counts as, judged while it comes
    :ivar user: whose it counts as among what runs
    :ivar aside: whether it is among what runs, and only waits for who asks to be found out
    :ivar waits_with: bytes that it takes while it waits for its turn, beside the body
    """

    def __init__(self, connection: Link, head: Head | None, request: str) -> None:
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
        """What stands of its script, should there be no way to say what that answered."""
        self._close_callback: Callable[[], None] | None = None

    # --- Tornado's side -------------------------------------------------------------------------

    @property
    def context(self) -> Context:
        """Who is on the other side."""
        return self.connection.context

    def set_close_callback(self, callback: Callable[[], None] | None) -> None:
        """Called when the client goes away before the answer is finished."""
        self._close_callback = callback

    def write_headers(
        self,
        start_line: RequestStartLine | ResponseStartLine,
        headers: HTTPHeaders,
        chunk: bytes | None = None,
    ) -> asyncio.Future[None]:
        """Send the head of the answer, and `chunk` with it."""
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
        """The answer is complete."""
        self.finished()

    def detach(self) -> Stream:
        """What stands for the connection behind an answer that switches protocols."""
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
        """Answer in one piece. :param fields: more field lines, each with its line end"""
        # A second answer would be read as that to the next request.
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
        """Answer with an error, in the one shape that errors have."""
        kind = answers.MSGPACK if self.msgpack else answers.JSON
        refusal = after(refusal, self.committed)
        try:
            fields = answers.error_fields(refusal)
            shape = {"error": answers.error(refusal, self.request)}
            self.log_refusal(shape["error"])
            body = binary.pack(shape) if self.msgpack else encode_plain(to_json(shape))
        except Exception as error:  # a detail that has no form: that it was refused is not lost
            self.fail(error)
        else:
            status = answers.status_of(refusal, self.by_page)
            self.reply(status, body, kind, fields)

    def log_refusal(self, error: dict[str, Any]) -> None:
        """Let the request be found in the log. :param error: what its answer says"""
        route = self.route.path if self.route is not None else None
        self.connection.surface.refusals.say(error, self.request, self.known, route=route)

    def fail(self, error: BaseException) -> None:
        """Answer for a bug: the trace goes to the log, the request's name to the client. When
        part of the answer is out already, only cutting the connection says that it failed; when
        all of it is, the connection is the next request's."""
        self.report(error)
        if self.done:
            return
        if self.headers_sent:
            self.connection.abort()
        else:
            self.refuse(self.failed())

    def failed(self) -> Failed:
        """What the client is told of a bug."""
        return Failed(f"the node failed on this request; its log has {self.request}")

    # --- both -----------------------------------------------------------------------------------

    def gone(self) -> None:
        """The client went away. The delegate stops what it does and finishes all the same."""
        if self._close_callback is not None:
            callback, self._close_callback = self._close_callback, None
            callback()
        if self.delegate is not None:
            self.delegate.on_connection_close()

    def finished(self) -> None:
        """Nothing more belongs to this answer. A request that nothing was answered to is a bug: it
        hears `Failed`, or whoever asked would take the next answer for that to this one."""
        if self.done:
            return
        if not (self.headers_sent or self.connection.closing):
            self.fail(RuntimeError("a request was finished without an answer"))
            return
        self.done = True
        self._close_callback = None
        self.connection.finished(self)

    # --- what it holds, and that it runs --------------------------------------------------------

    def hold(self, size: int) -> None:
        """So many bytes more of its body have come. :raises Busy: they are more than its user may
        have held"""
        surface = self.connection.surface
        if self.owner is not None and not surface.requests.take(self.owner, size):
            raise _too_many_bodies()
        self.bytes_held += size
        surface.bodies_bytes += size

    def own(self, user: str) -> None:
        """It has been found out whose it is. :raises Busy: as `hold`"""
        if self.owner is None:
            held, requests = self.bytes_held, self.connection.surface.requests
            if held and not requests.take(user, held):
                raise _too_many_bodies()
            self.owner = user

    def weigh(self, size: int) -> None:
        """What it was read into takes so many bytes. :raises Busy: as `hold`"""
        if size > self.bytes_held:
            self.hold(size - self.bytes_held)

    def release(self) -> None:
        """Its body is no longer held."""
        surface = self.connection.surface
        surface.bodies_bytes -= self.bytes_held
        if self.owner is not None and self.bytes_held:
            surface.requests.give(self.owner, self.bytes_held)
        self.bytes_held = 0

    def runs(self, user: str) -> None:
        """It is one of those that run, until it is finished.

        :param user: whose it seems to be
        """
        surface = self.connection.surface
        surface.admission.begin(user, beside=self.beside)
        self.counted, self.user = True, user
        self.since = surface.loop.time()

    def runs_for(self, user: str) -> None:
        """It has been found out who asks."""
        if self.counted and user != self.user:
            self.connection.surface.admission.pass_on(self.user, user)
            self.user = user

    def stand_aside(self, aside: bool) -> None:
        """Whether it only waits for who asks to be found out: then it does not count among what
        runs."""
        if aside is not self.aside and self.counted:
            self.aside = aside
            self.connection.surface.admission.aside += 1 if aside else -1

    def report(self, error: BaseException) -> None:
        """A bug: its trace goes to the log under the request's name. Of those that nobody signed
        in for, at most one a second does."""
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
        """Whether a page asks: its browser says of which origin, with all but what only reads."""
        return self.head is not None and b"origin" in self.head.fields

    @property
    def unjudged(self) -> int:
        """Bytes that it makes the node hold in nobody's name."""
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
            pass  # the answer's own field of Connection says Upgrade
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
    return Busy("the node holds as many request bodies as it will")


def _no_room(size: int) -> AnswerTooLarge:
    return AnswerTooLarge(
        f"the answer has {size} bytes, and there is no room for it beside those that its user has"
        " not read",
        bytes=size,
    )
