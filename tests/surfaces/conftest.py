"""Fixtures of the tests of all surfaces."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from surfaces.long_work import LongWork
from tests.certificates import Contexts, contexts_of
from tests.memory import shared_path, tmp_path

__all__ = ["shared_path", "tmp_path", "under_way"]


@pytest.fixture
def contexts(tmp_path: Path) -> Contexts:
    return contexts_of(tmp_path)


@pytest.fixture
def under_way(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many long works were under way with each that began, it among them."""
    run, now = LongWork.run, set[object]()
    found: list[int] = []

    async def counted(self: LongWork, user: str, work: Callable[[Callable[[], None]], Any]) -> Any:
        now.add(work)
        found.append(len(now))
        try:
            return await run(self, user, work)
        finally:
            now.remove(work)

    monkeypatch.setattr(LongWork, "run", counted)
    return found
