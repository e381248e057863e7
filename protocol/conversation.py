"""Who may say what on a wire connection, seen from the node, without input or output.

| state | HELLO | AUTH | RUN, KV, TOPIC, WATCH, VAULT, PING | CANCEL, UNWATCH | BYE | says |
|---|---|---|---|---|---|---|
| AWAITING_HELLO | → SIGNING_IN | broken | broken | broken | → CLOSED | REFUSED → CLOSED |
| SIGNING_IN | kept | kept | kept | kept | kept | WELCOME, ERROR → OPEN; REFUSED → CLOSED |
| OPEN | broken | → SIGNING_IN | opens its id | – | → LEAVING | an answer, CHANGE, PONG, BYE |
| LEAVING | ignored | ignored | ignored | ignored | ignored | CHANGE, an answer; the last → CLOSED |
| CLOSED | – | – | – | – | – | – |

An answer is ANSWER, VALUE or ERROR. "kept": the message stays unread until the sign-in has been
answered, so that everything behind an AUTH is run by whom it names. "broken": the peer does not
speak the protocol; it is told so (REFUSED before WELCOME, ERROR with id 0 after it) and the
connection closes.

A RUN, KV, TOPIC, WATCH or VAULT whose body is refused (a value that is none, too deep) is handed
on with its refusal, and answered as any other; any other message with such a body is broken. What
the node says stands in the last column.

Ids: a request's id is open from RUN, KV, TOPIC, WATCH, VAULT, PING or AUTH until it is answered.
Opening it twice is broken, for the second answer could not be told from the first. The bytes of its
frame count from there to there too (`asked`): whoever reads on decides by them. CANCEL carries the
id of a RUN or a TOPIC; when that is not open any more it is ignored, as the answer may have crossed
it. A
WATCH is answered when its feed is over. Until then the node says CHANGE with its id, as often as
there is something to tell; UNWATCH carries the id and asks for the end, and may cross it as well.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Any, Final

from protocol import limits
from protocol.errors import BadRequest, Refusal
from protocol.frames import FROM_CLIENT, FrameReader, Kind, Message, encode
from protocol.values import Tick

HELLO_BYTES: Final = 16 * limits.KIB
"""A frame of a peer that nobody has signed in for, welcomed or not: room for the longest password,
no room to fill the memory of the node from thousands of connections without a credential."""


class State(Enum):
    """See the table at the head of this file."""

    AWAITING_HELLO = auto()
    SIGNING_IN = auto()
    OPEN = auto()
    LEAVING = auto()
    CLOSED = auto()


_OPENS: Final = frozenset({Kind.RUN, Kind.KV, Kind.TOPIC, Kind.WATCH, Kind.VAULT, Kind.PING})
_CLOSES: Final = frozenset({Kind.ANSWER, Kind.VALUE, Kind.ERROR, Kind.PONG})
REFUSED_ALONE: Final = frozenset({Kind.RUN, Kind.KV, Kind.TOPIC, Kind.WATCH, Kind.VAULT})
"""A body of these that can't be taken is answered; of others it breaks the conversation."""


class Conversation:
    """One connection. `receive` bytes, take messages with `next`, build answers with `send`."""

    __slots__ = ("_reader", "_signing", "asked", "known", "open", "state", "welcomed")

    def __init__(self) -> None:
        self._reader = FrameReader(HELLO_BYTES)
        self._signing = 0
        self.state = State.AWAITING_HELLO
        self.open: dict[int, int] = {}
        """Ids of the requests not answered yet, with the bytes that each holds."""
        self.asked = 0
        """What these hold together."""
        self.welcomed = False
        """Whether the peer has been told WELCOME: which form a last word to it takes."""
        self.known = False
        """Whether somebody has signed in for it; to be set before WELCOME says so. Frames may be
        long only then."""

    @property
    def unread(self) -> int:
        """Bytes received and not yet made into messages."""
        return self._reader.unread

    @property
    def quiet(self) -> bool:
        """Whether requests are let in, those open hold too little to be counted, and no byte of a
        next one has come."""
        return (
            self.state is State.OPEN
            and self.asked <= limits.UNCOUNTED_BYTES
            and not self._reader.begins
        )

    @property
    def ahead(self) -> int:
        """Bytes of the frame that `next` would decode now; 0 when there is none."""
        return self._reader.ahead if self.state is State.OPEN else 0

    @property
    def awaited(self) -> int:
        """Bytes of the frame that has begun to come and is not whole; 0 when none has."""
        return self._reader.awaited

    @property
    def begun(self) -> int:
        """Bytes of the frame that has begun to come and can be refused by its head; else 0."""
        return self._reader.begun if self.state is State.OPEN else 0

    def refuse(self, refusal: Refusal) -> Message:
        """Refuse, with its id, the frame that has begun, before it is taken.

        :raises Refusal: as `next`
        """
        message = self._reader.refuse(refusal)
        self._take(message)
        return message

    def weigh(self, id: int, size: int) -> None:
        """An open request holds so many bytes, where that is more than its frame had."""
        before = self.open.get(id)
        if before is not None and size > before:
            self.open[id] = size
            self.asked += size - before

    def receive(self, data: bytes) -> None:
        """Take bytes from the peer."""
        if self.state is not State.LEAVING and self.state is not State.CLOSED:
            self._reader.feed(data)

    def next(self, tick: Tick | None = None) -> Message | None:
        """The next message to act on; None when more bytes, or a sign-in's answer, must come first.

        :param tick: called now and then while a long frame is decoded; `receive` and `send` may be
            called then, `next` must not
        :raises Refusal: the peer does not speak the protocol; tell it so, and close
        """
        if self.state is State.OPEN:
            message = self._reader.next(tick)
            if message is not None:
                self._take(message)
            return message
        if self.state is not State.AWAITING_HELLO:
            return None
        message = self._reader.next()
        if message is None:
            return None
        if message.refusal is not None:
            raise message.refusal
        if message.kind is Kind.BYE:
            self.state = State.CLOSED
        elif message.kind is Kind.HELLO:
            self.state = State.SIGNING_IN
            self._signing = message.id
        else:
            raise BadRequest(f"the first message is HELLO, not {message.kind.name}")
        return message

    def _take(self, message: Message) -> None:
        kind, id = message.kind, message.id
        if message.refusal is not None and kind not in REFUSED_ALONE:
            raise message.refusal
        if kind in _OPENS or kind is Kind.AUTH:
            if id == 0:
                raise BadRequest(f"{kind.name} needs an id of its own, not 0")
            if id in self.open:
                raise BadRequest(f"id {id} is still open")
            self.open[id] = message.size
            self.asked += message.size
            if kind is Kind.AUTH:
                self.state = State.SIGNING_IN
                self._signing = id
        elif kind is Kind.BYE:
            self.state = State.LEAVING if self.open else State.CLOSED
        elif kind not in FROM_CLIENT:
            raise BadRequest(f"{kind.name} is for the node to say")
        elif kind is Kind.HELLO:
            raise BadRequest("HELLO is said once")

    def send(self, kind: Kind, id: int, body: dict[str, Any] | None = None) -> bytes:
        """The bytes of a message of the node; moves the state as the table says.

        :raises AnswerTooLarge: the message does not fit a frame; nothing has moved, and a smaller
            one may be sent in its place
        """
        data = encode(kind, id, body)
        self.sent(kind, id)
        return data

    def sent(self, kind: Kind, id: int) -> None:
        """Move the state for a message that has been encoded elsewhere."""
        if self.state is State.SIGNING_IN and id == self._signing:
            assert kind in (Kind.WELCOME, Kind.REFUSED, Kind.ERROR), kind
            self.asked -= self.open.pop(id, 0)
            self.state = State.CLOSED if kind is Kind.REFUSED else State.OPEN
            self.welcomed = self.welcomed or kind is Kind.WELCOME
            if kind is Kind.WELCOME:
                self._reader.bytes_max = limits.FRAME_BYTES if self.known else HELLO_BYTES
        elif kind in _CLOSES and id:
            assert id in self.open, f"id {id} is answered twice, or was never asked"
            self.asked -= self.open.pop(id)
            if self.state is State.LEAVING and not self.open:
                self.state = State.CLOSED
        elif kind in (Kind.CHANGE, Kind.PART):
            assert id in self.open, f"id {id} is not open: nothing is told on it"
        elif kind is Kind.REFUSED:
            self.state = State.CLOSED
