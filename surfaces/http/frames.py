"""Frames of RFC 6455 as bytes: those that the node sends, and how a client's are judged."""

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
"""How it is called that a close frame said none …"""
CUT: Final = 1006
"""… and that there was no close frame. Neither is ever sent."""
NOT_UTF8: Final = 1007
TOO_BIG: Final = 1009
NODE_FAILED: Final = 1011
TRY_LATER: Final = 1013
REFUSED: Final = 4000
"""… and the status that HTTP has for it: 4401 is SignInRefused or SessionEnded."""

REASON_BYTES: Final = 123
"""A control frame carries 125, two of which are the code."""

_FIN: Final = 0x80
_RESERVED: Final = 0x70
_OPCODE: Final = 0x0F
_CONTROL: Final = 0x08
_MASKED: Final = 0x80
_KNOWN: Final = frozenset({CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG})
_SENT_CODES: Final = frozenset({1000, 1001, 1002, 1003, *range(1007, 1015)})
"""Registered ones that may stand in a frame: 1004 is reserved, 1005, 1006 and 1015 only tell a
program what never was sent."""


def frame(opcode: int, payload: bytes = b"") -> bytes:
    """A whole message in one frame, as a server sends it: not masked."""
    size = len(payload)
    if size < 126:
        head = struct.pack("!BB", _FIN | opcode, size)
    elif size < 65_536:
        head = struct.pack("!BBH", _FIN | opcode, 126, size)
    else:
        head = struct.pack("!BBQ", _FIN | opcode, 127, size)
    return head + payload


def text_frame(payload: bytes) -> bytes:
    """A text message. Made once, it may be sent on any number of sockets.

    :param payload: UTF-8
    """
    return frame(TEXT, payload)


PING_FRAME: Final = frame(PING)


def close_frame(code: int | None, reason: str = "") -> bytes:
    """The last frame. A reason that is too long is cut between two characters.

    :param code: None, and no reason, where the other side gave none either
    """
    if code is None:
        return frame(CLOSE)
    told = reason.encode()
    if len(told) > REASON_BYTES:
        told = told[:REASON_BYTES].decode(errors="ignore").encode()
    return frame(CLOSE, struct.pack("!H", code) + told)


def head_bytes(beginning: bytes) -> int:
    """How long the head of a frame is without its mask. :param beginning: its first two bytes"""
    size = beginning[1] & ~_MASKED
    return 2 if size < 126 else 4 if size == 126 else 10


def payload_bytes(head: bytes) -> int:
    """How long its payload is. :param head: as long as `head_bytes` says"""
    if len(head) == 2:
        return head[1] & ~_MASKED
    return int.from_bytes(head[2:], "big")


def is_control(head: bytes) -> bool:
    """Whether a frame is a close, a ping or a pong: those may stand between the parts of a
    message."""
    return bool(head[0] & _CONTROL)


def violation(head: bytes, *, within: bool) -> str | None:
    """What RFC 6455 has against a client's frame with that head, None when nothing.

    :param head: as long as `head_bytes` says
    :param within: whether a message has begun and its last part has not come
    """
    opcode = head[0] & _OPCODE
    if head[0] & _RESERVED:
        return "a reserved bit is set"
    if opcode not in _KNOWN:
        return f"there is no opcode {opcode}"
    if not head[1] & _MASKED:
        return "a client masks its frames"
    if is_control(head):
        if not head[0] & _FIN:
            return "a control frame comes in parts"
        return "a control frame has at most 125 bytes" if len(head) > 2 else None
    size = payload_bytes(head)
    if (len(head) == 4 and size < 126) or (len(head) == 10 and not 65_535 < size < 1 << 63):
        return "a length takes more bytes than it needs"
    if within and opcode != CONTINUATION:
        return "a message begins inside another"
    if not within and opcode == CONTINUATION:
        return "nothing has begun that could go on"
    return None


def close_violation(payload: bytes) -> tuple[int, str] | None:
    """What is wrong with what a client's close frame says, and the code that it is answered with;
    None when nothing."""
    if not payload:
        return None
    if len(payload) == 1:
        return PROTOCOL_ERROR, "a close frame has a whole code or none"
    code = int.from_bytes(payload[:2], "big")
    if code not in _SENT_CODES and not 3000 <= code <= 4999:
        return PROTOCOL_ERROR, f"{code} is no code to close with"
    return None if is_utf8(payload[2:]) else (NOT_UTF8, "the reason is not UTF-8")


def is_utf8(payload: bytes) -> bool:
    """Whether it is."""
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True
