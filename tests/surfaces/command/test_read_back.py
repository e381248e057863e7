"""What a command has written is read back before it has its name, in each form."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from storage.files.disk import DiskFile
from surfaces.command import backups, dumping
from surfaces.command.arguments import BackUp, Dump, RunFile
from surfaces.command.console import Console
from surfaces.command.failures import NotOpened
from surfaces.command.scripts import run_file

WHOLE = DiskFile.append
SAID = Console(lambda _: None, terminal=False)


def spoil(self: DiskFile, data: bytes, ahead: int = 0) -> None:
    """A disk that keeps something else than it was given."""
    found = os.readlink(f"/proc/self/fd/{self.descriptor}")
    if found.endswith("x.partial") and len(data) > 90:
        data = data[:80] + bytes((data[80] ^ 1,)) + data[81:]
    WHOLE(self, data, ahead)


@pytest.mark.parametrize("form", ["snapshot", "log", "script"])
async def test_a_disk_that_keeps_something_else(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, fill, file = str(tmp_path / "store"), tmp_path / "fill", str(tmp_path / "x")
    fill.write_text("DEFINE NAMESPACE n; DEFINE DATABASE n.d; USE n.d; DEFINE TABLE t; CREATE t:1")
    assert await run_file(RunFile(store, str(fill)), SAID)

    async def write() -> bool:
        if form == "script":
            return await dumping.dump(Dump(store, file), SAID)
        return await backups.back_up(BackUp(store, file, 1 if form == "log" else None), SAID)

    with monkeypatch.context() as planted:
        planted.setattr(DiskFile, "append", spoil)
        with pytest.raises(NotOpened, match="does not read back"):
            await write()
    assert not any(name.startswith("x") for name in os.listdir(tmp_path))
    assert await write()
