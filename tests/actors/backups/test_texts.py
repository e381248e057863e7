"""Copies of a store with a FULLTEXT index find the same records, with the same scores."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from actors import segment_folds
from actors.backups.restoring import RestoreOptions, restore
from actors.environment import system_environment
from storage.backups.state_builder import no_progress
from tests import texts
from tests.nodes import Running, running
from tests.reliability.test_sealed_store import seen
from tests.storage.backups.held import KEY

IN_CLEAR = (b"malachit", b"galena", b"chalcopyrit", b"mineral")


async def folded(node: Running) -> None:
    """Wait until no record is fresh, and check all of the index."""
    while True:
        info = await node.value(texts.INFO)
        if info["state"] == "ready" and not info["fresh"]["records"]:
            break
        await asyncio.sleep(0.02)
    checked = await node.value(texts.CHECK)
    assert checked["entries"] == checked["records"] > 0
    assert checked["missing"] == checked["surplus"] == 0


async def twice(node: Running) -> list[Any]:
    """The answers before and after all folds, which are the same."""
    found = await node.values(texts.QUESTIONS)
    await folded(node)
    assert await node.values(texts.QUESTIONS) == found
    return found


def restored(folder: Path, name: str, directory: Path) -> Path:
    """A sealed store that is made of a backup."""
    environment = system_environment()
    with closing(environment.fs.open_read(str(folder / name))) as file:
        options = RestoreOptions(str(directory), key=KEY)
        list(restore(environment, file, options, no_progress, (KEY,)))
    return directory


async def test_every_copy_answers_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_folds, "LOOK_SECONDS", 0.02)
    folder = tmp_path / "folder"
    folder.mkdir()
    settings = {"key": KEY, "opening_keys": (KEY,), "backup_dir": str(folder)}
    async with running(tmp_path / "store", settings=settings) as node:
        await node.values(texts.SEED + texts.rows(0, 300))
        await folded(node)
        await node.values(texts.CHANGES)
        await folded(node)
        await node.values(texts.rows(300, 320))
        answers = await node.values(texts.QUESTIONS)
        assert [bool(one) for one in answers] == [True] * 5
        await node.values("BACKUP TO 'snapshot'; BACKUP LOG FROM 1 TO 'log'")
        await node.values("BACKUP SCRIPT OF shop.main TO 'script'")
        await folded(node)
    async with running(tmp_path / "store", settings=settings) as node:
        assert await twice(node) == answers, "a restart of a sealed store"
        await node.values("DROP DATABASE main")
        await node.values("RESTORE SCRIPT FROM 'script'")
        assert await twice(node) == answers, "a script"
    for name in ("snapshot", "log"):
        made = restored(folder, name, tmp_path / name)
        async with running(made, settings=settings) as node:
            assert await twice(node) == answers, name
    shown = [path for path, data in seen(tmp_path).items() if any(w in data for w in IN_CLEAR)]
    assert not shown
