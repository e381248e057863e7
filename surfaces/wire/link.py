"""What the parts of a wire connection ask of it: those that sign in, run scripts, ask for keys and
messages, follow tables."""

from __future__ import annotations

from typing import Any, Final, Protocol

from protocol.conversation import Conversation
from protocol.errors import Cancelled, Failed, Refusal
from protocol.frames import Kind, Message
from protocol.values import Tick
from surfaces.wire.outgoing import Outgoing
from surfaces.wire.shared import Wire

CHOKED: Final = 1
"""The peer takes no answers."""
DECODING: Final = 2
"""A long frame is being decoded: what stands behind it comes after it."""
PUT_OFF: Final = 4
"""A script is judged a little later, for want of room to run it."""
CROWDED: Final = 8
"""What is open holds as much as it may."""
KEYS: Final = 16
"""Operations on keys have been read that there is no room to answer yet."""
OVER: Final = 32
"""What all peers of its user have not taken fills the room that there is for it."""

MESSAGES: Final = 64
"""Messages have been asked for that there is no room to answer yet."""
PACED: Final = 128
"""The connection has had its frames of this turn of the loop; the rest waits in line, by user."""


class Link(Protocol):
    """The connection."""

    wire: Wire
    talk: Conversation
    outgoing: Outgoing
    address: str
    minor: int
    """The one agreed on."""
    token: str | None
    """Of who is signed in."""
    who: bytes
    """The digest of that token."""

    @property
    def user(self) -> str:
        """Who is signed in, or `NOBODY`."""

    @property
    def choked(self) -> bool:
        """Whether the peer does not take its answers, or all of its user together don't."""

    def answers_wait_at(self, size: int) -> None:
        """From so many bytes on that the peer has not taken it is read no more."""

    @property
    def over(self) -> bool:
        """Whether nothing is begun any more: the last word is said, or nobody is there."""

    @property
    def gone(self) -> bool:
        """Whether nobody is there."""

    def name(self, id: int) -> str:
        """What a request is called in answers and logs."""

    def send(
        self,
        kind: Kind,
        id: int,
        body: dict[str, Any] | None = None,
        data: bytes | None = None,
        committed: int = 0,
    ) -> None:
        """Say something; it leaves at the end of this turn of the loop, with all said in it.

        :param data: the message, when it is encoded already
        :param committed: what stands of a script, should there be no way to say what it answers
        """

    def refuse(self, id: int, refusal: Refusal) -> None:
        """Answer a request with an error."""

    def turn_away(self, id: int, refusal: Refusal) -> None:
        """Answer HELLO with REFUSED, and close."""

    def failed(self, name: str, error: BaseException | None = None) -> Failed:
        """The answer to a bug, whose trace goes to the log.

        :param error: what it raised; None: what is being handled
        """

    def hold(self, why: int) -> None:
        """Act on nothing more, and soon read nothing more, for one of the reasons above."""

    def advance(self, message: Message | None = None) -> None:
        """Act on every message that may be acted on now.

        :param message: one that has been taken already
        """

    def release(self, why: int) -> None:
        """This reason to wait is over."""

    def look_again(self) -> None:
        """Have it seen at the end of this turn what of that which waits may go on, though nothing
        is sent."""

    def end_if_done(self) -> None:
        """Close when no more requests come and nothing is open any more."""

    def break_off(self, refusal: Refusal) -> None:
        """Say why, to a peer that does not speak the protocol, and close."""

    def welcome(self, id: int, user: str | None, body: dict[str, Any]) -> None:
        """Somebody has signed in, or out: None."""


def tick_for(link: Link, tick: Tick) -> None:
    """Go on while somebody is there to read the answer. :raises Cancelled: nobody is"""
    if link.gone:
        raise Cancelled("nobody is there to read the answer")
    tick()
