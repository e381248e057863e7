"""A WebSocket client that sends exactly the bytes it is told to, and a route that echoes."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import ssl
import struct
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import pytest

from protocol.errors import Refusal
from protocol.requests import Caller
from surfaces.http import frames
from surfaces.http.exchange import Route
from surfaces.http.intake import Intake
from surfaces.http.routes import ROUTES
from surfaces.http.surface import HttpSurface
from surfaces.http.websocket import Socket, text_frame
from tests.surfaces.http.conftest import Serve
from tests.surfaces.http.raw import PATIENCE_SECONDS, Answer, Raw, parse_head

SPOKEN: Final = "store.watch.v1"
KEY: Final = "dGhlIHNhbXBsZSBub25jZQ=="
MAGIC: Final = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Echo(Socket):
    """Answers each message with the same. `refused` is what the next one is refused with."""

    subprotocol = SPOKEN
    refused: ClassVar[Refusal | None] = None
    standing: ClassVar[list[Echo]] = []
    told: ClassVar[list[str]] = []
    """What happened to any of them."""
    echoed: ClassVar[int] = 0
    """Messages of any of them."""
    who: Caller

    async def admit(self, who: Caller) -> None:
        self.who = who
        if Echo.refused is not None:
            raise Echo.refused

    def opened(self) -> None:
        Echo.standing.append(self)
        Echo.told.append("opened")

    async def received(self, message: str | bytes) -> None:
        if message == "fail":
            raise ZeroDivisionError(message)
        if isinstance(message, str):
            self.send(text_frame(message.encode()))
        else:
            self.send(frames.frame(frames.BINARY, message))
        Echo.echoed += 1

    def has_room(self) -> None:
        Echo.told.append("room")

    def parted(self, code: int) -> None:
        if self in Echo.standing:  # a test may have had it not come so far
            Echo.standing.remove(self)
        Echo.told.append(f"parted {code}")


def with_echo(surface: HttpSurface, handler: type[Socket] = Echo) -> None:
    """Let a surface answer GET /echo too."""
    route = Route("GET", "/echo", handler=handler, credential="required", upgrades=True)
    surface.intake = Intake(surface, (*ROUTES, route))


@pytest.fixture
async def surface(serve: Serve) -> HttpSurface:
    """A surface with the echo among its routes."""
    found = await serve()
    with_echo(found)
    return found


@pytest.fixture(autouse=True)
def nobody_before() -> Iterator[None]:
    """Each test sees its own sockets only, and leaves none."""
    Echo.told.clear()
    Echo.refused = None
    yield
    assert Echo.standing == []


def asks(**fields: str | None) -> bytes:
    """A request for the echo's socket; a field that is None is left out."""
    lines: dict[str, str | None] = {
        "Host": "localhost",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": KEY,
    }
    names = {name.lower(): name for name in lines}
    for name, value in fields.items():
        name = name.replace("_", "-")
        lines[names.get(name.lower(), name)] = value
    shown = [f"{name}: {value}" for name, value in lines.items() if value is not None]
    return "\r\n".join(["GET /echo HTTP/1.1", *shown]).encode("latin-1") + b"\r\n\r\n"


def masked(head: int, payload: bytes = b"", *, mask: bytes | None = None) -> bytes:
    """A client's frame. :param head: its first byte"""
    mask = os.urandom(4) if mask is None else mask
    size = len(payload)
    if size < 126:
        begins = struct.pack("!BB", head, 0x80 | size)
    elif size < 65_536:
        begins = struct.pack("!BBH", head, 0x80 | 126, size)
    else:
        begins = struct.pack("!BBQ", head, 0x80 | 127, size)
    return begins + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))


@dataclass(frozen=True)
class Frame:
    opcode: int
    payload: bytes

    @property
    def code(self) -> int | None:
        assert self.opcode == frames.CLOSE
        return struct.unpack("!H", self.payload[:2])[0] if self.payload else None

    @property
    def json(self) -> Any:
        assert self.opcode == frames.TEXT
        return json.loads(self.payload)


class Peer:
    """One connection, from its upgrade on."""

    def __init__(self, raw: Raw) -> None:
        self.raw = raw
        self.answer: Answer

    @classmethod
    async def connect(
        cls, port: int, tls: ssl.SSLContext | None = None, /, **fields: str | None
    ) -> Peer:
        peer = cls(await Raw.connect(port, tls))
        await peer.upgrade(**fields)
        return peer

    async def upgrade(self, **fields: str | None) -> None:
        await self.begin(asks(**fields))

    async def begin(self, asks: bytes) -> None:
        await self.raw.send(asks)
        async with asyncio.timeout(PATIENCE_SECONDS):
            status, told = parse_head(await self.raw.reader.readuntil(b"\r\n\r\n"))
        assert status == 101, await self.raw.reader.read(4096)
        digest = hashlib.sha1(KEY.encode() + MAGIC.encode()).digest()
        assert told["sec-websocket-accept"] == base64.b64encode(digest).decode()
        assert told["connection"] == "Upgrade"
        assert told["upgrade"] == "websocket"
        self.answer = Answer(status, told, b"")

    async def __aenter__(self) -> Peer:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.raw.__aexit__(*exc)

    async def send(self, data: bytes) -> None:
        await self.raw.send(data)

    async def text(self, text: str) -> None:
        await self.send(masked(0x81, text.encode()))

    async def frame(self) -> Frame:
        """The next frame; the node's are whole messages, without mask or reserved bits, and
        their length takes as few bytes as it can."""
        reader = self.raw.reader
        async with asyncio.timeout(PATIENCE_SECONDS):
            first, size = await reader.readexactly(2)
            assert first & 0xF0 == 0x80
            assert not size & 0x80
            if size == 126:
                size = int.from_bytes(await reader.readexactly(2), "big")
                assert size > 125
            elif size == 127:
                size = int.from_bytes(await reader.readexactly(8), "big")
                assert size > 65_535
            return Frame(first & 0x0F, await reader.readexactly(size))

    async def frames(self) -> AsyncIterator[Frame]:
        while True:
            try:
                yield await self.frame()
            except (asyncio.IncompleteReadError, ConnectionResetError):
                return

    async def rest(self) -> list[Frame]:
        return [frame async for frame in self.frames()]


async def asked(raw: Raw, target: str, **fields: str | None) -> Answer:
    """What a request for a WebSocket is answered; or the first that is told on it, when it
    stands, as if that had been answered."""
    async with Peer(raw) as peer:
        await peer.send(asks(**fields).replace(b"/echo", target.encode(), 1))
        answer = await raw.answer()
        if answer.status != 101:
            return answer
        told = await peer.frame()
        error = told.json.get("error")
        return Answer(200 if error is None else error["status"], {}, told.payload)
