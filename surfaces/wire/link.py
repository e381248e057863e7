"""Link: interface of a wire connection for its parts (sign-in, scripts, keys, messages, feeds,
vaults)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from protocol.conversation import Conversation
from protocol.errors import Cancelled, Failed, Refusal
from protocol.frames import MessageKind, WireMessage
from protocol.values import Tick
from surfaces.wire.write_buffer import WireWriteBuffer

if TYPE_CHECKING:
    from surfaces.wire.shared import Wire

CHOKED: Final = 1
"""The peer does not read its responses."""
DECODING: Final = 2
"""A long frame is being decoded; later frames wait for it."""
PUT_OFF: Final = 4
"""Admission of a script is deferred: there is no free slot."""
CROWDED: Final = 8
"""Open requests hold the maximum of memory."""
KEYS: Final = 16
"""Operations on keys wait for room for their responses."""
OVER: Final = 32
"""Unread responses of the user's connections fill the memory quota."""

MESSAGES: Final = 64
"""Operations on messages wait for room for their responses."""
PACED: Final = 128
"""The connection has used its frames of this iteration of the loop; the rest is queued, by user."""


class WireLink(Protocol):
    """A wire connection."""

    wire: Wire
    talk: Conversation
    outgoing: WireWriteBuffer
    address: str
    minor: int
    """Negotiated minor version."""
    token: str | None
    """Session token of the signed-in user."""
    who: bytes
    """Digest of that token."""

    @property
    def user(self) -> str:
        """Signed-in user, or `NOBODY`."""

    @property
    def choked(self) -> bool:
        """True if the peer, or the user's connections together, do not read responses."""

    def answers_wait_at(self, size: int) -> None:
        """Set the unread bytes above which the peer is no longer read."""

    @property
    def over(self) -> bool:
        """True if no further request is accepted: the last message is sent, or the connection is
        closed."""

    @property
    def gone(self) -> bool:
        """True if the connection is closed."""

    def name(self, id: int) -> str:
        """Return the id of a request in responses and logs."""

    def send(
        self,
        kind: MessageKind,
        id: int,
        body: dict[str, Any] | None = None,
        data: bytes | None = None,
        committed: int = 0,
    ) -> None:
        """Queue a message. It leaves at the end of this iteration of the loop, in one write.

        :param data: the encoded message, if it exists already
        :param committed: sequence of a script's newest durable commit, reported if its response
            can't be sent; 0: none
        """

    def refuse(self, id: int, refusal: Refusal) -> None:
        """Answer a request with an error."""

    def turn_away(self, id: int, refusal: Refusal) -> None:
        """Answer HELLO with REFUSED, and close."""

    def failed(self, name: str, error: BaseException | None = None) -> Failed:
        """Log a bug with its traceback, and return its error.

        :param error: the exception; None: the one being handled
        """

    def hold(self, why: int) -> None:
        """Execute no frame, and soon read none, for one of the reasons above."""

    def advance(self, message: WireMessage | None = None) -> None:
        """Execute every message that may be executed now.

        :param message: a message already taken from the conversation
        """

    def release(self, why: int) -> None:
        """Drop this reason to wait."""

    def look_again(self) -> None:
        """Check at the end of this iteration which waiting requests may continue, although nothing
        is sent."""

    def end_if_done(self) -> None:
        """Close if no more requests come and none is open."""

    def break_off(self, refusal: Refusal) -> None:
        """Send the reason, for instance to a peer that breaks the protocol, and close."""

    def welcome(self, id: int, user: str | None, body: dict[str, Any]) -> None:
        """Answer a sign-in, or a sign-out (`user` None)."""


def tick_for(link: WireLink, tick: Tick) -> None:
    """Call `tick` while the connection is open.

    :raises Cancelled: it is closed
    """
    if link.gone:
        raise Cancelled("the client has disconnected")
    tick()
