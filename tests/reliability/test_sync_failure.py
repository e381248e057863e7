"""R6: the disk really fails to sync."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.processes import START_SECONDS, NodeProcess, StartFailed
from tests.reliability import disks, faulty, workload
from tests.reliability.disks import MIB, FailingDisk
from tests.reliability.workload import Broken, Promises, Writer

ROUNDS = 10
SIZE = 64 * MIB
PADDING = 3000
SCRIPTS = 100
WRITERS = 4

Figure = Callable[[str, object], None]
pytestmark = [pytest.mark.hard, pytest.mark.timeout(300)]


def one_failure(disk: FailingDisk, folder: Path, after: int, faults: str) -> Promises:
    """A life until a sync fails, and the store on a disk with what got there. :raises Broken:

    :param after: so many scripts have been acknowledged
    """
    promises = Promises()
    node = NodeProcess(disk.store, more={faulty.FAULTS: faults}, module=faulty.MODULE).start()
    try:
        workload.setup(node)
        with workload.writing(node, promises, WRITERS, padding=PADDING, scripts=SCRIPTS) as writers:
            while len(promises.acknowledged) < after and any(map(Writer.is_alive, writers)):
                time.sleep(0.001)
            disk.fail()
            for writer in writers:
                writer.join(START_SECONDS)
        # Whoever stopped early was told that the node fails, or found it gone.
        code = node.wait() if len(promises.sent) < WRITERS * SCRIPTS else None
    finally:
        node.kill()
    disk.replace()
    workload.settle(promises, disk.store, folder / "again")
    if code in (0, None):
        raise Broken(f"no sync failed: {node.lines[-4:]}")
    if "node failed" not in node.events():
        raise Broken(f"ended without saying why: {node.lines[-4:]}")
    return promises


def failures(folder: Path, after: int, faults: str = "small,unpruned") -> Promises:
    """One round on a disk of its own. :raises Broken:"""
    folder.mkdir()
    with closing(FailingDisk(folder / "disk", SIZE)) as disk:
        return one_failure(disk, folder, after, faults)


def test_a_failed_sync_is_final(tmp_path: Path, figure: Figure) -> None:
    disks.require("mkfs.ext4", "mount", "umount")
    found = [failures(tmp_path / f"round{number}", after=7 * number) for number in range(ROUNDS)]
    acknowledged = sum(len(promises.acknowledged) for promises in found)
    assert acknowledged > ROUNDS
    figure(
        "R6 failed syncs",
        f"{ROUNDS}, {acknowledged} acknowledged before, 0 lost; each ended the node, exit not 0",
    )


def test_ignored_failures_are_caught(tmp_path: Path) -> None:
    disks.require("mkfs.ext4", "mount", "umount")
    with pytest.raises((Broken, StartFailed)):
        # With segments of the usual size, so that it goes on for a while before a name is made,
        # which the file system refuses by itself.
        failures(tmp_path / "round", after=5, faults="unpruned,ignores-sync-errors")
