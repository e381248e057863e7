"""Each part of a request has a deadline; a client that keeps it is left alone."""

from __future__ import annotations

import asyncio
from typing import cast

from actors.node import Node
from surfaces.http.shared import Deadlines
from tests.surfaces.http.conftest import LONG, Serve, until
from tests.surfaces.http.raw import Raw, request, script
from tests.surfaces.http.test_socket_life import by_hand
from tests.surfaces.served import Clock

SHORT = 0.1
KEPT = 3_600.0


def only(**short: float) -> Deadlines:
    far = dict.fromkeys(("tls_s", "head_s", "body_s", "write_s", "idle_s"), KEPT)
    return Deadlines(**{**far, "linger_s": 0.1, **short})


async def test_nothing_sent(serve: Serve) -> None:
    surface = await serve(deadlines=only(head_s=SHORT))
    async with await Raw.connect(surface.address[1]) as raw:
        assert await raw.rest() == b""


async def test_half_a_head(serve: Serve) -> None:
    surface = await serve(deadlines=only(head_s=SHORT))
    async with await Raw.connect(surface.address[1]) as raw:
        await raw.send(b"GET /health HTTP/1.1\r\nHost: loc")
        answer = await raw.answer()
        assert (answer.status, answer.error["code"]) == (408, "RequestTimeout")
        assert answer.fields["connection"] == "close"
        assert await raw.rest() == b""


async def test_half_a_second_head(serve: Serve) -> None:
    surface = await serve(deadlines=only(head_s=SHORT))
    async with await Raw.connect(surface.address[1]) as raw:
        await raw.send(request("GET", "/health") + b"GET /hea")
        assert (await raw.answer()).status == 200
        assert (await raw.answer()).status == 408


async def test_a_head_that_trickles_is_not_prolonged(serve: Serve) -> None:
    surface = await serve(deadlines=only(head_s=SHORT))
    async with await Raw.connect(surface.address[1]) as raw:
        await raw.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n")
        feeding = asyncio.create_task(raw.trickle(b"X: 1\r\n" * 4_000))
        assert (await raw.answer()).status in (408, 431)
        feeding.cancel()


async def test_half_a_body(serve: Serve, bearer: str) -> None:
    surface = await serve(deadlines=only(body_s=SHORT))
    async with await Raw.connect(surface.address[1]) as raw:
        await raw.send(script("RETURN 1;", bearer)[:-1])
        answer = await raw.answer()
        assert (answer.status, answer.error["code"]) == (408, "RequestTimeout")
        assert await raw.rest() == b""


async def test_a_body_that_was_not_asked_for_yet_is_not_late(serve: Serve, bearer: str) -> None:
    surface = await serve(deadlines=only())
    first = script({"script": LONG, "timeout": "500ms"}, bearer)
    head = script("RETURN 7;", bearer, expect="100-continue").partition(b"\r\n\r\n")[0]
    async with await Raw.connect(surface.address[1]) as raw:
        await raw.send(first + head + b"\r\n\r\n")
        await until(lambda: any(one.receiving for one in surface.connections))
        (connection,) = surface.connections
        for times in (2, 4):
            connection.check(surface.loop.time() + times * KEPT)
        assert (await raw.answer()).error["code"] == "StatementTimeout"
        assert (await raw.answer()).status == 100
        connection.check(surface.loop.time() + 6 * KEPT)
        late = await raw.answer()
        assert (late.status, late.error["code"]) == (408, "RequestTimeout")


async def test_idle_between_requests(serve: Serve) -> None:
    surface = await serve(deadlines=only(idle_s=SHORT))
    async with await Raw.connect(surface.address[1]) as raw:
        assert (await raw.ask("GET", "/health")).status == 200
        assert await raw.rest() == b""


async def test_a_connection_in_use_is_not_idle(serve: Serve) -> None:
    surface = await serve(deadlines=only())
    async with await Raw.connect(surface.address[1]) as raw:
        await until(lambda: surface.connections)
        (connection,), now = surface.connections, by_hand(surface)
        for times in range(5):
            assert (await raw.ask("GET", "/health")).status == 200
            connection.check(now + times * 2 * KEPT)  # far behind what an idle one would live
        connection.check(now + 9 * KEPT)
        assert await raw.rest() == b""


async def test_a_running_script_has_none_of_these_deadlines(
    serve: Serve, node: Node, bearer: str, clock: Clock
) -> None:
    surface = await serve(deadlines=only())
    async with await Raw.connect(surface.address[1]) as raw:
        await raw.send(script({"script": LONG, "timeout": "1m"}, bearer))
        await until(lambda: node.registry.unfinished)
        (connection,) = surface.connections
        for times in (2, 4, 6):
            connection.check(surface.loop.time() + times * KEPT)
        clock.ahead_us = 60_000_000
        answer = await raw.answer()
        assert answer.error["code"] == "StatementTimeout"


async def test_an_answer_that_nobody_takes(serve: Serve, bearer: str) -> None:
    surface = await serve(deadlines=only(write_s=SHORT))
    async with await Raw.connect(surface.address[1]) as raw:
        cast(asyncio.Transport, raw.writer.transport).pause_reading()
        text = "x" * 1_000_000
        await raw.send(script(f"LET $a = '{text}'; RETURN [{', '.join(['$a'] * 16)}];", bearer))
        await until(lambda: not surface.connections)


async def test_a_client_that_never_ends_its_side_is_let_go(serve: Serve) -> None:
    surface = await serve(deadlines=only(linger_s=SHORT))
    async with await Raw.connect(surface.address[1]) as raw:
        assert (await raw.ask("GET", "/health", connection="close")).status == 200
        await until(lambda: not surface.connections)
