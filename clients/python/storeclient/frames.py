"""Frames of the wire protocol, as `docs/wire.md` of the node describes them.

A frame is the length of what follows (4 bytes, big-endian) and one msgpack array of kind, id, body.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final, NamedTuple

from storeclient.errors import ProtocolBroken
from storeclient.values import pack, unpack

PREFIX_BYTES: Final = 4
FRAME_BYTES: Final = 16 * 1024 * 1024
"""The longest frame that either side takes."""
DEPTH: Final = 64 + 16
"""Deepest nesting of a frame of the node: 64 levels of a value, and the envelope around it. That of
a change in a history has nine: frame, body, results, one of these, its value, its entries, one of
these, its changes, one of these."""


class Kind(IntEnum):
    """What a message is."""

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


class Message(NamedTuple):
    """One message, decoded."""

    kind: Kind
    id: int
    body: dict[str, Any]
    size: int = 0
    """Bytes of its frame."""


def encode(kind: Kind, id: int, body: dict[str, Any] | None = None) -> bytes:
    """The frame of a message.

    :raises ValueError: it is longer than a frame may be, or a value in it can't be sent
    :raises TypeError: something in it is not a value of the language
    """
    packed = pack([int(kind), id, body])
    if len(packed) > FRAME_BYTES:
        raise ValueError(f"a request has at most {FRAME_BYTES} bytes, this one has {len(packed)}")
    return len(packed).to_bytes(PREFIX_BYTES, "big") + packed


class FrameReader:
    """Turns bytes, cut anywhere, into messages."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """Every message that is whole with these bytes.

        :raises ProtocolBroken: the stream can't be followed any more
        """
        kept = self._kept
        kept += data
        found: list[Message] = []
        at = 0
        with memoryview(kept) as view:
            while len(kept) - at >= PREFIX_BYTES:
                start = at + PREFIX_BYTES
                end = start + int.from_bytes(view[at:start], "big")
                if end - start > FRAME_BYTES:
                    raise ProtocolBroken(
                        _speaks(bytes(view[at:start]))
                        or f"the node sent a frame of {end - start} bytes"
                    )
                if len(kept) < end:
                    break
                with view[start:end] as frame:
                    found.append(_decode(frame))
                at = end
        del kept[:at]
        return found


def _speaks(begins: bytes) -> str | None:
    """What else than the wire protocol is spoken there, and what helps; None: that is not known.

    :param begins: the first bytes
    """
    if begins.startswith(b"HTTP"):
        return (
            "HTTP is spoken there: the wire protocol has a port of its own, that of the node's"
            " --serve"
        )
    if begins.startswith(b"\x15\x03"):  # an alert
        return "TLS is spoken there: connect with it"
    return None


def _decode(frame: memoryview) -> Message:
    try:
        kind, id, body = unpack(frame)
    except (ValueError, TypeError, ArithmeticError) as error:
        raise ProtocolBroken("the node sent what is no message") from error
    if type(kind) is not int or type(id) is not int or not isinstance(body, dict | None):
        raise ProtocolBroken("the node sent what is no message")
    if kind not in _KINDS:
        raise ProtocolBroken(f"the node sent a message of kind {kind}, which is not known")
    if body is None:
        body = {}
    elif len(frame) > DEPTH and _nests_deeper(body, DEPTH - 1):  # a level has a byte at least
        raise ProtocolBroken(f"the node sent a message that nests deeper than {DEPTH}")
    return Message(_KINDS[kind], id, body, len(frame))


_KINDS: Final = {int(kind): kind for kind in Kind}
_HOLDERS: Final = frozenset({list, dict})


def _nests_deeper(holder: dict[str, Any], levels: int) -> bool:
    """True if arrays and maps stand one inside another deeper than `levels`, the outermost one
    included. It does not recurse."""
    level: list[Any] = [holder]
    for _ in range(levels):
        level = [
            part
            for held in level
            for part in (held.values() if type(held) is dict else held)
            if type(part) in _HOLDERS
        ]
        if not level:
            return False
    return True
