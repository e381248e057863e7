"""What a client without a credential can make the HTTP surface log, hold and wait for."""

from __future__ import annotations

import asyncio
import socket
import struct

import pytest

from surfaces import logs
from surfaces.http import connection
from surfaces.http.surface import HttpSurface
from tests.logbook import Logbook
from tests.surfaces.http.conftest import Serve, until
from tests.surfaces.http.raw import Raw, request


async def reset(port: int, data: bytes) -> None:
    """Send, and be gone with a reset."""
    loop = asyncio.get_running_loop()
    client = socket.socket()
    client.setblocking(False)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    await loop.sock_connect(client, ("127.0.0.1", port))
    await loop.sock_sendall(client, data)
    client.close()


@pytest.mark.parametrize(
    "data",
    [
        b"GET /health HTTP/1.1\r\nHost: loc",
        request("GET", "/health", connection="close"),
        request("POST", "/script", b"RETURN 1", authorization="Bearer junk")[:-2],
        request("POST", "/session", b'{"user":"root","password":"wrong"}'),
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x00" * 100,
    ],
)
async def test_half_a_request_and_gone_is_not_logged(
    surface: HttpSurface, logbook: Logbook, data: bytes
) -> None:
    for _ in range(5):
        await reset(surface.address[1], data)
    await until(lambda: surface.counters.connections == 5 and not surface.connections)
    await until(lambda: not surface.running)  # wrong passwords are held back
    assert logbook.names() == ["node started"]


async def test_a_bug_before_anybody_signed_in_is_a_line_a_second(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, logbook: Logbook
) -> None:
    logbook.allow("failed|not logged one by one")
    monkeypatch.setattr(logs, "SPARING_SECONDS", 600)
    surface = await serve()

    def planted(*_args: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr("surfaces.http.routes.Options.finish", planted)
    async with await Raw.connect(surface.address[1]) as raw:
        for _ in range(30):
            assert (await raw.ask("OPTIONS", "/health")).error["code"] == "Failed"
    monkeypatch.setattr("surfaces.http.connection.judge", planted)
    for _ in range(30):
        async with await Raw.connect(surface.address[1]) as raw:
            await raw.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: y\r\n\r\n")
            assert await raw.rest() == b""
    assert logbook.names() == ["node started", "request failed"]
    await surface.close()
    assert logbook.events[2]["times"] == {"request failed": 29, "a connection failed": 30}


async def test_a_connection_whose_deadlines_fail_leaves_the_others_theirs(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, logbook: Logbook
) -> None:
    logbook.allow("a connection failed")
    surface = await serve()
    async with await Raw.connect(surface.address[1]) as bad:
        await until(lambda: surface.connections)
        (broken,) = surface.connections
        real = connection.Connection.check
        checked: list[object] = []

        def check(self: connection.Connection, now: float) -> None:
            if self is broken:
                raise RuntimeError("planted")
            checked.append(self)
            real(self, now)

        monkeypatch.setattr(connection.Connection, "check", check)
        async with await Raw.connect(surface.address[1]):
            await until(lambda: len(checked) > 1)
            assert await bad.rest() == b""
