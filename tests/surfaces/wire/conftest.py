"""A surface before a fake node, and a peer that has signed in on it. Tests before a real node have
fixtures of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from surfaces.wire import WireSurface
from tests.surfaces.wire.peers import FakeNode, Peer, connected, serving


@pytest.fixture
def node() -> FakeNode:
    return FakeNode()


@pytest.fixture
async def surface(node: FakeNode) -> AsyncIterator[WireSurface]:
    async with serving(node) as surface:
        yield surface


@pytest.fixture
async def peer(surface: WireSurface) -> AsyncIterator[Peer]:
    async with connected(surface) as peer:
        await peer.sign_in()
        yield peer
