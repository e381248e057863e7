"""R3: the power is cut under a node that writes to a real file system; what it had acknowledged is
there when the power is back. With syncs that do nothing, the same rig loses something."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.processes import NodeProcess, StartFailed
from tests.reliability import disks, faulty, workload
from tests.reliability.disks import ImageDisk
from tests.reliability.workload import Broken, Promises

CUTS = 50
LANES = 2
CUTS_TO_LOSE = 25
LOAD_SECONDS = 0.3

Figure = Callable[[str, object], None]
pytestmark = [pytest.mark.hard, pytest.mark.timeout(900)]


def life(disk: ImageDisk, node: NodeProcess, promises: Promises, rng: random.Random) -> int:
    """One start, some writes, one cut. Answers how many open scripts had happened."""
    happened = 0
    node.spawn()
    try:
        if rng.random() < 0.1:  # in the middle of opening, or of the recovery
            time.sleep(rng.uniform(0.4, 1.2))
            disk.cut()
        else:
            node.wait_ready()
            workload.setup(node)
            happened = promises.compare(workload.records(node))
            with workload.writing(node, promises, seed=rng.randrange(1 << 30)):
                time.sleep(rng.uniform(0, LOAD_SECONDS))
                # While the ioctl takes hold, a sync may still be told that it was done when its
                # journal entry was not written. With the power off nobody hears of that.
                promises.hear_nothing()
                disk.cut()
                node.kill()
    finally:
        node.kill()
        disk.unmount()
        disk.mount()
    return happened


def cut_often(
    disk: ImageDisk, scratch: Path, cuts: int, seed: int, under: tuple[str, ...] = ()
) -> tuple[Promises, int]:
    """Lives of one store, and at the end everything compared. :raises Broken:"""
    rng, promises, happened = random.Random(seed), Promises(), 0
    for _ in range(cuts):
        more = {faulty.FAULTS: "small,unpruned"}
        node = NodeProcess(disk.store, more=more, module=faulty.MODULE, under=under)
        happened += life(disk, node, promises, rng)
    workload.settle(promises, disk.store, scratch)
    return promises, happened


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_power_cuts_lose_nothing(tmp_path: Path, kind: str, figure: Figure) -> None:
    disks.require(f"mkfs.{kind}", "mount", "umount")

    def lane(number: int) -> tuple[Promises, int]:
        folder = tmp_path / f"lane{number}"
        folder.mkdir()
        with disks.image_disk(folder, kind) as disk:
            return cut_often(disk, folder / "again", CUTS // LANES, seed=number)

    found = workload.side_by_side(lane, range(LANES), LANES)
    acknowledged = sum(len(promises.acknowledged) for promises, _ in found)
    happened = sum(count for _, count in found)
    assert acknowledged > CUTS
    figure(
        f"R3 power cuts on {kind}",
        f"{CUTS} cuts, {acknowledged} acknowledged, {happened} open ones had happened; 0 lost",
    )


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_syncs_that_do_nothing_are_caught(tmp_path: Path, kind: str, figure: Figure) -> None:
    disks.require(f"mkfs.{kind}", "mount", "umount", "eatmydata")
    with (
        disks.image_disk(tmp_path, kind) as disk,
        pytest.raises((Broken, StartFailed)) as caught,
    ):
        cut_often(disk, tmp_path / "again", CUTS_TO_LOSE, seed=3, under=("eatmydata",))
    figure(f"R3 under eatmydata on {kind}", str(caught.value).partition("\n")[0][:60])
