"""A node of this process with both of its surfaces, on real sockets."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from actors.environment import SystemClock, system_environment
from surfaces.http.shared import HttpSettings
from surfaces.http.surface import HttpSurface
from surfaces.wire import NodeGate, WireSettings, WireSurface
from tests.nodes import Running, running
from tests.surfaces.http.raw import Raw
from tests.surfaces.wire.peers import Peer, connected


class Clock(SystemClock):
    def __init__(self) -> None:
        self.ahead_us = 0

    def monotonic_us(self) -> int:
        return super().monotonic_us() + self.ahead_us


@dataclass
class Served:
    """:ivar clock: what the sessions end by"""

    here: Running
    http: HttpSurface
    wire: WireSurface
    clock: Clock
    _open: AsyncExitStack

    async def raw(self) -> Raw:
        return await self._open.enter_async_context(await Raw.connect(self.http.address[1]))

    async def peer(self, **greeting: object) -> Peer:
        """One over the wire, welcomed with a credential or none."""
        peer = await self._open.enter_async_context(connected(self.wire))
        await peer.greet(**greeting)
        return peer

    def stranger(self) -> AbstractAsyncContextManager[Peer]:
        """One who has not greeted, for a while."""
        return connected(self.wire)

    async def token(self, raw: Raw, user: str, password: str) -> str:
        body = json.dumps({"user": user, "password": password}).encode()
        answer = await raw.ask("POST", "/session", body, content_type="application/json")
        assert answer.status == 200, answer.body
        return str(answer.json["token"])


@asynccontextmanager
async def served(
    directory: Path, settings: Mapping[str, Any] | None = None
) -> AsyncIterator[Served]:
    """Served while the context lasts; the connections end before the surfaces."""
    clock = Clock()
    environment = replace(system_environment(), clock=clock)
    async with running(directory, environment, settings) as here, AsyncExitStack() as stack:
        http = HttpSurface(here.node, HttpSettings("127.0.0.1", 0))
        wire = WireSurface(NodeGate(here.node), WireSettings("127.0.0.1", 0))
        http.wire = wire
        for surface in (http, wire):
            await surface.start()
            stack.push_async_callback(surface.close)
        async with AsyncExitStack() as open_ones:
            yield Served(here, http, wire, clock, open_ones)
