"""No inodes left is a full disk too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.reliability import disks
from tests.reliability.disks import ImageDisk
from tests.reliability.refusals import CAUGHT, Rounds

INODES = 128
ROUNDS = 3

Figure = Callable[[str, object], None]
pytestmark = [pytest.mark.hard, pytest.mark.timeout(300)]


class Crowd:
    """Somebody else's empty files, which leave no inode."""

    def __init__(self, disk: ImageDisk) -> None:
        self._folder = disk.point / "somebody"
        self._made = 0

    def take(self, leave: int) -> None:
        assert not leave, "of bytes there are enough"
        self._folder.mkdir(exist_ok=True)
        try:
            while True:
                (self._folder / str(self._made)).touch()
                self._made += 1
        except OSError:
            return

    def give_back(self) -> None:
        for path in self._folder.iterdir():
            path.unlink()


def rounds(disk: ImageDisk) -> Rounds:
    return Rounds(disk.store, Crowd(disk), [0] * ROUNDS)


def test_no_inodes_left(tmp_path: Path, figure: Figure) -> None:
    disks.require("mkfs.ext4", "mount", "umount")
    with disks.image_disk(tmp_path, "ext4", inodes=INODES) as disk:
        rig = rounds(disk)
        figure("R7 disks without inodes", rig.told(rig.run("small,unpruned")))


@pytest.mark.parametrize("fault", ["flushes-without-room", "keeps-no-files"])
def test_planted_faults_are_caught(tmp_path: Path, fault: str) -> None:
    disks.require("mkfs.ext4", "mount", "umount")
    with disks.image_disk(tmp_path, "ext4", inodes=INODES) as disk, pytest.raises(CAUGHT):
        rounds(disk).run(f"small,unpruned,{fault}")
