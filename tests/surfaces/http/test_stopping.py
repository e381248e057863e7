"""Stopping in stages: no new connections, work in flight finishes, the rest is closed."""

from __future__ import annotations

import asyncio

import pytest

from actors.node import Node
from tests.surfaces.http.conftest import LONG, Serve, until
from tests.surfaces.http.raw import Raw, request, script
from tests.surfaces.served import Clock

FINISHES = {"script": LONG, "timeout": "1m"}
TIMEOUT_US = 60_000_000
"""Time after which that script ends."""


async def test_stages(serve: Serve, node: Node, bearer: str, clock: Clock) -> None:
    surface = await serve()
    port = surface.address[1]
    async with await Raw.connect(port) as busy, await Raw.connect(port) as idle:
        await busy.send(script(FINISHES, bearer))
        assert (await idle.ask("GET", "/health")).status == 200
        await until(lambda: node.registry.unfinished)
        surface.stop_accepting()
        with pytest.raises(ConnectionRefusedError):
            await Raw.connect(port)
        draining = asyncio.create_task(surface.drain())
        refused = await idle.run("RETURN 1;", bearer)
        assert (refused.status, refused.error["code"]) == (503, "Draining")
        clock.ahead_us = TIMEOUT_US
        finished = await busy.answer()
        assert finished.error["code"] == "StatementTimeout"  # its own end, not the node's
        assert finished.fields["connection"] == "close"
        assert await draining == 0
        await surface.close()
        assert await idle.rest() == b""


async def test_pipelined_requests_that_were_there_are_answered(
    serve: Serve, node: Node, bearer: str, clock: Clock
) -> None:
    surface = await serve()
    async with await Raw.connect(surface.address[1]) as raw:
        await raw.send(script(FINISHES, bearer) + script("RETURN 2;", bearer))
        await until(lambda: node.registry.unfinished)
        surface.stop_accepting()
        draining = asyncio.create_task(surface.drain())
        clock.ahead_us = TIMEOUT_US
        assert (await raw.answer()).error["code"] == "StatementTimeout"
        last = await raw.answer()
        assert last.json["results"][0]["value"] == 2
        assert last.fields["connection"] == "close"
        assert await draining == 0


@pytest.mark.parametrize("comes", ["before", "meanwhile"])
@pytest.mark.parametrize("who", ["nobody", "somebody"])
async def test_a_request_that_has_not_come_whole_is_not_waited_for(
    serve: Serve, node: Node, bearer: str, clock: Clock, comes: str, who: str
) -> None:
    """Half a body, of nobody even, held up every stop for as long as a body may take."""
    surface = await serve()
    half = request("POST", "/session", b" " * 100, content_type="application/json")[:-50]
    if who == "somebody":
        half = script("RETURN 1;" + " " * 200_000, bearer)[:-50]
    port = surface.address[1]
    async with await Raw.connect(port) as busy, await Raw.connect(port) as raw:
        await busy.send(script(FINISHES, bearer))
        await until(lambda: node.registry.unfinished)
        if comes == "before":
            await raw.send(half)
            await until(lambda: any(one.receiving for one in surface.connections))
        else:
            assert (await raw.ask("GET", "/health")).status == 200
        surface.stop_accepting()
        draining = asyncio.create_task(surface.drain(seconds=3600))
        if comes == "meanwhile":
            await until(lambda: surface.stopping)
            await raw.send(half)
        if comes == "before" or who == "somebody":
            refused = await raw.answer()
            assert (refused.status, refused.error["code"]) == (503, "Draining")
            assert refused.fields["connection"] == "close"
        clock.ahead_us = TIMEOUT_US
        assert (await busy.answer()).error["code"] == "StatementTimeout"
        assert await draining == 0
        await surface.close()


@pytest.mark.parametrize("runs", [False, True], ids=["alone", "behind one that runs"])
async def test_half_a_head_is_told_as_half_a_body_is(
    serve: Serve, node: Node, bearer: str, clock: Clock, runs: bool
) -> None:
    surface = await serve()
    async with await Raw.connect(surface.address[1]) as raw:
        before = script(FINISHES, bearer) if runs else b""
        await raw.send(before + b"POST /script HTTP/1.1\r\nHost: localhost\r\nContent-")
        await until(lambda: any(one.reading.in_head for one in surface.connections))
        await until(lambda: node.registry.unfinished == runs)
        surface.stop_accepting()
        draining = asyncio.create_task(surface.drain(seconds=3600))
        if runs:
            clock.ahead_us = TIMEOUT_US
            assert (await raw.answer()).error["code"] == "StatementTimeout"
        assert await draining == 0
        await surface.close()
        refused = await raw.answer()
        assert (refused.status, refused.error["code"]) == (503, "Draining")
        assert refused.fields["connection"] == "close"


async def test_half_a_request_behind_one_that_runs_is_told_behind_its_answer(
    serve: Serve, node: Node, bearer: str, clock: Clock
) -> None:
    surface = await serve()
    async with await Raw.connect(surface.address[1]) as raw:
        await raw.send(script(FINISHES, bearer) + script("RETURN 2;" + " " * 50, bearer)[:-50])
        await until(lambda: node.registry.unfinished)
        await until(lambda: any(one.receiving for one in surface.connections))
        surface.stop_accepting()
        draining = asyncio.create_task(surface.drain(seconds=3600))
        clock.ahead_us = TIMEOUT_US
        assert (await raw.answer()).error["code"] == "StatementTimeout"
        assert (await raw.answer()).error["code"] == "Draining"
        assert await draining == 0


async def test_a_drain_ends_at_its_time_and_close_cuts(
    serve: Serve, node: Node, bearer: str
) -> None:
    surface = await serve()
    async with await Raw.connect(surface.address[1]) as raw:
        await raw.send(script(LONG, bearer))
        await until(lambda: node.registry.unfinished)
        surface.stop_accepting()
        assert await surface.drain(0.05) == 1
        await surface.close()
        await until(lambda: not node.registry.unfinished)
        assert await raw.rest() == b""
