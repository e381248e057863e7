"""Accepting: every accepted connection gets its protocol, a word, or a cut, and is told of."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from actors.rate_limited_log import RateLimitedLog
from protocol import limits
from surfaces import listener
from surfaces.listener import Listener
from tests.certificates import Contexts
from tests.logbook import Logbook


class Peer(asyncio.Protocol):
    standing = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        Peer.standing += 1
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"hello")
        transport.close()

    def connection_lost(self, _error: Exception | None) -> None:
        Peer.standing -= 1


class Slow(Peer):
    """Reads nothing until it is told to; `reads` are how many bytes each read brought."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport, self.reads = transport, list[int]()
        transport.pause_reading()
        Peer.standing += 1

    def data_received(self, data: bytes) -> None:
        self.reads.append(len(data))


class Desk:
    """A listener, and what it asked and told."""

    def __init__(self) -> None:
        self.made: list[Peer] = []
        self.lost: list[Any] = []
        self.room = True
        self.listener: Listener

    def make(self) -> Peer | None:
        if not self.room:
            return None
        self.made.append(Peer())
        return self.made[-1]

    async def said(self, host: str | None = None) -> bytes:
        address, port = self.listener.addresses[0]
        reader, writer = await asyncio.open_connection(host or address, port)
        try:
            return await reader.read()
        finally:
            writer.close()
            await writer.wait_closed()


@asynccontextmanager
async def listening(
    host: str = "127.0.0.1",
    tls: ssl.SSLContext | None = None,
    tls_seconds: float = 5,
    descriptors: int = 1 << 20,
) -> AsyncIterator[Desk]:
    made = Desk()
    made.listener = Listener(
        made.make, made.lost.append, tls=tls, tls_seconds=tls_seconds, refusal=b"no",
        refused=lambda: None, in_clear=b"TLS", descriptors=descriptors,
        limited_log=RateLimitedLog("test"),
    )  # fmt: skip
    await made.listener.open(host, 0)
    try:
        yield made
    finally:
        await made.listener.end()
        async with asyncio.timeout(10):
            while Peer.standing:
                await asyncio.sleep(0)


async def test_each_has_a_protocol_or_is_cut() -> None:
    async with listening() as desk:
        assert await desk.said() == b"hello"
        desk.room = False
        assert await desk.said() == b""
        desk.room = True
        assert await desk.said() == b"hello"
        assert len(desk.made) == 2 and not desk.lost


async def test_no_connection_gets_a_descriptor_that_is_kept(logbook: Logbook) -> None:
    logbook.allow("out of file descriptors|not logged one by one")
    taken = [os.open("/dev/null", os.O_RDONLY) for _ in range(20)]
    try:
        async with listening(descriptors=max(taken)) as desk:
            # One number is the peer's own, of the next the node gives none away.
            assert await desk.said() == b"no"
            assert desk.listener.crowded
            assert not desk.made
            for descriptor in taken:
                os.close(descriptor)
            taken.clear()
            assert await desk.said() == b"hello"
            assert len(desk.made) == 1
    finally:
        for descriptor in taken:
            os.close(descriptor)


async def test_every_address_of_a_host_on_one_port() -> None:
    async with listening("localhost") as desk:
        families = {sock.family for sock in desk.listener._sockets}
        assert len({sock.getsockname()[1] for sock in desk.listener._sockets}) == 1
        assert len(families) == len(desk.listener._sockets)
        for sock in desk.listener._sockets:
            assert await desk.said(sock.getsockname()[0]) == b"hello"


async def test_a_protocol_whose_handshake_failed_is_told_of(contexts: Contexts) -> None:
    async with listening(tls=contexts[0], tls_seconds=0.1) as desk:
        assert await desk.said() == b""
        async with asyncio.timeout(10):
            while desk.lost != desk.made:
                await asyncio.sleep(0.01)
        assert len(desk.lost) == 1


async def test_who_begins_no_tls_is_told_in_clear(contexts: Contexts) -> None:
    async with listening(tls=contexts[0]) as desk:
        reader, writer = await asyncio.open_connection(*desk.listener.addresses[0])
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await reader.read() == b"TLS"
        assert desk.lost == desk.made
        writer.close()
        await writer.wait_closed()


async def test_handshakes_under_way_at_the_end_are_cut_and_told_of(contexts: Contexts) -> None:
    async with listening(tls=contexts[0]) as desk:
        reader, writer = await asyncio.open_connection(*desk.listener.addresses[0])
        async with asyncio.timeout(10):
            while not desk.made:
                await asyncio.sleep(0)
            await desk.listener.end()  # also what has not begun, as its first step has not come
            assert await reader.read() == b""
        assert desk.lost == desk.made
        writer.close()
        await writer.wait_closed()


async def test_too_many_handshakes_wait_in_the_backlog(
    contexts: Contexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "HANDSHAKES", 2)
    monkeypatch.setattr(listener, "REST_SECONDS", 0.01)
    async with listening(tls=contexts[0]) as desk:
        peers = [await asyncio.open_connection(*desk.listener.addresses[0]) for _ in range(4)]
        async with asyncio.timeout(10):
            while not desk.listener._resting:
                await asyncio.sleep(0)
            assert len(desk.made) == 2
            for _, writer in peers[:2]:
                writer.transport.abort()
            while len(desk.made) < 4:
                await asyncio.sleep(0.01)
        for _, writer in peers:
            writer.transport.abort()


async def test_a_taken_address_is_an_os_error_and_leaves_nothing_open() -> None:
    async with listening() as desk:
        second = Listener(
            desk.make, desk.lost.append, tls=None, tls_seconds=1, refusal=b"",
            refused=lambda: None, in_clear=b"", descriptors=1 << 20,
            limited_log=RateLimitedLog("test"),
        )  # fmt: skip
        with pytest.raises(OSError):
            await second.open(*desk.listener.addresses[0])
        assert not second._sockets


async def test_a_peer_that_vanishes_without_a_word_is_noticed_by_the_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = Slow()
    monkeypatch.setattr(Desk, "make", lambda _desk: slow)
    async with listening() as desk:
        _, writer = await asyncio.open_connection(*desk.listener.addresses[0])
        async with asyncio.timeout(30):
            while not Peer.standing:
                await asyncio.sleep(0)
        accepted = slow.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        for option, value in listener.KEEPALIVE.items():
            assert accepted.getsockopt(socket.IPPROTO_TCP, option) == value
        slow.transport.abort()
        writer.transport.abort()


async def largest_read(contexts: Contexts, monkeypatch: pytest.MonkeyPatch) -> int:
    """Of a connection with TLS that all of 200 000 bytes have reached before it reads."""
    slow = Slow()
    monkeypatch.setattr(Desk, "make", lambda _desk: slow)
    async with listening(tls=contexts[0]) as desk:
        _, writer = await asyncio.open_connection(
            *desk.listener.addresses[0], ssl=contexts[1], server_hostname="localhost"
        )
        async with asyncio.timeout(30):
            while not Peer.standing:
                await asyncio.sleep(0)
            writer.write(bytes(200_000))
            await writer.drain()
            slow.transport.resume_reading()
            while sum(slow.reads) < 200_000:
                await asyncio.sleep(0)
        slow.transport.abort()
        writer.transport.abort()
    return max(slow.reads)


async def test_little_is_ready_to_read_into_with_tls(
    contexts: Contexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every peer that has connected makes the node hold as much, whoever it is. What a read brings
    shows how much; a part of a record may have waited beside it."""
    assert await largest_read(contexts, monkeypatch) <= 2 * limits.TLS_READ_BYTES
    allowed = limits.TLS_READ_BYTES
    monkeypatch.setattr(limits, "TLS_READ_BYTES", 256 * limits.KIB)
    assert await largest_read(contexts, monkeypatch) > 2 * allowed, "planted, and not seen"
