"""Log retention: by frames, by age, by size, and on a full disk."""

from __future__ import annotations

import pytest

from protocol import limits
from storage.formats.frames import Frame
from storage.log.retention import LogRetention
from tests.simulation.disk import SimulatedDisk
from tests.storage.log.test_log import LogStore

SECOND = 1_000_000


@pytest.fixture
def store() -> LogStore:
    """Segments of ten frames, one of them each second: they begin at 1, 11, 21, 31 and 41."""
    store = LogStore("/s", SimulatedDisk())
    begun = store.log.state.last_time
    for number in range(1, 46):
        time = begun + number * SECOND
        store.log.append([Frame(number, 1, time, 0, bytes(50))])
    return store


def retired(store: LogStore, keep: LogRetention | None, flushed: int = 45, later_s: int = 0) -> int:
    """Where the log begins after a prune, so long after its newest frame."""
    store.log.retire(flushed, keep, store.log.state.last_time + later_s * SECOND)
    return store.log.state.first


def test_all_of_it(store: LogStore) -> None:
    assert retired(store, None) == 1


@pytest.mark.parametrize(("frames", "first"), [(100, 1), (45, 1), (35, 11), (34, 11), (1, 41)])
def test_the_newest_frames(
    store: LogStore, monkeypatch: pytest.MonkeyPatch, frames: int, first: int
) -> None:
    monkeypatch.setattr(limits, "LOG_FRAMES_KEPT", frames)
    assert retired(store, LogRetention()) == first


@pytest.mark.parametrize(
    ("age_s", "later_s", "first"),
    [(100, 0, 1), (35, 0, 1), (34, 0, 11), (24, 0, 21), (24, 500, 41)],
)
def test_frames_younger_than_an_age(store: LogStore, age_s: int, later_s: int, first: int) -> None:
    kept_from = store.log.state.last_time + (later_s - age_s) * SECOND
    young = [f.sequence for f in store.log.reader.read(1) if f.time > kept_from]
    assert retired(store, LogRetention(age_us=age_s * SECOND), later_s=later_s) == first
    assert not young or store.log.state.first <= young[0], "a frame that was to be kept is gone"


def test_so_many_bytes(store: LogStore) -> None:
    sizes = [segment.size for segment in store.log.state.segments]
    assert retired(store, LogRetention(bytes=sum(sizes))) == 1
    assert retired(store, LogRetention(bytes=sum(sizes) - 1)) == 11
    assert retired(store, LogRetention(bytes=sum(sizes[2:]))) == 21
    assert retired(store, LogRetention(bytes=1)) == 41, "the last segment stays"


@pytest.mark.parametrize("flushed", range(46))
def test_nothing_goes_that_is_not_flushed(store: LogStore, flushed: int) -> None:
    """Up to the very frame: a segment that holds the first one that is not flushed stays."""
    retired(store, LogRetention(bytes=1), flushed)
    assert store.log.state.first <= flushed + 1
    assert store.log.state.first == max(
        first for first in (1, 11, 21, 31, 41) if first <= flushed + 1
    )


def test_a_full_disk_takes_a_large_segment_too_once_all_of_it_is_flushed(store: LogStore) -> None:
    disk = store.fs
    assert isinstance(disk, SimulatedDisk)
    store.log.append([Frame(46, 1, store.log.state.last_time, 0, bytes(8_000))])
    disk.capacity = sum(len(content) for content in disk.image().values() if content)
    assert store.log.give_way(45) == 40, "one frame of the last is not flushed"
    assert store.log.tail.reserve.fill(), "what went made room for it"
    disk.capacity = sum(len(content) for content in disk.image().values() if content)
    assert store.log.give_way(46) == 6
    assert (store.log.state.first, store.held()) == (47, [])
    store.append()
    log = store.reopen(clean=False)
    assert (log.state.first, log.state.last) == (47, 47)


def test_a_small_segment_is_left(store: LogStore) -> None:
    store.log.give_way(45)
    assert store.log.give_way(45) == 0
    assert store.log.state.first == 41
