"""R7: a quota is a full disk that the file system does not show. Writes are refused by name, reads
go on, a start works, and with room writes go on too, in the same process.

On ext4 and XFS the quota is a project's; on Btrfs it is that of a subvolume, where making a file
shorter, and writing over what is there, are refused as well: it copies what it changes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.processes import START_SECONDS, NodeProcess, StartFailed
from tests.reliability import disks, faulty, workload
from tests.reliability.disks import MIB, QuotaDisk, QuotaFiller
from tests.reliability.test_disk_full import LOOKS, RIG_ERRORS, wait_until_writable
from tests.reliability.workload import Broken, Promises

TOOLS = {"ext4": ("setquota", "tune2fs"), "xfs": ("xfs_quota",), "btrfs": ("btrfs",)}
QUOTA = 16 * MIB
LEFT = (0, 300_000, 3 * MIB)
"""What somebody else leaves of the quota, in each round. Nothing: the first write is refused."""
PADDING = 20_000

Figure = Callable[[str, object], None]
pytestmark = [pytest.mark.hard, pytest.mark.timeout(900)]


def require(kind: str) -> None:
    """Skip where it can't run."""
    disks.require(f"mkfs.{kind}", "mount", "umount", *TOOLS[kind])


def write_until_refused(node: NodeProcess, promises: Promises, seed: int) -> set[str]:
    """Every client writes until it hears no. Answers the codes they heard."""
    with workload.writing(node, promises, seed=seed, padding=PADDING) as writers:
        for writer in writers:
            writer.join(3 * START_SECONDS)  # Btrfs writes a tree down at each refusal
            assert not writer.is_alive(), "the quota is never used up"
    return {code for writer in writers for code in writer.codes}


def wait_until_flushed(node: NodeProcess, disk: QuotaDisk) -> None:
    """Until nothing is left to flush. Somebody who takes the room of a flush that has begun ends a
    node, on a disk of any kind: that is not what is tried here."""
    for _ in range(2):  # the first may have begun before
        newest = newest_table(disk)
        wait_until_writable(node)
        until = time.monotonic() + START_SECONDS
        while newest_table(disk) <= newest:
            if time.monotonic() > until:
                raise Broken("the state is not flushed, though there is room")
            time.sleep(0.05)


def newest_table(disk: QuotaDisk) -> str:
    """The state engine numbers what it writes."""
    return max((path.name for path in (disk.store / "state").glob("*.sst")), default="")


def run_rig(disk: QuotaDisk, faults: str) -> tuple[Promises, int, int]:
    """The whole of it on one disk. :raises Broken:"""
    promises, filler, reads, starts = Promises(), QuotaFiller(disk), 0, 0

    def process() -> NodeProcess:
        return NodeProcess(disk.store, more={faulty.FAULTS: faults}, module=faulty.MODULE)

    node = process().start()
    try:
        workload.setup(node)
        with workload.writing(node, promises, scripts=20, padding=PADDING) as writers:
            for writer in writers:
                writer.join(START_SECONDS)
        for number, left in enumerate(LEFT):
            wait_until_flushed(node, disk)
            filler.take(left)
            codes = write_until_refused(node, promises, number)
            if codes != {"DiskFull"}:
                raise Broken(f"at the end of a quota the clients heard {codes}")
            looked = time.monotonic()
            while time.monotonic() < looked + LOOKS:  # checkpoints are due once a second here
                promises.compare(workload.records(node))
                reads += 1
            if number:  # stopped or killed at the end of the quota, and started there
                if number % 2:
                    node.kill()
                elif (code := node.stop()) != 0:
                    raise Broken(f"without room the node left with {code}: {node.lines[-4:]}")
                filler.take(0)
                node = process().start()
                starts += 1
                promises.compare(workload.records(node))
                answer = node.script("CREATE one:never SET mark = 'never'", **workload.PLACE)
                if answer.get("error", {}).get("code") != "DiskFull":
                    raise Broken(f"without room, after a start: {answer}")
            filler.give_back()
        wait_until_flushed(node, disk)
        filler.take(0)  # and the end without room
        if (code := node.stop()) != 0:
            raise Broken(f"the node left with {code}: {node.lines[-4:]}")
    finally:
        node.end()
    filler.give_back()
    workload.settle(promises, disk.store, None)
    return promises, reads, starts


@pytest.mark.parametrize("kind", ["btrfs", "ext4", "xfs"])
def test_the_end_of_a_quota(tmp_path: Path, kind: str, figure: Figure) -> None:
    require(kind)
    with disks.quota_disk(tmp_path, kind, QUOTA) as disk:
        promises, reads, starts = run_rig(disk, "small,unpruned")
    figure(
        f"R7 quotas, {kind}",
        f"{len(LEFT)}, {len(promises.acknowledged)} acknowledged, {len(promises.refused)} refused,"
        f" {reads} whole reads and {starts} starts meanwhile; 0 lost",
    )


@pytest.mark.parametrize("fault", ["flushes-without-room", "keeps-no-room-to-cut"])
def test_planted_faults_are_caught(tmp_path: Path, fault: str) -> None:
    require("btrfs")
    errors = (*RIG_ERRORS, StartFailed)
    with disks.quota_disk(tmp_path, "btrfs", QUOTA) as disk, pytest.raises(errors):
        run_rig(disk, f"small,unpruned,{fault}")
