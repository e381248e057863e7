"""Request parser of a connection: bytes to exchanges, up to the pipelining limit.

llhttp parses the bytes of a read, except requests whose header block is cached (`header_cache.py`).
It is fed in steps: a read of tiny requests could become a hundred times its bytes. Bytes beyond the
queue's limit are kept unparsed until some requests have been answered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from httptools import (
    HttpParserCallbackError,
    HttpParserError,
    HttpParserInvalidMethodError,
    HttpParserUpgrade,
    HttpRequestParser,
)

from protocol import limits
from protocol.errors import (
    BadRequest,
    HeadTooLarge,
    NotImplementedHere,
    Refusal,
    TooLarge,
    VersionNotSupported,
)
from surfaces.http.callers import caller
from surfaces.http.exchange import Exchange, Route
from surfaces.http.fast_path import FastConnection, FastPath
from surfaces.http.head import METHODS, SINGLE, CachedHeaders, RequestHead, judge
from surfaces.http.header_cache import BLOCK_BYTES, MISSES, REQUEST_LINE

_METHODS: Final = {name.encode(): name for name in METHODS}

CHUNK_OVERHEAD: Final = 16
"""Bytes of framing allowed per byte of a chunked body, beyond SMALL_BODY_BYTES. One-byte chunks
cost 5, so only an abuse of extensions and trailers reaches it."""

STEP_BYTES: Final = 4 * limits.KIB
"""Bytes fed to llhttp before the queue's limit is checked again: a hundred of the shortest
requests."""

REQUEST_BYTES: Final = 2 * limits.KIB
"""Memory of a queued request besides its head and its body, bytes."""


class _Upgrade(Exception):
    """A request is followed by bytes of another protocol."""

    def __init__(self, rest: bytes) -> None:
        self.rest = rest


class ReadableConnection(FastConnection, Protocol):
    """The connection that is read."""

    @property
    def full(self) -> bool:
        """True if no more requests may be queued."""

    @property
    def free(self) -> bool:
        """True if a request may be answered while it is read (fast path)."""

    @property
    def idle(self) -> bool:
        """True if no request is running or queued."""

    def arrived(self, exchange: Exchange) -> None:
        """Queue a complete request."""

    def end_with(self, refusal: Refusal) -> None:
        """Queue an error as the last response of this connection, after earlier ones."""

    def resume_requests(self) -> None:
        """Continue after an awaited event."""


class Reading:
    """:param link: the connection
    :param admit: returns the route of a request, decided by its head
    """

    def __init__(
        self,
        link: ReadableConnection,
        shortcuts: FastPath,
        admit: Callable[[Exchange, RequestHead], Route],
    ) -> None:
        self._link = link
        self._surface = link.surface
        self._shortcuts = shortcuts
        self._admit = admit
        self.parser: HttpRequestParser | None = HttpRequestParser(self)
        """None: nothing is parsed any more."""
        self.receiving: Exchange | None = None
        self.ended = False
        """True if nothing more is read."""
        self.judging = False
        """True while a credential is checked before more of a body is read."""
        self.served = False
        """True if a request has been received."""
        self.kept = b""
        """Unparsed bytes beyond the queue's limit."""
        self.behind: bytes | None = None
        """Bytes behind an upgrade request; None: there is no such request."""
        self.in_head = False
        # Times on the loop's clock; 0 outside of the phase.
        self.head_since = 0.0
        self.body_since = 0.0
        # Bytes read of the head or body under way; -1: it began in this read.
        self._raw = -1
        self._head_read = 0
        """Bytes of the current head, including the whole read in which it began."""
        self._unknown: tuple[bytes, bytes, bytes] | None = None
        """Cache key and bytes of an unknown header block that llhttp is to parse, and the target
        before it."""
        self._misses = 0
        self._target = b""
        self._fields: dict[bytes, bytes] = {}
        self._field_count = 0
        self._head_bytes = 0

    @property
    def held(self) -> int:
        """Incoming bytes that are charged to no user yet."""
        held = len(self.kept) + len(self.behind or b"")
        if self.in_head:
            held += self._head_read
        elif self.receiving is not None and self.receiving.owner is None:
            held += self._head_bytes + self.receiving.bytes_held
        return held

    @property
    def uninvited(self) -> bool:
        """True if the client waits for 100 Continue, and has sent none of its body."""
        exchange = self.receiving
        return exchange is not None and exchange.wants_continue and not exchange.bytes_in

    def take(self, data: bytes) -> None:
        """Parse received bytes, up to the queue's limit."""
        if self.kept:
            data = self.kept + data
        try:
            rest = self._parse(data)
        except _Upgrade as upgrade:
            self.ended = True  # a route without upgrades ignores the header
            rest = b""
            if self.behind is not None:
                self.behind = upgrade.rest
        except HttpParserError as error:
            self._unreadable(error)
            rest = b""
        self.kept = b"" if self.ended else rest
        if self.in_head:
            self._note_head(len(data) - len(rest))
        elif self.receiving is not None:
            self._note_body(len(data) - len(rest))

    def _parse(self, data: bytes) -> bytes:
        while data and not self._stops():
            if self.receiving is None and not self.in_head and self._misses < MISSES:
                data = self._take_known(data)
                if not data or self._stops():
                    break
            step = self._step()
            part, data = (data, b"") if len(data) <= step else (data[:step], data[step:])
            assert self.parser is not None, "it is retired"
            try:
                self.parser.feed_data(part)
            except HttpParserUpgrade as upgrade:
                raise _Upgrade(part[upgrade.args[0] :] + data) from None
        return data

    def _stops(self) -> bool:
        """True if nothing more may be parsed at present."""
        return self.ended or self._link.full

    def _step(self) -> int:
        """Return the bytes to feed next. A body contains no requests: all that is left of it is fed
        at once."""
        exchange = self.receiving
        if exchange is None or exchange.head is None:
            return STEP_BYTES
        return max(STEP_BYTES, exchange.head.length - exchange.bytes_in)

    def forget(self) -> None:
        """Drop the incomplete request."""
        if self.receiving is not None:
            self.receiving.release()
            self.receiving = None
        self.kept = b""
        self.behind = None
        self.in_head = False

    def retire(self) -> None:
        """End parsing: no further request follows."""
        self.ended = True
        self.parser = None  # frees a few KiB for the life of the socket
        self._fields = {}

    # --- llhttp's side: an exception raised here ends the parsing -------------------------------

    def on_message_begin(self) -> None:
        """Start a head (llhttp callback)."""
        self.in_head = True
        self._target = b""
        self._fields = {}
        self._field_count = self._head_bytes = 0
        self._raw = -1

    def on_url(self, part: bytes) -> None:
        """Add a part of the target (llhttp callback)."""
        self._target += part
        if len(self._target) > limits.HEAD_BYTES:
            raise HeadTooLarge(f"the head is too large: at most {limits.HEAD_BYTES} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header field (llhttp callback). A trailer, behind the body, is counted and dropped,
        so that none can pass for a header field."""
        self._field_count += 1
        self._head_bytes += len(name) + len(value) + 4
        if self._field_count > limits.HEAD_FIELDS:
            raise HeadTooLarge(f"the head has too many fields: at most {limits.HEAD_FIELDS}")
        if self._head_bytes + len(self._target) > limits.HEAD_BYTES:
            raise HeadTooLarge(f"the head is too large: at most {limits.HEAD_BYTES} bytes")
        if not self.in_head:
            return
        name = name.lower()
        value = value.strip(b" \t")  # llhttp keeps blanks before the line end
        fields = self._fields
        if name not in fields:
            fields[name] = value
        elif name in SINGLE:
            raise BadRequest(f"the field {name.decode('latin-1')} is given twice")
        else:
            fields[name] += b", " + value

    def on_headers_complete(self) -> None:
        """Validate the complete head, before any of the body is read (llhttp callback)."""
        self.in_head = False
        self._raw = -1
        self.head_since = 0.0
        parser = self.parser
        assert parser is not None, "it is parsing"
        method = parser.get_method()
        unknown, self._unknown = self._unknown, None
        head = judge(
            _METHODS.get(method) or method.decode("latin-1"),
            self._target,
            parser.get_http_version(),
            self._fields,
            parser.should_keep_alive(),
            parser.should_upgrade(),
        )
        self._take_head(head)
        if unknown is not None and unknown[2] == self._target:
            self._surface.known.learn(unknown[0], unknown[1], head)

    def _take_head(self, head: RequestHead) -> None:
        """Start a request.

        :raises Refusal: it ends the connection
        """
        self.served = True
        surface = self._surface
        self.receiving = exchange = Exchange(self._link, head, surface.next_request())
        try:
            exchange.route = self._admit(exchange, head)
            exchange.body_limit = exchange.route.body_max
        except Refusal as refusal:
            exchange.refusal = refusal
            exchange.discard = True
            exchange.body_limit = limits.SMALL_BODY_BYTES
            if head.length > limits.SMALL_BODY_BYTES or head.length < 0 or b"expect" in head.fields:
                raise  # don't read its body: answer, and close
        if head.upgrade and exchange.route is not None and exchange.route.upgrades:
            self.behind = b""
        if head.has_body:
            small = 0 <= head.length <= limits.UNCOUNTED_BYTES
            exchange.large = (
                exchange.route is not None
                and not small
                and (exchange.route.credential == "required")
            )
            self._expect_body(exchange, head)

    def on_body(self, chunk: bytes) -> None:
        """Add a part of the body (llhttp callback)."""
        exchange = self.receiving
        assert exchange is not None
        exchange.bytes_in += len(chunk)
        if exchange.bytes_in > exchange.body_limit:
            raise TooLarge(
                f"the body has over {exchange.body_limit} bytes: this route takes no more",
                limit=exchange.body_limit,
            )
        if exchange.discard:
            return
        # Separate pieces would take many times the charged memory: the client chooses their size.
        if exchange.parts is not None:
            exchange.parts += chunk
        elif exchange.body:
            exchange.parts = bytearray(exchange.body)
            exchange.parts += chunk
            exchange.body = b""
        else:
            exchange.body = chunk
        exchange.hold(len(chunk))

    def on_message_complete(self) -> None:
        """Queue the complete request (llhttp callback)."""
        exchange, self.receiving = self.receiving, None
        assert exchange is not None
        self.body_since = 0.0
        if exchange.parts is not None:
            exchange.body, exchange.parts = bytes(exchange.parts), None
        exchange.complete = True
        exchange.waits_with = REQUEST_BYTES + self._head_bytes + len(self._target)
        self._head_bytes, self._target = 0, b""
        self._link.arrived(exchange)
        if exchange.close_after:
            self.ended = True

    # --- cached header blocks -------------------------------------------------------------------

    def _take_known(self, data: bytes) -> bytes:
        """Take requests with a cached header block off the front of a read that begins with a
        request. Return the rest, for llhttp."""
        at, size = 0, len(data)
        known_heads = self._surface.known
        while at < size and not self._link.full:
            line = REQUEST_LINE.match(data, at)
            if line is None:
                break
            begins = line.end()
            ends = data.find(b"\r\n\r\n", begins - 2) + 4
            if not 4 <= ends - begins <= BLOCK_BYTES:
                break
            block = data[begins:ends]
            name = known_heads.name(block)
            known = known_heads.find(name)
            method, target = line.groups()
            if known is None:
                self._misses += 1
                self._unknown = name, block, target
                break
            complete = ends + known.like.length
            if complete > size:
                break
            self._misses = 0
            at = complete
            self._take_request(known, method, target, block, data[ends:complete])
            if self.ended:
                return b""
        return data[at:] if at else data

    def _take_request(
        self, known: CachedHeaders, method: bytes, target: bytes, block: bytes, body: bytes
    ) -> None:
        """Handle a complete request with a cached header block."""
        self.head_since = 0.0
        link = self._link
        if link.free:
            shortcuts = self._shortcuts
            if not link.known and known.token is not None:
                link.knows(self._surface.user_of_token(known.token))
            if method == b"GET" and not body:
                taken = shortcuts.get(link, known, target)
            else:
                taken = shortcuts.write(link, known, method, target, body)
            if taken:
                self.served = True
                return
        try:
            self._take_head(known.head(_METHODS[method], target, block))
            if body:
                self.on_body(body)
        except Refusal as refusal:
            self._link.end_with(refusal)
        else:
            self.on_message_complete()

    # --- inside ---------------------------------------------------------------------------------

    def _expect_body(self, exchange: Exchange, head: RequestHead) -> None:
        if head.length > exchange.body_limit:
            raise TooLarge(
                f"the body has {head.length} bytes: this route takes at most {exchange.body_limit}",
                limit=exchange.body_limit,
            )
        expect = head.fields.get(b"expect")
        if expect is not None:
            if expect.lower() != b"100-continue":
                raise BadRequest("unsupported Expect: only 100-continue is known")
            # An HTTP/1.0 client would take 100 Continue for its response.
            exchange.wants_continue = head.version != "HTTP/1.0"

    def _note_head(self, read: int) -> None:
        """Note an incomplete head after a read of `read` bytes."""
        if not self.head_since:
            self.head_since = self._surface.loop.time()
        self._head_read = read if self._raw < 0 else self._head_read + read
        self._raw = 0 if self._raw < 0 else self._raw + read
        if self._raw > limits.HEAD_BYTES:
            self._link.end_with(
                HeadTooLarge(f"the head is too large: at most {limits.HEAD_BYTES} bytes")
            )

    def _note_body(self, read: int) -> None:
        """Note an incomplete body after a read of `read` bytes."""
        exchange = self.receiving
        assert exchange is not None
        if not self.body_since:
            self.body_since = self._surface.loop.time()
        self._raw = 0 if self._raw < 0 else self._raw + read
        if self._raw > limits.SMALL_BODY_BYTES + CHUNK_OVERHEAD * (1 + exchange.bytes_in):
            self._link.end_with(BadRequest("the chunks are too small: send larger ones"))
        elif exchange.large and exchange.owner is None and not self.judging:
            self.judge(exchange)

    def judge(self, exchange: Exchange) -> None:
        """Authenticate the sender before more of a body is read: an anonymous client can fill no
        memory, and a user's body is charged to that user."""
        self.judging = True
        self._surface.spawn(self._authenticate(exchange))

    async def _authenticate(self, exchange: Exchange) -> None:
        try:
            who = await caller(exchange)
            if self.receiving is exchange:
                exchange.own(who.user)
        except Refusal as refusal:
            if self.receiving is exchange:
                self._link.end_with(refusal)
        except Exception as error:  # otherwise it would be retried for ever
            exchange.report(error)
            if self.receiving is exchange:
                self._link.end_with(exchange.failed())
        finally:
            self.judging = False
            self.body_since = self._surface.loop.time()  # exclude the check's time
            self._link.resume_requests()

    def send_continue(self) -> None:
        """Send 100 Continue if the client waits for it, once the request's turn has come. Before
        that the line would stand among other responses."""
        exchange = self.receiving
        if exchange is None or not exchange.wants_continue or not self._link.idle:
            return
        if exchange.large and exchange.owner is None:
            if not self.judging:
                self.judge(exchange)
            return
        exchange.wants_continue = False
        if not exchange.bytes_in:
            self._link.send(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _unreadable(self, error: HttpParserError) -> None:
        """End the connection with an error: the bytes are no request. Bytes after a closing request
        are ignored."""
        if self.ended:
            return
        cause = error.__context__
        if isinstance(error, HttpParserCallbackError) and cause is not None:
            if not isinstance(cause, Refusal):
                raise cause
            self._link.end_with(cause)
        elif isinstance(error, HttpParserInvalidMethodError):
            self._link.end_with(NotImplementedHere("the request's method is not supported"))
        elif "HTTP version" in str(error) or "PRI" in str(error):
            self._link.end_with(
                VersionNotSupported("unsupported version of HTTP: use HTTP/1.1 or HTTP/1.0")
            )
        else:
            self._link.end_with(BadRequest(f"the request can't be read: {error}"))
