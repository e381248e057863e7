"""A node in this process and its HTTP surface."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from actors import node as actors_node
from actors.environment import system_environment
from actors.node import Node
from actors.settings import FirstOwner, NodeSettings
from surfaces.http import surface as surface_module
from surfaces.http.shared import Deadlines, HttpSettings
from surfaces.http.surface import HttpSurface
from surfaces.long_work import LongWork
from tests.nodes import CHEAP
from tests.surfaces.http.raw import Raw
from tests.surfaces.served import Clock

PASSWORD = "correct horse"

Serve = Callable[..., Awaitable[HttpSurface]]


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    settings = NodeSettings(
        str(tmp_path / "store"), first_owner=FirstOwner("root", PASSWORD), password_cost=CHEAP
    )
    started = await actors_node.start(settings, replace(system_environment(), clock=Clock()))
    yield started
    await started.stop()


@pytest.fixture
def clock(node: Node) -> Clock:
    assert isinstance(node.environment.clock, Clock)
    return node.environment.clock


@pytest.fixture
async def serve(node: Node, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Serve]:
    """Starts surfaces on the node; keywords are settings. A last answer lingers only shortly, and
    deadlines are checked often."""
    monkeypatch.setattr(surface_module, "CHECKS_A_SECOND", 20)
    started: list[HttpSurface] = []

    async def start(**settings: Any) -> HttpSurface:
        settings.setdefault("deadlines", Deadlines(linger_s=0.2))
        surface = HttpSurface(node, HttpSettings("127.0.0.1", 0, **settings))
        await surface.start()
        started.append(surface)
        return surface

    yield start
    for surface in started:
        await surface.close()
        assert surface.bodies_bytes == 0
        assert not surface.requests.total
        assert not surface.answers.total
        assert surface.running == 0
        assert not surface.connections


@pytest.fixture
async def surface(serve: Serve) -> HttpSurface:
    return await serve()


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often each long work gave others their turn, in the order they began."""
    run = LongWork.run
    counts: list[int] = []

    async def counted(self: LongWork, user: str, work: Callable[[Callable[[], None]], Any]) -> Any:
        number = len(counts)
        counts.append(0)

        def ticking(tick: Callable[[], None]) -> Any:
            def counting() -> None:
                counts[number] += 1
                tick()

            return work(counting)

        return await run(self, user, ticking)

    monkeypatch.setattr(LongWork, "run", counted)
    return counts


@pytest.fixture
async def port(surface: HttpSurface) -> int:
    return surface.address[1]


@pytest.fixture
async def raw(port: int) -> AsyncIterator[Raw]:
    async with await Raw.connect(port) as connection:
        yield connection


@pytest.fixture
async def bearer(raw: Raw) -> str:
    signed_in = await raw.post("/session", {"user": "root", "password": PASSWORD})
    assert signed_in.status == 200, signed_in.body
    return f"Bearer {signed_in.json['token']}"


LONG = "FOR $x IN 0..900000 { FOR $y IN 0..10 { LET $z = $y; }; };"
"""A script that would run for many seconds, giving way all the time."""


async def until(condition: Callable[[], object], seconds: float = 20) -> None:
    """Wait for a condition of this process."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)
