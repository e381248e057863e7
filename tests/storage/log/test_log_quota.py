"""The log at the end of a quota where everything takes room but to remove a file."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator

import pytest

from protocol.environment import Room
from protocol.errors import DiskFull, UnknownOutcome
from storage.files.disk_reserve import FreeSpaceCheck, Reserve
from storage.formats.frames import FRAME_HEADER_BYTES
from storage.log.state import LogSizes
from tests.simulation.disk import NO_LIMIT, Fault, SimulatedDisk
from tests.storage.log.test_log import LogStore

COPYING = 200


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


@pytest.fixture
def store(disk: SimulatedDisk) -> Iterator[LogStore]:
    made = LogStore("/s", disk)
    yield made
    disk.plan = None
    made.close(clean=False)


def leave(disk: SimulatedDisk, count: int) -> None:
    """Of a quota, so many bytes."""
    disk.copying = COPYING
    disk.quota = sum(len(content) for content in disk.image().values() if content) + count


def give_back(disk: SimulatedDisk) -> None:
    disk.quota = NO_LIMIT


def refuse_cuts(disk: SimulatedDisk) -> None:
    """As if somebody else had at once what the reserve gave up."""

    def plan(kind: str, path: str) -> Fault | None:
        cuts = kind == "truncate" and path.endswith(".storelog")
        return Fault(errno.EDQUOT) if cuts else None

    disk.plan = plan


def test_it_is_closed_and_opened_there(store: LogStore, disk: SimulatedDisk) -> None:
    store.sizes = LogSizes(2_000, 10, 4_096, 1_000)
    disk.capacity = 1 << 30  # plenty: zeros are put ahead
    store.append(3)
    leave(disk, 0)
    store.close()
    log = store.open()
    assert (log.state.last, log.recovery.clean, store.held()) == (3, True, [1, 2, 3])
    with pytest.raises(DiskFull):
        store.append(size=5_000)
    give_back(disk)
    store.append()
    assert store.held() == [1, 2, 3, 4]


def test_a_segment_is_not_begun_there(store: LogStore, disk: SimulatedDisk) -> None:
    """The zeros ahead can't be taken off the full one."""
    disk.capacity = 1 << 30
    store.append(10)
    leave(disk, 0)
    with pytest.raises(DiskFull):
        store.append()
    assert store.log.tail.reserve.held, "that is for others"
    store.log.append(store.frames(), reserved=True)
    give_back(disk)
    store.append()
    assert store.held() == list(range(1, 13))


def test_a_start_with_a_torn_tail(store: LogStore, disk: SimulatedDisk) -> None:
    store.append(3)
    store.log.mark()
    leave(disk, 150)
    refuse_cuts(disk)
    with pytest.raises(DiskFull):
        store.append(size=5_000)
    with pytest.raises(DiskFull):
        store.append()
    assert store.held() == [1, 2, 3]
    disk.kill()
    log = store.open()
    assert (log.state.last, store.held()) == (3, [1, 2, 3])
    disk.plan = None
    give_back(disk)
    store.append()
    store.reopen(clean=False)
    assert store.held() == [1, 2, 3, 4]


FRAME = FRAME_HEADER_BYTES + 50


@pytest.mark.parametrize("ends", ["with room", "killed"])
def test_what_is_left_may_be_found(store: LogStore, disk: SimulatedDisk, ends: str) -> None:
    """Whole frames of a batch can't be cut off: nobody is told that they are not there."""
    store.append(3)
    leave(disk, 2 * FRAME + 10)
    refuse_cuts(disk)
    with pytest.raises(UnknownOutcome):
        store.append(5)
    with pytest.raises(DiskFull):
        store.append()
    assert store.held() == [1, 2, 3]
    if ends == "killed":
        disk.kill()
        assert store.open().state.last == 5
        return
    disk.plan = None
    give_back(disk)
    store.append(1, size=70)
    assert store.held() == [1, 2, 3, 4]
    store.reopen(clean=False)
    assert store.held() == [1, 2, 3, 4]


def test_a_mark_may_stay(store: LogStore, disk: SimulatedDisk) -> None:
    disk.capacity = 1 << 30
    store.append(3)
    leave(disk, FRAME_HEADER_BYTES)
    refuse_cuts(disk)
    disk.plan = lambda kind, path: (
        Fault(errno.EDQUOT, FRAME_HEADER_BYTES)
        if kind in ("append", "truncate") and path.endswith(".storelog")
        else None
    )
    with pytest.raises(DiskFull):
        store.log.mark()
    disk.kill()
    disk.plan = None
    assert store.open().state.last == 3


def test_a_reserve_of_one_file_is_made_anew(disk: SimulatedDisk) -> None:
    disk.make_directory("/s")
    file = disk.open("/s/RESERVE", create=True)
    file.append(bytes(1_000))
    file.close()
    reserve = Reserve(disk, "/s", Room(1_000, 4))
    assert reserve.fill()
    assert [len(content or b"") for path, content in disk.image().items() if "R" in path] == [
        250
    ] * 4
    leave(disk, 0)
    assert reserve.lend()
    assert disk.left(disk.quota) == 250
    assert not reserve.held
    assert reserve.fill(), "nobody else took it"


NEEDED = Room(1_000, 1)


class Asked(SimulatedDisk):
    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.make_directory("/s")

    def takes(self, folder: str, size: int) -> bool:
        self.asked += 1
        return super().takes(folder, size)


def both() -> tuple[Asked, FreeSpaceCheck, FreeSpaceCheck]:
    """A disk, and the headroom of the log and of the state there: the log was told of plenty."""
    disk = Asked()
    log = FreeSpaceCheck(disk, "/s", "/s")
    log.turns = threading.RLock()
    with log.turn():
        assert log.covers(NEEDED, 0)
    return disk, log, FreeSpaceCheck(disk, "/s", "/s", log)


def test_nobody_asks_while_the_state_is_flushed() -> None:
    disk, log, state = both()
    held, done = threading.Event(), threading.Event()

    def flush() -> None:
        with state.turn():
            assert state.found(NEEDED)
            held.set()
            done.wait(60)

    def write(count: int) -> None:
        with log.turn():
            assert log.covers(NEEDED, count)

    flusher = threading.Thread(target=flush)
    flusher.start()
    held.wait(60)
    before = disk.asked
    write(2 << 20)
    assert disk.asked == before, "more than that has been found"
    writer = threading.Thread(target=write, args=(3 << 20,))
    writer.start()
    writer.join(0.05)
    assert writer.is_alive(), "it waits for its turn"
    assert disk.asked == before
    done.set()
    writer.join(60)
    flusher.join(60)
    assert disk.asked == before + 1


def test_nobody_writes_beside_a_flush_that_has_just_room() -> None:
    disk, log, state = both()
    disk.quota = 2_000  # somebody else has had the rest
    wrote = threading.Event()

    def write() -> None:
        with log.turn():
            wrote.set()

    with state.turn():
        assert state.found(NEEDED) == NEEDED
        writer = threading.Thread(target=write)
        writer.start()
        assert not wrote.wait(0.05), "though it had been told that there is plenty"
    writer.join(60)
    assert wrote.is_set()
