"""A real node in this process, its wire surface, and clients of it: what tests of the client share
that need more than a false node."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from storeclient import AsyncClient
from surfaces.wire import NodeGate, WireSurface
from surfaces.wire.connection import WireConnection
from tests.nodes import PASSWORD, Running, running
from tests.surfaces.wire.peers import serving


def at(surface: WireSurface) -> str:
    return "{}:{}".format(*surface.address)


def cut(surface: WireSurface) -> None:
    """Break every connection."""
    for connection in list(surface._wire.connections):
        assert isinstance(connection, WireConnection)
        connection.abort()


class RealNode:
    def __init__(self, here: Running, surface: WireSurface) -> None:
        self.here, self.surface, self.address = here, surface, at(surface)

    def client(self, user: str = "root", **more: Any) -> AsyncClient:
        return AsyncClient(self.address, user=user, password=PASSWORD, **more)


@asynccontextmanager
async def real_node(directory: Path) -> AsyncIterator[RealNode]:
    async with running(directory) as here, serving(NodeGate(here.node)) as surface:
        yield RealNode(here, surface)


@asynccontextmanager
async def client_of(directory: Path, declared: str) -> AsyncIterator[AsyncClient]:
    """A client of a real node at shop.main, which has run a script."""
    async with (
        real_node(directory) as node,
        node.client(ns="shop", db="main") as client,
    ):
        await client.run(declared)
        yield client
