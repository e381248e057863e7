"""R7: a disk of 8 MiB fills up."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.processes import START_SECONDS, NodeProcess
from tests.reliability import disks, faulty, workload
from tests.reliability.disks import MIB, Filler, ImageDisk
from tests.reliability.workload import Broken, Promises

SIZE = 8 * MIB
ROUNDS = 4
PADDING = 4000
GIVEN = 12
"""Records of a table that is taken away on the full disk."""
RESUME_SECONDS = 60
"""A wait, not a figure to reach."""
RIG_ERRORS = (Broken, OSError)
"""What a node that gave up is seen by: a promise not kept, or nobody there to ask."""
LOOKS = 3
"""Checkpoints that come due while the disk is full."""

Figure = Callable[[str, object], None]
pytestmark = [pytest.mark.hard, pytest.mark.timeout(300)]


def write_until_refused(node: NodeProcess, promises: Promises, seed: int) -> set[str]:
    """Every client writes until it hears no. Answers the codes they heard."""
    with workload.writing(node, promises, seed=seed, padding=PADDING) as writers:
        for writer in writers:
            writer.join(START_SECONDS)
            assert not writer.is_alive(), "the disk never fills"
    return {code for writer in writers for code in writer.codes}


def wait_until_writable(node: NodeProcess) -> None:
    """The setup is a write. :raises Broken: the node does not take it in a minute"""
    until = time.monotonic() + RESUME_SECONDS
    while True:
        answer = node.script("DEFINE TABLE OVERWRITE spare", **workload.PLACE)
        if "error" not in answer:
            return
        code = answer["error"]["code"]
        if code != "DiskFull" or time.monotonic() > until:
            raise Broken(f"writes do not go on: {answer['error']}")


def take_away(node: NodeProcess) -> None:
    """On a full disk: records one by one, then their table. :raises Broken: it is refused"""
    for number in range(GIVEN):
        for script in (f"DELETE given:{number}", "CREATE given SET filler = 'x'"):
            answer = node.script(script, **workload.PLACE)
            if ("error" in answer) != script.startswith("CREATE"):
                raise Broken(f"on a full disk {script} answers {answer}")
    answer = node.script("SELECT * FROM given; DROP TABLE given", **workload.PLACE)
    if "error" in answer or answer["results"][0]["value"]:
        raise Broken(f"on a full disk DROP TABLE answers {answer}")


def fill_often(disk: ImageDisk, node: NodeProcess, promises: Promises) -> tuple[int, int]:
    """Fill the disk and free it, again and again. Answers refusals, and reads while full."""
    filler, refusals, reads = Filler(disk), 0, 0
    workload.setup(node)
    for number in range(ROUNDS):
        given = ", ".join(f"{{ id: {one}, filler: '{one}' }}" for one in range(GIVEN))
        node.script(f"DEFINE TABLE given; INSERT INTO given [{given}]", **workload.PLACE)
        # Full by the node's own doing, or to the last byte by somebody else's.
        filler.take(leave=9 * MIB // 4 if number % 2 else 0)
        codes = write_until_refused(node, promises, seed=number)
        if codes != {"DiskFull"}:
            raise Broken(f"on a full disk the clients heard {codes}")
        refusals += sum(code == "DiskFull" for code in promises.refused.values())
        looked = time.monotonic()
        while time.monotonic() < looked + LOOKS:  # checkpoints are due once a second here
            promises.compare(workload.records(node))
            reads += 1
            for path in ("/health", "/metrics"):
                if (status := node.request("GET", path, user=None).status) != 200:
                    raise Broken(f"on a full disk {path} answers {status}")
        answer = node.script("CREATE one:never SET mark = 'never'", **workload.PLACE)
        if number % 2 == 0 and answer.get("error", {}).get("code") != "DiskFull":
            raise Broken(f"on a full disk: {answer}")
        if "error" not in answer:
            node.script("DELETE one:never", **workload.PLACE)
        else:
            take_away(node)
        filler.give_back()
        wait_until_writable(node)
        node.script("DROP TABLE IF EXISTS given", **workload.PLACE)
        written = len(promises.acknowledged)
        with workload.writing(node, promises, seed=1000 + number, scripts=5):
            pass
        if len(promises.acknowledged) < written + 1:
            raise Broken("nothing was written after room had come back")
    return refusals, reads


def run_rig(disk: ImageDisk, faults: str) -> tuple[Promises, int, int]:
    """The whole of it on one disk. :raises Broken:"""
    promises = Promises()
    node = NodeProcess(disk.store, more={faulty.FAULTS: faults}, module=faulty.MODULE).start()
    try:
        refusals, reads = fill_often(disk, node, promises)
        Filler(disk).take(leave=0)  # and the end on a full disk
    finally:
        code = node.stop()
    if code != 0:
        raise Broken(f"on a full disk the node left with {code}: {node.lines[-4:]}")
    Filler(disk).give_back()
    workload.settle(promises, disk.store, None)  # old log gave way: it can't all be replayed
    return promises, refusals, reads


def test_a_full_disk_is_refused_and_left_behind(tmp_path: Path, figure: Figure) -> None:
    disks.require("mkfs.ext4", "mount", "umount")
    with disks.image_disk(tmp_path, "ext4", SIZE) as disk:
        promises, refusals, reads = run_rig(disk, "small,unpruned")
    figure(
        "R7 full disks",
        f"{ROUNDS} in one life, {len(promises.acknowledged)} acknowledged, {refusals} refused as"
        f" DiskFull, {reads} whole reads meanwhile; 0 lost, left with 0, 0 restarts",
    )


@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_a_start_on_a_full_disk_reads(tmp_path: Path, end: str) -> None:
    disks.require("mkfs.ext4", "mount", "umount")
    with disks.image_disk(tmp_path, "ext4", SIZE) as disk:
        promises, filler = Promises(), Filler(disk)
        node = NodeProcess(disk.store).start()
        try:
            workload.setup(node)
            with workload.writing(node, promises, scripts=20) as writers:
                for writer in writers:
                    writer.join()
            filler.take(leave=0)
            if end == "stopped":
                assert node.stop() == 0
        finally:
            node.kill()
        filler.take(leave=0)
        node = NodeProcess(disk.store).start()
        try:
            promises.compare(workload.records(node))
            answer = node.script("CREATE one:never SET mark = 'never'", **workload.PLACE)
            assert answer["error"]["code"] == "DiskFull"
            filler.give_back()
            wait_until_writable(node)
            assert node.stop() == 0
        finally:
            node.kill()
        workload.settle(promises, disk.store, tmp_path / "again")


@pytest.mark.parametrize("fault", ["flushes-without-room", "stays-refused", "reserve-for-nobody"])
def test_planted_faults_are_caught(
    tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    disks.require("mkfs.ext4", "mount", "umount")
    monkeypatch.setattr("tests.reliability.test_disk_full.RESUME_SECONDS", 5)
    with disks.image_disk(tmp_path, "ext4", SIZE) as disk, pytest.raises(RIG_ERRORS):
        run_rig(disk, f"small,unpruned,{fault}")
