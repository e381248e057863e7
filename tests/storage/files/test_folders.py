"""A folder that is held open."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.environment import Folder, Room
from storage.files import folders
from storage.files.disk_files import DiskFile
from storage.files.folders import DiskFolder
from tests.simulation.disk import SimulatedDisk

NEWEST = {"newest calls": True, "substitutes": False}


@pytest.fixture(params=[*NEWEST, "simulated"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Folder]:
    if request.param in NEWEST:
        found: Folder = DiskFolder.open(str(tmp_path), newest=NEWEST[request.param])
    else:
        found = SimulatedDisk({"": None, "/d": None}).open_folder("/d")
    yield found
    found.close()
    found.close()


@pytest.fixture(params=NEWEST)
def real(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[DiskFolder, Path]]:
    """A real folder, beside what must stay as it is."""
    (tmp_path / "in").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
    found = DiskFolder.open(str(tmp_path / "in"), newest=NEWEST[request.param])
    yield found, tmp_path / "in"
    found.close()
    assert os.listdir(tmp_path / "outside") == ["secret"]
    assert (tmp_path / "outside" / "secret").read_text() == "secret"


def test_who_tests_a_lock_holds_none_for_another_who_does(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.create("a.partial").close()
    testing: list[DiskFile] = []
    with monkeypatch.context() as patched:
        patched.setattr(DiskFile, "close", lambda file: testing.append(file))
        assert [folder.is_held("a.partial") for _ in range(2)] == [False, False]
    for file in testing:
        file.close()


def test_a_file_gets_its_name(folder: Folder) -> None:
    file = folder.create("a.partial")
    assert folder.is_held("a.partial")
    file.append(b"hello")
    file.sync()
    folder.rename("a.partial", "a")
    assert folder.is_at(file, "a")
    assert not folder.is_at(file, "a.partial")
    file.close()
    assert not folder.is_held("a")
    folder.sync()
    assert folder.names() == ["a"]
    entry = folder.entry("a")
    assert entry is not None
    assert (entry.kind, entry.bytes) == ("file", 5)
    again = folder.open_read("a")
    assert again.read(0, 9) == b"hello"
    again.close()
    folder.unlink("a")
    assert folder.entry("a") is None
    assert folder.room().holds(Room(1, 1))


def test_nothing_is_replaced(folder: Folder) -> None:
    for name in ("a", "b"):
        file = folder.create(name)
        file.append(name.encode())
        file.close()
    with pytest.raises(FileExistsError):
        folder.create("a")
    with pytest.raises(FileExistsError):
        folder.rename("a", "b")
    folder.make_folder("c")
    with pytest.raises(FileExistsError):
        folder.rename("a", "c")
    with pytest.raises(FileExistsError):
        folder.make_folder("c")
    file = folder.open_read("b")
    assert file.read(0, 9) == b"b"
    file.close()


def test_subfolders(folder: Folder) -> None:
    folder.make_folder("sub")
    sub = folder.enter("sub")
    sub.create("x").close()
    entry = folder.entry("sub")
    assert entry is not None
    assert entry.kind == "folder"
    with pytest.raises(OSError, match="not empty"):
        folder.remove_folder("sub")
    sub.unlink("x")
    sub.close()
    folder.remove_folder("sub")
    with pytest.raises(FileNotFoundError):
        folder.enter("sub")
    folder.create("file").close()
    with pytest.raises(NotADirectoryError):
        folder.enter("file")


def test_only_plain_parts_are_looked_up(folder: Folder) -> None:
    for name in ("", ".", "..", "a/b", "/etc"):
        with pytest.raises(AssertionError):
            folder.open_read(name)


def test_links_are_not_followed(real: tuple[DiskFolder, Path]) -> None:
    folder, path = real
    (path / "file").symlink_to("../outside/secret")
    (path / "dir").symlink_to("../outside")
    (path / "new").symlink_to("../outside/new")
    with pytest.raises(NotADirectoryError):
        folder.enter("dir")
    with pytest.raises(FileNotFoundError):
        folder.open_read("file")
    with pytest.raises(FileExistsError):
        folder.create("new")
    own = folder.create("own")
    for name in ("file", "dir", "new"):
        with pytest.raises(FileExistsError):
            folder.rename("own", name)
        entry = folder.entry(name)
        assert entry is not None
        assert entry.kind == "other"
    assert not folder.is_at(own, "file")
    own.close()
    folder.unlink("file")


def test_what_is_no_file_is_not_opened(real: tuple[DiskFolder, Path]) -> None:
    folder, path = real
    os.mkfifo(path / "pipe")
    (path / "sub").mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path / "socket"))
        for name in ("pipe", "sub", "socket"):
            with pytest.raises(FileNotFoundError):
                folder.open_read(name)


def test_a_folder_that_was_moved_is_still_the_one(real: tuple[DiskFolder, Path]) -> None:
    """The path leads elsewhere by now; what is held open is where it was."""
    folder, path = real
    (path / "sub").mkdir()
    sub = folder.enter("sub")
    (path / "sub").rename(path / "moved")
    (path / "sub").symlink_to("../outside")
    sub.create("x").close()
    sub.rename("x", "y")
    sub.close()
    assert os.listdir(path / "moved") == ["y"]


def test_the_substitutes_are_taken_where_there_is_no_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on an old kernel: the number is nobody's."""
    monkeypatch.setattr(folders, "_OPENAT2", 100_000)

    class Old:
        """A C library without renameat2."""

        syscall = folders._LIBC.syscall

    monkeypatch.setattr(folders, "_LIBC", Old())
    folder = DiskFolder.open(str(tmp_path))
    folder.create("a").close()
    folder.create("b").close()
    with pytest.raises(FileExistsError):
        folder.rename("a", "b")
    folder.rename("a", "c")
    assert folder.names() == ["b", "c"]
    (tmp_path / "link").symlink_to("b")
    with pytest.raises(FileNotFoundError):
        folder.open_read("link")
    folder.close()
