"""What a peer without a credential can make the wire surface log, hold and wait for."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from typing import Any

import pytest

from protocol.conversation import Conversation
from protocol.errors import SessionEnded
from protocol.frames import Kind, encode
from protocol.requests import Caller
from surfaces import logs
from surfaces.wire import WireSurface, bodies
from tests.logbook import Logbook
from tests.surfaces.wire.peers import FakeNode, connected, serving, until

GREETING = {"magic": "STORE", "major": 1, "minor": [0, 0]}


@pytest.fixture
def node() -> FakeNode:
    return FakeNode()


@pytest.fixture
async def surface(node: FakeNode) -> AsyncIterator[WireSurface]:
    async with serving(node) as surface:
        yield surface


async def reset(surface: WireSurface, data: bytes) -> None:
    """Send, and be gone with a reset."""
    loop = asyncio.get_running_loop()
    peer = socket.socket()
    peer.setblocking(False)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    await loop.sock_connect(peer, surface.address)
    await loop.sock_sendall(peer, data)
    peer.close()


GREETINGS: list[dict[str, Any]] = [
    GREETING,
    {**GREETING, "token": "junk"},
    {**GREETING, "user": "ana", "password": "wrong"},
    {**GREETING, "magic": "other"},
    {**GREETING, "major": 7},
]


class TestNothingIsLogged:
    @pytest.mark.parametrize("hello", GREETINGS)
    async def test_a_greeting_half_a_frame_and_gone(
        self, surface: WireSurface, logbook: Logbook, hello: dict[str, Any]
    ) -> None:
        """Each left a traceback: the node ended its side of a connection that was no more."""
        half = encode(Kind.RUN, 1, {"script": "x" * 500})[:300]
        for behind in (half, b"", b"\x00\x00\x00\x00"):
            for _ in range(10):
                await reset(surface, encode(Kind.HELLO, 0, hello) + behind)
        await until(lambda: not surface.held)
        assert not logbook.events

    async def test_gone_while_the_node_judges_it(
        self,
        surface: WireSurface,
        node: FakeNode,
        monkeypatch: pytest.MonkeyPatch,
        logbook: Logbook,
    ) -> None:
        await gone_while_judged(surface, node, monkeypatch)
        await until(lambda: not surface.held)
        assert not logbook.events

    async def test_the_rule_is_what_keeps_it_so(
        self,
        surface: WireSurface,
        node: FakeNode,
        monkeypatch: pytest.MonkeyPatch,
        logbook: Logbook,
    ) -> None:
        """Planted: the end of our side as asyncio has it."""
        logbook.allow("work for a connection failed")

        def naked(transport: asyncio.Transport) -> bool:
            transport.write_eof()
            return True

        monkeypatch.setattr("surfaces.wire.connection.half_close", naked)
        await gone_while_judged(surface, node, monkeypatch)
        await until(lambda: logbook.loud)
        await surface.close()


async def gone_while_judged(
    surface: WireSurface, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer closes its socket in the very turn in which the node refuses its token: the refusal is
    answered with a reset at once, and the end that follows it meets no connection."""
    loop = asyncio.get_running_loop()
    peer = socket.socket()
    peer.setblocking(False)
    asked = loop.create_future()

    async def caller(token: str, address: str) -> Caller:
        peer.close()
        asked.set_result(None)
        raise SessionEnded("the session has ended")

    monkeypatch.setattr(node, "_caller", caller)
    await loop.sock_connect(peer, surface.address)
    await loop.sock_sendall(peer, encode(Kind.HELLO, 0, GREETINGS[1]) + b"\x00\x00\x01\x00abc")
    async with asyncio.timeout(10):
        await asked


class TestABugIsALineASecond:
    async def test_before_anybody_signed_in(
        self, surface: WireSurface, monkeypatch: pytest.MonkeyPatch, logbook: Logbook
    ) -> None:
        logbook.allow("a request failed|not logged one by one")
        monkeypatch.setattr(logs, "SPARING_SECONDS", 600)

        def planted(*_args: object) -> None:
            raise RuntimeError("planted")

        monkeypatch.setattr(bodies, "read_hello", planted)
        for _ in range(30):
            async with connected(surface) as peer:
                peer.say(Kind.HELLO, 0, GREETING)
                assert "Failed" in str(await peer.must_hear(Kind.REFUSED))
        assert logbook.names() == ["a request failed"]
        await surface.close()
        assert logbook.events[1]["times"] == {"a request failed": 29}

    async def test_in_what_the_loop_calls(
        self, surface: WireSurface, monkeypatch: pytest.MonkeyPatch, logbook: Logbook
    ) -> None:
        logbook.allow("a connection failed|not logged one by one")
        monkeypatch.setattr(logs, "SPARING_SECONDS", 600)

        def planted(*_args: object) -> None:
            raise RuntimeError("planted")

        monkeypatch.setattr(Conversation, "next", planted)
        for _ in range(30):
            await reset(surface, encode(Kind.HELLO, 0, GREETING))
        await until(lambda: surface._wire.made == 30 and not surface.held)
        assert logbook.names() == ["a connection failed"]
        await surface.close()
        assert logbook.events[1]["times"] == {"a connection failed": 29}

    async def test_of_who_signed_in_each_is_logged(
        self, surface: WireSurface, logbook: Logbook
    ) -> None:
        """Its answer says that the log has the trace."""
        logbook.allow("a request failed")
        async with connected(surface) as peer:
            await peer.sign_in()
            for id in range(1, 4):
                assert (await peer.run(id, "BREAK")).kind is Kind.ERROR
        assert logbook.names() == ["a request failed"] * 3
