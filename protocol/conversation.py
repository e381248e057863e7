"""State machine of a wire connection, from the node's side, without input or output.

| state | HELLO | AUTH | RUN, KV, TOPIC, WATCH, VAULT, PING | CANCEL, UNWATCH | BYE | says |
|---|---|---|---|---|---|---|
| AWAITING_HELLO | → SIGNING_IN | broken | broken | broken | → CLOSED | REFUSED → CLOSED |
| SIGNING_IN | kept | kept | kept | kept | kept | WELCOME, ERROR → OPEN; REFUSED → CLOSED |
| OPEN | broken | → SIGNING_IN | opens its id | – | → LEAVING | an answer, CHANGE, PONG, BYE |
| LEAVING | ignored | ignored | ignored | ignored | ignored | CHANGE, an answer; the last → CLOSED |
| CLOSED | – | – | – | – | – | – |

The last column lists messages of the node. An answer is ANSWER, VALUE or ERROR. "kept": the message
stays unread until the sign-in is answered, so that requests after an AUTH run as its user.
"broken": the peer violates the protocol. The node reports it (REFUSED before WELCOME, ERROR with id
0 after it) and closes the connection.

A RUN that asked for a stream gets PART messages before its answer, wherever the table says CHANGE.

A RUN, KV, TOPIC, WATCH or VAULT with an invalid body (an invalid value, too deep) is handed on with
its refusal, and answered like any other. Any other message with such a body is broken.

Ids: the id of a RUN, KV, TOPIC, WATCH, VAULT, PING or AUTH is open until its answer. Opening it
twice is broken, since the two answers would be indistinguishable. The bytes of its frame count for
the same time (`asked`), as a basis for backpressure. CANCEL carries the id of a RUN or a TOPIC; it
is ignored if that id is closed, since the answer may have crossed it. A WATCH is answered when its
feed ends. Until then the node sends CHANGE with its id. UNWATCH carries the id and asks for the
end; it may cross the answer too.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Any, Final

from protocol import limits
from protocol.errors import BadRequest, Refusal
from protocol.frames import FROM_CLIENT, FrameReader, MessageKind, WireMessage, encode
from protocol.values import Tick

HELLO_BYTES: Final = 16 * limits.KIB
"""Longest frame of a peer without a signed-in user, before and after WELCOME. Room for the longest
password, but too little to fill the node's memory from thousands of connections without a
credential."""


class ConnectionState(Enum):
    """States of a connection; transitions are in the module docstring."""

    AWAITING_HELLO = auto()
    SIGNING_IN = auto()
    OPEN = auto()
    LEAVING = auto()
    CLOSED = auto()


_OPENS: Final = frozenset(
    {
        MessageKind.RUN,
        MessageKind.KV,
        MessageKind.TOPIC,
        MessageKind.WATCH,
        MessageKind.VAULT,
        MessageKind.PING,
    }
)
_CLOSES: Final = frozenset(
    {MessageKind.ANSWER, MessageKind.VALUE, MessageKind.ERROR, MessageKind.PONG}
)
REFUSED_ALONE: Final = frozenset(
    {MessageKind.RUN, MessageKind.KV, MessageKind.TOPIC, MessageKind.WATCH, MessageKind.VAULT}
)
"""Kinds whose invalid body is answered; with other kinds it breaks the connection."""


class Conversation:
    """State of one connection. `receive` bytes, take messages with `next`, build answers with
    `send`."""

    __slots__ = ("_reader", "_signing", "asked", "known", "open", "state", "welcomed")

    def __init__(self) -> None:
        self._reader = FrameReader(HELLO_BYTES)
        self._signing = 0
        self.state = ConnectionState.AWAITING_HELLO
        self.open: dict[int, int] = {}
        """Ids of unanswered requests, with the bytes that each holds."""
        self.asked = 0
        """Bytes held by all unanswered requests."""
        self.welcomed = False
        """True once WELCOME was sent: decides the form of a final error."""
        self.known = False
        """True if a user is signed in; to be set before WELCOME is sent. Only then are long frames
        accepted."""

    @property
    def unread(self) -> int:
        """Bytes received but not decoded yet."""
        return self._reader.unread

    @property
    def quiet(self) -> bool:
        """True if requests are accepted, open ones hold too little to be counted, and nothing of a
        next frame was received."""
        return (
            self.state is ConnectionState.OPEN
            and self.asked <= limits.UNCOUNTED_BYTES
            and not self._reader.begins
        )

    @property
    def ahead(self) -> int:
        """Length of the complete frame that `next` would decode; 0 if there is none."""
        return self._reader.ahead if self.state is ConnectionState.OPEN else 0

    @property
    def awaited(self) -> int:
        """Length of the incomplete frame, 0 if there is none."""
        return self._reader.awaited

    @property
    def begun(self) -> int:
        """Length of the incomplete frame whose head can be refused, else 0."""
        return self._reader.begun if self.state is ConnectionState.OPEN else 0

    def refuse(self, refusal: Refusal) -> WireMessage:
        """Refuse the incomplete frame, by its id.

        :raises Refusal: as `next`
        """
        message = self._reader.refuse(refusal)
        self._take(message)
        return message

    def weigh(self, id: int, size: int) -> None:
        """Count an open request with `size` bytes, if that is more than its frame had."""
        before = self.open.get(id)
        if before is not None and size > before:
            self.open[id] = size
            self.asked += size - before

    def receive(self, data: bytes) -> None:
        """Buffer bytes from the peer."""
        if self.state is not ConnectionState.LEAVING and self.state is not ConnectionState.CLOSED:
            self._reader.feed(data)

    def next(self, tick: Tick | None = None) -> WireMessage | None:
        """Return the next message to act on. None if more bytes, or the answer of a sign-in, must
        come first.

        :param tick: called at intervals while a long frame is decoded; it may call `receive` and
            `send`, but not `next`
        :raises Refusal: the peer violates the protocol; tell it, and close
        """
        if self.state is ConnectionState.OPEN:
            message = self._reader.next(tick)
            if message is not None:
                self._take(message)
            return message
        if self.state is not ConnectionState.AWAITING_HELLO:
            return None
        message = self._reader.next()
        if message is None:
            return None
        if message.refusal is not None:
            raise message.refusal
        if message.kind is MessageKind.BYE:
            self.state = ConnectionState.CLOSED
        elif message.kind is MessageKind.HELLO:
            self.state = ConnectionState.SIGNING_IN
            self._signing = message.id
        else:
            raise BadRequest(f"the first message must be HELLO, not {message.kind.name}")
        return message

    def _take(self, message: WireMessage) -> None:
        kind, id = message.kind, message.id
        if message.refusal is not None and kind not in REFUSED_ALONE:
            raise message.refusal
        if kind in _OPENS or kind is MessageKind.AUTH:
            if id == 0:
                raise BadRequest(f"{kind.name} needs an id above 0")
            if id in self.open:
                raise BadRequest(f"id {id} is still open")
            self.open[id] = message.size
            self.asked += message.size
            if kind is MessageKind.AUTH:
                self.state = ConnectionState.SIGNING_IN
                self._signing = id
        elif kind is MessageKind.BYE:
            self.state = ConnectionState.LEAVING if self.open else ConnectionState.CLOSED
        elif kind not in FROM_CLIENT:
            raise BadRequest(f"{kind.name} is sent only by the node")
        elif kind is MessageKind.HELLO:
            raise BadRequest("HELLO was sent before: it is the first message only")

    def send(self, kind: MessageKind, id: int, body: dict[str, Any] | None = None) -> bytes:
        """Encode a message of the node, and change the state by the table.

        :raises AnswerTooLarge: the message exceeds a frame. The state is unchanged, and a smaller
            message may be sent instead
        """
        data = encode(kind, id, body)
        self.sent(kind, id)
        return data

    def sent(self, kind: MessageKind, id: int) -> None:
        """Change the state for a message that was encoded elsewhere."""
        if self.state is ConnectionState.SIGNING_IN and id == self._signing:
            assert kind in (MessageKind.WELCOME, MessageKind.REFUSED, MessageKind.ERROR), kind
            self.asked -= self.open.pop(id, 0)
            self.state = (
                ConnectionState.CLOSED if kind is MessageKind.REFUSED else ConnectionState.OPEN
            )
            self.welcomed = self.welcomed or kind is MessageKind.WELCOME
            if kind is MessageKind.WELCOME:
                self._reader.bytes_max = limits.FRAME_BYTES if self.known else HELLO_BYTES
        elif kind in _CLOSES and id:
            assert id in self.open, f"id {id} is answered twice, or was never asked"
            self.asked -= self.open.pop(id)
            if self.state is ConnectionState.LEAVING and not self.open:
                self.state = ConnectionState.CLOSED
        elif kind in (MessageKind.CHANGE, MessageKind.PART):
            assert id in self.open, f"id {id} is not open: nothing is told on it"
        elif kind is MessageKind.REFUSED:
            self.state = ConnectionState.CLOSED
