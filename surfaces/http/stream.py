"""Stream: a connection after its upgrade, with the interface that Tornado's WebSocket expects.

Received bytes are buffered, and reading pauses while a message's worth of them waits
(backpressure). Sent bytes are queued and charged like responses. Request deadlines no longer apply.
Instead `check` enforces others: the peer has to read sent bytes (connection.py), to answer a ping,
and to answer a close frame. An idle connection is kept.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final, Protocol

from tornado.iostream import StreamClosedError

from protocol import limits
from protocol.errors import Busy
from surfaces.http.frames import PING_FRAME
from surfaces.http.shared import Http

READ_AHEAD: Final = 2 * limits.SOCKET_MESSAGE_BYTES
"""Buffered bytes above which reading pauses: more than the longest frame, whose reader waits for
all of it."""


class Carrier(Protocol):
    """The connection below."""

    closed: bool

    @property
    def surface(self) -> Http:
        """State shared with the other connections."""

    @property
    def closing(self) -> bool:
        """True if bytes sent now would not leave."""

    @property
    def unsent(self) -> int:
        """Bytes that the system has not taken."""

    @property
    def choked(self) -> bool:
        """True if nothing more should be sent (backpressure)."""

    def send(self, data: bytes) -> None:
        """Queue bytes."""

    def flush(self) -> None:
        """Write the queued bytes."""

    def written(self) -> asyncio.Future[None]:
        """Return a future that is done when the peer keeps up with the sent bytes."""

    def hold(self, size: int) -> bool:
        """Charge the received bytes that are buffered. Return False if the quota is exceeded."""

    def pause_reading(self) -> None:
        """Pause reading."""

    def resume_reading(self) -> None:
        """Resume reading."""

    def hang_up(self, *, linger: bool) -> None:
        """Send the buffered bytes, and close.

        :param linger: read on for a moment, since more bytes may be under way
        """

    def abort(self) -> None:
        """Abort the connection."""

    def set_nodelay(self, value: bool) -> None:
        """Set TCP_NODELAY: small writes leave at once."""


class Watcher(Protocol):
    """Receiver of a stream's events."""

    def has_room(self) -> None:
        """Continue sending: the peer has caught up."""

    def on_surface_stopping(self) -> None:
        """Close: the surface is stopping."""


class Stream:
    """:param early: bytes behind the request, received before it was answered

    :ivar watcher: notified of room and of the surface's stop; None until the socket is open
    :ivar assembled: bytes of an incomplete message
    """

    def __init__(self, carrier: Carrier, early: bytes) -> None:
        self._carrier = carrier
        self._received = bytearray(early)
        self._waiter: asyncio.Future[None] | None = None
        self._ended = carrier.closed
        self._paused = False
        self._gone: Callable[[], None] | None = None
        self.watcher: Watcher | None = None
        self.assembled = 0
        self.parting = False
        """True if our close frame is sent."""
        # Times on the loop's clock; 0 outside of the phase.
        self._heard = False
        self._pinged_at = self._took_at = carrier.surface.loop.time()
        self._awaits_pong = False
        self._parting_since = 0.0
        self._pace()

    # --- interface for Tornado ------------------------------------------------------------------

    async def read_bytes(self, num_bytes: int) -> bytes:
        """Return the next `num_bytes` bytes, and remove them.

        :raises StreamClosedError: the connection ended first
        :raises Busy: as `peek`
        """
        data = await self.peek(num_bytes)
        del self._received[:num_bytes]
        self._pace()
        return data

    def write(self, data: bytes) -> asyncio.Future[None]:
        """Send bytes. The future is done when the peer keeps up.

        :raises StreamClosedError: the connection is closed
        """
        if self.closed():
            raise StreamClosedError
        self._carrier.send(data)
        # Tornado sends pongs by this, and waits while the peer reads nothing. So the state of the
        # write buffer must be known before the next one.
        self._carrier.flush()
        return self._carrier.written()

    def close(self) -> None:
        """Stop reading; sent bytes still leave."""
        self.hang_up(linger=True)

    def closed(self) -> bool:
        """Return True if nothing more is read or sent."""
        return self._ended or self._carrier.closing

    def set_close_callback(self, callback: Callable[[], None] | None) -> None:
        """Set the callback for a closed connection."""
        self._gone = callback

    def set_nodelay(self, value: bool) -> None:
        """Set TCP_NODELAY: small frames leave at once. asyncio sets it from the start."""
        self._carrier.set_nodelay(value)

    # --- further operations ---------------------------------------------------------------------

    async def peek(self, size: int) -> bytes:
        """Return the next `size` bytes without removing them.

        :raises StreamClosedError: the connection ended first
        :raises Busy: the received bytes exceed the memory quota
        """
        while len(self._received) < size:
            if self._ended:
                raise StreamClosedError
            await self._more()
        return bytes(self._received[:size])

    def send(self, data: bytes) -> None:
        """Queue bytes, without a future for their delivery."""
        self._carrier.send(data)

    @property
    def unsent(self) -> int:
        """Bytes that the system has not taken."""
        return 0 if self._carrier.closed else self._carrier.unsent

    @property
    def choked(self) -> bool:
        """True if nothing more should be sent: this peer, or the user's peers together, read too
        slowly."""
        return self._carrier.choked

    def part(self) -> None:
        """Start the time limit for the peer's close frame: ours is sent."""
        self.parting = True

    def hang_up(self, *, linger: bool) -> None:
        """Stop reading; sent bytes still leave.

        :param linger: the peer may be sending still
        """
        if not self._ended:
            self._end()
            self._carrier.hang_up(linger=linger)

    # --- events of the connection ---------------------------------------------------------------

    def received(self, data: bytes) -> None:
        """Buffer received bytes."""
        if self._ended:
            return
        self._heard = True
        self._received += data
        self._wake()
        self._pace()

    def lost(self) -> None:
        """End the stream: the connection is closed."""
        self._end()
        if self._gone is not None:
            callback, self._gone = self._gone, None
            callback()

    def room(self) -> None:
        """Notify the watcher: the peer has caught up."""
        if self.watcher is not None and not self.parting:
            self.watcher.has_room()

    def leave(self) -> None:
        """Notify the watcher: the surface is stopping."""
        if self.watcher is not None and not self.parting and not self.closed():
            self.watcher.on_surface_stopping()

    def check(self, now: float) -> None:
        """Enforce the deadlines while no sent bytes are unread."""
        deadlines = self._carrier.surface.deadlines
        if self._heard:
            self._heard = self._awaits_pong = False  # any received bytes count as a pong
        if self.parting:
            self._parting_since = self._parting_since or now
            if now - self._parting_since >= deadlines.close_s:
                self._carrier.abort()
        elif self._awaits_pong:
            if now - max(self._pinged_at, self._took_at) >= deadlines.pong_s:
                self._carrier.abort()
        elif now - self._pinged_at >= deadlines.ping_s:
            self._pinged_at = now
            self._awaits_pong = True
            self._carrier.send(PING_FRAME)

    def postpone_pong_deadline(self, now: float) -> None:
        """Postpone the pong deadline: the peer is still reading earlier bytes."""
        self._took_at = now

    # --- inside ---------------------------------------------------------------------------------

    async def _more(self) -> None:
        if not self._carrier.hold(len(self._received) + self.assembled):
            raise Busy("too much unread data of this user: retry later")
        self._waiter = self._carrier.surface.loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _pace(self) -> None:
        if self._ended:
            return
        full = len(self._received) >= READ_AHEAD
        if full and not self._paused:
            self._paused = True
            self._carrier.pause_reading()
        elif self._paused and not full:
            self._paused = False
            self._carrier.resume_reading()

    def _end(self) -> None:
        self._ended = True
        self._received.clear()
        if self._paused:  # incoming bytes are discarded from here on
            self._paused = False
            self._carrier.resume_reading()
        self._carrier.hold(0)
        self._wake()


def nodelay(transport: asyncio.Transport, value: bool) -> None:
    """Set TCP_NODELAY where the transport has such a socket."""
    found = transport.get_extra_info("socket")
    if found is not None and found.family in (socket.AF_INET, socket.AF_INET6):
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, int(value))
