"""The data directory: its owner, and directories that are refused untouched."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from storage.faults import (
    StoreDamaged,
    StoreFault,
    StoreForeign,
    StoreLocked,
    StoreMissing,
    StoreOfAnotherUser,
    StoreOpenToOthers,
    StoreTooNew,
    StoreTooOld,
)
from storage.files import metadata_file
from storage.files.directory import StoreDirectory, segment_name
from storage.files.disk import Disk
from tests.simulation.environment import ManualClock, SeededRng


def open_directory(path: Path | str, create: bool = False, seed: int = 1) -> StoreDirectory:
    return StoreDirectory.open(str(path), Disk(), ManualClock(), SeededRng(seed), create)


def everything(path: Path) -> dict[str, bytes | None]:
    """All names below a path, with the contents of files."""
    return {
        str(p.relative_to(path)): None if p.is_dir() else p.read_bytes()
        for p in sorted(path.rglob("*"))
    }


def test_first_open_makes_the_store_and_the_next_finds_it(tmp_path: Path) -> None:
    path = tmp_path / "some" / "where"
    directory = open_directory(f"{path}/", create=True)
    assert sorted(os.listdir(path)) == ["LOCK", "STORE", "log", "state", "tmp"]
    assert os.listdir(path / "log") == [segment_name(1)]
    assert (path / "LOCK").read_text().splitlines()[0] == str(os.getpid())
    assert path.stat().st_mode & 0o777 == 0o700
    directory.close()
    again = open_directory(path, seed=2)
    assert (again.store_id, again.created) == (directory.store_id, directory.created)
    again.close()


def test_missing_store_is_not_made_unasked(tmp_path: Path) -> None:
    with pytest.raises(StoreMissing):
        open_directory(tmp_path / "none")
    with pytest.raises(StoreMissing):
        open_directory(tmp_path)
    assert everything(tmp_path) == {}


@pytest.mark.parametrize(
    "name", ["notes.txt", "log/messages", "state/of/things", "tmp/kept.txt", ".hidden"]
)
def test_foreign_directory_is_refused_untouched(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("not ours")
    before = everything(tmp_path)
    with pytest.raises(StoreForeign):
        open_directory(tmp_path, create=True)
    assert everything(tmp_path) == before


def test_file_in_the_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a file")
    with pytest.raises(StoreForeign):
        open_directory(tmp_path / "f", create=True)


@pytest.mark.parametrize("kept", ["log", "state"])
def test_store_that_lost_its_store_file_is_not_made_anew(tmp_path: Path, kept: str) -> None:
    open_directory(tmp_path, create=True).close()
    (tmp_path / "STORE").unlink()
    if kept == "log":
        with (tmp_path / "log" / segment_name(1)).open("ab") as file:
            file.write(b"a frame")
    else:
        (tmp_path / "state" / "CURRENT").write_text("x")
    before = everything(tmp_path)
    with pytest.raises(StoreForeign):
        open_directory(tmp_path, create=True)
    assert everything(tmp_path) == before


def test_first_start_cut_short_is_done_again(tmp_path: Path) -> None:
    first = open_directory(tmp_path, create=True)
    first.close()
    (tmp_path / "STORE").unlink()
    (tmp_path / "tmp" / "STORE.new").write_text("half")
    (tmp_path / "lost+found").mkdir()
    again = open_directory(tmp_path, create=True, seed=2)
    assert again.store_id != first.store_id
    again.close()


class Overtaken(Disk):
    """While it looks at a directory another process makes a store there, and writes to it."""

    def __init__(self) -> None:
        super().__init__()
        self.other: StoreDirectory | None = None

    def names(self, path: str) -> list[str]:
        found = super().names(path)
        if self.other is None:
            self.other = open_directory(path, create=True)
            (Path(path) / "state" / "CURRENT").write_text("of the engine")
        return found


def test_who_is_overtaken_by_another_first_start_hears_that_it_is_open(tmp_path: Path) -> None:
    disk = Overtaken()
    with pytest.raises(StoreLocked, match=str(os.getpid())):
        StoreDirectory.open(str(tmp_path), disk, ManualClock(), SeededRng(2), create=True)
    assert disk.other is not None
    disk.other.close()


def test_second_opener_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    owner = open_directory(tmp_path, create=True)
    (tmp_path / "tmp" / "work").write_text("in progress")
    before = everything(tmp_path)
    with pytest.raises(StoreLocked, match=str(os.getpid())):
        open_directory(tmp_path)
    with pytest.raises(StoreLocked):
        open_directory(tmp_path, create=True)
    assert everything(tmp_path) == before
    owner.close()


@pytest.mark.parametrize(("by", "fault"), [(-1, StoreTooOld), (1, StoreTooNew)])
def test_store_of_another_format_is_refused_untouched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: int, fault: type[StoreFault]
) -> None:
    monkeypatch.setattr(metadata_file, "FORMAT", metadata_file.FORMAT + by)
    open_directory(tmp_path, create=True).close()
    monkeypatch.undo()
    (tmp_path / "tmp" / "theirs").write_text("x")
    before = everything(tmp_path)
    with pytest.raises(fault, match="format"):
        open_directory(tmp_path, create=True)
    assert everything(tmp_path) == before


def test_damaged_store_file_is_refused(tmp_path: Path) -> None:
    open_directory(tmp_path, create=True).close()
    for content in (b"", b"{}\n", b"nonsense", (tmp_path / "STORE").read_bytes()[:-3]):
        (tmp_path / "STORE").write_bytes(content)
        with pytest.raises(StoreDamaged):
            open_directory(tmp_path)


def test_tmp_is_emptied_and_what_may_be_missing_is_made(tmp_path: Path) -> None:
    open_directory(tmp_path, create=True).close()
    (tmp_path / "tmp" / "folder").mkdir()
    (tmp_path / "tmp" / "folder" / "f").write_text("x")
    (tmp_path / "tmp" / "f").write_text("x")
    (tmp_path / "state").rmdir()
    open_directory(tmp_path).close()
    assert os.listdir(tmp_path / "tmp") == []
    assert (tmp_path / "state").is_dir()


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o701, 0o770])
def test_a_directory_open_to_others_is_closed(tmp_path: Path, mode: int) -> None:
    store = tmp_path / "store"
    store.mkdir()
    store.chmod(mode)
    for opened in (True, False):
        directory = open_directory(store, create=True)
        assert directory.was_open_to_others is opened
        assert store.stat().st_mode & 0o777 == 0o700
        directory.close()


def test_a_directory_open_to_others_and_somebody_elses_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_directory(tmp_path, create=True).close()
    tmp_path.chmod(0o755)
    before = everything(tmp_path)

    def chmod(path: str, mode: int) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted", path)

    monkeypatch.setattr(os, "chmod", chmod)
    with pytest.raises(StoreOpenToOthers, match="open to other users"):
        open_directory(tmp_path)
    assert everything(tmp_path) == before


def test_a_directory_of_another_user_is_refused_even_to_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root could open it, and would leave files there that its owner can't read."""
    open_directory(tmp_path / "store", create=True).close()
    (tmp_path / "empty").mkdir(mode=0o700)
    before = everything(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    for name in ("store", "empty"):
        with pytest.raises(StoreOfAnotherUser, match=rf"{name} belongs to the user \w+: run this"):
            open_directory(tmp_path / name, create=True)
    with pytest.raises(StoreOfAnotherUser):
        StoreDirectory.begin_restore(str(tmp_path / "empty"), Disk(), ManualClock(), SeededRng(1))
    assert everything(tmp_path) == before
