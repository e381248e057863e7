"""What a client without a credential can make the HTTP surface log, hold and wait for."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
import struct
from collections.abc import Callable
from functools import partial

import pytest

from protocol import limits
from protocol.requests import Caller
from surfaces import logs
from surfaces.http import callers, connection, reading
from surfaces.http.exchange import Exchange
from surfaces.http.surface import HttpSurface
from tests.logbook import Logbook
from tests.surfaces.http.conftest import PASSWORD, Serve, until
from tests.surfaces.http.raw import Raw, request, script


async def reset(port: int, data: bytes) -> None:
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
    monkeypatch.setattr(logs, "LINE_SECONDS", 600)
    surface = await serve()

    def planted(*_args: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr("surfaces.http.router.Options.finish", planted)
    async with await Raw.connect(surface.address[1]) as raw:
        for _ in range(30):
            assert (await raw.ask("OPTIONS", "/health")).error["code"] == "Failed"
    monkeypatch.setattr("surfaces.http.reading.judge", planted)
    for _ in range(30):
        async with await Raw.connect(surface.address[1]) as raw:
            await raw.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: y\r\n\r\n")
            assert await raw.rest() == b""
    assert logbook.names() == ["node started", "request failed"]
    await surface.close()
    assert logbook.events[2]["times"] == {"request failed": 29, "a connection failed": 30}


LARGE = 8 * 1024 * 1024


def head_of_large(credential: str, declared: bytes | None = None, **fields: str) -> bytes:
    """The head of a script whose body is long."""
    head = script("", credential, **fields)
    return head.replace(b"Content-Length: 0", declared or b"Content-Length: %d" % LARGE)


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_junk_token_is_refused_before_its_body_is_taken(
    surface: HttpSurface, bearer: str, chunked: bool
) -> None:
    """Nobody's bodies stood in the way of everybody's: 19 connections denied sign-in."""
    head = head_of_large("Bearer junk", b"Transfer-Encoding: chunked" if chunked else None)
    async with await Raw.connect(surface.address[1]) as raw:
        raw.writer.write(head + (b"%x\r\n" % LARGE if chunked else b"") + bytes(300_000))
        most = 0
        answered = asyncio.create_task(raw.answer())
        while not answered.done():
            most = max(most, surface.bodies_bytes)
            await asyncio.sleep(0)
        answer = answered.result()
        assert (answer.status, answer.error["code"]) == (401, "SessionEnded")
        assert answer.fields["connection"] == "close"
    assert most <= limits.SMALL_BODY_BYTES
    assert not surface.requests.total


def holds(surface: HttpSurface, size: int) -> bool:
    """Whether root's bodies have come that far."""
    return surface.requests.of("root") > size


async def crowd_of_junk(surface: HttpSurface, count: int) -> int:
    """So many send large bodies under tokens that are none, all at once, while somebody signs in.
    The most that was held."""
    most = 0
    head = head_of_large("Bearer junk")

    async def junk() -> None:
        async with await Raw.connect(surface.address[1]) as raw:
            raw.writer.write(head + bytes(300_000))
            with contextlib.suppress(OSError, EOFError):
                await raw.answer()

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, surface.bodies_bytes)
            await asyncio.sleep(0)

    watching = asyncio.create_task(watch())
    crowd = [asyncio.create_task(junk()) for _ in range(count)]
    async with await Raw.connect(surface.address[1]) as raw:
        for _ in range(3):
            signed_in = await raw.post("/session", {"user": "root", "password": PASSWORD})
            assert signed_in.status == 200
    await asyncio.gather(*crowd)
    watching.cancel()
    return most


@pytest.mark.parametrize("count", [30, pytest.param(1000, marks=pytest.mark.hard)])
async def test_junk_bodies_with_junk_tokens(
    surface: HttpSurface, count: int, figure: Callable[[str, object], None]
) -> None:
    most = await crowd_of_junk(surface, count)
    assert most <= count * limits.SMALL_BODY_BYTES
    figure("junk bodies", f"{count} connections, {LARGE} bytes each said: at most {most} held")


async def test_a_body_is_asked_for_only_of_who_is_known(surface: HttpSurface) -> None:
    async with await Raw.connect(surface.address[1]) as raw:
        await raw.send(head_of_large("Bearer junk", expect="100-continue"))
        assert (await raw.answer()).status == 401


@pytest.mark.parametrize("scheme", ["token", "password"])
async def test_large_bodies_count_as_their_users_and_leave_room_for_others(
    surface: HttpSurface, bearer: str, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    credential = bearer
    if scheme == "password":
        credential = f"Basic {base64.b64encode(f'root:{PASSWORD}'.encode()).decode()}"
    surface.requests.most = 4_000_000
    text = "RETURN 7;" + " " * 900_000
    async with contextlib.AsyncExitStack() as stack:
        for number in range(2):
            half = await stack.enter_async_context(await Raw.connect(surface.address[1]))
            await half.send(script(text, credential)[:-1])
            await until(partial(holds, surface, (number + 1) * 900_000))
        more = await stack.enter_async_context(await Raw.connect(surface.address[1]))
        assert (await more.run(text, credential)).error["code"] == "Busy"
        assert surface.requests.take("another", 900_000)  # another user gets in
        surface.requests.give_back_bytes("another", 900_000)
        await half.send(b" ")
        assert (await half.answer()).json["results"][0]["value"] == 7
    await until(lambda: not surface.requests.total)


async def test_a_bug_behind_a_judged_credential_cuts_its_connection(
    surface: HttpSurface, bearer: str, monkeypatch: pytest.MonkeyPatch, logbook: Logbook
) -> None:
    """What was waited for has come, and going on fails: nobody waits for an answer for ever."""
    logbook.allow("a connection failed")
    real = callers.caller

    def fail(_self: connection.HttpConnection) -> None:
        raise RuntimeError("planted")

    async def judged(exchange: Exchange) -> Caller:
        who = await real(exchange)
        monkeypatch.setattr(connection.HttpConnection, "_pump", fail)
        return who

    monkeypatch.setattr(reading, "caller", judged)
    async with await Raw.connect(surface.address[1]) as raw:
        await raw.send(head_of_large(bearer) + bytes(100_000))
        assert await raw.rest() == b""
    assert logbook.names().count("a connection failed") == 1
    monkeypatch.undo()


@pytest.mark.parametrize("asks", [False, True])
async def test_a_bug_that_judges_a_credential_answers_its_request(
    surface: HttpSurface, monkeypatch: pytest.MonkeyPatch, logbook: Logbook, asks: bool
) -> None:
    logbook.allow("request failed")
    judged: list[Exchange] = []

    async def broken(exchange: Exchange) -> Caller:
        judged.append(exchange)
        assert len(judged) < 10, "it is judged again and again"
        raise RuntimeError("planted")

    monkeypatch.setattr(reading, "caller", broken)
    head = head_of_large("Bearer x", None, **({"expect": "100-continue"} if asks else {}))
    async with await Raw.connect(surface.address[1]) as raw:
        await raw.send(head + (b"" if asks else bytes(100_000)))
        answer = await raw.answer()
        assert (answer.status, answer.error["code"]) == (500, "Failed")
        assert judged[0].request in answer.error["message"]
        assert await raw.rest() == b""
    assert len(judged) == 1
    assert logbook.names().count("request failed") == 1


async def test_a_connection_whose_deadlines_fail_leaves_the_others_theirs(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, logbook: Logbook
) -> None:
    logbook.allow("a connection failed")
    surface = await serve()
    async with await Raw.connect(surface.address[1]) as bad:
        await until(lambda: surface.connections)
        (broken,) = surface.connections
        real = connection.HttpConnection.check
        checked: list[object] = []

        def check(self: connection.HttpConnection, now: float) -> None:
            if self is broken:
                raise RuntimeError("planted")
            checked.append(self)
            real(self, now)

        monkeypatch.setattr(connection.HttpConnection, "check", check)
        async with await Raw.connect(surface.address[1]):
            await until(lambda: len(checked) > 1)
            assert await bad.rest() == b""
