"""Files that a command makes, and what may be in their way."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from storage.files.disk import Disk
from storage.formats.container import SCRIPT_BEGINS
from surfaces.command.failures import NotOpened
from surfaces.command.new_files import made

FS = Disk()
DB = "/db"


def make(path: Path, data: bytes = b"all of it") -> None:
    with made(FS, str(path), str(path.parent / "db")) as file:
        file.write(data)


def test_it_has_its_name_at_the_end(tmp_path: Path) -> None:
    with made(FS, str(tmp_path / "x"), DB) as file:
        file.write(b"one ")
        file.write(b"two")
        assert file.size == 7 and os.listdir(tmp_path) == ["x.partial"]
        file.sync()
        assert file.file.read(0, 100) == b"one two"
    assert (tmp_path / "x").read_bytes() == b"one two"
    assert os.listdir(tmp_path) == ["x"]
    assert (tmp_path / "x").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("name", ["x", "no/x", "there/", "link", "x" * 250])
def test_what_is_no_name_for_it(tmp_path: Path, name: str) -> None:
    (tmp_path / "x").write_text("mine")
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("nowhere")
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(NotOpened), made(FS, f"{tmp_path}/{name}", DB) as _:
        raise AssertionError("it was begun")
    assert sorted(os.listdir(tmp_path)) == before


def test_of_two_the_second_is_refused(tmp_path: Path) -> None:
    """And what the first has written stays as it is."""
    with made(FS, str(tmp_path / "x"), DB) as first:
        first.write(b"first")
        with pytest.raises(NotOpened, match="another command is writing it"):
            make(tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == b"first"


@pytest.mark.parametrize("left", [b"", b"STORSNAP", b"STORBLOG and more", SCRIPT_BEGINS + b" 1\n"])
def test_what_was_cut_off_goes(tmp_path: Path, left: bytes) -> None:
    (tmp_path / "x.partial").write_bytes(left)
    make(tmp_path / "x")
    assert os.listdir(tmp_path) == ["x"]


@pytest.mark.parametrize("kind", ["file", "link", "folder", "pipe"])
def test_what_is_somebodys_own_stays(tmp_path: Path, kind: str) -> None:
    partial = tmp_path / "x.partial"
    if kind == "file":
        partial.write_text("a letter")
    elif kind == "link":
        partial.symlink_to("nowhere")
    elif kind == "folder":
        partial.mkdir()
    else:
        os.mkfifo(partial)
    with pytest.raises(NotOpened, match="is not a partial backup"):
        make(tmp_path / "x")
    assert os.listdir(tmp_path) == ["x.partial"]
    assert kind != "file" or partial.read_text() == "a letter"


@pytest.mark.parametrize("problem", [KeyboardInterrupt, OSError(errno.ENOSPC, "No space left")])
def test_a_block_that_fails_leaves_nothing(
    tmp_path: Path, problem: BaseException | type[BaseException]
) -> None:
    with pytest.raises((KeyboardInterrupt, NotOpened)), made(FS, str(tmp_path / "x"), DB) as file:
        file.write(b"half")
        raise problem
    assert os.listdir(tmp_path) == []


def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(NotOpened, match="No such file"), made(FS, str(folder / "x"), DB) as file:
        file.write(b"half")
        (folder / "x.partial").unlink()
        folder.rmdir()
    assert os.listdir(tmp_path) == []


def test_what_got_the_name_meanwhile_stays(tmp_path: Path) -> None:
    with pytest.raises(NotOpened, match="File exists"), made(FS, str(tmp_path / "x"), DB) as file:
        file.write(b"late")
        (tmp_path / "x").write_text("mine")
    assert (tmp_path / "x").read_text() == "mine"
    assert os.listdir(tmp_path) == ["x"]


@pytest.mark.parametrize("name", ["db/x", "db/tmp/x", "link/x", "other/../db/x"])
def test_none_is_made_in_the_store(tmp_path: Path, name: str) -> None:
    """Which empties `tmp` at each start."""
    for folder in ("db", "db/tmp", "other"):
        (tmp_path / folder).mkdir()
    (tmp_path / "link").symlink_to("db/tmp")
    path = f"{tmp_path}/{name}"
    inside = pytest.raises(NotOpened, match="is in the data directory")
    with inside, made(FS, path, f"{tmp_path}/db"):
        raise AssertionError("it was begun")
    with made(FS, path, f"{tmp_path}/db2"):
        pass
