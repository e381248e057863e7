"""One TCP connection: bytes to exchanges, in order, within every deadline and cap.

llhttp parses what a read brought, save requests whose head is known (known.py). Complete requests
wait in `queue` and run one at a time, so pipelined requests are answered in the order they came.
Answers that are ready at once, while a read is being worked through, leave in one write.

The connection ends after the first thing it can't read: a parser that lost its place would take
the rest of one request for another. It is then still read for a moment and what comes is thrown
away, because closing a socket with unread bytes resets it and can destroy the answer on its way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, cast

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
    Full,
    HeadTooLarge,
    NotImplementedHere,
    Refusal,
    RequestTimeout,
    TooLarge,
    VersionNotSupported,
)
from surfaces.http.credentials import caller
from surfaces.http.exchange import Context, Exchange
from surfaces.http.head import METHODS, SINGLE, Head, judge
from surfaces.http.known import BLOCK_BYTES, MISSES, REQUEST_LINE, KnownHead
from surfaces.sockets import half_close, read_at_most

if TYPE_CHECKING:
    from surfaces.http.surface import HttpSurface

_METHODS: Final = {name.encode(): name for name in METHODS}

GONE: Final = 499
"""The status under which an answer is counted that nobody was there to read."""

CHUNK_OVERHEAD: Final = 16
"""Bytes of framing that one byte of a chunked body may cost, beside SMALL_BODY_BYTES: one-byte
chunks cost 5, so only extensions and trailers sent for their own sake reach it."""

BATCH_BYTES: Final = 256 * limits.KIB
"""Of answers that wait for the end of the read they came in. Requests that a read brings take a
hundredth of what their answers may."""


class Connection(asyncio.Protocol):
    """One client's connection to the surface."""

    def __init__(self, surface: HttpSurface) -> None:
        self.surface = surface
        self.queue: deque[Exchange] = deque()
        self.current: Exchange | None = None
        self.receiving: Exchange | None = None
        self.context = Context("", "http")
        self.address = ""
        self.closed = False
        self._parser = HttpRequestParser(self)
        self._judging = False
        """Whether a credential is being judged before more of a body is read."""
        self._ended = False
        self._pumping = False
        self._reading_paused = False
        self._writing_paused = False
        self._batch: list[bytes] | None = None
        self._batch_bytes = 0
        self._unknown: tuple[bytes, bytes, bytes] | None = None
        """Name and bytes of a block of fields, and the target before it, that llhttp is to read."""
        self._misses = 0
        self._drained: list[asyncio.Future[None]] = []
        self._target = b""
        self._fields: dict[bytes, bytes] = {}
        self._field_count = 0
        self._head_bytes = 0
        self._in_head = False
        # Times on the loop's clock, looked at by `check`; 0 where the phase does not last.
        self._head_since = 0.0
        self._body_since = 0.0
        self._raw = (
            -1
        )  # bytes read of the head or body that is under way; -1: it began in this read
        self._idle_since = 0.0
        self._linger_until = 0.0
        self._unsent = 0
        self._stalled_since = 0.0
        self._served = False

    # --- asyncio's side -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection stands (with TLS: after the handshake)."""
        self.transport = cast(asyncio.Transport, transport)
        read_at_most(self.transport, limits.SMALL_BODY_BYTES)
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self.address = f"[{peer[0]}]:{peer[1]}" if ":" in peer[0] else f"{peer[0]}:{peer[1]}"
            secure = transport.get_extra_info("sslcontext") is not None
            self.context = Context(peer[0], "https" if secure else "http")
        self._head_since = self.surface.loop.time()
        if not self.surface.opened(self):
            self._end_with(Full("the node holds as many connections as it will"))
            self._pump()

    def data_received(self, data: bytes) -> None:
        """Parse, run what is complete, send what is ready."""
        if self._ended:
            return
        try:
            self._read(data)
        except Exception as error:  # a parser that lost its place can't be followed any more
            self.surface.broken(self, error)

    def _read(self, data: bytes) -> None:
        self._idle_since = 0.0
        self._batch = []
        try:
            if self.receiving is None and not self._in_head and self._misses < MISSES:
                data = self._take_known(data)
            if data:
                self._parser.feed_data(data)
        except HttpParserUpgrade:
            self._ended = True  # the request is answered as if it had not asked for an upgrade
        except HttpParserError as error:
            self._unreadable(error)
        if self._in_head:
            self._note_head(len(data))
        elif self.receiving is not None:
            self._note_body(len(data))
        if self.queue or self.receiving is not None or self._reading_paused:
            self._pump()
        self._flush()

    def eof_received(self) -> None:
        """The client closed its side: it is gone, and what ran for it is cancelled."""

    def connection_lost(self, _error: Exception | None) -> None:
        """Nobody is there any more."""
        self.closed = self._ended = True
        self._forget_waiting()
        for waiter in self._drained:
            if not waiter.done():
                waiter.set_result(None)
        self._drained.clear()
        if self.current is not None:
            self.current.status = GONE
            self.current.gone()
        self.surface.lost(self)

    def pause_writing(self) -> None:
        """The client reads more slowly than answers are made."""
        self._writing_paused = True

    def resume_writing(self) -> None:
        """The client caught up."""
        self._writing_paused = False
        for waiter in self._drained:
            if not waiter.done():
                waiter.set_result(None)
        self._drained.clear()
        try:
            self._pump()
        except Exception as error:
            self.surface.broken(self, error)

    # --- llhttp's side: an exception raised here ends the parsing -------------------------------

    def on_message_begin(self) -> None:
        """A request line begins."""
        self._in_head = True
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
        if not self._in_head:
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
        self._in_head = False
        self._raw = -1
        self._head_since = 0.0
        parser = self._parser
        method = parser.get_method()
        unknown, self._unknown = self._unknown, None
        head = judge(
            _METHODS.get(method) or method.decode("latin-1"),
            self._target,
            parser.get_http_version(),
            self._fields,
            parser.should_keep_alive() and not parser.should_upgrade(),
        )
        self._take_head(head)
        if unknown is not None and unknown[2] == self._target:
            self.surface.known.learn(unknown[0], unknown[1], head)

    def _take_head(self, head: Head) -> None:
        """A request begins. :raises Refusal: one that ends the connection"""
        self._served = True
        surface = self.surface
        self.receiving = exchange = Exchange(self, head, surface.next_request())
        try:
            exchange.route = surface.admit(exchange, head)
            exchange.body_limit = exchange.route.body_max
        except Refusal as refusal:
            exchange.refusal = refusal
            exchange.discard = True
            exchange.body_limit = limits.SMALL_BODY_BYTES
            if head.length > limits.SMALL_BODY_BYTES or head.length < 0 or b"expect" in head.fields:
                raise  # its body is not worth reading: answer, and close
        if head.has_body:
            small = 0 <= head.length <= limits.SMALL_BODY_BYTES
            exchange.large = (
                exchange.route is not None
                and not small
                and (exchange.route.credential == "required")
            )
            self._expect_body(exchange, head.fields.get(b"expect"), head.length)

    def on_body(self, chunk: bytes) -> None:
        """Some of the body."""
        exchange = self.receiving
        assert exchange is not None
        exchange.bytes_in += len(chunk)
        if exchange.bytes_in > exchange.body_limit:
            raise TooLarge(
                f"the body is over {exchange.body_limit} bytes", limit=exchange.body_limit
            )
        if not exchange.discard:
            exchange.chunks.append(chunk)
            self.surface.hold(exchange, len(chunk))

    def on_message_complete(self) -> None:
        """The request is whole: it waits for its turn."""
        exchange, self.receiving = self.receiving, None
        assert exchange is not None
        self._body_since = 0.0
        chunks = exchange.chunks
        if chunks:
            exchange.body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
            exchange.chunks = []
        exchange.complete = True
        self.queue.append(exchange)
        if exchange.close_after:
            self._ended = True

    # --- heads that are known -------------------------------------------------------------------

    def _take_known(self, data: bytes) -> bytes:
        """Take the requests with a known head off the front of a read that begins with a request.
        Answers the rest, which is llhttp's."""
        at, size = 0, len(data)
        known_heads = self.surface.known
        while at < size:
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
            if self._ended:
                return b""
        return data[at:] if at else data

    def _take_request(
        self, known: KnownHead, method: bytes, target: bytes, block: bytes, body: bytes
    ) -> None:
        """A whole request with a known head."""
        self._head_since = 0.0
        if self.current is None and not self.queue and not self._writing_paused:
            shortcuts = self.surface.shortcuts
            if method == b"GET" and not body:
                answer = shortcuts.get(known, target)
                if answer is not None:
                    self._served = True
                    self.send(answer)
                    return
            elif shortcuts.write(self, known, method, target, body):
                self._served = True
                return
        try:
            self._take_head(known.head(_METHODS[method], target, block))
            if body:
                self.on_body(body)
        except Refusal as refusal:
            self._end_with(refusal)
        else:
            self.on_message_complete()

    # --- what exchanges and the surface ask ------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Send bytes of the current answer."""
        if self.closed:
            return
        if self._batch is not None:
            self._batch.append(data)
            self._batch_bytes += len(data)
            if self._batch_bytes > BATCH_BYTES:  # the client says now how fast it takes them
                self._write_batch()
                self._batch = []
        else:
            self.transport.write(data)

    def written(self) -> asyncio.Future[None]:
        """Done when the client keeps up with what was sent."""
        waiter: asyncio.Future[None] = self.surface.loop.create_future()
        if self._writing_paused and not self.closed:
            self._drained.append(waiter)
        else:
            waiter.set_result(None)
        return waiter

    def finished(self, exchange: Exchange) -> None:
        """The current answer is complete."""
        assert exchange is self.current
        self.current = None
        self.surface.finished(exchange)
        if self.closed:
            return
        if exchange.close_after:
            self._close()
        else:
            self._pump()

    def end(self) -> None:
        """Close at once. What was not sent is lost."""
        if self.busy:
            self.abort()
        elif not self.closed:
            self.transport.close()

    def abort(self) -> None:
        """Cut the connection: what was not sent is lost."""
        if not self.closed:
            self.transport.abort()

    @property
    def closing(self) -> bool:
        """Whether nothing that is sent now would leave."""
        return self.closed or self.transport.is_closing()

    @property
    def busy(self) -> bool:
        """Whether a request is running or waiting, or its answer is still being sent."""
        if self.closed or (self._linger_until and not self.transport.get_write_buffer_size()):
            return False
        waiting = self.current or self.queue or self.receiving
        return bool(waiting or self.transport.get_write_buffer_size())

    def check(self, now: float) -> None:
        """Enforce the deadlines; called for every connection a few times a second."""
        deadlines = self.surface.deadlines
        if self._still_sending(now):
            if now - self._stalled_since >= deadlines.write_s:
                self.transport.abort()
            elif self._linger_until:
                self._linger_until = now + deadlines.linger_s
        elif self._linger_until:
            if now >= self._linger_until:
                self.transport.abort()
        elif self._in_head or not self._served:
            self._check_head(now, deadlines.head_s)
        elif self.receiving is not None:
            exchange = self.receiving
            allowed = deadlines.body_s + exchange.bytes_in / limits.BODY_SECONDS_BYTES
            if self._body_since and not self._judging and now - self._body_since >= allowed:
                self._end_with(RequestTimeout("the body did not arrive in time"))
                self._pump()
        elif self.current is None and not self.queue:
            if not self._idle_since:
                self._idle_since = now
            elif now - self._idle_since >= deadlines.idle_s:
                self._close()
        else:
            self._idle_since = 0.0

    # --- inside ----------------------------------------------------------------------------------

    def _check_head(self, now: float, allowed: float) -> None:
        if now - self._head_since < allowed:
            return
        if self._in_head:
            self._end_with(RequestTimeout("the head did not arrive in time"))
            self._pump()
        elif self.current is None:
            self._close()

    def _still_sending(self, now: float) -> bool:
        """Whether answers wait for the client; notes since when it has taken nothing."""
        unsent = self.transport.get_write_buffer_size()
        if unsent and (not self._unsent or unsent < self._unsent):
            self._stalled_since = now
        self._unsent = unsent
        return unsent > 0

    def _expect_body(self, exchange: Exchange, expect: bytes | None, length: int) -> None:
        if length > exchange.body_limit:
            raise TooLarge(
                f"the body is {length} bytes, at most {exchange.body_limit} are read here",
                limit=exchange.body_limit,
            )
        if expect is not None:
            if expect.lower() != b"100-continue":
                raise BadRequest("the only expectation that is met is 100-continue")
            exchange.wants_continue = True

    def _note_head(self, read: int) -> None:
        """A head is incomplete at the end of a read of so many bytes."""
        if not self._head_since:
            self._head_since = self.surface.loop.time()
        self._raw = 0 if self._raw < 0 else self._raw + read
        if self._raw > limits.HEAD_BYTES:
            self._end_with(HeadTooLarge(f"a head is at most {limits.HEAD_BYTES} bytes"))

    def _note_body(self, read: int) -> None:
        """A body is incomplete at the end of a read of so many bytes."""
        exchange = self.receiving
        assert exchange is not None
        if not self._body_since:
            self._body_since = self.surface.loop.time()
        self._raw = 0 if self._raw < 0 else self._raw + read
        if self._raw > limits.SMALL_BODY_BYTES + CHUNK_OVERHEAD * (1 + exchange.bytes_in):
            self._end_with(BadRequest("more framing than body"))
        elif exchange.large and exchange.owner is None and not self._judging:
            self._judge(exchange)

    def _judge(self, exchange: Exchange) -> None:
        """Ask who sends a large body before more of it is read: who is nobody can fill no memory,
        and what a user fills counts as that user's."""
        self._judging = True
        self.surface.spawn(self._judged(exchange))

    async def _judged(self, exchange: Exchange) -> None:
        try:
            who = await caller(exchange)
            if self.receiving is exchange:
                self.surface.own(exchange, who.user)
        except Refusal as refusal:
            if self.receiving is exchange:
                self._end_with(refusal)
        finally:
            self._judging = False
            self._body_since = self.surface.loop.time()  # the client's time goes on from here
            if not self.closed:
                self._pump()

    def _invite_body(self) -> None:
        """Ask for the body of a client that waits to be asked, once its turn to be answered has
        come: before that the line would stand among other answers."""
        exchange = self.receiving
        if exchange is None or not exchange.wants_continue or self.current or self.queue:
            return
        if exchange.large and exchange.owner is None:
            if not self._judging:
                self._judge(exchange)
            return
        exchange.wants_continue = False
        if not exchange.bytes_in:
            self.send(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _unreadable(self, error: HttpParserError) -> None:
        """What came is no request. Bytes after one that closes the connection are nobody's."""
        if self._ended:
            return
        cause = error.__context__
        if isinstance(error, HttpParserCallbackError) and cause is not None:
            if not isinstance(cause, Refusal):
                raise cause
            self._end_with(cause)
        elif isinstance(error, HttpParserInvalidMethodError):
            self._end_with(NotImplementedHere("the request's method is not spoken here"))
        elif "HTTP version" in str(error) or "PRI" in str(error):
            self._end_with(VersionNotSupported("HTTP/1.1 and HTTP/1.0 are spoken here"))
        else:
            self._end_with(BadRequest(f"the request can't be read: {error}"))

    def _end_with(self, refusal: Refusal) -> None:
        """The last answer of this connection, after those of the requests before it."""
        self._ended = True
        self._in_head = False
        head = None
        if self.receiving is not None:
            head = self.receiving.head
            self.surface.release(self.receiving)
            self.receiving = None
        exchange = Exchange(self, head, self.surface.next_request())
        exchange.close_after = True
        exchange.refusal = refusal
        exchange.complete = True
        self.queue.append(exchange)

    def _pump(self) -> None:
        """Run what waits, one after the other, until one takes longer."""
        if self._pumping or self.closed:
            return
        self._pumping = True
        try:
            while self.queue and self.current is None and not self._writing_paused:
                self.current = exchange = self.queue.popleft()
                try:
                    self.surface.begin(exchange)
                except Exception as error:  # in its own turn, not in that of who came before it
                    exchange.fail(error)
        finally:
            self._pumping = False
        if not self._linger_until:
            self._invite_body()
            self._pace_reading()

    def _pace_reading(self) -> None:
        """Read on, so that a client that goes away is noticed, unless too much waits already."""
        queue = self.queue
        held = sum(exchange.bytes_held for exchange in queue)
        full = len(queue) > limits.PIPELINED or held > limits.CONNECTION_BUFFER_BYTES
        if full or self._judging:
            if not self._reading_paused:
                self._reading_paused = True
                self.transport.pause_reading()
        elif self._reading_paused:
            self._reading_paused = False
            self.transport.resume_reading()

    def _flush(self) -> None:
        self._write_batch()
        if self._linger_until:
            self._half_close()

    def _write_batch(self) -> None:
        batch, self._batch = self._batch, None
        self._batch_bytes = 0
        if batch and not self.closed:
            self.transport.write(batch[0] if len(batch) == 1 else b"".join(batch))

    def _forget_waiting(self) -> None:
        if self.receiving is not None:
            self.surface.release(self.receiving)
            self.receiving = None
        for exchange in self.queue:
            self.surface.release(exchange)
        self.queue.clear()

    def _close(self) -> None:
        """Send what is left, then end our side and read on for a moment."""
        self._ended = True
        self._forget_waiting()
        self._linger_until = self.surface.loop.time() + self.surface.deadlines.linger_s
        if self._reading_paused:
            self._reading_paused = False
            self.transport.resume_reading()
        if self._batch is None:
            self._half_close()

    def _half_close(self) -> None:
        if not self.closed:
            half_close(self.transport)
