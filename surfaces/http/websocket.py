"""WebSocket of a route: authorization, sending, end.

A refusal before the upgrade is an ordinary error response. But a browser hides that response from
the page. So a page that sent its token as a subprotocol gets the error on the open socket:
a message, then a close code derived from its status. Only a malformed request, or a
page of a foreign site, gets no socket at all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from tornado.websocket import WebSocketHandler, WebSocketProtocol

from protocol.errors import BadRequest, Refusal
from protocol.jsonvalues import encode_plain, to_json
from protocol.requests import Caller
from surfaces.http import answers, frames, handshake
from surfaces.http.callers import caller_with
from surfaces.http.credentials import credential
from surfaces.http.frames import text_frame
from surfaces.http.handler import Handler
from surfaces.http.handshake import Offer
from surfaces.http.rfc6455 import WebSocketConversation
from surfaces.http.stream import Stream

__all__ = ["Socket", "text_frame"]


class Socket(Handler, WebSocketHandler):
    """Handler of a route that `upgrades`. A route overrides the first methods.

    :cvar subprotocol: the supported subprotocol; a client that offers any must offer this one
    """

    subprotocol: ClassVar[str]

    async def admit(self, who: Caller) -> None:
        """Authorize the request before the upgrade.

        :raises Refusal: it is refused
        """

    def opened(self) -> None:
        """Start: the socket is established. `parted` follows exactly once, even if this fails."""

    async def received(self, message: str | bytes) -> None:
        """Handle a message; the next one is not read before this returns.

        :raises Refusal: sent as by `refuse`
        """

    def has_room(self) -> None:
        """Continue sending: the peer has caught up, so `choked` is False again."""

    def leaving(self) -> None:
        """Close: the surface is stopping, and waits for this socket."""
        self.end(frames.GOING_AWAY, "the node is stopping")

    def parted(self, code: int) -> None:
        """Clean up: the socket is over.

        :param code: code of the peer's close frame; 1005: it had none, 1006: there was no close
            frame
        """

    # --- sending --------------------------------------------------------------------------------

    def send(self, frame: bytes) -> bool:
        """Send a frame made by `text_frame`. Return False if the socket is closing."""
        conversation = self._conversation
        if conversation is None or conversation.is_closing():
            return False
        stream = conversation.over
        assert stream is not None
        stream.send(frame)
        return True

    @property
    def buffered(self) -> int:
        """Bytes sent that the system has not taken, because the peer reads slowly."""
        stream = self._stream
        return 0 if stream is None else stream.unsent

    @property
    def choked(self) -> bool:
        """True if nothing more should be sent until `has_room`: too much is unread by this peer, or
        by all of its user's."""
        stream = self._stream
        return stream is not None and stream.choked

    @property
    def open_still(self) -> bool:
        """True if frames can still be sent."""
        return self._conversation is not None and not self._conversation.is_closing()

    def end(self, code: int, reason: str = "") -> None:
        """Send a close frame behind the buffered bytes. The peer has a moment to answer it, then
        the connection is aborted. Idempotent."""
        if self._conversation is not None:
            self._conversation.close(code, reason)

    def refuse(self, refusal: Refusal) -> None:
        """Send the error, and close with the code of its status."""
        said = answers.error(refusal, self.exchange.request)
        self.exchange.log_refusal(said)
        told = encode_plain({"type": "error", "error": to_json(said)})
        if self.send(text_frame(told)):
            self.end(frames.REFUSED + refusal.status, refusal.code)

    # --- Tornado's side -------------------------------------------------------------------------

    _offer: Offer
    _refused: Refusal | None = None
    _conversation: WebSocketConversation | None = None
    _is_established = False

    async def get(self, *args: Any, **kwargs: Any) -> None:
        """Validate the request, and upgrade."""
        self._offer = offer = handshake.judge(self.asked)
        handshake.check_page(self.asked, self.surface.node.status())
        if offer.names_some and self.subprotocol not in offer.subprotocols:
            raise BadRequest(f"the subprotocol spoken here is {self.subprotocol}")
        try:
            await self._judge()
        except Refusal as refusal:
            if offer.token is None:
                raise
            self._refused = refusal
        await super().get(*args, **kwargs)

    async def _judge(self) -> None:
        exchange = self.exchange
        if exchange.refusal is not None:
            raise exchange.refusal
        given = self._offer.token or credential(self.asked)
        await self.admit(await caller_with(exchange, given))
        if self.surface.stopping:
            raise self.surface.admission.leaving()

    @property
    def _stream(self) -> Stream | None:
        return None if self._conversation is None else self._conversation.over

    def check_origin(self, origin: str) -> bool:
        """Accept: the origin has been checked."""
        return True

    def select_subprotocol(self, subprotocols: list[str]) -> str | None:
        """Return the only subprotocol; a token is never echoed."""
        return self.subprotocol if subprotocols else None

    def get_websocket_protocol(self) -> WebSocketProtocol:
        """Return the protocol that reads the frames."""
        self._conversation = WebSocketConversation(self)
        return self._conversation

    def open(self, *_args: str, **_kwargs: str) -> None:
        """Start the socket: the request is upgraded."""
        conversation = self._conversation
        assert conversation is not None
        assert conversation.over is not None
        conversation.over.watcher = _Guarded(self)
        if conversation.is_closing():
            return
        if self._refused is not None:
            self.refuse(self._refused)
            return
        self._is_established = True
        self.guarded(self.opened)

    async def on_message(self, message: str | bytes) -> None:
        """Handle a message read by Tornado."""
        try:
            await self.received(message)
        except Refusal as refusal:
            self.refuse(refusal)

    def on_close(self) -> None:
        """Report the end of the socket."""
        if self._is_established:
            self._is_established = False
            conversation = self._conversation
            assert conversation is not None
            self.guarded(partial(self.parted, conversation.last_word))

    def guarded(self, call: Callable[[], None]) -> None:
        """Call an overridden method. A refusal is sent; any other exception is a bug, and ends this
        socket and no other."""
        try:
            call()
        except Refusal as refusal:
            self.refuse(refusal)
        except Exception as error:
            self.exchange.report(error)
            self.end(frames.NODE_FAILED, "internal error")


class _Guarded:
    """Receiver of a socket's stream events."""

    def __init__(self, told: Socket) -> None:
        self._receiver = told

    def has_room(self) -> None:
        if self._receiver.open_still:
            self._receiver.guarded(self._receiver.has_room)

    def on_surface_stopping(self) -> None:
        self._receiver.guarded(self._receiver.leaving)
