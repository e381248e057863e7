"""Wire frames: bytes to messages and back, without input or output.

Byte map of a frame:

| offset | length | content |
|---|---|---|
| 0 | 4 | n, big-endian: the bytes that follow, 1 to `limits.FRAME_BYTES` |
| 4 | n | one msgpack array of three: kind, id, body |

kind is an integer of `Kind`. id is an integer, 0 to 2^53-1: the request that the message belongs
to, or 0 for what concerns the connection. body is a map with string keys, or nil. Values inside a
body are encoded as `protocol/binary.py` says. `docs/wire.md` is the reference for other languages;
who may send what, and when, is `protocol/conversation.py`.

A reader keeps at most one unfinished frame. It never decodes a frame that is not whole, nor one
that is over its length, so what a peer can make it hold is bounded before any value is built.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final, NamedTuple

import msgpack

from protocol import binary, limits
from protocol.errors import AnswerTooLarge, BadRequest, Refusal, TooLarge
from protocol.values import Tick, check, check_body

PREFIX_BYTES: Final = 4
HEAD_BYTES: Final = 1 + 9 + 9
"""The head of the array and two integers, at their longest."""
_COPIED_BYTES: Final = 4 * limits.KIB
"""A frame up to this is copied to be decoded, which is quicker than two views of it."""
ID_MAX: Final = 2**53 - 1
"""What every client language counts exactly, JavaScript's numbers included."""


class Kind(IntEnum):
    """What a message is. Numbers are never used again for something else.

    Below 32: sent by the client. 32 and above: sent by the node. BYE: by both.
    """

    HELLO = 1
    AUTH = 2
    RUN = 3
    CANCEL = 4
    PING = 5
    BYE = 6
    KV = 7
    TOPIC = 8
    WATCH = 9
    UNWATCH = 10
    VAULT = 11
    WELCOME = 32
    REFUSED = 33
    ANSWER = 34
    ERROR = 35
    PONG = 36
    VALUE = 37
    CHANGE = 38
    PART = 39


FROM_CLIENT: Final = frozenset(
    {
        Kind.HELLO, Kind.AUTH, Kind.RUN, Kind.CANCEL, Kind.PING, Kind.BYE, Kind.KV, Kind.TOPIC,
        Kind.WATCH, Kind.UNWATCH, Kind.VAULT,
    }
)  # fmt: skip
FROM_NODE: Final = frozenset(
    {
        Kind.WELCOME, Kind.REFUSED, Kind.ANSWER, Kind.ERROR, Kind.PONG, Kind.BYE, Kind.VALUE,
        Kind.CHANGE, Kind.PART,
    }
)  # fmt: skip
_KINDS: Final[dict[int, Kind]] = {int(kind): kind for kind in Kind}


class Message(NamedTuple):
    """One message, decoded."""

    kind: Kind
    id: int
    body: dict[str, Any] | None
    refusal: Refusal | None = None
    """Why the body could not be taken, when kind and id could: the frame ends where it should, so
    what follows it can be followed."""
    size: int = 0
    """Bytes of the frame that it came in."""


_made: Final = tuple.__new__
"""Makes a Message in one call where its own constructor takes two."""


class FrameReader:
    """Turns bytes, cut anywhere, into messages.

    :param bytes_max: longest frame taken; raise it by setting the attribute once more is allowed
    """

    __slots__ = ("_at", "_dropping", "_kept", "bytes_max")

    def __init__(self, bytes_max: int = limits.FRAME_BYTES) -> None:
        self.bytes_max = bytes_max
        self._kept: bytes | bytearray = b""
        self._at = 0
        self._dropping = 0
        """Bytes still to come of a frame that was refused by its head."""

    @property
    def unread(self) -> int:
        """Bytes received that no message has been made of yet."""
        return len(self._kept) - self._at

    @property
    def begins(self) -> bool:
        """Whether something of a next frame has come, or is to be dropped."""
        return self._at != len(self._kept) or self._dropping > 0

    def feed(self, data: bytes) -> None:
        """Take bytes from the peer. Never fails; `next` does."""
        if self._dropping:
            dropped = min(self._dropping, len(data))
            self._dropping -= dropped
            data = data[dropped:]
        if self._at == len(self._kept):
            self._kept = data
            self._at = 0
            return
        if not isinstance(self._kept, bytearray):
            self._kept = bytearray(memoryview(self._kept)[self._at :])
        else:
            del self._kept[: self._at]
        self._at = 0
        self._kept += data

    @property
    def ahead(self) -> int:
        """Bytes of the next frame, when it has come whole and may be taken; else 0."""
        kept, start = self._kept, self._at + PREFIX_BYTES
        if len(kept) < start:
            return 0
        length = int.from_bytes(kept[self._at : start], "big")
        return length if length <= min(self.bytes_max, len(kept) - start) else 0

    @property
    def awaited(self) -> int:
        """Bytes of a frame that has begun to come and is not whole, as far as it says; 0 when the
        next one is whole, or has not begun."""
        if self._dropping:
            return self._dropping
        unread = len(self._kept) - self._at
        if unread < PREFIX_BYTES:
            return PREFIX_BYTES if unread else 0
        start = self._at + PREFIX_BYTES
        length = PREFIX_BYTES + int.from_bytes(self._kept[self._at : start], "big")
        return length if length > unread else 0

    @property
    def begun(self) -> int:
        """Bytes of a frame that has begun to come, is not whole, and may be refused by its head:
        `refuse`. 0 when there is none."""
        length = 0 if self._dropping else self.awaited
        unread = len(self._kept) - self._at
        return length if unread >= PREFIX_BYTES + min(HEAD_BYTES, length - PREFIX_BYTES) else 0

    def refuse(self, refusal: Refusal) -> Message:
        """Refuse the frame that has begun: what has come of it is let go, what comes of it is
        dropped, and what follows it can be followed. Allowed while `begun`.

        :raises BadRequest: it does not say what it is, or to which request it belongs
        """
        length, start = self.begun, self._at + PREFIX_BYTES
        assert length, "no frame has begun"
        head = _head(bytes(self._kept[start : start + HEAD_BYTES]))
        if head is None:
            raise BadRequest("a frame holds an array of three: kind, id, body")
        self._dropping = length - (len(self._kept) - self._at)
        self._kept, self._at = b"", 0
        return Message(*head, None, refusal)

    def next(self, tick: Tick | None = None) -> Message | None:
        """The next message, or None until more bytes come.

        :param tick: called now and then while a long frame is decoded; more bytes may be fed then

        A value in a body that is no value, or nests too deep, is a message with a `refusal`.

        :raises TooLarge: a frame is longer than `bytes_max`
        :raises Refusal: a frame is not what the byte map says

        After these the stream can't be followed any more: say so to the peer and close.
        """
        kept, start = self._kept, self._at + PREFIX_BYTES
        if len(kept) < start:
            return None
        length = int.from_bytes(kept[self._at : start], "big")
        if length > self.bytes_max:
            raise TooLarge(
                f"a frame of {length} bytes is over the limit of {self.bytes_max}",
                bytes=length,
                limit=self.bytes_max,
            )
        end = start + length
        if len(kept) < end:
            return None
        if end == len(kept):
            self._kept, self._at = b"", 0  # an idle connection keeps nothing of what it has read
        else:
            self._at = end
        if length <= _COPIED_BYTES:
            return _taken(bytes(kept[start:end]), length)
        with memoryview(kept) as view, view[start:end] as frame:
            if tick is None:
                return _taken(frame, length)
            copied = bytes(frame)
        del kept
        return _taken(copied, length, tick)


def _taken(frame: bytes | memoryview, size: int, tick: Tick | None = None) -> Message:
    try:
        kind, id, body = _decode(frame, tick)
        return _made(Message, (kind, id, body, None, size))
    except Refusal as refusal:
        head = _head(frame)
        if head is None:
            raise
        return Message(*head, None, refusal)


def decode(frame: bytes | memoryview, tick: Tick | None = None) -> Message:
    """The message of one frame, its length prefix taken off.

    :param tick: called now and then while a long frame is decoded
    :raises TooLarge: a value nests deeper than `limits.DEPTH`, or there are more elements than
        `limits.ELEMENTS`
    :raises BadRequest: anything but one array of kind, id and body
    """
    return Message(*_decode(frame, tick))


def _decode(
    frame: bytes | memoryview, tick: Tick | None
) -> tuple[Kind, int, dict[str, Any] | None]:
    parts = binary.unpack_foreign(frame, tick, _check_frame)
    if type(parts) is not list or len(parts) != 3:
        raise BadRequest("a frame holds an array of three: kind, id, body")
    number, request, body = parts
    if type(number) is not int or number not in _KINDS:
        raise BadRequest(f"{number!r:.40} is no kind of message", kind=repr(number)[:40])
    if type(request) is not int or not 0 <= request <= ID_MAX:
        raise BadRequest(f"an id is an integer from 0 to {ID_MAX}")
    if body is not None and type(body) is not dict:
        raise BadRequest("a body is a map or nil")
    return _KINDS[number], request, body


def _check_frame(parts: Any, tick: Tick | None) -> None:
    """Refuse a frame that holds what is no value. The frame and its body are no levels of one."""
    if type(parts) is list and len(parts) == 3 and type(parts[2]) is dict:
        check(parts[:2])
        check_body(parts[2], tick)
    else:
        check(parts, 0, tick)


def _head(frame: bytes | memoryview) -> tuple[Kind, int] | None:
    """Kind and id of a frame whose body is refused; None when they can't be read either."""
    unpacker = msgpack.Unpacker()
    unpacker.feed(frame[:HEAD_BYTES])
    try:
        if unpacker.read_array_header() != 3:
            return None
        number, request = unpacker.unpack(), unpacker.unpack()
    except (ValueError, msgpack.UnpackException):
        return None
    if type(number) is not int or type(request) is not int:
        return None
    if number not in _KINDS or not 0 <= request <= ID_MAX:
        return None
    return _KINDS[number], request


def encode(kind: Kind, id: int, body: dict[str, Any] | None = None) -> bytes:
    """The frame of a message.

    :raises AnswerTooLarge: over `limits.FRAME_BYTES`
    """
    packed = binary.pack([kind, id, body])
    length = len(packed)
    if length > limits.FRAME_BYTES:
        raise _too_large(length)
    return length.to_bytes(PREFIX_BYTES, "big") + packed


def encode_in_steps(kind: Kind, id: int, body: dict[str, Any], tick: Tick) -> bytes:
    """As `encode`, for a long body.

    :param tick: called now and then
    :raises AnswerTooLarge: found before more than a frame carries has been encoded
    """
    frame = _Parts()
    binary.pack_in_steps([int(kind), id, body], tick, frame.add)
    frame.parts[0] = frame.length.to_bytes(PREFIX_BYTES, "big")
    return b"".join(frame.parts)


class _Parts:
    """A frame that is encoded part by part; the first is its length."""

    def __init__(self) -> None:
        self.parts: list[bytes] = [b""]
        self.length = 0
        """Bytes behind the first part."""

    def add(self, part: bytes) -> None:
        """:raises AnswerTooLarge: the frame carries no more"""
        self.length += len(part)
        if self.length > limits.FRAME_BYTES:
            raise _too_large(self.length)
        self.parts.append(part)


def around(kind: Kind, id: int, packed: bytes) -> bytes:
    """The frame of a message whose body is packed already, and fits."""
    head = b"\x93" + binary.pack(int(kind)) + binary.pack(id)
    length = len(head) + len(packed)
    assert length <= limits.FRAME_BYTES, f"{length} bytes are no frame"
    return b"%b%b%b" % (length.to_bytes(PREFIX_BYTES, "big"), head, packed)


def _too_large(length: int) -> AnswerTooLarge:
    return AnswerTooLarge(
        f"the answer has {length} bytes or more, a frame carries at most {limits.FRAME_BYTES}",
        bytes=length,
        limit=limits.FRAME_BYTES,
    )
