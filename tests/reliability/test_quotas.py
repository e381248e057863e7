"""R7: a quota is a full disk that the file system does not show."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.processes import START_SECONDS, NodeProcess
from tests.reliability import disks
from tests.reliability.disks import MIB, QuotaDisk, QuotaFiller
from tests.reliability.refusals import CAUGHT, Rounds
from tests.reliability.test_disk_full import wait_until_writable
from tests.reliability.workload import Broken

TOOLS = {"ext4": ("setquota", "tune2fs"), "xfs": ("xfs_quota",), "btrfs": ("btrfs",)}
QUOTA = 16 * MIB
LEFT = (0, 300_000, 3 * MIB)
"""What somebody else leaves of the quota, in each round. Nothing: the first write is refused."""
PADDING = 20_000

Figure = Callable[[str, object], None]
pytestmark = [pytest.mark.hard, pytest.mark.timeout(900)]


def require(kind: str) -> None:
    disks.require(f"mkfs.{kind}", "mount", "umount", *TOOLS[kind])


def wait_until_flushed(disk: QuotaDisk, node: NodeProcess) -> None:
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


def rounds(disk: QuotaDisk) -> Rounds:
    ready = partial(wait_until_flushed, disk)
    return Rounds(disk.store, QuotaFiller(disk), LEFT, PADDING, ready)


@pytest.mark.parametrize("kind", ["btrfs", "ext4", "xfs"])
def test_the_end_of_a_quota(tmp_path: Path, kind: str, figure: Figure) -> None:
    require(kind)
    with disks.quota_disk(tmp_path, kind, QUOTA) as disk:
        rig = rounds(disk)
        figure(f"R7 quotas, {kind}", rig.told(rig.run("small,unpruned")))


@pytest.mark.parametrize("fault", ["flushes-without-room", "keeps-no-room-to-cut"])
def test_planted_faults_are_caught(tmp_path: Path, fault: str) -> None:
    require("btrfs")
    with disks.quota_disk(tmp_path, "btrfs", QUOTA) as disk, pytest.raises(CAUGHT):
        rounds(disk).run(f"small,unpruned,{fault}")
