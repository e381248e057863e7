"""Epochs of a log: the file HISTORY, and the file CLUSTER."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from actors.cluster.log_matching import last_common_frame
from protocol.errors import DiskFull, Stranded
from storage.faults import LogDamaged, StoreDamaged
from storage.files import cluster_file
from storage.files.cluster_file import ClusterState, Upstream
from storage.files.directory import StoreDirectory
from storage.files.disk import Disk
from storage.formats.frames import Frame
from storage.formats.positions import (
    EPOCHS_KEPT,
    EpochEnd,
    LogPosition,
    whole_history,
)
from storage.log.log import Log
from storage.log.recovery import CUT_FILES_KEPT
from storage.log.state import LogSizes
from tests.simulation.disk import Fault, SimulatedDisk
from tests.simulation.environment import ManualClock, SeededRng

SMALL = LogSizes(segment_frames=4, reserve_bytes=4096)


def opened(fs: Disk | SimulatedDisk, path: str = "/s", seed: int = 1) -> StoreDirectory:
    return StoreDirectory.open(path, fs, ManualClock(), SeededRng(seed), create=True)


def frame(log: Log, at: int, epoch: int, body: bytes = b"x") -> Frame:
    return Frame(at, epoch, log.state.last_time, 0, body)


def filled(log: Log, *epochs: int, released: int = 0) -> list[Frame]:
    """One frame of each of some epochs, in one batch."""
    frames = [frame(log, log.state.last + 1 + at, epoch) for at, epoch in enumerate(epochs)]
    log.append(frames, released=released)
    return frames


@pytest.mark.parametrize("clean", [True, False])
def test_history_survives_restarts_prunes_and_cuts(tmp_path: Path, clean: bool) -> None:
    directory = opened(Disk(), f"{tmp_path}/s")
    log = Log.open(directory, SMALL)
    first = filled(log, 1, 1, 4, 4, 4)
    more = filled(log, 4, 7, 7, 8, released=5)
    ended = [(1, first[1]), (4, more[0]), (7, more[2])]
    assert log.state.epoch_ends == tuple(
        EpochEnd(epoch, one.sequence, one.digest()) for epoch, one in ended
    )
    log.prune(6)
    log.close(clean, released=5)
    log = Log.open(directory, SMALL)
    assert (log.state.first, log.state.released) == (6, 5)
    assert [one.epoch for one in whole_history(log.state.epoch_ends, log.state.present)] == [
        1,
        4,
        7,
        8,
    ]
    log.cut(7)
    assert whole_history(log.state.epoch_ends, log.state.present)[-1] == EpochEnd(
        7, 7, more[1].digest()
    )
    filled(log, 11, released=6)
    log.close(clean, released=6)
    log = Log.open(directory, SMALL)
    whole = whole_history(log.state.epoch_ends, log.state.present)
    assert [(one.epoch, one.last) for one in whole] == [
        (1, 2), (4, 6), (7, 7), (11, 8),
    ]  # fmt: skip
    log.close()
    directory.close()


def test_a_copied_log_goes_on_with_the_history_that_came_with_it() -> None:
    directory = opened(SimulatedDisk())
    log = Log.open(directory, SMALL)
    filled(log, 1, 3, 3)
    history = whole_history(log.state.epoch_ends, log.state.present)
    at = LogPosition(log.state.last, log.state.epoch, log.state.last_time, log.state.digest)
    other = StoreDirectory.begin_restore("/copy", SimulatedDisk(), ManualClock(), SeededRng(2))
    Log.begin_after(other, at, history[:-1])
    copied = Log.open(other, SMALL)
    assert whole_history(copied.state.epoch_ends, copied.state.present) == history
    filled(copied, 5, released=3)
    assert (
        last_common_frame(whole_history(copied.state.epoch_ends, copied.state.present), history)
        == 3
    )
    copied.close()
    log.close()


def test_an_epoch_that_a_full_disk_lets_nobody_leave_is_the_one_to_come() -> None:
    disk = SimulatedDisk()
    directory = opened(disk)
    log = Log.open(directory, SMALL)
    filled(log, 1, 1)
    log.begin_epoch()

    def full(kind: str, path: str) -> Fault | None:
        return Fault(errno.ENOSPC) if kind == "append" and "storelog" in path else None

    disk.plan = full
    with pytest.raises(DiskFull):
        log.leave_epoch()
    assert (log.state.epoch, log.state.last_epoch) == (2, 1)
    disk.plan = None
    log.leave_epoch()
    assert (log.state.epoch, log.state.last_epoch) == (1, 1)
    filled(log, 1)
    log.close()
    log = Log.open(directory, SMALL)
    assert (log.state.last, log.state.epoch, log.state.epoch_ends) == (3, 1, ())
    log.close()
    directory.close()


def test_history_of_the_newest_reigns_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.formats.positions.EPOCHS_KEPT", 3)
    assert EPOCHS_KEPT > 3
    directory = opened(SimulatedDisk())
    log = Log.open(directory)
    filled(log, *range(1, 9))
    assert [one.epoch for one in log.state.epoch_ends] == [5, 6, 7]
    log.close()
    directory.close()


def test_a_history_that_was_not_written_is_damage() -> None:
    disk = SimulatedDisk()
    directory = opened(disk)
    log = Log.open(directory)
    filled(log, 1, 2)
    log.close()
    for wrong in ({"first": 3}, {"first": 3, "reigns": 7}, {"first": 3, "reigns": [[1, 2]]}):
        log.markers.write("HISTORY", wrong)
        with pytest.raises(LogDamaged, match="HISTORY"):
            Log.open(directory)
    directory.close()


@pytest.mark.parametrize("after", [3, 4, 7, 8, 12, 13])
@pytest.mark.parametrize("closed", [None, True, False])
def test_a_log_that_is_cut_ends_there_and_goes_on(
    tmp_path: Path, after: int, closed: bool | None
) -> None:
    directory = opened(Disk(), f"{tmp_path}/s")
    log = Log.open(directory, SMALL)
    for _ in range(13):
        filled(log, 1, released=min(3, log.state.last))
    if closed is not None:
        log.close(closed, released=3)
        log = Log.open(directory, SMALL)
    log.cut(after)
    log.cut(after)
    digest = log.state.digest
    assert [one.sequence for one in log.reader.read(1)] == list(range(1, after + 1))
    if after % 2:  # also with nothing written behind it
        log.close(released=3)
        log = Log.open(directory, SMALL)
        assert (log.state.last, log.state.digest) == (after, digest)
    filled(log, 5, released=3)
    filled(log, 5, released=3)
    log.close(after % 3 > 0, released=3)
    log = Log.open(directory, SMALL)
    assert [one.sequence for one in log.reader.read(1)] == list(range(1, after + 3))
    assert [one.epoch for one in log.reader.read(after + 1)] == [5, 5]
    cut = [name for name in Disk().names(f"{tmp_path}/s/log") if name.endswith(".cut")]
    assert bool(cut) == (after < 13), "it is set aside for people"
    log.close()
    directory.close()


@pytest.mark.parametrize("pruned", [False, True])
@pytest.mark.parametrize("before", [0, 3, 4])
def test_a_log_that_is_cut_at_what_a_recovery_copied_ends_in_the_epoch_before(
    tmp_path: Path, before: int, pruned: bool
) -> None:
    """The frame that the next leader's log has not is the first of the segment that the recovery
    began, and with the older segments gone nothing but that segment's head tells of the one
    before it."""
    directory = opened(Disk(), f"{tmp_path}/s")
    log = Log.open(directory, SMALL)
    for _ in range(before):
        filled(log, 2, released=log.state.last)
    filled(log, 2, released=before)
    time = log.state.last_time
    log.append([Frame(log.state.last + 1, 7, time + 5_000_000, 0, b"x")], released=before + 1)
    for _ in range(2):  # what was copied is copied again
        log.close(clean=False, released=before + 1)
        log = Log.open(directory, SMALL)
    last = before + 1
    assert log.recovery.copied == 1
    if pruned:
        log.prune(last + 1)
    at = log.reader.position_at(last)
    assert (at.epoch, at.time) == (2, time)
    assert log.reader.known_epoch(last) in (2, None)
    log.cut(last)
    assert log.state.present == EpochEnd(2, last, log.state.digest) and log.state.last_time == time
    log.close(clean=False, released=last)
    log = Log.open(directory, SMALL)
    filled(log, 15, released=last)
    whole = whole_history(log.state.epoch_ends, log.state.present)
    assert [(one.epoch, one.last) for one in whole] == [
        (2, last), (15, last + 1),
    ]  # fmt: skip
    log.close()
    directory.close()


def test_what_was_cut_last_is_kept() -> None:
    """Also where each cut is farther back than those before."""
    disk = SimulatedDisk()
    directory = opened(disk)
    log = Log.open(directory, SMALL)
    for _ in range(40):
        filled(log, 1)

    def files() -> set[str]:
        return {name for name in disk.names("/s/log") if name.endswith(".cut")}

    for after in range(38, 10, -2):
        before = files()
        log.cut(after)
        assert files() - before and len(files()) <= CUT_FILES_KEPT
    log.close()
    directory.close()


def test_what_was_released_is_not_cut() -> None:
    directory = opened(SimulatedDisk())
    log = Log.open(directory, SMALL)
    filled(log, 1, 1, 1, 1)
    filled(log, 1, released=3)
    with pytest.raises(Stranded) as refused:
        log.cut(2)
    assert refused.value.detail == {"released": 3} and log.state.last == 5
    log.cut(3)
    log.cut(8)
    assert log.state.last == 3
    log.close()
    directory.close()


def test_what_a_node_remembers_of_its_cluster() -> None:
    disk = SimulatedDisk()
    directory = opened(disk)
    assert cluster_file.load(directory) is None
    upstream = Upstream("6f3a2c1e-8a54-4be2-9d0a-3a5c0e1f7b11", ("n1:8002", "n1:8003"), "ab" * 32)
    for cluster in (
        ClusterState(),
        ClusterState("cafe", 12, 7, True, upstream),
        ClusterState("cafe", 13, 9, False, None),
    ):
        cluster_file.save(directory, cluster)
        assert cluster_file.load(directory) == cluster
    for wrong in ({"revision": 1}, {**ClusterState()._asdict(), "upstream": [1]}):
        directory.write(f"{directory.path}/CLUSTER", wrong)
        with pytest.raises(StoreDamaged):
            cluster_file.load(directory)
    directory.close()
