"""What one connection receives: bytes to exchanges, no more of them than may wait.

llhttp parses what a read brought, save requests whose head is known (head_cache.py). It is fed in
steps: a read of tiny requests could make a hundred times its bytes of them, so what comes behind as
many as may wait is kept as it came, and parsed when some of those have been answered.
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
from surfaces.http.head import METHODS, SINGLE, Head, KnownHead, judge
from surfaces.http.head_cache import BLOCK_BYTES, MISSES, REQUEST_LINE
from surfaces.http.shortcuts import Asking, Shortcuts

_METHODS: Final = {name.encode(): name for name in METHODS}

CHUNK_OVERHEAD: Final = 16
"""Bytes of framing that one byte of a chunked body may cost, beside SMALL_BODY_BYTES: one-byte
chunks cost 5, so only extensions and trailers sent for their own sake reach it."""

STEP_BYTES: Final = 4 * limits.KIB
"""Fed to llhttp before it is asked whether more requests may wait: a hundred of the shortest."""

REQUEST_BYTES: Final = 2 * limits.KIB
"""What a request that waits takes in memory beside its head and its body."""


class _Upgrade(Exception):
    """Behind a request comes another protocol."""

    def __init__(self, rest: bytes) -> None:
        self.rest = rest


class Reader(Asking, Protocol):
    """The connection that is read."""

    @property
    def full(self) -> bool:
        """Whether no more requests may wait."""

    @property
    def free(self) -> bool:
        """Whether a request may be answered as it is read."""

    @property
    def idle(self) -> bool:
        """Whether nothing waits to be answered."""

    def arrived(self, exchange: Exchange) -> None:
        """A request is whole: it waits for its turn."""

    def end_with(self, refusal: Refusal) -> None:
        """The last answer of this connection, after those of the requests before it."""

    def go_on(self) -> None:
        """Something that was waited for has come."""


class Reading:
    """:param link: the connection
    :param admit: the route of a request, decided by its head
    """

    def __init__(
        self, link: Reader, shortcuts: Shortcuts, admit: Callable[[Exchange, Head], Route]
    ) -> None:
        self._link = link
        self._surface = link.surface
        self._shortcuts = shortcuts
        self._admit = admit
        self.parser: HttpRequestParser | None = HttpRequestParser(self)
        """None: nothing is parsed any more."""
        self.receiving: Exchange | None = None
        self.ended = False
        """Whether nothing more is read."""
        self.judging = False
        """Whether a credential is being judged before more of a body is read."""
        self.served = False
        """Whether a request has come."""
        self.kept = b""
        """Came behind as many requests as may wait."""
        self.behind: bytes | None = None
        """Came behind a request for an upgrade; None: there is no such request."""
        self.in_head = False
        # Times on the loop's clock; 0 where the phase does not last.
        self.head_since = 0.0
        self.body_since = 0.0
        self._raw = (
            -1
        )  # bytes read of the head or body that is under way; -1: it began in this read
        self._head_read = 0
        """Of these, and those of the read in which the head began."""
        self._unknown: tuple[bytes, bytes, bytes] | None = None
        """Name and bytes of a block of fields, and the target before it, that llhttp is to read."""
        self._misses = 0
        self._target = b""
        self._fields: dict[bytes, bytes] = {}
        self._field_count = 0
        self._head_bytes = 0

    @property
    def held(self) -> int:
        """Bytes of what is coming that are nobody's yet."""
        held = len(self.kept) + len(self.behind or b"")
        if self.in_head:
            held += self._head_read
        elif self.receiving is not None and self.receiving.owner is None:
            held += self._head_bytes + self.receiving.bytes_held
        return held

    @property
    def uninvited(self) -> bool:
        """Whether the client waits to be asked for a body, and has sent none of it."""
        exchange = self.receiving
        return exchange is not None and exchange.wants_continue and not exchange.bytes_in

    def take(self, data: bytes) -> None:
        """Parse what came, as far as requests may wait."""
        if self.kept:
            data = self.kept + data
        try:
            rest = self._parse(data)
        except _Upgrade as upgrade:
            self.ended = True  # where the route has no upgrade, it is as if none had been asked
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
        """Whether nothing more may be parsed now."""
        return self.ended or self._link.full

    def _step(self) -> int:
        """A body brings no requests: all that is left of it is fed at once."""
        exchange = self.receiving
        if exchange is None or exchange.head is None:
            return STEP_BYTES
        return max(STEP_BYTES, exchange.head.length - exchange.bytes_in)

    def forget(self) -> None:
        """Let go of what is coming."""
        if self.receiving is not None:
            self.receiving.release()
            self.receiving = None
        self.kept = b""
        self.behind = None
        self.in_head = False

    def retire(self) -> None:
        """Nothing more comes that is a request."""
        self.ended = True
        self.parser = None  # a few KiB, which a socket would keep for as long as it stands
        self._fields = {}

    # --- llhttp's side: an exception raised here ends the parsing -------------------------------

    def on_message_begin(self) -> None:
        """A request line begins."""
        self.in_head = True
        self._target = b""
        self._fields = {}
        self._field_count = self._head_bytes = 0
        self._raw = -1

    def on_url(self, part: bytes) -> None:
        """The target, in one or more parts."""
        self._target += part
        if len(self._target) > limits.HEAD_BYTES:
            raise HeadTooLarge(f"a head is at most {limits.HEAD_BYTES} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field, or a trailer once the body began: trailers are counted and dropped, so that
        none can pass for a field."""
        self._field_count += 1
        self._head_bytes += len(name) + len(value) + 4
        if self._field_count > limits.HEAD_FIELDS:
            raise HeadTooLarge(f"a head has at most {limits.HEAD_FIELDS} fields")
        if self._head_bytes + len(self._target) > limits.HEAD_BYTES:
            raise HeadTooLarge(f"a head is at most {limits.HEAD_BYTES} bytes")
        if not self.in_head:
            return
        name = name.lower()
        value = value.strip(b" \t")  # llhttp leaves what stands before the line end
        fields = self._fields
        if name not in fields:
            fields[name] = value
        elif name in SINGLE:
            raise BadRequest(f"the field {name.decode('latin-1')} stands twice")
        else:
            fields[name] += b", " + value

    def on_headers_complete(self) -> None:
        """The head is whole: judge it before any of the body is read."""
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

    def _take_head(self, head: Head) -> None:
        """A request begins. :raises Refusal: one that ends the connection"""
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
                raise  # its body is not worth reading: answer, and close
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
        """Some of the body."""
        exchange = self.receiving
        assert exchange is not None
        exchange.bytes_in += len(chunk)
        if exchange.bytes_in > exchange.body_limit:
            raise TooLarge(
                f"the body is over {exchange.body_limit} bytes", limit=exchange.body_limit
            )
        if exchange.discard:
            return
        # Pieces on their own would take many times what is counted: a client cuts them as it likes.
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
        """The request is whole: it waits for its turn."""
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

    # --- heads that are known -------------------------------------------------------------------

    def _take_known(self, data: bytes) -> bytes:
        """Take the requests with a known head off the front of a read that begins with a request.
        Answers the rest, which is llhttp's."""
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
        self, known: KnownHead, method: bytes, target: bytes, block: bytes, body: bytes
    ) -> None:
        """A whole request with a known head."""
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

    def _expect_body(self, exchange: Exchange, head: Head) -> None:
        if head.length > exchange.body_limit:
            raise TooLarge(
                f"the body is {head.length} bytes, at most {exchange.body_limit} are read here",
                limit=exchange.body_limit,
            )
        expect = head.fields.get(b"expect")
        if expect is not None:
            if expect.lower() != b"100-continue":
                raise BadRequest("the only expectation that is met is 100-continue")
            # A client of HTTP/1.0 knows no 100: it would take that for its answer.
            exchange.wants_continue = head.version != "HTTP/1.0"

    def _note_head(self, read: int) -> None:
        """A head is incomplete at the end of a read of so many bytes."""
        if not self.head_since:
            self.head_since = self._surface.loop.time()
        self._head_read = read if self._raw < 0 else self._head_read + read
        self._raw = 0 if self._raw < 0 else self._raw + read
        if self._raw > limits.HEAD_BYTES:
            self._link.end_with(HeadTooLarge(f"a head is at most {limits.HEAD_BYTES} bytes"))

    def _note_body(self, read: int) -> None:
        """A body is incomplete at the end of a read of so many bytes."""
        exchange = self.receiving
        assert exchange is not None
        if not self.body_since:
            self.body_since = self._surface.loop.time()
        self._raw = 0 if self._raw < 0 else self._raw + read
        if self._raw > limits.SMALL_BODY_BYTES + CHUNK_OVERHEAD * (1 + exchange.bytes_in):
            self._link.end_with(BadRequest("more framing than body"))
        elif exchange.large and exchange.owner is None and not self.judging:
            self.judge(exchange)

    def judge(self, exchange: Exchange) -> None:
        """Ask who sends a body before more of it is read: who is nobody can fill no memory, and
        what a user fills counts as that user's."""
        self.judging = True
        self._surface.spawn(self._judged(exchange))

    async def _judged(self, exchange: Exchange) -> None:
        try:
            who = await caller(exchange)
            if self.receiving is exchange:
                exchange.own(who.user)
        except Refusal as refusal:
            if self.receiving is exchange:
                self._link.end_with(refusal)
        except Exception as error:  # or it would be judged again and again, and never answered
            exchange.report(error)
            if self.receiving is exchange:
                self._link.end_with(exchange.failed())
        finally:
            self.judging = False
            self.body_since = self._surface.loop.time()  # the client's time goes on from here
            self._link.go_on()

    def invite(self) -> None:
        """Ask for the body of a client that waits to be asked, once its turn to be answered has
        come: before that the line would stand among other answers."""
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
        """What came is no request. Bytes after one that closes the connection are nobody's."""
        if self.ended:
            return
        cause = error.__context__
        if isinstance(error, HttpParserCallbackError) and cause is not None:
            if not isinstance(cause, Refusal):
                raise cause
            self._link.end_with(cause)
        elif isinstance(error, HttpParserInvalidMethodError):
            self._link.end_with(NotImplementedHere("the request's method is not spoken here"))
        elif "HTTP version" in str(error) or "PRI" in str(error):
            self._link.end_with(VersionNotSupported("HTTP/1.1 and HTTP/1.0 are spoken here"))
        else:
            self._link.end_with(BadRequest(f"the request can't be read: {error}"))
