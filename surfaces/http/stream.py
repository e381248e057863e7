"""A connection after its upgrade: what Tornado's WebSocket asks of a stream, over our transport.

What came is read from a buffer, and no more is taken in while a message's worth of it waits. What
is sent goes the way of answers, and counts as they do. The deadlines of requests are over. These go
on instead, looked at by `check`: what is sent has to be taken (connection.py), a ping is answered,
and a peer that is told goodbye says so too. Idleness is never punished.
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
"""Waits to be read before the surface stops reading: more than the longest frame, whose reader
waits for all of it."""


class Carrier(Protocol):
    """The connection below."""

    closed: bool

    @property
    def surface(self) -> Http:
        """What it shares with the others."""

    @property
    def closing(self) -> bool:
        """Whether nothing that is sent now would leave."""

    @property
    def unsent(self) -> int:
        """Bytes that the system has not taken."""

    @property
    def choked(self) -> bool:
        """Whether nothing more should be sent."""

    def send(self, data: bytes) -> None:
        """Send bytes."""

    def flush(self) -> None:
        """Hand over what there is to say."""

    def written(self) -> asyncio.Future[None]:
        """Done when the peer keeps up with what was sent."""

    def hold(self, size: int) -> bool:
        """So many bytes that came are held now. False: there is no room for them."""

    def pause_reading(self) -> None:
        """Take in no more."""

    def resume_reading(self) -> None:
        """Go on."""

    def hang_up(self, *, linger: bool) -> None:
        """Send what is left, and end. :param linger: more may be on its way here"""

    def abort(self) -> None:
        """Cut the connection."""

    def set_nodelay(self, value: bool) -> None:
        """Whether small writes leave at once."""


class Watcher(Protocol):
    """Who is told."""

    def has_room(self) -> None:
        """The peer has caught up."""

    def told_to_leave(self) -> None:
        """The surface is stopping."""


class Stream:
    """:param early: came behind the request, before it was answered

    :ivar watcher: is told of room and of leaving; None until the socket is open
    :ivar assembled: bytes of a message whose last part has not come
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
        """Whether our close frame is sent."""
        # Times on the loop's clock; 0 where the phase does not last.
        self._heard = False
        self._pinged_at = self._took_at = carrier.surface.loop.time()
        self._awaits_pong = False
        self._parting_since = 0.0
        self._pace()

    # --- what Tornado asks of a stream ----------------------------------------------------------

    async def read_bytes(self, num_bytes: int) -> bytes:
        """The next so many bytes. :raises StreamClosedError: they will not come; `Busy` as peek"""
        data = await self.peek(num_bytes)
        del self._received[:num_bytes]
        self._pace()
        return data

    def write(self, data: bytes) -> asyncio.Future[None]:
        """Send. Done when the peer keeps up. :raises StreamClosedError: nobody is there"""
        if self.closed():
            raise StreamClosedError
        self._carrier.send(data)
        # Who sends by this stops as long as the peer takes nothing, as with pongs: whether it does
        # has to be known before the next one.
        self._carrier.flush()
        return self._carrier.written()

    def close(self) -> None:
        """Nothing more is read; what was sent still leaves."""
        self.hang_up(linger=True)

    def closed(self) -> bool:
        """Whether nothing more is read or sent."""
        return self._ended or self._carrier.closing

    def set_close_callback(self, callback: Callable[[], None] | None) -> None:
        """Called when the peer is gone."""
        self._gone = callback

    def set_nodelay(self, value: bool) -> None:
        """Whether small frames leave at once. asyncio has it so from the start."""
        self._carrier.set_nodelay(value)

    # --- beyond that ----------------------------------------------------------------------------

    async def peek(self, size: int) -> bytes:
        """The next so many bytes, which stay.

        :raises StreamClosedError: they will not come
        :raises Busy: there is no room for what has come so far
        """
        while len(self._received) < size:
            if self._ended:
                raise StreamClosedError
            await self._more()
        return bytes(self._received[:size])

    def send(self, data: bytes) -> None:
        """Send, without a word about when it is taken."""
        self._carrier.send(data)

    @property
    def unsent(self) -> int:
        """Bytes that the system has not taken."""
        return 0 if self._carrier.closed else self._carrier.unsent

    @property
    def choked(self) -> bool:
        """Whether nothing more should be sent: the peer reads more slowly, or its user's peers
        together do."""
        return self._carrier.choked

    def part(self) -> None:
        """Our close frame is sent: the peer has a moment to answer with its own."""
        self.parting = True

    def hang_up(self, *, linger: bool) -> None:
        """Nothing more is read; what was sent still leaves. :param linger: the peer may be
        sending still"""
        if not self._ended:
            self._end()
            self._carrier.hang_up(linger=linger)

    # --- what the connection tells --------------------------------------------------------------

    def received(self, data: bytes) -> None:
        """Bytes came."""
        if self._ended:
            return
        self._heard = True
        self._received += data
        self._wake()
        self._pace()

    def lost(self) -> None:
        """The peer is gone."""
        self._end()
        if self._gone is not None:
            callback, self._gone = self._gone, None
            callback()

    def room(self) -> None:
        """The peer has caught up."""
        if self.watcher is not None and not self.parting:
            self.watcher.has_room()

    def leave(self) -> None:
        """The surface is stopping."""
        if self.watcher is not None and not self.parting and not self.closed():
            self.watcher.told_to_leave()

    def check(self, now: float) -> None:
        """Enforce the deadlines, where all that was sent has been taken."""
        deadlines = self._carrier.surface.deadlines
        if self._heard:
            self._heard = self._awaits_pong = False  # any sign of life will do
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

    def still_taking(self, now: float) -> None:
        """What was sent is being taken: an answer to a ping among it can't be due."""
        self._took_at = now

    # --- inside ---------------------------------------------------------------------------------

    async def _more(self) -> None:
        if not self._carrier.hold(len(self._received) + self.assembled):
            raise Busy("the node holds as much as it will of what this user sends")
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
        if self._paused:  # what comes now is thrown away
            self._paused = False
            self._carrier.resume_reading()
        self._carrier.hold(0)
        self._wake()


def nodelay(transport: asyncio.Transport, value: bool) -> None:
    """Set TCP_NODELAY where the transport has such a socket."""
    found = transport.get_extra_info("socket")
    if found is not None and found.family in (socket.AF_INET, socket.AF_INET6):
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, int(value))
