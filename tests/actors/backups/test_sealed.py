"""A node with a key seals its backups by every route, and reads those that its keys open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from storage.formats.container import HEADER_BYTES, MAGIC, BackupFileForm, Header
from storage.formats.sealing import Key
from tests.nodes import running
from tests.storage.backups.held import KEY, OTHER_KEY

FILL = """
    DEFINE NAMESPACE mart; DEFINE DATABASE mart.main; USE mart.main;
    DEFINE TABLE t; CREATE t:1 SET text = 'canary'
"""
MART = "BACKUP SCRIPT OF mart.main TO 'x'"
FORMS = {
    "BACKUP": BackupFileForm.SNAPSHOT,
    "BACKUP LOG FROM 1": BackupFileForm.LOG,
    "BACKUP SCRIPT": BackupFileForm.SCRIPT,
}


def with_keys(folder: Path, key: Key | None, *others: Key) -> dict[str, Any]:
    """The settings of a node."""
    own = () if key is None else (key,)
    return {"backup_dir": str(folder), "key": key, "opening_keys": (*others, *own)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "folder"
    path.mkdir()
    return path


def check_sealed(data: bytes, form: BackupFileForm, key: Key = KEY) -> None:
    """It is of that form, and nothing in it is in clear."""
    header = Header.decode(data[:HEADER_BYTES])
    assert (header.form, header.sealed, header.key_id) == (form, True, key.id)
    assert data.startswith(MAGIC[form])
    for canary in (b"canary", b"CREATE", b"DEFINE", b"storenode"):
        assert canary not in data[HEADER_BYTES:]


@pytest.mark.parametrize("statement", FORMS)
async def test_each_form_by_each_route(tmp_path: Path, folder: Path, statement: str) -> None:
    form = FORMS[statement]
    async with running(tmp_path / "store", settings=with_keys(folder, KEY)) as node:
        await node.values(FILL)
        await node.values(f"{statement} TO 'x'")
        check_sealed((folder / "x").read_bytes(), form)
        [answer] = await node.values(statement)
        check_sealed(answer, form)
        asked = await node.answer(statement, hands_over=("STATE", "LOG", "SCRIPT"))
        assert asked.file is not None
        data = await asked.file.read(0, asked.file.size)
        asked.file.close()
        check_sealed(data, form)


async def test_what_is_in_the_folder(tmp_path: Path, folder: Path) -> None:
    async with running(tmp_path / "store", settings=with_keys(folder, KEY)) as node:
        await node.values(FILL)
        for name, statement in zip("lsx", ("BACKUP LOG", "BACKUP", "BACKUP SCRIPT"), strict=True):
            await node.values(f"{statement} TO '{name}'")
        [found] = await node.values("INFO FOR BACKUPS")
        assert [(one["form"], one["sealed"], one["verifies"]) for one in found] == [
            ("log", True, True),
            ("snapshot", True, True),
            ("script", True, True),
        ]
        assert all(one["sequence"] for one in found)
    for key in (None, OTHER_KEY):
        settings = with_keys(folder, key)
        async with running(tmp_path / f"other-{key is None}", settings=settings) as node:
            [found] = await node.values("INFO FOR BACKUPS")
            for one in found:
                assert one["problem"].startswith("WrongKey: ")
                assert (one["sealed"], one["verifies"], one["sequence"]) == (True, False, None)


@pytest.mark.parametrize("key", [None, OTHER_KEY], ids=["plain", "another"])
async def test_a_sealed_script_is_restored_with_its_key(
    tmp_path: Path, folder: Path, key: Key | None
) -> None:
    async with running(tmp_path / "store", settings=with_keys(folder, KEY)) as node:
        await node.values(FILL)
        await node.values(MART)
    async with running(tmp_path / "closed", settings=with_keys(folder, key)) as node:
        for script in ("RESTORE SCRIPT FROM 'x'", "RESTORE SCRIPT FROM 'x' CHECK"):
            refusal = (await node.answer(script)).refusal
            assert refusal is not None and refusal.code == "WrongKey"
    settings = with_keys(folder, key, KEY)
    async with running(tmp_path / "open", settings=settings) as node:
        [answer] = await node.values("RESTORE SCRIPT FROM 'x'")
        assert answer["databases"]


async def test_a_plain_script_is_restored_where_a_key_is(tmp_path: Path, folder: Path) -> None:
    async with running(tmp_path / "store", settings=with_keys(folder, None)) as node:
        await node.values(FILL)
        await node.values(MART)
    async with running(tmp_path / "other", settings=with_keys(folder, KEY)) as node:
        assert (await node.values("RESTORE SCRIPT FROM 'x'"))[0]["databases"]


async def test_a_damaged_script_is_restored_not_at_all(tmp_path: Path, folder: Path) -> None:
    async with running(tmp_path / "store", settings=with_keys(folder, KEY)) as node:
        await node.values(FILL)
        await node.values(MART)
    data = (folder / "x").read_bytes()
    cut, flipped = data[: len(data) // 2], bytearray(data)
    flipped[-200] ^= 1
    async with running(tmp_path / "other", settings=with_keys(folder, KEY)) as node:
        for broken, code in ((cut, "BackupCut"), (bytes(flipped), "BackupCorrupt")):
            (folder / "x").write_bytes(broken)
            refusal = (await node.answer("RESTORE SCRIPT FROM 'x'")).refusal
            assert refusal is not None and refusal.code == code
            [found] = await node.values("INFO FOR BACKUPS")
            assert (found[0]["sealed"], found[0]["verifies"]) == (True, False)
