"""The backup folder: names that lead out, what is in the way, files that are not there before they
are whole, and links that come and go meanwhile."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from actors.backups.folder import BackupFolder, plain_parts
from protocol.environment import Room
from protocol.errors import (
    BackupExists,
    BackupNameRefused,
    Busy,
    DiskFull,
    Failed,
    NoBackupFolder,
    Refusal,
    Unknown,
)
from storage.files.disk import Disk, DiskFolder
from tests.simulation.disk import Image, SimulatedDisk

NOTHING = Room(0, 0)
HOSTILE = 200


class OldDisk(Disk):
    """The real disk under a kernel without the newest calls."""

    __slots__ = ()

    def open_folder(self, path: str) -> DiskFolder:
        """With substitutes."""
        return DiskFolder.open(path, newest=False)


@pytest.fixture(params=[Disk, OldDisk])
def here(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[BackupFolder, Path]]:
    """A folder on the real disk, beside what must stay as it is."""
    (tmp_path / "in").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
    yield BackupFolder(request.param(), str(tmp_path / "in")), tmp_path / "in"
    assert os.listdir(tmp_path / "outside") == ["secret"]
    assert (tmp_path / "outside" / "secret").read_text() == "secret"
    assert sorted(os.listdir(tmp_path)) == ["in", "outside"]


def write(folder: BackupFolder, name: str, data: bytes = b"backup") -> None:
    draft = folder.draft(name, NOTHING)
    try:
        draft.append(data, NOTHING)
        draft.sync()
        draft.publish()
        draft.close()
    finally:
        draft.abandon()


def tree(path: Path) -> list[str]:
    return sorted(str(found.relative_to(path)) for found in path.rglob("*"))


# --- names ----------------------------------------------------------------------------------------

PLAIN = [
    "a", "nightly.storesnap", "2026/11/23/all.storelog", "with space", ".hidden", "...", "a..b",
    "-rf", "ümlaut", "日本.storeql", "a:b", "~", "$HOME", "`x`", "*", "x" * 247, "/".join("a" * 16),
    "a.partial.storesnap", "partial",
]  # fmt: skip


@pytest.mark.parametrize("name", PLAIN)
def test_plain_names(here: tuple[BackupFolder, Path], name: str) -> None:
    folder, path = here
    write(folder, name)
    assert (path / name).read_bytes() == b"backup"
    assert [listed.path for listed in folder.files()] == [name]
    file = folder.open(name)
    assert file.read(0, 99) == b"backup"
    file.close()
    assert (path / name).stat().st_mode & 0o077 == 0


def hostile_names() -> list[str]:
    """Names that are none: what is known to lead out somewhere, and what chance makes of it."""
    known = [
        "", ".", "..", "/", "//", "/etc/passwd", "../outside/secret", "..//outside", "a/../b",
        "./a", "a/.", "a/..", "a/", "a//b", "/a", "a/./b", "../../../../etc/shadow", "..\\outside",
        "a\\b", "\\\\host\\share", "C:\\x", "a\0", "\0", "a\nb", "a\rb", "\x1b[2J", "a\x7f",
        "a\u202egpj", "a\u200b", "\ud800", "a\u2028b", "a.partial", ".partial", "sub/x.partial",
        "x" * 248, "ü" * 124, "a/" * 16 + "a", "/".join(["x" * 200] * 8), "a\tb", "\ufeffa",
        "x.partial/y", "/proc/self/fd/1", "..\u2215a/..", "a/\0/b", "\u00a0", " /..", "../",
    ]  # fmt: skip
    rng = random.Random(6)
    pieces = ["..", ".", "", "a", "outside", "secret", "\0", "sub", "b.partial", "\\", "\n"]
    while len(known) < HOSTILE:
        name = "/".join(rng.choices(pieces, k=rng.randrange(1, 7)))
        bad = {"..", ".", "", "\0", "\\", "\n", "b.partial"} & set(name.split("/"))
        if bad and name not in known:
            known.append(name)
    return known


def test_hostile_names(
    here: tuple[BackupFolder, Path], figure: Callable[[str, object], None]
) -> None:
    folder, path = here
    (path / "sub").mkdir()
    before = tree(path)
    names = hostile_names()
    for name in names:
        with pytest.raises(BackupNameRefused):
            folder.draft(name, NOTHING)
        with pytest.raises(BackupNameRefused):
            folder.open(name)
        assert tree(path) == before, name
    assert len(set(names)) >= HOSTILE
    figure("S6 hostile names", f"{len(names)}, 0 opened or made")


def test_a_refusal_of_a_name_says_why() -> None:
    for name, why in [
        ("/a", "absolute"), ("../a", "'..' is not allowed"), ("a//b", "empty"),
        ("a\n", "character"), ("a.partial", "unfinished"), ("x" * 300, "longer than 247 bytes"),
        ("x" * 2000, "longer than 1024 bytes"), ("a/" * 20, "more than 16 parts"),
    ]:  # fmt: skip
        with pytest.raises(BackupNameRefused, match=why) as refused:
            plain_parts(name)
        assert len(refused.value.message) < 400


# --- what is in the way ---------------------------------------------------------------------------


def test_without_a_folder(tmp_path: Path) -> None:
    none = BackupFolder(Disk(), None)
    gone = BackupFolder(Disk(), str(tmp_path / "gone"))
    (tmp_path / "file").write_text("")
    no_folder = BackupFolder(Disk(), str(tmp_path / "file"))
    for folder in (none, gone, no_folder):
        with pytest.raises(NoBackupFolder):
            folder.draft("a", NOTHING)
        with pytest.raises(NoBackupFolder):
            folder.open("a")
        with pytest.raises(NoBackupFolder):
            folder.room()
        with pytest.raises(NoBackupFolder):
            list(folder.files())
    with pytest.raises(BackupNameRefused):
        none.draft("../a", NOTHING)


def test_what_exists_is_never_replaced(here: tuple[BackupFolder, Path]) -> None:
    folder, path = here
    write(folder, "a", b"first")
    (path / "dir").mkdir()
    (path / "link").symlink_to("../outside/secret")
    (path / "dangling").symlink_to("../outside/new")
    os.mkfifo(path / "pipe")
    before = tree(path)
    for name in ("a", "dir", "link", "dangling", "pipe"):
        with pytest.raises(BackupExists, match=f"a file exists at {name}"):
            folder.draft(name, NOTHING)
    assert tree(path) == before
    assert (path / "a").read_bytes() == b"first"


def test_links_and_files_in_the_way(here: tuple[BackupFolder, Path]) -> None:
    folder, path = here
    (path / "link").symlink_to("../outside")
    (path / "loop").symlink_to("loop")
    (path / "file").write_text("")
    before = tree(path)
    for name in ("link/a", "file/a", "loop/a", "link/sub/a"):
        with pytest.raises(BackupNameRefused, match="a link or a file, not a folder"):
            folder.draft(name, NOTHING)
        with pytest.raises(BackupNameRefused):
            folder.open(name)
    with pytest.raises(Unknown):
        folder.open("nothing")
    with pytest.raises(Unknown):
        folder.open("nothing/there")
    assert tree(path) == before
    (path / "secret").symlink_to("../outside/secret")
    with pytest.raises(Unknown):
        folder.open("secret")
    assert [listed.path for listed in folder.files()] == ["file"]


# --- partials -------------------------------------------------------------------------------------


def test_a_draft_is_no_backup(here: tuple[BackupFolder, Path]) -> None:
    folder, path = here
    draft = folder.draft("sub/deep/a", NOTHING)
    draft.append(b"some", NOTHING)
    assert tree(path) == ["sub", "sub/deep", "sub/deep/a.partial"]
    assert list(folder.files()) == []
    with pytest.raises(BackupNameRefused):
        folder.open("sub/deep/a.partial")
    draft.abandon()
    draft.abandon()
    assert tree(path) == []


def test_a_stale_partial_is_removed_at_the_next_of_its_name(
    here: tuple[BackupFolder, Path],
) -> None:
    folder, path = here
    (path / "a.partial").write_bytes(b"cut off" * 100)
    (path / "b.partial").write_bytes(b"another's")
    write(folder, "a", b"whole")
    assert (path / "a").read_bytes() == b"whole"
    assert tree(path) == ["a", "b.partial"]


def test_a_partial_that_is_being_written_is_left_alone(here: tuple[BackupFolder, Path]) -> None:
    folder, path = here
    draft = folder.draft("a", NOTHING)
    with pytest.raises(Busy, match="another node"):
        folder.draft("a", NOTHING)
    draft.append(b"whole", NOTHING)
    draft.sync()
    draft.publish()
    draft.close()
    assert (path / "a").read_bytes() == b"whole"


def test_what_was_published_and_not_confirmed_is_taken_back(
    here: tuple[BackupFolder, Path],
) -> None:
    folder, path = here
    draft = folder.draft("sub/a", NOTHING)
    draft.append(b"whole", NOTHING)
    draft.sync()
    draft.publish()
    assert tree(path) == ["sub", "sub/a"]
    draft.abandon()
    assert tree(path) == []


def test_a_partial_that_is_no_file(here: tuple[BackupFolder, Path]) -> None:
    folder, path = here
    (path / "a.partial").symlink_to("../outside/secret")
    (path / "b.partial").mkdir()
    for name in ("a", "b"):
        with pytest.raises(BackupExists, match=f"{name}.partial"):
            folder.draft(name, NOTHING)
    assert tree(path) == ["a.partial", "b.partial"]


def test_a_link_in_the_place_of_the_partial_never_gets_the_name(
    here: tuple[BackupFolder, Path],
) -> None:
    folder, path = here
    draft = folder.draft("a", NOTHING)
    draft.append(b"mine", NOTHING)
    draft.sync()
    (path / "a.partial").unlink()
    (path / "a.partial").symlink_to("../outside/secret")
    with pytest.raises(Failed, match="was replaced by another process"):
        draft.publish()
    draft.abandon()
    assert "a" not in tree(path)


def test_room(here: tuple[BackupFolder, Path]) -> None:
    folder, path = here
    everything = Room(folder.room().bytes * 2, 0)
    with pytest.raises(DiskFull):
        folder.draft("sub/a", everything)
    assert tree(path) == []
    draft = folder.draft("sub/a", NOTHING)
    draft.append(b"some", NOTHING)
    with pytest.raises(DiskFull):
        draft.append(b"more", everything)
    draft.abandon()
    assert tree(path) == []


def test_the_disk_is_full() -> None:
    disk = SimulatedDisk({"": None, "/b": None}, capacity=10)
    folder = BackupFolder(disk, "/b")
    draft = folder.draft("sub/a", NOTHING)
    disk.quota = 8  # which its room does not show
    with pytest.raises(DiskFull):
        draft.append(b"123456789", NOTHING)
    draft.abandon()
    assert disk.image() == {"": None, "/b": None}


# --- races ----------------------------------------------------------------------------------------


def race(folder: BackupFolder, path: Path, swap: Callable[[], None], rounds: int) -> int:
    """Backups while somebody swaps things in the folder without end: how many got their name."""
    over, written = threading.Event(), 0

    def swapping() -> None:
        while not over.is_set():
            swap()

    other = threading.Thread(target=swapping)
    other.start()
    try:
        for number in range(rounds):
            try:
                write(folder, f"sub/{number}")
                written += 1
            except Refusal:
                continue
    finally:
        over.set()
        other.join()
    return written


def _swap(path: Path) -> None:
    """The subfolder is a link to outside, and then a folder again, now and then."""
    for _ in range(random.randrange(200)):
        os.listdir(path.parent / "outside")  # which takes as long each time
    with suppress(OSError):
        os.rename(path / "sub", path / f"kept{time.monotonic_ns()}")
    with suppress(OSError):
        os.symlink("../outside", path / "sub")
        os.unlink(path / "sub")
    with suppress(OSError):
        os.mkdir(path / "sub")


def _swap_partials(path: Path) -> None:
    """Partials become links to what is outside, now and then."""
    for name in os.listdir(path / "sub"):
        if name.endswith(".partial"):
            with suppress(OSError):
                os.unlink(path / "sub" / name)
                os.symlink("../../outside/secret", path / "sub" / name)


@pytest.mark.parametrize("swap", [_swap, _swap_partials])
def test_nothing_outside_is_reached_in_a_race(
    here: tuple[BackupFolder, Path],
    swap: Callable[[Path], None],
    figure: Callable[[str, object], None],
) -> None:
    folder, path = here
    (path / "sub").mkdir()
    rounds = 100
    written = race(folder, path, lambda: swap(path), rounds)
    for found in path.rglob("*"):
        if found.is_file() and not found.is_symlink():
            assert found.read_bytes() in (b"backup", b""), found
    figure(f"S6 {swap.__name__[1:]} races", f"{rounds}, {written} written, 0 outside")


# --- crashes --------------------------------------------------------------------------------------


WHOLE = bytes(range(256)) * 8


def _images_at(at: int, rng: random.Random) -> tuple[list[Image], bool]:
    """What may be left if the power fails before that operation; and whether there is none such."""
    disk = SimulatedDisk({"": None, "/b": None, "/b/a.partial": b"stale"}, sector=512)
    images: list[Image] = []

    def watch(kind: str, path: str) -> None:
        if disk.operations == at + 1:
            images.extend(disk.crash_point().images(200, rng))

    disk.watch = watch
    folder = BackupFolder(disk, "/b")
    write(folder, "a", WHOLE)
    write(folder, "sub/c", WHOLE)
    over = disk.operations <= at
    if over:
        images.extend(disk.crash_point().images(200, rng))
    return images, over


def test_a_crash_leaves_no_name_or_a_whole_file(figure: Callable[[str, object], None]) -> None:
    """The power fails before each operation: what has the name is whole."""
    points = states = published = 0
    rng = random.Random(1)
    over = False
    while not over:
        images, over = _images_at(points, rng)
        points += 1
        for image in images:
            states += 1
            for name in ("/b/a", "/b/sub/c"):
                if name in image:
                    published += 1
                    assert image[name] == WHOLE, (points, name)
            after = BackupFolder(SimulatedDisk(image), "/b")
            for listed in after.files():
                assert listed.path in ("a", "sub/c")
            if "/b/a" not in image:
                write(after, "a", b"next")
        if over:
            assert all({"/b/a", "/b/sub/c"} <= image.keys() for image in images)
    figure("R1 backup names", f"{points} points, {states} states, {published} with a name")
    assert published > 100
