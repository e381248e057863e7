"""R6: the disk really fails to sync. An ext4 image lies on a memory disk that is too small for it:
the file system has room, what is below it has not, and only the sync can tell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.processes import START_SECONDS, NodeProcess, StartFailed
from tests.reliability import disks, faulty, workload
from tests.reliability.disks import MIB, ImageDisk
from tests.reliability.workload import Broken, Promises

ROUNDS = 10
IMAGE = 64 * MIB
BELOW = 24 * MIB
ENOUGH = 128 * MIB
PADDING = 3000

Figure = Callable[[str, object], None]
pytestmark = [pytest.mark.hard, pytest.mark.timeout(300)]


def take(point: Path, leave: int) -> None:
    """Somebody else fills the memory disk, but for so many bytes."""
    with (point / "somebody").open("wb") as file:
        free = disks.free_bytes(point)
        try:
            file.write(bytes(free - leave))
        except OSError:
            return


def one_failure(memory: Path, disk: ImageDisk, leave: int, faults: str) -> Promises:
    """A life until a sync fails, and the store after the disk has come back. :raises Broken:"""
    promises = Promises()
    node = NodeProcess(disk.store, more={faulty.FAULTS: faults}, module=faulty.MODULE).start()
    try:
        workload.setup(node)
        disks.run("sync", "--file-system", str(disk.point))
        take(memory, leave)
        with workload.writing(node, promises, padding=PADDING, scripts=400) as writers:
            for writer in writers:
                writer.join(START_SECONDS)
        code = node.wait() if any(writer.codes for writer in writers) else None
    finally:
        node.kill()
    (memory / "somebody").unlink()
    disks.run("mount", "-o", f"remount,size={ENOUGH}", str(memory))
    disk.unmount()  # and with it all that the page cache holds
    disk.mount()
    workload.settle(promises, disk.store, memory.parent / f"again{leave}")
    if code in (0, None):
        raise Broken(f"no sync failed: {node.lines[-4:]}")
    if "node failed" not in node.events():
        raise Broken(f"ended without saying why: {node.lines[-4:]}")
    return promises


def failures(folder: Path, leave: int, faults: str = "small,unpruned") -> Promises:
    """One round on disks of its own. :raises Broken:"""
    folder.mkdir()
    with (
        disks.memory_disk(folder, BELOW) as memory,
        disks.image_disk(memory, "ext4", IMAGE) as disk,
    ):
        return one_failure(memory, disk, leave, faults)


def test_a_failed_sync_is_final(tmp_path: Path, figure: Figure) -> None:
    disks.require("mkfs.ext4", "mount", "umount")
    found = [
        failures(tmp_path / f"round{number}", leave=number * MIB // 16) for number in range(ROUNDS)
    ]
    acknowledged = sum(len(promises.acknowledged) for promises in found)
    assert acknowledged > ROUNDS
    figure(
        "R6 failed syncs",
        f"{ROUNDS}, {acknowledged} acknowledged before, 0 lost; each ended the node, exit not 0",
    )


def test_ignored_failures_are_caught(tmp_path: Path) -> None:
    disks.require("mkfs.ext4", "mount", "umount")
    with pytest.raises((Broken, StartFailed)):
        failures(tmp_path / "round", leave=0, faults="small,unpruned,ignores-sync-errors")
