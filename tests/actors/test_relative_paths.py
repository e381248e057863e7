"""A store in a directory that is named from where the node was started, as the pages do it."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.formats.sealing import Key
from tests.nodes import running
from tests.storage.backups.held import KEY


@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "sealed"])
@pytest.mark.parametrize("path", ["db", "./db", "over/../db"])
async def test_a_relative_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, key: Key | None
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "over").mkdir()
    for _ in range(2):
        async with running(Path(path), settings={"key": key}) as here:
            await here.value("DEFINE TABLE IF NOT EXISTS t")
    assert (tmp_path / "db/STORE").exists()
