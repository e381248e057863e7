"""Frames made at random, most of them in order and some of them broken: what the node answers is
what a second reader of RFC 6455 says, which sees all bytes at once and is written for nothing
else."""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Callable

import pytest

from protocol import limits
from surfaces.http import frames
from surfaces.http.surface import HttpSurface
from tests.surfaces.http.conftest import Serve
from tests.surfaces.http.sockets import Echo, Frame, Peer, masked, with_echo

PROBE = b"still there?"


class Reader:
    """What is answered to some bytes.

    :ivar told: frames, the last of which may be a close
    :ivar whole: whether the bytes end where a frame does
    """

    def __init__(self, data: bytes) -> None:
        self.told: list[Frame] = []
        self.whole = True
        self._begun: int | None = None
        self._message = b""
        at = 0
        while at < len(data) and not self.closed:
            at = self._frame(data, at)

    @property
    def closed(self) -> bool:
        """Whether the conversation is over."""
        return bool(self.told) and self.told[-1].opcode == 8

    def _close(self, code: int) -> int:
        self.told.append(Frame(8, struct.pack("!H", code)))
        return 1 << 62

    def _frame(self, data: bytes, at: int) -> int:
        """Read one. Answers where the next begins."""
        self.whole = False
        if len(data) < at + 2:
            return len(data)
        fin, reserved, opcode = data[at] >> 7, data[at] >> 4 & 7, data[at] & 15
        short = data[at + 1] & 127
        more = {126: 2, 127: 8}.get(short, 0)
        size = int.from_bytes(data[at + 2 : at + 2 + more], "big") if more else short
        if len(data) < at + 2 + more:  # nothing is said before the head is whole
            return len(data)
        if reserved or opcode not in (0, 1, 2, 8, 9, 10) or not data[at + 1] >> 7:
            return self._close(1002)
        if opcode > 7 and (not fin or more):
            return self._close(1002)
        if more and (size >> 63 or size < {2: 126, 8: 65_536}[more]):
            return self._close(1002)
        if opcode in (1, 2) and self._begun is not None:
            return self._close(1002)
        if opcode == 0 and self._begun is None:
            return self._close(1002)
        if opcode < 8 and len(self._message) + size > limits.SOCKET_MESSAGE_BYTES:
            return self._close(1009)
        at += 2 + more
        if len(data) < at + 4 + size:
            return len(data)
        mask = data[at : at + 4]
        payload = bytes(byte ^ mask[i & 3] for i, byte in enumerate(data[at + 4 : at + 4 + size]))
        self.whole = True
        if opcode > 7:
            self._control(opcode, payload)
        else:
            self._data(opcode, fin, payload)
        return at + 4 + size

    def _control(self, opcode: int, payload: bytes) -> None:
        if opcode == 9:
            self.told.append(Frame(10, payload))
        elif opcode == 8 and len(payload) == 1:
            self._close(1002)
        elif opcode == 8 and payload:
            code = int.from_bytes(payload[:2], "big")
            known = code in (1000, 1001, 1002, 1003) or 1006 < code < 1015 or 2999 < code < 5000
            if not known:
                self._close(1002)
            elif not _text(payload[2:]):
                self._close(1007)
            else:
                self._close(code)
        elif opcode == 8:
            self.told.append(Frame(8, b""))

    def _data(self, opcode: int, fin: int, payload: bytes) -> None:
        self._begun = opcode or self._begun
        self._message += payload
        if not fin:
            return
        assert self._begun is not None
        if self._begun == 1 and not _text(self._message):
            self._close(1007)
        else:
            self.told.append(Frame(self._begun, self._message))
        self._begun, self._message = None, b""


def _text(payload: bytes) -> bool:
    try:
        str(payload, "utf-8")
    except ValueError:
        return False
    return True


def made(rng: random.Random) -> bytes:
    """Some frames."""
    sent, within = bytearray(), False
    for _ in range(rng.randint(1, 8)):
        control = rng.random() < 0.3
        last = control or rng.random() < 0.6
        if control:
            opcode = rng.choice((8, 9, 9, 10))
        else:
            opcode = 0 if within else rng.choice((1, 1, 2))
            within = not last
        size = rng.choice((0, 1, 2, 3, 20, 124, 125) if control else (0, 1, 7, 125, 126, 127, 999))
        payload = rng.choice(
            (b"*" * size, "aé€😀".encode()[: size % 11], rng.randbytes(size), b"\xf0\x9f\x98\x80")
        )
        if opcode == 8:
            code = rng.choice((1000, 1001, 1004, 1005, 1014, 1016, 3000, 4999, 5000))
            payload = rng.choice((b"", b"\x03", code.to_bytes(2, "big") + payload[:100]))
        frame = bytearray(masked(0x80 * last | opcode, payload, mask=rng.randbytes(4)))
        if rng.random() < 0.12:
            at = rng.choice((0, 0, 0, 1, 1, 2, rng.randrange(len(frame))))
            frame[min(at, len(frame) - 1)] ^= 1 << rng.randrange(8)
        sent += frame
    if rng.random() < 0.1:
        del sent[rng.randrange(len(sent)) :]
    return bytes(sent)


async def difference(port: int, bearer: str, data: bytes, rng: random.Random) -> str | None:
    """Where the node and the reader part."""
    expected = Reader(data)
    probed = expected.whole and not expected.closed
    wanted = expected.told + [Frame(10, PROBE)] * probed
    if expected.whole or expected.closed:  # else it would be taken for the rest of a frame
        data += masked(0x89, PROBE)
    found: list[Frame] = []
    async with await Peer.connect(port, None, authorization=bearer) as peer:
        at = rng.randrange(len(data) + 1)
        await peer.send(data[:at])
        await peer.send(data[at:])
        while len(found) < len(wanted) and found == wanted[: len(found)]:
            frame = await peer.frame()
            found.append(Frame(8, frame.payload[:2]) if frame.opcode == 8 else frame)
        if found == wanted and expected.closed:
            found += await peer.rest()
    return None if found == wanted else f"{data.hex()}: {found}, not {wanted}"


@pytest.fixture
async def surface(serve: Serve) -> HttpSurface:
    """A surface with the echo among its routes."""
    found = await serve()
    with_echo(found)
    return found


@pytest.mark.parametrize("count", [500, pytest.param(10_000, marks=pytest.mark.hard)])
async def test_frames_at_random(
    port: int, bearer: str, count: int, figure: Callable[[str, object], None]
) -> None:
    ends: Counter[str] = Counter()
    for seed in range(count):
        rng = random.Random(seed)
        data = made(rng)
        assert await difference(port, bearer, data, rng) is None, seed
        told = Reader(data).told
        closed = told and told[-1].opcode == 8
        ends[str(told[-1].code) if closed else "goes on"] += 1
    assert len(ends) > 5
    figure("RFC 6455 at random", f"{count} conversations, which ended {dict(sorted(ends.items()))}")


async def test_a_difference_is_seen(
    port: int, bearer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def differs() -> bool:
        for seed in range(500):
            rng = random.Random(seed)
            if await difference(port, bearer, made(rng), rng) is not None:
                return True
        return False

    codes = frozenset(frames._SENT_CODES) | {1016}
    for name, planted in (("_SENT_CODES", codes), ("is_utf8", lambda _payload: True)):
        with monkeypatch.context() as patched:
            patched.setattr(frames, name, planted)
            assert await differs()
    assert Echo.refused is None
