"""Wire frames: encoding and decoding of messages, without input or output.

Byte map of a frame:

| offset | length | content |
|---|---|---|
| 0 | 4 | n, big-endian: the bytes that follow, 1 to `limits.FRAME_BYTES` |
| 4 | n | one msgpack array of three: kind, id, body |

kind is an integer of `MessageKind`. id is an integer, 0 to 2^53-1: the request of the message, or 0
if it concerns the connection. body is a map with string keys, or nil; values inside it are encoded
by `protocol/binary.py`. `docs/wire.md` is the reference for other languages; the valid order of
messages is in `protocol/conversation.py`.

A reader buffers at most one incomplete frame. It decodes only complete frames within the length
limit, so the memory that a peer can claim is bounded before any value is built.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final, NamedTuple

import msgpack

from protocol import binary, limits
from protocol.errors import AnswerTooLarge, BadRequest, Refusal, TooLarge
from protocol.foreign import unpack_foreign
from protocol.values import Tick, check, check_body

PREFIX_BYTES: Final = 4
HEAD_BYTES: Final = 1 + 9 + 9
"""Longest head of a frame: the array header and two integers."""
_COPIED_BYTES: Final = 4 * limits.KIB
"""Size up to which a frame is copied to be decoded, which is faster than two views of it."""
ID_MAX: Final = 2**53 - 1
"""Largest integer that every client language represents exactly, JavaScript included."""


class MessageKind(IntEnum):
    """Kinds of messages. A number is never reused for another kind.

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
        MessageKind.HELLO, MessageKind.AUTH, MessageKind.RUN, MessageKind.CANCEL, MessageKind.PING,
        MessageKind.BYE, MessageKind.KV, MessageKind.TOPIC, MessageKind.WATCH, MessageKind.UNWATCH,
        MessageKind.VAULT,
    }
)  # fmt: skip
FROM_NODE: Final = frozenset(
    {
        MessageKind.WELCOME, MessageKind.REFUSED, MessageKind.ANSWER, MessageKind.ERROR,
        MessageKind.PONG, MessageKind.BYE, MessageKind.VALUE, MessageKind.CHANGE, MessageKind.PART,
    }
)  # fmt: skip
_KINDS: Final[dict[int, MessageKind]] = {int(kind): kind for kind in MessageKind}


class WireMessage(NamedTuple):
    """A decoded message."""

    kind: MessageKind
    id: int
    body: dict[str, Any] | None
    refusal: Refusal | None = None
    """Refusal of the body, if only kind and id were valid. The frame's end is known, so the next
    one can be read."""
    size: int = 0
    """Size of its frame in bytes."""


_made: Final = tuple.__new__
"""Creates a Message in one call; its own constructor takes two."""


class FrameReader:
    """Decodes a byte stream into messages.

    :param bytes_max: longest frame accepted; set the attribute to raise it later
    """

    __slots__ = ("_at", "_dropping", "_kept", "bytes_max")

    def __init__(self, bytes_max: int = limits.FRAME_BYTES) -> None:
        self.bytes_max = bytes_max
        self._kept: bytes | bytearray = b""
        self._at = 0
        self._dropping = 0
        """Bytes still to be skipped of a frame that was refused by its head."""

    @property
    def unread(self) -> int:
        """Bytes received but not decoded yet."""
        return len(self._kept) - self._at

    @property
    def begins(self) -> bool:
        """True if part of the next frame was received, or is to be skipped."""
        return self._at != len(self._kept) or self._dropping > 0

    def feed(self, data: bytes) -> None:
        """Buffer bytes from the peer. Never fails; `next` does."""
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
        """Length of the next frame if it is complete and within the limit, else 0."""
        kept, start = self._kept, self._at + PREFIX_BYTES
        if len(kept) < start:
            return 0
        length = int.from_bytes(kept[self._at : start], "big")
        return length if length <= min(self.bytes_max, len(kept) - start) else 0

    @property
    def awaited(self) -> int:
        """Length of an incomplete frame, as far as it is known; 0 if the next frame is complete, or
        nothing of it was received."""
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
        """Length of an incomplete frame whose head is complete, so that `refuse` may be called;
        else 0."""
        length = 0 if self._dropping else self.awaited
        unread = len(self._kept) - self._at
        return length if unread >= PREFIX_BYTES + min(HEAD_BYTES, length - PREFIX_BYTES) else 0

    def refuse(self, refusal: Refusal) -> WireMessage:
        """Refuse the incomplete frame: discard its bytes, received and still to come. The next
        frame can be read after it. Allowed while `begun`.

        :raises BadRequest: its head is invalid
        """
        length, start = self.begun, self._at + PREFIX_BYTES
        assert length, "no frame has begun"
        head = _head(bytes(self._kept[start : start + HEAD_BYTES]))
        if head is None:
            raise BadRequest("a frame must hold an array of three: kind, id, body")
        self._dropping = length - (len(self._kept) - self._at)
        self._kept, self._at = b"", 0
        return WireMessage(*head, None, refusal)

    def next(self, tick: Tick | None = None) -> WireMessage | None:
        """Return the next message, or None until more bytes are received.

        An invalid or too deep value in a body gives a message with a `refusal`.

        :param tick: called at intervals while a long frame is decoded; more bytes may be fed then
        :raises TooLarge: a frame is longer than `bytes_max`
        :raises Refusal: a frame does not follow the byte map

        After these the stream position is lost: tell the peer, and close.
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
            self._kept, self._at = b"", 0  # an idle connection holds no buffer
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


def _taken(frame: bytes | memoryview, size: int, tick: Tick | None = None) -> WireMessage:
    try:
        kind, id, body = _decode(frame, tick)
        return _made(WireMessage, (kind, id, body, None, size))
    except Refusal as refusal:
        head = _head(frame)
        if head is None:
            raise
        return WireMessage(*head, None, refusal)


def decode(frame: bytes | memoryview, tick: Tick | None = None) -> WireMessage:
    """Decode one frame without its length prefix.

    :param tick: called at intervals while a long frame is decoded
    :raises TooLarge: a value nests deeper than `limits.DEPTH`, or there are more elements than
        `limits.ELEMENTS`
    :raises BadRequest: not an array of kind, id and body
    """
    return WireMessage(*_decode(frame, tick))


def _decode(
    frame: bytes | memoryview, tick: Tick | None
) -> tuple[MessageKind, int, dict[str, Any] | None]:
    parts = unpack_foreign(frame, tick, _check_frame)
    if type(parts) is not list or len(parts) != 3:
        raise BadRequest("a frame must hold an array of three: kind, id, body")
    number, request, body = parts
    if type(number) is not int or number not in _KINDS:
        raise BadRequest(f"unknown kind of message: {number!r:.40}", kind=repr(number)[:40])
    if type(request) is not int or not 0 <= request <= ID_MAX:
        raise BadRequest(f"an id must be an integer from 0 to {ID_MAX}")
    if body is not None and type(body) is not dict:
        raise BadRequest("a body must be a map or nil")
    return _KINDS[number], request, body


def _check_frame(parts: Any, tick: Tick | None) -> None:
    """Refuse a frame with an invalid value. The frame and its body are not counted as levels."""
    if type(parts) is list and len(parts) == 3 and type(parts[2]) is dict:
        check(parts[:2])
        check_body(parts[2], tick)
    else:
        check(parts, 0, tick)


def _head(frame: bytes | memoryview) -> tuple[MessageKind, int] | None:
    """Return kind and id of a frame whose body is refused, or None if they are invalid too."""
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


def encode(kind: MessageKind, id: int, body: dict[str, Any] | None = None) -> bytes:
    """Encode a message as a frame.

    :raises AnswerTooLarge: over `limits.FRAME_BYTES`
    """
    packed = binary.pack([kind, id, body])
    length = len(packed)
    if length > limits.FRAME_BYTES:
        raise _too_large(length)
    return length.to_bytes(PREFIX_BYTES, "big") + packed


def encode_in_steps(kind: MessageKind, id: int, body: dict[str, Any], tick: Tick) -> bytes:
    """Encode a message with a long body in steps.

    :param tick: called at intervals
    :raises AnswerTooLarge: raised before more than one frame holds was encoded
    """
    frame = _Parts()
    binary.pack_in_steps([int(kind), id, body], tick, frame.add)
    frame.parts[0] = frame.length.to_bytes(PREFIX_BYTES, "big")
    return b"".join(frame.parts)


class _Parts:
    """Collects the parts of a frame; the first is its length."""

    def __init__(self) -> None:
        self.parts: list[bytes] = [b""]
        self.length = 0
        """Bytes after the first part."""

    def add(self, part: bytes) -> None:
        """Append a part. :raises AnswerTooLarge: the frame is full"""
        self.length += len(part)
        if self.length > limits.FRAME_BYTES:
            raise _too_large(self.length)
        self.parts.append(part)


def around(kind: MessageKind, id: int, packed: bytes) -> bytes:
    """Return the frame of a message whose body is packed already, and fits."""
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
