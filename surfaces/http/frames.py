"""Frames of RFC 6455: encoding of the node's frames, and checks of a client's frames."""

from __future__ import annotations

import struct
from typing import Final

CONTINUATION: Final = 0x0
TEXT: Final = 0x1
BINARY: Final = 0x2
CLOSE: Final = 0x8
PING: Final = 0x9
PONG: Final = 0xA

NORMAL: Final = 1000
GOING_AWAY: Final = 1001
PROTOCOL_ERROR: Final = 1002
NO_CODE: Final = 1005
"""Close code for a close frame without a code. Never sent."""
CUT: Final = 1006
"""Close code for a connection without a close frame. Never sent."""
NOT_UTF8: Final = 1007
TOO_BIG: Final = 1009
NODE_FAILED: Final = 1011
TRY_LATER: Final = 1013
REFUSED: Final = 4000
"""Base of a refusal's close code, plus its HTTP status: 4401 is SignInRefused or SessionEnded."""

REASON_BYTES: Final = 123
"""Maximum bytes of a close reason: a control frame carries 125, of which the code takes two."""

_FIN: Final = 0x80
_RESERVED: Final = 0x70
_OPCODE: Final = 0x0F
_CONTROL: Final = 0x08
_MASKED: Final = 0x80
_KNOWN: Final = frozenset({CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG})
_SENT_CODES: Final = frozenset({1000, 1001, 1002, 1003, *range(1007, 1015)})
"""Registered close codes that a frame may contain. 1004 is reserved; 1005, 1006 and 1015 are never
sent."""


def frame(opcode: int, payload: bytes = b"") -> bytes:
    """Return a whole message in one frame. A server's frames are not masked."""
    size = len(payload)
    if size < 126:
        head = struct.pack("!BB", _FIN | opcode, size)
    elif size < 65_536:
        head = struct.pack("!BBH", _FIN | opcode, 126, size)
    else:
        head = struct.pack("!BBQ", _FIN | opcode, 127, size)
    return head + payload


def text_frame(payload: bytes) -> bytes:
    """Return a text message, which may be sent on any number of sockets.

    :param payload: UTF-8
    """
    return frame(TEXT, payload)


PING_FRAME: Final = frame(PING)


def close_frame(code: int | None, reason: str = "") -> bytes:
    """Return a close frame. A reason that is too long is cut at a character boundary.

    :param code: None, without a reason, if the other side gave none either
    """
    if code is None:
        return frame(CLOSE)
    told = reason.encode()
    if len(told) > REASON_BYTES:
        told = told[:REASON_BYTES].decode(errors="ignore").encode()
    return frame(CLOSE, struct.pack("!H", code) + told)


def head_bytes(beginning: bytes) -> int:
    """Return the length of a frame's header without its mask.

    :param beginning: its first two bytes
    """
    size = beginning[1] & ~_MASKED
    return 2 if size < 126 else 4 if size == 126 else 10


def payload_bytes(head: bytes) -> int:
    """Return the length of a frame's payload.

    :param head: header of `head_bytes` bytes
    """
    if len(head) == 2:
        return head[1] & ~_MASKED
    return int.from_bytes(head[2:], "big")


def is_control(head: bytes) -> bool:
    """Return True if a frame is a close, ping or pong: those may stand between the fragments of a
    message."""
    return bool(head[0] & _CONTROL)


def violation(head: bytes, *, within: bool) -> str | None:
    """Return the violation of RFC 6455 by a client's frame header, or None.

    :param head: header of `head_bytes` bytes
    :param within: True if a fragmented message is incomplete
    """
    opcode = head[0] & _OPCODE
    if head[0] & _RESERVED:
        return "a reserved bit is set"
    if opcode not in _KNOWN:
        return f"unknown opcode {opcode}"
    if not head[1] & _MASKED:
        return "a client must mask its frames"
    if is_control(head):
        if not head[0] & _FIN:
            return "a control frame must not be fragmented"
        return "a control frame has at most 125 bytes" if len(head) > 2 else None
    size = payload_bytes(head)
    if (len(head) == 4 and size < 126) or (len(head) == 10 and not 65_535 < size < 1 << 63):
        return "a length is not encoded in the fewest bytes"
    if within and opcode != CONTINUATION:
        return "a new message inside a fragmented one"
    if not within and opcode == CONTINUATION:
        return "a continuation frame without a message"
    return None


def close_violation(payload: bytes) -> tuple[int, str] | None:
    """Return the close code and the reason for an invalid close payload of a client, or None."""
    if not payload:
        return None
    if len(payload) == 1:
        return PROTOCOL_ERROR, "a close frame has half a code"
    code = int.from_bytes(payload[:2], "big")
    if code not in _SENT_CODES and not 3000 <= code <= 4999:
        return PROTOCOL_ERROR, f"invalid close code {code}"
    return None if is_utf8(payload[2:]) else (NOT_UTF8, "the reason is not UTF-8")


def is_utf8(payload: bytes) -> bool:
    """Return True if the payload is UTF-8."""
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True
