"""A real node behind its wire surface, and peers that are signed in to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from protocol.frames import MessageKind, WireMessage
from surfaces.wire import NodeGate, WireSurface
from surfaces.wire.connection import WireConnection
from tests.nodes import PASSWORD, Running, running
from tests.surfaces.wire.peers import Peer, connected, serving

PLACE = {"ns": "shop", "db": "main"}


class Hall:
    def __init__(self, here: Running, surface: WireSurface, stack: AsyncExitStack) -> None:
        self.here, self.surface = here, surface
        self._stack = stack

    async def peer(self, user: str = "root", **greeting: Any) -> Peer:
        peer = await self.stranger()
        await peer.greet(user=user, password=PASSWORD, **greeting)
        return peer

    async def stranger(self) -> Peer:
        return await self._stack.enter_async_context(connected(self.surface))

    @property
    def only_connection(self) -> WireConnection:
        (connection,) = self.surface._wire.connections
        assert isinstance(connection, WireConnection)
        return connection


AnyHall = TypeVar("AnyHall", bound=Hall)


@asynccontextmanager
async def hall_of(
    kind: type[AnyHall], directory: Path, declared: str = ""
) -> AsyncIterator[AnyHall]:
    """Open a hall; its peers leave before the surface closes."""
    async with running(directory) as here, serving(NodeGate(here.node)) as surface:
        if declared:
            await here.values(declared)
        async with AsyncExitStack() as peers:
            yield kind(here, surface, peers)


def value(message: WireMessage | None) -> Any:
    assert message is not None and message.kind is MessageKind.ANSWER, message
    assert message.body is not None
    return message.body["results"][-1]["value"]


def code(message: WireMessage | None) -> str:
    assert message is not None and message.kind is MessageKind.ERROR, message
    assert message.body is not None
    return str(message.body["error"]["code"])
