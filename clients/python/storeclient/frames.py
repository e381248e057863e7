"""Frames of the wire protocol, described in the node's `docs/wire.md`.

A frame is a length prefix (4 bytes, big-endian) and one msgpack array of kind, id, body.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final, NamedTuple

from storeclient.errors import ProtocolBroken
from storeclient.values import pack, unpack

PREFIX_BYTES: Final = 4
FRAME_BYTES: Final = 16 * 1024 * 1024
"""Longest frame that either side accepts."""
DEPTH: Final = 64 + 16
"""Deepest nesting of a frame of the node: 64 levels of a value, and its envelope. The envelope of a
change in a history has nine levels: frame, body, results, a result, its value, its entries, an
entry, its changes, a change."""


class Kind(IntEnum):
    """Kinds of messages."""

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
    """A decoded message."""

    kind: Kind
    id: int
    body: dict[str, Any]
    size: int = 0
    """Size of its frame in bytes."""


def encode(kind: Kind, id: int, body: dict[str, Any] | None = None) -> bytes:
    """Encode a message as a frame.

    :raises ValueError: longer than a frame may be, or it has a value that cannot be sent
    :raises TypeError: a part is not a value of the language
    """
    packed = pack([int(kind), id, body])
    if len(packed) > FRAME_BYTES:
        raise ValueError(f"a request has at most {FRAME_BYTES} bytes, this one has {len(packed)}")
    return len(packed).to_bytes(PREFIX_BYTES, "big") + packed


class FrameReader:
    """Decodes a byte stream into messages."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """Add bytes, and return the messages that are complete with them.

        :raises ProtocolBroken: the stream is invalid and cannot be continued
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
    """Return a hint if the peer speaks another protocol, or None.

    :param begins: first bytes of the stream
    """
    if begins.startswith(b"HTTP"):
        return "this port speaks HTTP: use the port of the wire protocol, from the node's --serve"
    if begins.startswith(b"\x15\x03"):  # a TLS alert
        return "this port speaks TLS: connect with TLS"
    return None


def _decode(frame: memoryview) -> Message:
    try:
        kind, id, body = unpack(frame)
    except (ValueError, TypeError, ArithmeticError) as error:
        raise ProtocolBroken("the node sent an invalid message") from error
    if type(kind) is not int or type(id) is not int or not isinstance(body, dict | None):
        raise ProtocolBroken("the node sent an invalid message")
    if kind not in _KINDS:
        raise ProtocolBroken(f"the node sent a message of an unknown kind, {kind}")
    if body is None:
        body = {}
    elif len(frame) > DEPTH and _nests_deeper(body, DEPTH - 1):  # each level takes at least a byte
        raise ProtocolBroken(f"the node sent a message that nests deeper than {DEPTH}")
    return Message(_KINDS[kind], id, body, len(frame))


_KINDS: Final = {int(kind): kind for kind in Kind}
_HOLDERS: Final = frozenset({list, dict})


def _nests_deeper(holder: dict[str, Any], levels: int) -> bool:
    """True if arrays and maps nest deeper than `levels`, the outermost included. Not recursive."""
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
