"""Stopping in stages: no new connections, work in flight finishes, the rest is closed."""

from __future__ import annotations

import asyncio
import json

import pytest

from actors.node import Node
from surfaces.http.shared import HttpSettings
from surfaces.http.surface import HttpSurface
from tests.surfaces.http.conftest import LONG, Serve, script, until
from tests.surfaces.http.raw import Raw

FINISHES = json.dumps({"script": LONG, "timeout": "300ms"})


async def test_stages(serve: Serve, node: Node, bearer: str) -> None:
    surface = await serve()
    port = surface.address[1]
    async with await Raw.connect(port) as busy, await Raw.connect(port) as idle:
        await busy.send(script(FINISHES, bearer, content_type="application/json"))
        assert (await idle.ask("GET", "/health")).status == 200
        await until(lambda: len(node.running))
        surface.stop_accepting()
        with pytest.raises(ConnectionRefusedError):
            await Raw.connect(port)
        draining = asyncio.create_task(surface.drain())
        await idle.send(script("RETURN 1;", bearer))
        refused = await idle.answer()
        assert (refused.status, refused.error["code"]) == (503, "Draining")
        finished = await busy.answer()
        assert finished.error["code"] == "StatementTimeout"  # its own end, not the node's
        assert finished.fields["connection"] == "close"
        assert await draining == 0
        await surface.close()
        assert await idle.rest() == b""


async def test_pipelined_requests_that_were_there_are_answered(
    serve: Serve, node: Node, bearer: str
) -> None:
    surface = await serve()
    async with await Raw.connect(surface.address[1]) as raw:
        await raw.send(
            script(FINISHES, bearer, content_type="application/json") + script("RETURN 2;", bearer)
        )
        await until(lambda: len(node.running))
        surface.stop_accepting()
        draining = asyncio.create_task(surface.drain())
        assert (await raw.answer()).error["code"] == "StatementTimeout"
        last = await raw.answer()
        assert last.json["results"][0]["value"] == 2
        assert last.fields["connection"] == "close"
        assert await draining == 0


async def test_a_drain_ends_at_its_time_and_close_cuts(
    serve: Serve, node: Node, bearer: str
) -> None:
    surface = await serve()
    async with await Raw.connect(surface.address[1]) as raw:
        await raw.send(script(LONG, bearer))
        await until(lambda: len(node.running))
        surface.stop_accepting()
        assert await surface.drain(0.05) == 1
        await surface.close()
        await until(lambda: not len(node.running))
        assert await raw.rest() == b""


async def test_a_taken_port_is_an_oserror(serve: Serve) -> None:
    surface = await serve()
    second = HttpSurface(surface.node, HttpSettings("127.0.0.1", surface.address[1]))
    with pytest.raises(OSError, match="in use"):
        await second.start()
