from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.nodes import Running, running


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Running]:
    """A node with table `thing` in shop.main."""
    async with running(tmp_path / "store") as here:
        await here.values("DEFINE TABLE thing")
        yield here
