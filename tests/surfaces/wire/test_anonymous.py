"""What a peer without a credential can make the wire surface log, hold and wait for."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any

import pytest

from protocol import limits
from protocol.conversation import HELLO_BYTES, ConnectionState, Conversation
from protocol.errors import SessionEnded
from protocol.frames import MessageKind, encode
from protocol.requests import Caller, Session
from surfaces import logs
from surfaces.wire import WireSurface, bodies
from tests.logbook import Logbook
from tests.surfaces.wire.peers import PASSWORD, USER, FakeNode, connected, until

GREETING = {"magic": "STORE", "major": 1, "minor": [0, 0]}


async def reset(surface: WireSurface, data: bytes) -> None:
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
        half = encode(MessageKind.RUN, 1, {"script": "x" * 500})[:300]
        for behind in (half, b"", b"\x00\x00\x00\x00"):
            for _ in range(10):
                await reset(surface, encode(MessageKind.HELLO, 0, hello) + behind)
        await until(lambda: surface._wire.made == 30 and not surface.held)
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
    await loop.sock_sendall(
        peer, encode(MessageKind.HELLO, 0, GREETINGS[1]) + b"\x00\x00\x01\x00abc"
    )
    async with asyncio.timeout(10):
        await asked


class TestGreetingLimits:
    """They hold until somebody has signed in: a HELLO without a user is no way around them."""

    async def test_a_frame_stays_small(self, surface: WireSurface) -> None:
        async with connected(surface) as peer:
            await peer.greet()
            peer.writer.write((HELLO_BYTES + 1).to_bytes(4, "big") + bytes(100))
            assert "TooLarge" in str(await peer.must_hear(MessageKind.ERROR))
            assert await peer.closed()

    async def test_it_grows_with_a_user_and_shrinks_with_a_sign_out(
        self, surface: WireSurface
    ) -> None:
        big = {"script": "RETURN", "params": {"v": "x" * HELLO_BYTES}}
        async with connected(surface) as peer:
            await peer.greet()
            peer.say(MessageKind.AUTH, 1, {"user": USER, "password": "wrong"})
            await peer.must_hear(MessageKind.ERROR, 1)
            peer.say(MessageKind.AUTH, 2, {"user": USER, "password": PASSWORD})
            await peer.must_hear(MessageKind.WELCOME, 2)
            peer.say(MessageKind.RUN, 3, big)
            await peer.must_hear(MessageKind.ANSWER, 3)
            peer.say(MessageKind.AUTH, 4)
            await peer.must_hear(MessageKind.WELCOME, 4)
            peer.say(MessageKind.RUN, 5, big)
            assert "TooLarge" in str(await peer.must_hear(MessageKind.ERROR))

    @pytest.mark.parametrize("before", ["greeting", "wrong", "sign-out", "pings"])
    async def test_who_does_not_sign_in_in_time_is_told_and_closed(
        self, surface: WireSurface, monkeypatch: pytest.MonkeyPatch, before: str
    ) -> None:
        monkeypatch.setattr(limits, "GREETING_SECONDS", 0.5)
        async with connected(surface) as peer:
            if before == "sign-out":
                await peer.sign_in()
                peer.say(MessageKind.AUTH, 1)
                await peer.must_hear(MessageKind.WELCOME, 1)
            else:
                await peer.greet()
            if before == "wrong":
                peer.say(MessageKind.AUTH, 1, {"user": USER, "password": "wrong"})
                await peer.must_hear(MessageKind.ERROR, 1)
            if before == "pings":
                peer.say(MessageKind.PING, 2)
                await peer.must_hear(MessageKind.PONG, 2)
            error = await peer.must_hear(MessageKind.ERROR)
            assert "no sign-in" in error["error"]["message"]
            assert await peer.closed()
        await until(lambda: not surface.held)

    async def test_who_signed_in_in_time_stays(self, surface: WireSurface) -> None:
        async with connected(surface) as peer:
            await peer.sign_in()
            (connection,) = held(surface)
            assert connection._sign_in.timer is None

    @pytest.mark.parametrize("known", [0, 100])
    async def test_a_frame_that_does_not_come_whole_in_time(
        self, surface: WireSurface, monkeypatch: pytest.MonkeyPatch, known: int
    ) -> None:
        monkeypatch.setattr(limits, "BODY_SECONDS", 0.1)
        monkeypatch.setattr(limits, "BODY_SECONDS_BYTES", 1 << 40)
        async with connected(surface) as peer:
            await peer.sign_in()
            peer.say(MessageKind.PING, 1)
            await peer.must_hear(MessageKind.PONG, 1)
            peer.writer.write(b"\x00\x10" if not known else b"\x00\x10\x00\x00" + bytes(known))
            assert "RequestTimeout" in str(await peer.must_hear(MessageKind.ERROR))
            assert await peer.closed()

    async def test_what_waits_behind_a_credential_is_one_small_read(
        self, surface: WireSurface, node: FakeNode, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        thinking = asyncio.get_running_loop().create_future()

        async def sign_in(*_args: object) -> Session:
            await thinking
            raise SessionEnded("no")

        monkeypatch.setattr(node, "sign_in", sign_in)
        async with connected(surface) as peer:
            hello = encode(MessageKind.HELLO, 0, {**GREETING, "user": USER, "password": "x"})
            peer.writer.write(hello + bytes(1_000_000))
            await until(
                lambda: any(c.talk.state is ConnectionState.SIGNING_IN for c in held(surface))
            )
            assert all(c.talk.unread <= HELLO_BYTES for c in held(surface))
            thinking.set_result(None)
            await peer.must_hear(MessageKind.REFUSED)


def held(surface: WireSurface) -> set[Any]:
    return set(surface._wire.connections)


class TestABugIsALineASecond:
    async def test_before_anybody_signed_in(
        self, surface: WireSurface, monkeypatch: pytest.MonkeyPatch, logbook: Logbook
    ) -> None:
        logbook.allow("a request failed|not logged one by one")
        monkeypatch.setattr(logs, "LINE_SECONDS", 600)

        def planted(*_args: object) -> None:
            raise RuntimeError("planted")

        monkeypatch.setattr(bodies, "read_hello", planted)
        for _ in range(30):
            async with connected(surface) as peer:
                peer.say(MessageKind.HELLO, 0, GREETING)
                assert "Failed" in str(await peer.must_hear(MessageKind.REFUSED))
        assert logbook.names() == ["a request failed"]
        await surface.close()
        assert logbook.events[1]["times"] == {"a request failed": 29}

    async def test_in_what_the_loop_calls(
        self, surface: WireSurface, monkeypatch: pytest.MonkeyPatch, logbook: Logbook
    ) -> None:
        logbook.allow("a connection failed|not logged one by one")
        monkeypatch.setattr(logs, "LINE_SECONDS", 600)

        def planted(*_args: object) -> None:
            raise RuntimeError("planted")

        monkeypatch.setattr(Conversation, "next", planted)
        for _ in range(30):
            await reset(surface, encode(MessageKind.HELLO, 0, GREETING))
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
                assert (await peer.run(id, "BREAK")).kind is MessageKind.ERROR
        assert logbook.names() == ["a request failed"] * 3
