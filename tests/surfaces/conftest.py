"""Fixtures of the tests of all surfaces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from surfaces.turns import LongWork
from tests import memory


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """Folder of the test, in memory: surfaces don't differ by how long a disk takes to sync."""
    with memory.folder(tmp_path) as path:
        yield path


@pytest.fixture(scope="session")
def shared_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folder of a worker, in memory."""
    with memory.folder(tmp_path_factory.mktemp("shared")) as path:
        yield path


@pytest.fixture
def under_way(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many long works were under way with each that began, it among them."""
    run, now = LongWork.run, set[object]()
    found: list[int] = []

    async def counted(self: LongWork, work: Callable[[Callable[[], None]], Any]) -> Any:
        now.add(work)
        found.append(len(now))
        try:
            return await run(self, work)
        finally:
            now.remove(work)

    monkeypatch.setattr(LongWork, "run", counted)
    return found
