"""The file door: one suite for the real disk and the simulated one, then what each adds."""

from __future__ import annotations

import errno
import multiprocessing
import os
import random
import socket
import stat
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from protocol.environment import Folder, Fs, Room
from storage.files.disk import _LIBC, Disk, DiskFile, DiskFolder
from tests.simulation.disk import Fault, SimulatedDisk


@pytest.fixture(params=["real", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Fs, str]:
    """A file system and an empty directory on it."""
    if request.param == "real":
        return Disk(), str(tmp_path)
    return SimulatedDisk({"": None, "/d": None}), "/d"


def test_file_reads_back_what_was_appended(place: tuple[Fs, str]) -> None:
    fs, root = place
    file = fs.open(f"{root}/f", create=True)
    file.append(b"hello ")
    file.append(b"world")
    file.sync()
    assert (file.read(0, 100), file.read(6, 2), file.read(50, 5)) == (b"hello world", b"wo", b"")
    assert file.size() == 11
    file.truncate(4)
    file.append(b"!")
    file.forget_cache()
    assert file.read(0, 100) == b"hell!"
    file.close()
    file.close()


def test_what_was_put_ahead_is_written_over(place: tuple[Fs, str]) -> None:
    fs, root = place
    file = fs.open(f"{root}/f", create=True)
    file.append(b"one", ahead=5)
    assert (file.size(), file.read(0, 100)) == (8, b"one" + bytes(5))
    file.append(b"two")
    assert (file.size(), file.read(0, 100)) == (8, b"onetwo" + bytes(2))
    file.append(b"three")
    assert file.read(0, 100) == b"onetwothree"
    file.append(b"!", ahead=2)
    file.truncate(11)
    file.append(b"?")
    file.sync()
    assert file.read(0, 100) == b"onetwothree?"
    file.append(b"", ahead=3)
    file.close()
    file = fs.open(f"{root}/f")
    file.append(b".")
    assert file.read(0, 100) == b"onetwothree?" + bytes(3) + b".", "known to one open file only"
    file.close()


def test_open_follows_its_words(place: tuple[Fs, str]) -> None:
    fs, root = place
    with pytest.raises(FileNotFoundError):
        fs.open(f"{root}/f")
    with pytest.raises(FileNotFoundError):
        fs.open_read(f"{root}/f")
    fs.open(f"{root}/f", exclusive=True).close()
    with pytest.raises(FileExistsError):
        fs.open(f"{root}/f", exclusive=True)
    fs.open(f"{root}/f", create=True).close()


def test_directories_and_names(place: tuple[Fs, str]) -> None:
    fs, root = place
    fs.make_directory(f"{root}/b")
    with pytest.raises(FileExistsError):
        fs.make_directory(f"{root}/b")
    fs.open(f"{root}/a", create=True).close()
    fs.open(f"{root}/b/c", create=True).close()
    fs.rename(f"{root}/b/c", f"{root}/a")
    fs.sync_directory(root)
    assert fs.names(root) == ["a", "b"]
    assert fs.names(f"{root}/b") == []
    assert fs.is_directory(f"{root}/b")
    assert not fs.is_directory(f"{root}/a")
    assert fs.exists(f"{root}/a")
    assert not fs.exists(f"{root}/z")
    fs.unlink(f"{root}/a")
    fs.open(f"{root}/b/d", create=True).close()
    fs.remove_tree(f"{root}/b")
    assert fs.names(root) == []
    with pytest.raises(FileNotFoundError):
        fs.unlink(f"{root}/a")
    with pytest.raises(FileNotFoundError):
        fs.names(f"{root}/b")
    assert fs.room(root).holds(Room(1, 1))
    assert fs.takes(root, 100_000)
    assert fs.names(root) == []


def test_a_lock_whose_sign_can_not_be_written(place: tuple[Fs, str]) -> None:
    """A full disk is no reason not to hold it; anything else is."""
    fs, root = place
    with pytest.raises(OSError, match="Is a directory"):
        fs.lock(root, root)
    if isinstance(fs, SimulatedDisk):
        fs.plan = lambda kind, path: Fault(errno.ENOSPC) if kind == "append" else None
    lock = fs.lock(root, f"{root}/LOCK")
    assert lock is not None
    assert fs.lock(root, f"{root}/LOCK") is None
    lock.release()


def test_lock_has_one_owner(place: tuple[Fs, str]) -> None:
    fs, root = place
    lock = fs.lock(root, f"{root}/LOCK")
    assert lock is not None
    assert fs.lock(root, f"{root}/LOCK") is None
    file = fs.open_read(f"{root}/LOCK")
    assert file.read(0, 100).endswith(b"\nstorenode\n")
    file.close()
    fs.unlink(f"{root}/LOCK")
    assert fs.lock(root, f"{root}/LOCK") is None, "the file has no part in it"
    assert not fs.exists(f"{root}/LOCK"), "and whoever does not get it changes nothing"
    lock.release()
    lock.release()
    again = fs.lock(root, f"{root}/LOCK")
    assert again is not None
    again.release()
    assert fs.exists(f"{root}/LOCK")


def test_only_the_owner_may_read(tmp_path: Path) -> None:
    Disk().make_directory(f"{tmp_path}/d")
    Disk().open(f"{tmp_path}/f", create=True).close()
    assert stat.S_IMODE((tmp_path / "d").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o600


def _hold(path: str, held: multiprocessing.synchronize.Event) -> None:
    lock = Disk().lock(path, f"{path}/LOCK")
    assert lock is not None
    held.set()
    while True:
        os.sched_yield()


def test_lock_of_a_killed_process_is_free_at_once(tmp_path: Path) -> None:
    fork = multiprocessing.get_context("fork")
    held = fork.Event()
    child = fork.Process(target=_hold, args=(str(tmp_path), held))
    child.start()
    assert held.wait(30)
    assert Disk().lock(str(tmp_path), f"{tmp_path}/LOCK") is None
    assert (tmp_path / "LOCK").read_text() == f"{child.pid}\nstorenode\n"
    child.kill()
    child.join()
    child.close()
    lock = Disk().lock(str(tmp_path), f"{tmp_path}/LOCK")
    assert lock is not None
    assert (tmp_path / "LOCK").read_text() == f"{os.getpid()}\nstorenode\n"
    lock.release()


def test_short_writes_are_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, bytes(data)[:3]))
    file = Disk().open(f"{tmp_path}/f", create=True)
    file.append(b"0123456789", ahead=4)
    file.append(b"ab")
    assert file.read(0, 100) == b"0123456789ab" + bytes(2)
    file.close()


# --- the simulated disk ---------------------------------------------------------------------------


@pytest.fixture
def disk() -> Iterator[SimulatedDisk]:
    """A simulated disk with one durable file, /d/f, that holds b"synced"."""
    disk = SimulatedDisk({"": None, "/d": None, "/d/f": b"synced"}, sector=4)
    yield disk
    for file in list(disk.open_files):
        file.close()


def contents(disk: SimulatedDisk, path: str = "/d/f") -> set[bytes | None]:
    """All that the file may hold after a cut; None: it is not there."""
    images = disk.crash_point().images(5_000, random.Random(1))
    return {image.get(path) for image in images}


def test_synced_bytes_survive(disk: SimulatedDisk) -> None:
    file = disk.open("/d/f")
    file.append(b"+more")
    assert all(found is not None and found.startswith(b"synced") for found in contents(disk))
    file.sync()
    assert contents(disk) == {b"synced+more"}


def test_unsynced_sectors_are_kept_zeroed_garbled_or_lost(disk: SimulatedDisk) -> None:
    disk.open("/d/f").append(b"ABCDEF")
    found = contents(disk)
    assert {
        b"synced", b"syncedABCDEF", b"syncedAB", b"syncedAB\0\0\0\0", b"synced\0\0CDEF",
    } <= found  # fmt: skip
    assert any(f is not None and f[6:8] not in (b"AB", b"\0\0", b"") for f in found), "garbled"


def test_cut_off_bytes_may_come_back_until_the_sync(disk: SimulatedDisk) -> None:
    file = disk.open("/d/f")
    file.append(b"AB")
    file.truncate(6)
    assert contents(disk) >= {b"synced", b"syncedAB"}
    file.sync()
    assert contents(disk) == {b"synced"}


def test_names_survive_only_with_their_directory_synced(disk: SimulatedDisk) -> None:
    file = disk.open("/d/g", create=True)
    file.append(b"x")
    file.sync()
    assert contents(disk, "/d/g") == {b"x", None}
    disk.rename("/d/g", "/d/f")
    assert contents(disk, "/d/f") == {b"synced", b"x"}
    disk.sync_directory("/d")
    assert contents(disk, "/d/f") == {b"x"}
    assert contents(disk, "/d/g") == {None}
    disk.unlink("/d/f")
    assert contents(disk, "/d/f") == {b"x", None}


def test_failed_sync_loses_silently(disk: SimulatedDisk) -> None:
    disk.plan = lambda kind, _path: Fault(errno.EIO) if kind == "sync" else None
    file = disk.open("/d/f")
    file.append(b"+lost")
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    disk.plan = None
    assert file.read(0, 100) == b"synced+lost", "the page cache still shows it"
    file.sync()
    assert contents(disk) == {b"synced\0\0\0\0\0"}, "and a second sync does not help"
    file.forget_cache()
    assert file.read(0, 100) == b"synced\0\0\0\0\0"


def test_threads_may_ask_for_room_at_the_same_moment(tmp_path: Path) -> None:
    fs, folder = Disk(), str(tmp_path)
    together = threading.Barrier(4)

    def ask(_number: int) -> int:
        together.wait()
        return sum(fs.takes(folder, 4_096) for _ in range(500))

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(ask, range(4))) == [500] * 4
    assert not list(tmp_path.iterdir())


# --- a folder that is held open -------------------------------------------------------------------

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
    """Call a number that no system call has, like on an old kernel."""
    monkeypatch.setattr("storage.files.disk._OPENAT2", 100_000)

    class Old:
        """A C library without renameat2."""

        syscall = _LIBC.syscall

    monkeypatch.setattr("storage.files.disk._LIBC", Old())
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
