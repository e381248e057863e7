"""HTTP connection: bytes to exchanges, in order, within every deadline and limit.

Received requests (reading.py) wait in `queue` and run one at a time, so pipelined requests are
answered in order. Responses leave at the end of the loop's iteration, in one write
(`surfaces/flush_queue.py`).

Queued requests are charged to the memory quota: as anonymous until the credential is checked, then
to the user. Reading pauses while the queue is full, by number or by bytes, or while the client does
not read its responses (backpressure).

The connection ends after the first protocol error: a parser out of step could take the rest of one
request for another (request smuggling). The connection is then half-closed, and incoming bytes are
discarded for a moment. Closing a socket with unread bytes resets it, which can destroy the response
under way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, cast

from protocol import limits
from protocol.conversation import HELLO_BYTES
from protocol.errors import Busy, Full, Refusal, RequestTimeout
from surfaces.http.exchange import SWITCHING, Context, Exchange
from surfaces.http.reading import Reading
from surfaces.http.serving import Serving
from surfaces.http.stream import Stream, nodelay
from surfaces.http.write_buffer import SMALL_ANSWER, HttpWriteBuffer
from surfaces.memory_quota import QuotaAccount
from surfaces.sockets import half_close, read_at_most

GONE: Final = 499
"""Status counted for a response whose client was gone."""


class HttpConnection(asyncio.Protocol):
    """Client connection of the surface."""

    def __init__(self, surface: Serving[HttpConnection]) -> None:
        self.surface: Serving[HttpConnection] = surface
        self.queue: deque[Exchange] = deque()
        self.current: Exchange | None = None
        self.reading = Reading(self, surface.shortcuts, surface.intake.admit)
        self.outgoing = HttpWriteBuffer(QuotaAccount(surface.answers))
        self.context = Context("", "http")
        self.address = ""
        self.closed = False
        self.stream: Stream | None = None
        """The upgraded connection (WebSocket) that receives and sends from the upgrade on."""
        self._waiting = QuotaAccount(surface.requests)
        """Memory charged for received requests not yet authenticated."""
        self._queue_bytes = 0
        self._unjudged_bytes = 0
        """Bytes of queued requests charged as anonymous."""
        self.known = False
        """True if the last request was authenticated."""
        self._crowded = False
        """True if the memory quota of anonymous requests is exhausted."""
        self._pumping = False
        self._reading_paused = False
        self._reads = False
        """True while a call of `data_received` handles its bytes."""
        # Times on the loop's clock, for `check`; 0 outside of the phase.
        self._idle_since = 0.0
        self._linger_until = 0.0

    # --- asyncio's side -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the connection (with TLS: after the handshake)."""
        self.transport = self.outgoing.transport = cast(asyncio.Transport, transport)
        read_at_most(self.transport, HELLO_BYTES)
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self.address = f"[{peer[0]}]:{peer[1]}" if ":" in peer[0] else f"{peer[0]}:{peer[1]}"
            secure = transport.get_extra_info("sslcontext") is not None
            self.context = Context(peer[0], "https" if secure else "http")
        self.reading.head_since = self.surface.loop.time()
        if not self.surface.opened(self):
            self.end_with(Full("too many open connections: retry later"))
            self._pump()

    def data_received(self, data: bytes) -> None:
        """Parse the bytes, and run complete requests."""
        reading = self.reading
        if reading.ended:
            if self.stream is not None:
                self.stream.received(data)
            elif reading.behind is not None and not self._linger_until:
                reading.behind += data
                self._pace_reading()
            return
        try:
            self._read(data)
        except Exception as error:  # the parser is out of step
            self.surface.broken(self, error)

    def _read(self, data: bytes) -> None:
        reading = self.reading
        self._idle_since, self._reads = 0.0, True
        try:
            reading.take(data)
            if (
                self.queue
                or reading.in_head
                or reading.receiving is not None
                or self._reading_paused
                or self._waiting.counted
            ):
                self._bound()
                self._pump()
        finally:
            self._reads = False
        self.surface.node.committer.on_turn_end()

    def eof_received(self) -> None:
        """Let asyncio close the transport: a client that closes its side is gone, and its request
        is cancelled."""

    def connection_lost(self, _error: Exception | None) -> None:
        """Cancel the running request and release all memory: the connection is closed."""
        self.closed = self.reading.ended = True
        self._forget_waiting()
        self.outgoing.close()
        if self.stream is not None:
            self.stream.lost()
        self._waiting.hold(0)
        if self.current is not None:
            self.current.status = GONE
            self.current.gone()
        self.surface.lost(self)

    def pause_writing(self) -> None:
        """Mark the write buffer as full: the client reads more slowly than responses are made."""
        self.outgoing.paused = True

    def resume_writing(self) -> None:
        """Continue: the client has caught up."""
        self.outgoing.resume()
        self.outgoing.count()
        self._has_room()

    # --- reading --------------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        """True if no more requests may be queued."""
        return (
            len(self.queue) >= limits.PIPELINED
            or self._queue_bytes >= limits.SMALL_BODY_BYTES
            or (self._crowded and bool(self.queue))
        )

    @property
    def free(self) -> bool:
        """True if a request may be answered while it is read (fast path)."""
        return self.current is None and not self.queue and not self.outgoing.choked

    @property
    def idle(self) -> bool:
        """True if no request is running or queued."""
        return self.current is None and not self.queue

    @property
    def is_last(self) -> bool:
        """True if no request is queued behind the one being answered."""
        return not self.queue

    @property
    def may_begin(self) -> bool:
        """True if the present request may run before this call returns: it is the last of those
        just read.

        Several requests of one read may take long together. A request that is dequeued because
        another was answered would run inside the code that answered. That may be the release of a
        commit, or the greenlet of a script, in which none may be started.
        """
        return self._reads and self.is_last

    @property
    def receiving(self) -> Exchange | None:
        """The request whose body is being received."""
        return self.reading.receiving

    def arrived(self, exchange: Exchange) -> None:
        """Queue a complete request."""
        self.queue.append(exchange)
        self._queue_bytes += exchange.waits_with + exchange.bytes_held
        self._unjudged_bytes += exchange.unjudged
        if self._unjudged_bytes > limits.UNCOUNTED_BYTES:
            self._count()

    def _count(self) -> None:
        """Charge the memory of unauthenticated requests."""
        self._crowded = not self._waiting.hold(self._unjudged_bytes + self.reading.held)

    def _bound(self) -> None:
        """End the connection if an unauthenticated head or body exceeds the quota. Queued requests
        stay queued, and reading pauses behind them."""
        self._count()
        reading = self.reading
        receiving = reading.receiving
        if not self._crowded or self.queue:
            return
        if reading.in_head or (receiving is not None and not receiving.large):
            self.end_with(Busy("too much data of clients that have not signed in: retry later"))

    def knows(self, user: str | None) -> None:
        """Set the authenticated user, and move the memory charges to it."""
        if user is None:
            return
        if not self.known:
            self.known = True
            read_at_most(self.transport, limits.SMALL_BODY_BYTES)
        self.outgoing.account.move_charge(user)

    @property
    def user(self) -> str:
        """User of the last request, or `NOBODY`."""
        return self.outgoing.account.user

    def resume_requests(self) -> None:
        """Run queued requests and read on, after an awaited event."""
        if not self.closed:
            try:
                self._pump()
            except Exception as error:
                self.surface.broken(self, error)

    def _read_kept(self) -> None:
        if self.reading.kept:
            self.data_received(b"")

    # --- called by exchanges and the surface -----------------------------------------------------

    def send(self, data: bytes) -> None:
        """Queue bytes of the current response; they are flushed at the end of this iteration of the
        loop."""
        if not self.closed and self.outgoing.send(data):
            self.surface.flush_queue.add(self)

    def flush(self) -> None:
        """Write the buffered responses."""
        if not self.closed:
            self.outgoing.flush()

    def takes(self, size: int) -> bool:
        """True if there is room for a response of `size` bytes."""
        return size <= SMALL_ANSWER or self.closed or self.outgoing.takes(size)

    def written(self) -> asyncio.Future[None]:
        """Return a future that is done when the client keeps up with the sent bytes."""
        waiter: asyncio.Future[None] = self.surface.loop.create_future()
        if self.closed:
            waiter.set_result(None)
        else:
            self.outgoing.written(waiter)
        return waiter

    def finished(self, exchange: Exchange) -> None:
        """Go on with the next request: the current response is complete."""
        assert exchange is self.current
        self.current = None
        self.surface.intake.finished(exchange)
        if self.closed or exchange.status == SWITCHING:
            return
        if exchange.close_after:
            self._close()
        else:
            self._pump()

    def end(self) -> None:
        """Close at once. Unsent bytes are lost."""
        if self.closed:
            return
        self.leave()
        self.flush()
        if self.unsent or (self.busy and self.stream is None):
            self.abort()
        else:
            self.transport.close()

    def abort(self) -> None:
        """Abort the connection: unsent bytes are lost."""
        if not self.closed:
            self.transport.abort()

    # --- after an upgrade -----------------------------------------------------------------------

    def detach(self) -> Stream:
        """Detach the connection from HTTP, and return its stream for the upgraded protocol."""
        reading = self.reading
        early, reading.behind = reading.behind or b"", None
        reading.retire()
        self._waiting.move_charge(self.outgoing.account.user)
        if self._reading_paused and not self.closed:
            self._reading_paused = False
            self.transport.resume_reading()
        self.stream = Stream(self, early)
        return self.stream

    @property
    def unsent(self) -> int:
        """Bytes that the system has not taken."""
        return self.outgoing.unsent

    @property
    def choked(self) -> bool:
        """True if nothing more should be sent (backpressure)."""
        return self.outgoing.choked

    def hold(self, size: int) -> bool:
        """Charge the received bytes that are buffered. Return False if the quota is exceeded."""
        return self._waiting.hold(size)

    def pause_reading(self) -> None:
        """Pause reading."""
        if not self.closing:
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Resume reading."""
        if not self.closing:
            self.transport.resume_reading()

    def set_nodelay(self, value: bool) -> None:
        """Set TCP_NODELAY: small writes leave at once."""
        if not self.closing:
            nodelay(self.transport, value)

    def hang_up(self, *, linger: bool) -> None:
        """Send the buffered bytes, and close.

        :param linger: read on for a moment, since more bytes may be under way
        """
        if linger and not self.closing:
            self._close()
        elif not self.closed:
            self.flush()
            self.transport.close()

    def leave(self) -> None:
        """Refuse an incomplete request behind the queued ones, and tell a WebSocket: the surface is
        stopping. An incomplete request has not been started, so no work is awaited."""
        if self.stream is not None:
            self.stream.leave()
        elif not self.closed and (self.reading.in_head or self.reading.receiving is not None):
            self.end_with(self.surface.admission.leaving())
            self._pump()

    def _has_room(self) -> None:
        if self.stream is None:
            self.resume_requests()
        elif not self.outgoing.choked:
            self.stream.room()

    @property
    def closing(self) -> bool:
        """True if bytes sent now would not leave."""
        return self.closed or self.transport.is_closing()

    @property
    def busy(self) -> bool:
        """True if a request is running or queued, or its response is still being sent."""
        if self.closed or (self._linger_until and not self.outgoing.unsent):
            return False
        if self.stream is not None and self.stream.parting:
            return True
        return bool(self.current or self.queue or self.outgoing.unsent)

    def check(self, now: float) -> None:
        """Enforce the deadlines; called for every connection a few times a second."""
        deadlines, reading = self.surface.deadlines, self.reading
        if self.outgoing.account.counted or self.outgoing.over:
            self._check_taken()
        if self.outgoing.still_sending(now):
            if self.outgoing.stalled(now) >= deadlines.write_s:
                self.transport.abort()
            elif self._linger_until:
                self._linger_until = now + deadlines.linger_s
            elif self.stream is not None:
                self.stream.postpone_pong_deadline(now)
        elif self._linger_until:
            if now >= self._linger_until:
                self.transport.abort()
        elif self.stream is not None:
            self.stream.check(now)
        elif reading.in_head or not reading.served:
            self._check_head(now, deadlines.head_s)
        elif reading.receiving is not None:
            allowed = deadlines.body_s + reading.receiving.bytes_in / limits.BODY_SECONDS_BYTES
            since = reading.body_since
            if self._reading_paused or reading.uninvited:
                reading.body_since = now  # reading is paused, or 100 Continue not sent
            elif since and now - since >= allowed:
                self.end_with(RequestTimeout("the body did not arrive in time"))
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
        reading = self.reading
        if self._reading_paused:
            reading.head_since = now  # reading is paused
        elif now - reading.head_since < allowed:
            return
        elif reading.in_head:
            self.end_with(RequestTimeout("the head did not arrive in time"))
            self._pump()
        elif self.current is None:
            self._close()

    def _check_taken(self) -> None:
        """Charge the bytes that are still unread by the client."""
        choked = self.outgoing.choked
        self.outgoing.count()
        if choked:
            self._has_room()

    def end_with(self, refusal: Refusal) -> None:
        """Queue an error as the last response of this connection, after earlier ones."""
        reading = self.reading
        reading.ended = True
        head = None if reading.receiving is None else reading.receiving.head
        reading.forget()
        exchange = Exchange(self, head, self.surface.next_request())
        exchange.close_after = True
        exchange.refusal = refusal
        exchange.complete = True
        self.queue.append(exchange)

    def _pump(self) -> None:
        """Run queued requests, one after the other, until one does not finish at once."""
        if self._pumping or self.closed or self.stream is not None:
            return
        self._pumping = True
        try:
            while self.queue and self.current is None and not self.outgoing.choked:
                self.current = exchange = self.queue.popleft()
                self._queue_bytes -= exchange.waits_with + exchange.bytes_held
                self._unjudged_bytes -= exchange.unjudged
                try:
                    self.surface.intake.run_request(exchange)
                except Exception as error:  # fails its own request, not the one before it
                    exchange.fail(error)
        finally:
            self._pumping = False
        if self._waiting.counted or self._crowded:
            self._count()
        if not self._linger_until:
            self.reading.send_continue()
            self._pace_reading()

    def _pace_reading(self) -> None:
        """Pause or resume reading. A connection is read while possible, so that a disconnect is
        noticed."""
        full, reading = self.full, self.reading
        if full or reading.judging or reading.kept or reading.behind:
            if not self._reading_paused:
                self._reading_paused = True
                self.transport.pause_reading()
            if reading.kept and not full:
                self.surface.loop.call_soon(self._read_kept)
        elif self._reading_paused:
            self._reading_paused = False
            self.transport.resume_reading()

    def _forget_waiting(self) -> None:
        self.reading.forget()
        for exchange in self.queue:
            exchange.release()
        self.queue.clear()
        self._queue_bytes = self._unjudged_bytes = 0

    def _close(self) -> None:
        """Flush, half-close, and read on for a moment."""
        self.reading.ended = True
        self._forget_waiting()
        self._waiting.hold(0)
        self._linger_until = self.surface.loop.time() + self.surface.deadlines.linger_s
        if self._reading_paused:
            self._reading_paused = False
            self.transport.resume_reading()
        if not self.closed:
            self.flush()
            half_close(self.transport)
