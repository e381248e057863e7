"""Connection of the async client: an asyncio protocol around an `Exchange`."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, cast

from storeclient import pulse
from storeclient.backups import PartQueue
from storeclient.errors import OutcomeUnknown, StoreError
from storeclient.exchange import Exchange, NotSent, Reply, Settled, Welcome
from storeclient.feeds import Feed
from storeclient.frames import Kind
from storeclient.settings import Settings

GRACE_SECONDS = 5.0
"""Time beyond a script's own time-out for the node's answer about it to arrive, in seconds."""
KEEPALIVE: Final = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""TCP keepalive: idle seconds before the first probe, seconds between probes, and their number.
Where no PING can be sent, this distinguishes a lost machine from a busy one."""


Waiter = asyncio.Future[Reply] | Feed | PartQueue


class Connection(asyncio.Protocol):
    """Multiplexes requests; those sent in one turn of the event loop leave in one write."""

    def __init__(self, on_end: Callable[[BaseException | None], None]) -> None:
        """:param on_end: called once after the connection ended, if there was a welcome"""
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
        """Ids of requests that only wait for new messages."""
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._pulse = pulse.Pulse(lambda: self._exchange.open > 0, self._ping, self._lose)
        self.welcome: Welcome | None = None
        self._cause: BaseException | None = None
        """Error that ended the connection."""

    @classmethod
    async def open(
        cls, settings: Settings, on_end: Callable[[BaseException | None], None] = lambda _: None
    ) -> Connection:
        """Connect and sign in.

        :param on_end: called once after the connection ended, with the error that ended it
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
        """True if requests may be sent."""
        return not (self._exchange.broken or self._exchange.leaving)

    @property
    def cause(self) -> BaseException | None:
        """Error that ended the connection; None: it is open, or was closed normally."""
        return self._cause

    @property
    def leaving(self) -> bool:
        """True if the node has said BYE: it starts no new requests."""
        return self._exchange.leaving

    async def ask(
        self,
        kind: Kind,
        body: dict[str, Any] | None,
        timeout: float | None = None,
        stop: asyncio.Future[None] | None = None,
        waits: bool = False,
    ) -> Reply:
        """Send a request and return its answer, never an exception. Cancelling this task cancels
        the request.

        :param timeout: seconds after which the request is abandoned; the node has its own deadline
        :param waits: the request may block at the node until messages come: `close` asks the node
            to end it
        :param stop: once it is done the node is asked to end the request; its answer is still
            awaited
        :raises NotSent: the connection is not usable, nothing was sent
        :raises StoreError: the node's error, or OutcomeUnknown
        """
        waiter: asyncio.Future[Reply] = self._loop.create_future()
        id = await self._send_request(kind, body, waiter)
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
        """Open a feed, and wait for its first message.

        :param timeout: seconds for that
        :raises NotSent, StoreError: as `ask`
        """
        ids: list[int] = []
        feed = Feed(lambda: self._cancel(ids[0]), lambda: self._give_up(ids[0]))
        ids.append(await self._send_request(Kind.WATCH, body, feed))
        try:
            async with asyncio.timeout(timeout):
                await feed.begun()
        except BaseException as error:
            feed.close()
            if isinstance(error, TimeoutError):
                raise OutcomeUnknown(f"no answer within {timeout:g} seconds") from None
            raise
        return feed

    async def stream(self, body: dict[str, Any]) -> PartQueue:
        """Send a RUN that is answered in parts. No other request may use this connection meanwhile.

        :raises NotSent: as `ask`
        """
        parts = PartQueue(self._transport.pause_reading, self._transport.resume_reading)
        await self._send_request(Kind.RUN, {**body, "stream": True}, parts)
        return parts

    async def _send_request(self, kind: Kind, body: dict[str, Any] | None, waiter: Waiter) -> int:
        """Send a request, and return its id. :raises NotSent: the connection is not usable"""
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
        """Probe the peer, as `ask` of a `Pulse`.

        A request may hold many times its frame at the node, and count for its user or for all.
        Beside such requests a node may stop reading until some are answered, and so not see a PING.
        After BYE nothing may be sent, so the silence itself is judged.
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
                "the node sent nothing after its BYE"
                if self._said_bye
                else "the node sent nothing, and did not answer a PING"
            )
        )
        self._transport.abort()  # close() would wait for unsent data

    def _end_at(
        self, id: int, stop: asyncio.Future[None]
    ) -> Callable[[asyncio.Future[None]], None]:
        """Cancel a request at the node when `stop` is done; its answer is still awaited."""

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
        self._update_quiet()

    def _send(self, data: bytes) -> None:
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(data)

    def _update_quiet(self) -> None:
        if not self._exchange.open:
            self._quiet.set()

    def _flush(self) -> None:
        if self._out and not self._exchange.broken:
            data = b"".join(self._out)
            self._out.clear()
            self._unsent.clear()
            self._transport.write(data)

    async def close(self) -> None:
        """Wait for open requests, send BYE, end the connection. Requests that only wait for new
        messages are ended."""
        self._exchange.leaving = True
        for id in (*self._waits, *self._exchange.watched):
            self._cancel(id)
        await self._quiet.wait()
        if not self._exchange.broken:
            self._say_bye()
        await self.gone()

    def _say_bye(self) -> None:
        """Send BYE, after which nothing may be sent. It also answers the node's own BYE: the node
        then knows that it has seen every request, and refuses those not begun."""
        if not self._said_bye:
            self._said_bye = True
            self._send(self._exchange.bye())
            self._flush()

    async def gone(self) -> None:
        """Wait until the node has answered open requests and closed. If it does not close after the
        last answer, the connection is aborted."""
        await self._quiet.wait()
        try:
            async with asyncio.timeout(GRACE_SECONDS):
                await asyncio.shield(self._closed)
        except TimeoutError:
            self.abort()
            await asyncio.shield(self._closed)

    def abort(self) -> None:
        """End the connection immediately; open requests have an unknown outcome."""
        # Python 3.11.2 can't abort a TLS transport that is closing: it ends by its own timeout.
        with suppress(AttributeError):
            self._transport.abort()

    # --- callbacks of asyncio --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        _keep_alive(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        self._pulse.on_data()
        try:
            self._complete_requests(self._exchange.receive(data))
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
        self._complete_requests(self._exchange.end(cause, self._unsent))
        self._writable.set()
        self._transport.close()

    def _complete_requests(self, settled: list[Settled[Waiter]]) -> None:
        for waiter, reply in settled:
            if isinstance(waiter, Feed | PartQueue):
                waiter.take(reply)
            elif not waiter.done():
                waiter.set_result(reply)
        self._update_quiet()


def _keep_alive(found: socket.socket) -> None:
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        if hasattr(socket, name):  # not on every system
            found.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _value(reply: Reply) -> Reply:
    if isinstance(reply, Exception):
        raise reply
    return reply
