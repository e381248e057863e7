"""RFC 6455, written out: what a client sends on an open socket, and all that the node answers.

Each case is sent whole, in two pieces and byte by byte. Behind what the node must not bear comes a
ping, so that one that bears it answers at once; behind the rest comes a goodbye.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tornado.websocket import WebSocketProtocol13

from protocol import limits
from surfaces.http import frames
from surfaces.http.rfc6455 import WebSocketConversation
from tests.surfaces.http.sockets import Echo, Frame, Peer, masked, nobody_before, surface

__all__ = ["nobody_before", "surface"]

MOST = limits.SOCKET_MESSAGE_BYTES
FIN = 0x80
PROBE = masked(FIN | frames.PING, b"still there?")
GOODBYE = masked(FIN | frames.CLOSE, b"\x03\xe8")


@dataclass(frozen=True)
class Case:
    """:ivar answered: all frames up to the end of the connection
    :ivar borne: whether the conversation goes on, so that it takes a goodbye to end it
    """

    name: str
    sent: bytes
    answered: tuple[Frame, ...]
    borne: bool = True


def text(payload: bytes, *, last: bool = True) -> bytes:
    return masked((FIN if last else 0) | frames.TEXT, payload)


def binary(payload: bytes, *, last: bool = True) -> bytes:
    return masked((FIN if last else 0) | frames.BINARY, payload)


def more(payload: bytes, *, last: bool = True) -> bytes:
    return masked((FIN if last else 0) | frames.CONTINUATION, payload)


def ping(payload: bytes = b"") -> bytes:
    return masked(FIN | frames.PING, payload)


def close(payload: bytes = b"") -> bytes:
    return masked(FIN | frames.CLOSE, payload)


def code(number: int, reason: bytes = b"") -> bytes:
    return struct.pack("!H", number) + reason


def echoed(name: str, sent: bytes, *answered: Frame) -> Case:
    return Case(name, sent, (*answered, Frame(frames.CLOSE, code(1000))))


def broken(name: str, sent: bytes, number: int, *before: Frame) -> Case:
    """What ends the conversation with a code of the node's."""
    return Case(name, sent, (*before, Frame(frames.CLOSE, code(number))), borne=False)


TEXT, BINARY, PONG = frames.TEXT, frames.BINARY, frames.PONG
HELLO = Frame(TEXT, b"hello")


def lengths() -> Iterator[Case]:
    for size in (0, 1, 125, 126, 127, 128, 65_535, 65_536):
        payload = b"*" * size
        yield echoed(f"text of {size}", text(payload), Frame(TEXT, payload))
        payload = bytes(at % 256 for at in range(size))
        yield echoed(f"binary of {size}", binary(payload), Frame(BINARY, payload))
    zeros = bytes(4)
    for shown, head in (
        ("0 in 16 bits", b"\x81\xfe\x00\x00"),
        ("125 in 16 bits", b"\x81\xfe\x00\x7d"),
        ("0 in 64 bits", b"\x81\xff" + bytes(8)),
        ("125 in 64 bits", b"\x81\xff" + (125).to_bytes(8, "big")),
        ("65535 in 64 bits", b"\x81\xff" + (65_535).to_bytes(8, "big")),
        ("the top bit of 64", b"\x81\xff\x80" + bytes(7)),
        ("a ping of 126", b"\x89\xfe\x00\x7e"),
        ("a ping in 16 bits", b"\x89\xfe\x00\x01"),
        ("a pong of 126", b"\x8a\xfe\x00\x7e"),
        ("a pong in 64 bits", b"\x8a\xff" + bytes(8)),
        ("a close of 126", b"\x88\xfe\x00\x7e"),
        ("a close in 64 bits", b"\x88\xff" + bytes(8)),
    ):
        yield broken(f"length: {shown}", head + zeros, 1002)
        yield broken(
            f"length: {shown}, after a message", text(b"hello") + head + zeros, 1002, HELLO
        )


def sizes() -> Iterator[Case]:
    full = b"*" * MOST
    yield broken("one byte too many", text(full + b"*"), 1009)
    yield broken("one byte too many, binary", binary(full + b"*"), 1009)
    yield broken("too many, only said", b"\x81\xff" + (MOST + 1).to_bytes(8, "big"), 1009)
    yield broken("2**62, only said", b"\x82\xff" + (1 << 62).to_bytes(8, "big"), 1009)
    yield broken("one byte too many in parts", text(full, last=False) + more(b"*"), 1009)
    halves = text(full[: MOST // 2], last=False) + more(full[: MOST // 2], last=False)
    yield broken("too many in three parts", halves + more(b"*"), 1009)
    yield echoed("the most in three parts", halves + more(b""), Frame(TEXT, full))
    yield echoed(
        "the most, and a ping before its end",
        halves + ping(b"p" * 125) + more(b""),
        Frame(PONG, b"p" * 125),
        Frame(TEXT, full),
    )
    yield broken(
        "too many behind a message", text(b"hello") + b"\x81\xff" + (1 << 40).to_bytes(8, "big"),
        1009, HELLO,
    )  # fmt: skip


def pings() -> Iterator[Case]:
    for payload in (b"", b"a", b"\x00\xff\xfe", b"p" * 124, b"p" * 125):
        yield echoed(f"ping of {len(payload)}", ping(payload), Frame(PONG, payload))
        unasked = masked(FIN | frames.PONG, payload)
        yield echoed(f"pong of {len(payload)} unasked", unasked)
        yield echoed(f"pong of {len(payload)}, then ping", unasked + ping(b"x"), Frame(PONG, b"x"))
    many = [b"%d" % number for number in range(10)]
    yield echoed(
        "ten pings", b"".join(map(ping, many)), *(Frame(PONG, payload) for payload in many)
    )
    yield echoed("a mask of zeros", masked(0x81, b"hello", mask=bytes(4)), HELLO)
    yield echoed("a mask of ones", masked(0x81, b"hello", mask=b"\xff" * 4), HELLO)


def reserved() -> Iterator[Case]:
    for bits in range(0x10, 0x80, 0x10):
        yield broken(f"reserved bits {bits:#x}: text", masked(FIN | bits | TEXT, b"hello"), 1002)
        yield broken(f"reserved bits {bits:#x}: binary", masked(FIN | bits | BINARY, b"a"), 1002)
        yield broken(f"reserved bits {bits:#x}: ping", masked(FIN | bits | frames.PING), 1002)
        yield broken(f"reserved bits {bits:#x}: close", masked(FIN | bits | frames.CLOSE), 1002)
        begun = text(b"hel", last=False)
        yield broken(f"reserved bits {bits:#x}: more", begun + masked(FIN | bits, b"lo"), 1002)
        behind = text(b"hello") + masked(FIN | bits | TEXT, b"hello")
        yield broken(f"reserved bits {bits:#x}: second", behind, 1002, HELLO)
    for opcode in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15):
        yield broken(f"opcode {opcode}", masked(FIN | opcode), 1002)
        yield broken(f"opcode {opcode} with a payload", masked(FIN | opcode, b"hello"), 1002)
        yield broken(f"opcode {opcode} in parts", masked(opcode, b"hello"), 1002)
        behind = text(b"hello") + masked(FIN | opcode, b"hello")
        yield broken(f"opcode {opcode}, second", behind, 1002, HELLO)
    for opcode in (TEXT, BINARY, frames.CLOSE, frames.PING, PONG):
        for payload in (b"", b"hello"):
            sent = frames.frame(opcode, payload)
            yield broken(f"opcode {opcode}, {len(payload)} bytes without a mask", sent, 1002)
    begun = text(b"hel", last=False) + b"\x80\x02lo"
    yield broken("a part without a mask", begun, 1002)
    yield broken("a line of HTTP", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 1002)


def parts() -> Iterator[Case]:
    a, z = text(b"hel", last=False), more(b"lo")
    yield echoed("two parts", a + z, HELLO)
    yield echoed("two parts, binary", binary(b"hel", last=False) + z, Frame(BINARY, b"hello"))
    yield echoed("the first empty", text(b"", last=False) + more(b"hello"), HELLO)
    yield echoed("the last empty", text(b"hello", last=False) + more(b""), HELLO)
    nothing = text(b"", last=False) + more(b"", last=False) + more(b"")
    yield echoed("all empty", nothing, Frame(TEXT, b""))
    singles = b"".join(more(b"%c" % byte, last=False) for byte in b"ello")
    yield echoed("a part for each byte", text(b"h", last=False) + singles + more(b""), HELLO)
    thousand = b"".join(more(b"*", last=False) for _ in range(999))
    whole = Frame(TEXT, b"*" * 1000)
    yield echoed("a thousand parts", text(b"*", last=False) + thousand + more(b""), whole)
    yield echoed("twice two parts", (a + z) * 2, HELLO, HELLO)
    for shown, between, told in (
        ("a ping", ping(b"p"), [Frame(PONG, b"p")]),
        ("three pings", ping(b"1") + ping(b"2") + ping(b"3"),
         [Frame(PONG, b"1"), Frame(PONG, b"2"), Frame(PONG, b"3")]),
        ("a pong", masked(FIN | PONG, b"p"), []),
        ("an empty part", more(b"", last=False), []),
    ):  # fmt: skip
        yield echoed(f"{shown} between parts", a + between + z, *told, HELLO)
    yield Case("a close between parts", a + close(code(1001)), (Frame(8, code(1001)),), borne=False)
    yield broken("a part of nothing", more(b"lo"), 1002)
    yield broken("a part of nothing that is not the last", more(b"lo", last=False), 1002)
    yield broken("a part behind a message", text(b"hello") + more(b"lo"), 1002, HELLO)
    yield broken("a part behind a message of parts", a + z + more(b"lo"), 1002, HELLO)
    for shown, inner in (("text", text), ("binary", binary)):
        yield broken(f"{shown} inside a message", a + inner(b"hello"), 1002)
        yield broken(f"{shown} begun inside a message", a + inner(b"hello", last=False), 1002)
    for opcode in (frames.CLOSE, frames.PING, PONG):
        for payload in (b"", b"p"):
            shown = f"opcode {opcode} in parts, {len(payload)} bytes"
            yield broken(shown, masked(opcode, payload), 1002)
            yield broken(f"{shown}, inside a message", a + masked(opcode, payload), 1002)


GOOD = (
    "κόσμε", "\0", "\x7f", "\x80", "\u07ff", "\u0800", "\ud7ff", "\ue000", "\ufffd", "\uffff",
    "\U00010000", "\U0010ffff", "\ufeffhello", "aé€😀z",
)  # fmt: skip
BAD = (
    b"\x80", b"\xbf", b"\xff", b"\xfe", b"\xc0\xaf", b"\xc1\xbf", b"\xe0\x80\xaf", b"\xe0\x9f\xbf",
    b"\xf0\x80\x80\xaf", b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80",
    b"\xf8\x88\x80\x80\x80", b"\xfc\x84\x80\x80\x80\x80", b"\xed\xa0\x80", b"\xed\xbf\xbf",
    b"\xed\xa0\x80\xed\xb0\x80", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xc3(", b"\xe2(\xa1",
)  # fmt: skip


def unicode() -> Iterator[Case]:
    for good in GOOD:
        payload = good.encode()
        yield echoed(f"text {good!a}", text(payload), Frame(TEXT, payload))
        for at in range(1, len(payload)):
            sent = text(payload[:at], last=False) + ping() + more(payload[at:])
            told = Frame(PONG, b""), Frame(TEXT, payload)
            yield echoed(f"text {good!a} parted at {at}", sent, *told)
    for bad in BAD:
        yield broken(f"bytes {bad.hex()}", text(bad), 1007)
        yield broken(f"bytes {bad.hex()} within", text(b"abc" + bad + b"def"), 1007)
        behind = text(b"hello") + text("é".encode() + bad)
        yield broken(f"bytes {bad.hex()}, second", behind, 1007, HELLO)
        for at in range(1, len(bad)):
            sent = text(bad[:at], last=False) + more(bad[at:])
            yield broken(f"bytes {bad.hex()} parted at {at}", sent, 1007)
        yield echoed(f"binary {bad.hex()}", binary(bad), Frame(BINARY, bad))
        yield echoed(f"ping {bad.hex()}", ping(bad), Frame(PONG, bad))
    long = "aé€😀".encode() * 20
    for at in range(0, len(long), 7):
        yield broken(f"a bad byte at {at}", text(long[:at] + b"\xff" + long[at:]), 1007)
    yield broken("a bad byte at the end", text(b"*" * (MOST - 1) + b"\xc3"), 1007)


FIT = (
    1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 3999, 4000, 4999,
)  # fmt: skip
UNFIT = (0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 1999, 2000, 2999, 5000, 65_535)


def closes() -> Iterator[Case]:
    def answered(name: str, sent: bytes, payload: bytes, *before: Frame) -> Case:
        return Case(name, sent, (*before, Frame(frames.CLOSE, payload)), borne=False)

    yield answered("a close without a code", close(), b"")
    for number in FIT:
        yield answered(f"close {number}", close(code(number)), code(number))
        yield answered(f"close {number}, reason", close(code(number, b"bye")), code(number))
    for number in UNFIT:
        yield broken(f"close {number}", close(code(number)), 1002)
        yield broken(f"close {number}, reason", close(code(number, b"bye")), 1002)
    yield broken("a close of one byte", close(b"\x03"), 1002)
    yield answered("the longest reason", close(code(1000, b"*" * 123)), code(1000))
    yield answered("a reason beyond ASCII", close(code(1000, "aé€😀".encode())), code(1000))
    for bad in BAD:
        yield broken(f"reason {bad.hex()}", close(code(1000, bad)), 1007)
    after = close(code(1000))
    yield answered("a message behind a close", after + text(b"hello"), code(1000))
    yield answered("a ping behind a close", after + ping(b"p"), code(1000))
    yield answered("a second close", after + close(code(1001)), code(1000))
    yield answered("a bad frame behind a close", after + b"\xff\xff", code(1000))
    yield answered("a message before a close", text(b"hello") + after, code(1000), HELLO)
    pair = text(b"hello") + ping(b"p") + after
    yield answered(
        "a message and a ping before a close", pair, code(1000), HELLO, Frame(PONG, b"p")
    )
    yield broken("a reserved bit, then a close", masked(0xC1, b"a") + after, 1002)


GROUPS = {
    "lengths": lengths, "sizes": sizes, "pings": pings, "reserved": reserved, "parts": parts,
    "unicode": unicode, "closes": closes,
}  # fmt: skip
PIECES = ("whole", "in two", "in bytes")
TRICKLED = 700
"""Bytes up to which a case is sent byte by byte."""


async def told(peer: Peer, expected: tuple[Frame, ...]) -> list[Frame]:
    """All frames up to the end of the connection, or to the first that is not the expected one.
    Why it was closed is for people: the code is what a program goes by."""
    found: list[Frame] = []
    async for frame in peer.frames():
        if frame.opcode == frames.CLOSE:
            frame = Frame(frame.opcode, frame.payload[:2])
        found.append(frame)
        if found != list(expected[: len(found)]):
            break
    return found


async def problem(port: int, bearer: str, case: Case, pieces: str) -> str | None:
    """What the node did otherwise than the case says."""
    sent = case.sent + (GOODBYE if case.borne else PROBE)
    async with await Peer.connect(port, None, authorization=bearer) as peer:
        reading = asyncio.create_task(told(peer, case.answered))
        if pieces == "whole":
            await peer.send(sent)
        elif pieces == "in two":
            await peer.send(sent[: len(case.sent) // 2])
            await asyncio.sleep(0)
            await peer.send(sent[len(case.sent) // 2 :])
        elif len(sent) <= TRICKLED:
            await peer.raw.trickle(sent, reading.done)
        else:
            await peer.send(sent)
        found = await reading
    if found == list(case.answered):
        return None
    return f"{case.name}, {pieces}: {str(found)[:200]}, not {str(case.answered)[:200]}"


async def problems(
    port: int, bearer: str, cases: Iterable[Case], ways: Iterable[str] = PIECES
) -> list[str]:
    """All that the node did otherwise."""
    found = [await problem(port, bearer, case, pieces) for case in cases for pieces in ways]
    return [one for one in found if one is not None]


@pytest.mark.parametrize("group", GROUPS)
async def test_what_a_client_sends_is_answered_by_the_rules(
    port: int, bearer: str, group: str, figure: Callable[[str, object], None]
) -> None:
    cases = list(GROUPS[group]())
    assert len({case.name for case in cases}) == len(cases)
    assert await problems(port, bearer, cases) == []
    assert Echo.standing == []
    figure(f"RFC 6455, {group}", f"{len(cases)} cases, each {', '.join(PIECES)}")


def _nothing(*_args: Any, **_kwargs: Any) -> None:
    return None


FAULTS: dict[str, tuple[Any, str, Any, str]] = {
    "frames are not judged": (frames, "violation", _nothing, "reserved"),
    "parts are not judged": (
        frames, "violation",
        lambda head, within, judge=frames.violation: judge(head, within=not head[0] & 15), "parts",
    ),
    "close frames are not judged": (frames, "close_violation", _nothing, "closes"),
    "codes are not judged": (frames, "_SENT_CODES", frozenset(range(65_536)), "closes"),
    "text is not judged": (frames, "is_utf8", lambda _payload: True, "closes"),
    "text is judged by halves": (
        frames, "is_utf8", lambda payload: not payload.endswith(b"\xff"), "unicode",
    ),
    "a limit one too high": (limits, "SOCKET_MESSAGE_BYTES", MOST + 1, "sizes"),
    "a limit one too low": (limits, "SOCKET_MESSAGE_BYTES", MOST - 1, "lengths"),
    "pings are not answered": (WebSocketProtocol13, "_send_pong", _nothing, "pings"),
    "Tornado's frames": (
        WebSocketConversation, "_receive_frame", WebSocketProtocol13._receive_frame, "reserved",
    ),
    "Tornado's messages": (
        WebSocketConversation, "_handle_message", WebSocketProtocol13._handle_message, "closes",
    ),
}  # fmt: skip


async def test_faults_are_seen(port: int, bearer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each case whose bytes leave nothing unsaid, so that the probe behind them is read."""
    unseen = []
    for fault, (place, name, planted, group) in FAULTS.items():
        cases = [case for case in GROUPS[group]() if "only said" not in case.name]
        with monkeypatch.context() as patched:
            patched.setattr(place, name, planted)
            if not await problems(port, bearer, cases, ["whole"]):
                unseen.append(fault)
    assert unseen == []
