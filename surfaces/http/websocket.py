"""A WebSocket of a route: who may open it, what is sent on it, how it ends.

What is judged before the upgrade is refused as any request is. A browser hides that answer from the
page, though, so one that brought its token as a subprotocol is told on the open socket instead: a
frame of the form of errors, then a close code made of its status. Only a request that is not
well-formed, and a page of a foreign site, get no socket at all.
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
from surfaces.http.rfc6455 import Conversation
from surfaces.http.stream import Stream

__all__ = ["Socket", "text_frame"]


class Socket(Handler, WebSocketHandler):
    """A handler whose route `upgrades`. What a route makes of it overrides what stands first.

    :cvar subprotocol: what is spoken; a client that offers any offers this one
    """

    subprotocol: ClassVar[str]

    async def admit(self, who: Caller) -> None:
        """Judge what is asked for, before anything is promised. :raises Refusal: it is refused"""

    def opened(self) -> None:
        """The socket stands: from here to `parted`, which follows exactly once, also where this
        fails."""

    async def received(self, message: str | bytes) -> None:
        """A message came; the next one is not read before this returns.
        :raises Refusal: told as `refuse` does"""

    def has_room(self) -> None:
        """The peer has taken what made `choked` true."""

    def leaving(self) -> None:
        """The surface is stopping: whoever waits for its end waits for this socket's."""
        self.end(frames.GOING_AWAY, "the node is stopping")

    def parted(self, code: int) -> None:
        """It is over. :param code: of the peer's close frame; 1005: it had none, 1006: none came"""

    # --- what is sent ---------------------------------------------------------------------------

    def send(self, frame: bytes) -> bool:
        """Send a frame, made by `text_frame`. False: nobody will hear it any more."""
        conversation = self._conversation
        if conversation is None or conversation.is_closing():
            return False
        stream = conversation.over
        assert stream is not None
        stream.send(frame)
        return True

    @property
    def buffered(self) -> int:
        """Bytes sent that the system has not taken: the peer reads more slowly than they come."""
        stream = self._stream
        return 0 if stream is None else stream.unsent

    @property
    def choked(self) -> bool:
        """Whether nothing more should be sent until `has_room`: too much waits for this peer, or
        for all of its user's."""
        stream = self._stream
        return stream is not None and stream.choked

    @property
    def open_still(self) -> bool:
        """Whether what is sent may still be heard."""
        return self._conversation is not None and not self._conversation.is_closing()

    def end(self, code: int, reason: str = "") -> None:
        """Say goodbye behind what is buffered. The peer has a moment to say it too, and is cut
        then. Harmless when done twice."""
        if self._conversation is not None:
            self._conversation.close(code, reason)

    def refuse(self, refusal: Refusal) -> None:
        """Tell why it can't go on, and end with the close code of the refusal's status."""
        said = answers.error(refusal, self.exchange.request)
        self.exchange.log_refusal(said)
        told = encode_plain({"type": "error", "error": to_json(said)})
        if self.send(text_frame(told)):
            self.end(frames.REFUSED + refusal.status, refusal.code)

    # --- Tornado's side -------------------------------------------------------------------------

    _offer: Offer
    _refused: Refusal | None = None
    _conversation: Conversation | None = None
    _stands = False

    async def get(self, *args: Any, **kwargs: Any) -> None:
        """Judge the request, and open the socket."""
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
        """It has been judged."""
        return True

    def select_subprotocol(self, subprotocols: list[str]) -> str | None:
        """The only one; a token is never echoed."""
        return self.subprotocol if subprotocols else None

    def get_websocket_protocol(self) -> WebSocketProtocol:
        """How the frames are read."""
        self._conversation = Conversation(self)
        return self._conversation

    def open(self, *_args: str, **_kwargs: str) -> None:
        """The request is upgraded."""
        conversation = self._conversation
        assert conversation is not None
        assert conversation.over is not None
        conversation.over.watcher = _Guarded(self)
        if conversation.is_closing():
            return
        if self._refused is not None:
            self.refuse(self._refused)
            return
        self._stands = True
        self.guarded(self.opened)

    async def on_message(self, message: str | bytes) -> None:
        """Tornado has read a message."""
        try:
            await self.received(message)
        except Refusal as refusal:
            self.refuse(refusal)

    def on_close(self) -> None:
        """The conversation is over."""
        if self._stands:
            self._stands = False
            conversation = self._conversation
            assert conversation is not None
            self.guarded(partial(self.parted, conversation.last_word))

    def guarded(self, call: Callable[[], None]) -> None:
        """Call what a route overrides: a refusal is told, and what else is raised is a bug that
        ends this socket and no other."""
        try:
            call()
        except Refusal as refusal:
            self.refuse(refusal)
        except Exception as error:
            self.exchange.report(error)
            self.end(frames.NODE_FAILED, "the node failed on this")


class _Guarded:
    """What the stream of a socket tells it."""

    def __init__(self, told: Socket) -> None:
        self._told = told

    def has_room(self) -> None:
        if self._told.open_still:
            self._told.guarded(self._told.has_room)

    def told_to_leave(self) -> None:
        self._told.guarded(self._told.leaving)
