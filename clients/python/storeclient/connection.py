"""One connection of the async client: an asyncio protocol around an `Exchange`."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import Any, Final, cast

from storeclient import pulse
from storeclient.backups import Parts
from storeclient.errors import OutcomeUnknown, StoreError
from storeclient.exchange import Exchange, NotSent, Reply, Settled, Welcome
from storeclient.feeds import Feed
from storeclient.frames import Kind
from storeclient.settings import Settings

GRACE_SECONDS = 5.0
"""Past a script's own timeout, for the node's answer about it to arrive."""
KEEPALIVE: Final = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""Seconds until the system asks the peer's, between two attempts, and how many it makes: where no
PING can be sent this tells a machine that is gone from one that is at work."""


Waiter = asyncio.Future[Reply] | Feed | Parts


class Connection(asyncio.Protocol):
    """Many requests at once; what is asked in one turn of the loop leaves in one write."""

    def __init__(self, on_end: Callable[[BaseException | None], None]) -> None:
        """:param on_end: called once when it is over, if it was welcomed"""
        self._loop = asyncio.get_running_loop()
        self._on_end = on_end
        self._exchange: Exchange[Waiter] = Exchange()
        self._out: list[bytes] = []
        self._unsent: list[int] = []
        self._writable = asyncio.Event()
        self._writable.set()
        self._said_bye = False
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._waits: set[int] = set()
        """Ids of requests that only wait for something to come."""
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._pulse = pulse.Pulse(lambda: self._exchange.open > 0, self._ping, self._lose)
        self.welcome: Welcome | None = None
        self._cause: BaseException | None = None
        """What it ended by."""

    @classmethod
    async def open(
        cls, settings: Settings, on_end: Callable[[BaseException | None], None] = lambda _: None
    ) -> Connection:
        """A connection that has been welcomed.

        :param on_end: called once when it is over, with what it ended by
        :raises OSError: no connection
        :raises StoreError: the node refused it
        """
        loop = asyncio.get_running_loop()
        name = settings.host if settings.tls is not None else None
        _, connection = await loop.create_connection(
            partial(cls, on_end),
            settings.host,
            settings.port,
            ssl=settings.tls,
            server_hostname=name,
        )
        try:
            await connection._greet(settings)
        except BaseException:
            connection.abort()
            raise
        return connection

    async def _greet(self, settings: Settings) -> None:
        waiter: asyncio.Future[Reply] = self._loop.create_future()
        self._transport.write(self._exchange.greet(settings.credential, waiter))
        self.welcome = cast(Welcome, _value(await waiter))

    @property
    def usable(self) -> bool:
        """Whether requests may be asked here."""
        return not (self._exchange.broken or self._exchange.leaving)

    @property
    def cause(self) -> BaseException | None:
        """What it ended by; None: it has not, or by nothing in particular."""
        return self._cause

    @property
    def leaving(self) -> bool:
        """Whether the node has said that it begins nothing new."""
        return self._exchange.leaving

    async def ask(
        self,
        kind: Kind,
        body: dict[str, Any] | None,
        timeout: float | None = None,
        stop: asyncio.Future[None] | None = None,
        waits: bool = False,
    ) -> Reply:
        """Ask and wait for the reply, which is never an exception. A waiter that is cancelled
        cancels the request.

        :param timeout: seconds after which the request is given up; the node has its own deadline
        :param waits: it may wait at the node for something to come: `close` asks the node to end it
        :param stop: once it is done the node is asked to end the request, and whatever it answers
            is waited for all the same
        :raises NotSent: the connection is not usable any more, nothing has been sent
        :raises StoreError: the node's error, or OutcomeUnknown
        """
        waiter: asyncio.Future[Reply] = self._loop.create_future()
        id = await self._begin(kind, body, waiter)
        ends = self._end_at(id, stop) if stop is not None else None
        if waits:
            self._waits.add(id)
        try:
            if timeout is None:
                return _value(await waiter)
            async with asyncio.timeout(timeout):
                return _value(await waiter)
        except asyncio.CancelledError:
            self._give_up(id)
            raise
        except TimeoutError:
            self._give_up(id)
            raise OutcomeUnknown(f"no answer within {timeout:g} seconds") from None
        finally:
            self._waits.discard(id)
            if ends is not None and stop is not None:
                stop.remove_done_callback(ends)

    async def watch(self, body: dict[str, Any], timeout: float | None) -> Feed:
        """A feed that has begun: what it says first is there.

        :param timeout: seconds in which it has to
        :raises NotSent, StoreError: as `ask`
        """
        ids: list[int] = []
        feed = Feed(lambda: self._cancel(ids[0]), lambda: self._give_up(ids[0]))
        ids.append(await self._begin(Kind.WATCH, body, feed))
        try:
            async with asyncio.timeout(timeout):
                await feed.begun()
        except BaseException as error:
            feed.close()
            if isinstance(error, TimeoutError):
                raise OutcomeUnknown(f"no answer within {timeout:g} seconds") from None
            raise
        return feed

    async def stream(self, body: dict[str, Any]) -> Parts:
        """A RUN that is answered in parts. Nothing else is to be asked here meanwhile.

        :raises NotSent: as `ask`
        """
        parts = Parts(self._transport.pause_reading, self._transport.resume_reading)
        await self._begin(Kind.RUN, {**body, "stream": True}, parts)
        return parts

    async def _begin(self, kind: Kind, body: dict[str, Any] | None, waiter: Waiter) -> int:
        """Send a request: its id. :raises NotSent: the connection is not usable any more"""
        if not self._writable.is_set():
            await self._writable.wait()
        if not self.usable:
            raise NotSent
        id, data = self._exchange.ask(kind, body, waiter)
        self._quiet.clear()
        self._send(data)
        self._unsent.append(id)
        self._pulse.begin()
        return id

    def _ping(self) -> float | None:
        """As the `ask` of a `Pulse`.

        What a request holds at a node may be many times its frame, and count for its user or for
        all together: beside any that counts a node may read on only once some are answered, and
        hears no PING meanwhile. After BYE nothing is sent, so that silence itself is judged.
        """
        if not self._transport.is_reading():
            return None
        if self._said_bye:
            return pulse.LEAVING_SECONDS
        if self._exchange.open_bytes:
            return None
        waiter: asyncio.Future[Reply] = self._loop.create_future()
        _, data = self._exchange.ask(Kind.PING, None, waiter)
        self._send(data)
        return pulse.ANSWER_SECONDS

    def _lose(self) -> None:
        self._end(
            TimeoutError(
                "nothing came any more after the node's BYE"
                if self._said_bye
                else "nothing came any more, not in answer to a PING either"
            )
        )
        self._transport.abort()  # what was written would be waited for

    def _end_at(
        self, id: int, stop: asyncio.Future[None]
    ) -> Callable[[asyncio.Future[None]], None]:
        """Cancel a request at the node when `stop` is done, and go on waiting for its answer."""

        def end(_stop: asyncio.Future[None]) -> None:
            self._cancel(id)

        stop.add_done_callback(end)
        return end

    def _cancel(self, id: int) -> None:
        if not self._exchange.broken and not self._said_bye:
            self._send(self._exchange.cancel(id))

    def _give_up(self, id: int) -> None:
        data = self._exchange.give_up(id)
        if data is not None and not self._exchange.broken and not self._said_bye:
            self._send(data)
        self._look()

    def _send(self, data: bytes) -> None:
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(data)

    def _look(self) -> None:
        if not self._exchange.open:
            self._quiet.set()

    def _flush(self) -> None:
        if self._out and not self._exchange.broken:
            data = b"".join(self._out)
            self._out.clear()
            self._unsent.clear()
            self._transport.write(data)

    async def close(self) -> None:
        """Wait until what is open has been answered, say goodbye, end the connection. What only
        waits for something to come is ended."""
        self._exchange.leaving = True
        for id in (*self._waits, *self._exchange.watched):
            self._cancel(id)
        await self._quiet.wait()
        if not self._exchange.broken:
            self._say_bye()
        await self.gone()

    def _say_bye(self) -> None:
        """Nothing more is sent after this. The node's own BYE is answered with it, so that the
        node knows it has seen every request, and refuses those it has not begun."""
        if not self._said_bye:
            self._said_bye = True
            self._send(self._exchange.bye())
            self._flush()

    async def gone(self) -> None:
        """Wait until the node has answered what is open and closed. One that has answered all and
        does not close is not waited for."""
        await self._quiet.wait()
        try:
            async with asyncio.timeout(GRACE_SECONDS):
                await asyncio.shield(self._closed)
        except TimeoutError:
            self.abort()
            await asyncio.shield(self._closed)

    def abort(self) -> None:
        """End now; what is open has an unknown outcome."""
        self._transport.abort()

    # --- what the loop calls ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        _keep_alive(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        self._pulse.heard()
        try:
            self._settle(self._exchange.receive(data))
        except StoreError as error:
            self._end(error)
            return
        if self._exchange.broken:
            self._end(self._exchange.cause)
        elif self._exchange.leaving:
            self._say_bye()

    def connection_lost(self, error: Exception | None) -> None:
        self._end(error)
        if not self._closed.done():
            self._closed.set_result(None)
            if self.welcome is not None:
                self._on_end(self._cause)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _end(self, cause: BaseException | None) -> None:
        self._cause = self._cause or cause
        self._pulse.stop()
        self._settle(self._exchange.end(cause, self._unsent))
        self._writable.set()
        self._transport.close()

    def _settle(self, settled: list[Settled[Waiter]]) -> None:
        for waiter, reply in settled:
            if isinstance(waiter, Feed | Parts):
                waiter.take(reply)
            elif not waiter.done():
                waiter.set_result(reply)
        self._look()


def _keep_alive(found: socket.socket) -> None:
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        if hasattr(socket, name):  # not on every system
            found.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _value(reply: Reply) -> Reply:
    if isinstance(reply, Exception):
        raise reply
    return reply
