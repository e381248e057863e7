"""No inodes left is a full disk too: writes are refused by name, reads go on, a start works, and
with room writes go on too, in the same process."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.processes import START_SECONDS, NodeProcess, StartFailed
from tests.reliability import disks, faulty, workload
from tests.reliability.disks import ImageDisk
from tests.reliability.test_disk_full import LOOKS, RIG_ERRORS, wait_until_writable
from tests.reliability.workload import Broken, Promises

INODES = 128
ROUNDS = 3

Figure = Callable[[str, object], None]
pytestmark = [pytest.mark.hard, pytest.mark.timeout(300)]


class Crowd:
    """Somebody else's empty files, which leave no inode."""

    def __init__(self, disk: ImageDisk) -> None:
        self._disk = disk
        self._folder = disk.point / "somebody"
        self._made = 0

    def take(self) -> None:
        """Make files until there are no more."""
        self._folder.mkdir(exist_ok=True)
        try:
            while True:
                (self._folder / str(self._made)).touch()
                self._made += 1
        except OSError:
            return

    def give_back(self) -> None:
        """Remove them."""
        for path in self._folder.iterdir():
            path.unlink()


def write_until_refused(node: NodeProcess, promises: Promises, seed: int) -> set[str]:
    """Write until the node refuses it by name, which is a checkpoint or a segment from now."""
    with workload.writing(node, promises, seed=seed) as writers:
        for writer in writers:
            writer.join(START_SECONDS)
            assert not writer.is_alive(), "the disk never fills"
    return {code for writer in writers for code in writer.codes}


def run_rig(disk: ImageDisk, faults: str) -> tuple[Promises, int, int]:
    """The whole of it on one disk. :raises Broken:"""
    promises, crowd, reads, starts = Promises(), Crowd(disk), 0, 0

    def process() -> NodeProcess:
        return NodeProcess(disk.store, more={faulty.FAULTS: faults}, module=faulty.MODULE)

    node = process().start()
    try:
        workload.setup(node)
        with workload.writing(node, promises, scripts=20):
            pass
        for number in range(ROUNDS):
            crowd.take()
            codes = write_until_refused(node, promises, number)
            if codes != {"DiskFull"}:
                raise Broken(f"without inodes the clients heard {codes}")
            looked = time.monotonic()
            while time.monotonic() < looked + LOOKS:  # checkpoints are due once a second here
                promises.compare(workload.records(node))
                reads += 1
            if number:  # stopped or killed on the full disk, and started on it
                if number % 2:
                    node.kill()
                elif (code := node.stop()) != 0:
                    raise Broken(f"without inodes the node left with {code}: {node.lines[-4:]}")
                crowd.take()
                node = process().start()
                starts += 1
                promises.compare(workload.records(node))
                answer = node.script("CREATE one:never SET mark = 'never'", **workload.PLACE)
                if answer.get("error", {}).get("code") != "DiskFull":
                    raise Broken(f"without inodes, after a start: {answer}")
            crowd.give_back()
            wait_until_writable(node)
        if (code := node.stop()) != 0:
            raise Broken(f"the node left with {code}: {node.lines[-4:]}")
    finally:
        node.end()
    workload.settle(promises, disk.store, None)
    return promises, reads, starts


def test_no_inodes_left(tmp_path: Path, figure: Figure) -> None:
    disks.require("mkfs.ext4", "mount", "umount")
    with disks.image_disk(tmp_path, "ext4", inodes=INODES) as disk:
        promises, reads, starts = run_rig(disk, "small,unpruned")
    figure(
        "R7 disks without inodes",
        f"{ROUNDS}, {len(promises.acknowledged)} acknowledged, {len(promises.refused)} refused,"
        f" {reads} whole reads and {starts} starts meanwhile; 0 lost",
    )


@pytest.mark.parametrize("fault", ["flushes-without-room", "keeps-no-files"])
def test_planted_faults_are_caught(tmp_path: Path, fault: str) -> None:
    disks.require("mkfs.ext4", "mount", "umount")
    errors = (*RIG_ERRORS, StartFailed)
    with disks.image_disk(tmp_path, "ext4", inodes=INODES) as disk, pytest.raises(errors):
        run_rig(disk, f"small,unpruned,{fault}")
