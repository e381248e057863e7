"""Copies of a store with a FULLTEXT and a VECTOR index find the same records, with the same scores
and distances."""

from __future__ import annotations

import asyncio
import struct
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from actors.backups.restoring import RestoreOptions, restore
from actors.environment import system_environment
from actors.indexes import segment_folds, vector_training
from storage.backups.state_builder import no_progress
from tests import ores
from tests.nodes import Running, running
from tests.reliability.test_sealed_store import seen
from tests.storage.backups.held import KEY

IN_CLEAR = (
    b"malachit", b"galena", b"chalcopyrit", b"mineral",
    *(struct.pack(form, ores.DEPTH) for form in ("<f", ">f", "<d", ">d")),
)  # fmt: skip
LISTS = 60


async def folded(node: Running) -> dict[str, Any]:
    """INFO of the VECTOR index, once no record of both is fresh; all of both is checked."""
    while not ores.are_folded(infos := await node.values(ores.INFO), LISTS):
        await asyncio.sleep(0.02)
    assert ores.are_whole(await node.values(ores.CHECK))
    return infos[1]  # type: ignore[no-any-return]


async def twice(node: Running) -> list[Any]:
    """The answers before and after all folds, which are the same."""
    found = await node.values(ores.QUESTIONS)
    assert (await folded(node))["recall"] == "unmeasured"
    assert await node.values(ores.QUESTIONS) == found
    nearest = [row["id"] for row in found[5]]
    assert ores.share(await node.value(ores.LISTED), nearest) >= 0.8
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
    monkeypatch.setattr(vector_training, "ONE_LIST", 200)
    folder = tmp_path / "folder"
    folder.mkdir()
    settings = {"key": KEY, "opening_keys": (KEY,), "backup_dir": str(folder)}
    async with running(tmp_path / "store", settings=settings) as node:
        await node.values(ores.SEED + ores.rows(0, 300))
        await folded(node)
        await node.values(ores.CHANGES)
        await folded(node)
        await node.values("MEASURE INDEX near ON ore")
        await node.values(ores.rows(300, 320))
        answers = await node.values(ores.QUESTIONS)
        assert [bool(one) for one in answers] == [True] * 8
        await node.values("BACKUP TO 'snapshot'; BACKUP LOG FROM 1 TO 'log'")
        await node.values("BACKUP SCRIPT OF shop.main TO 'script'")
        measured = (await folded(node))["recall"]
        assert measured != "unmeasured"
    for name in ("snapshot", "log"):
        made = restored(folder, name, tmp_path / name)
        async with running(made, settings=settings) as node:
            assert await twice(node) == answers, name
    async with running(tmp_path / "store", settings=settings) as node:
        assert await node.values(ores.QUESTIONS) == answers, "a restart of a sealed store"
        assert (await folded(node))["recall"] == measured
        await node.values("DROP DATABASE main")
        await node.values("RESTORE SCRIPT FROM 'script'")
        assert await twice(node) == answers, "a script"
    shown = [path for path, data in seen(tmp_path).items() if any(w in data for w in IN_CLEAR)]
    assert not shown
