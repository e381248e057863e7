"""The log on a real directory and, where the disk must fail, on a simulated one."""

from __future__ import annotations

import errno
import os
import random
import shutil
import threading
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

import pytest

from protocol.environment import Room
from protocol.errors import DiskFull, LogPruned
from storage.faults import LogDamaged, LogFailed, StoreFault, StoreTooNew, StoreTooOld
from storage.files.directory import StoreDirectory, segment_name
from storage.files.disk import Disk, DiskFile
from storage.formats.frames import (
    FORMAT,
    FRAME_HEADER_BYTES,
    NO_DIGEST,
    READ,
    SEGMENT_HEADER_BYTES,
    Frame,
    FrameCodec,
    SegmentHeader,
)
from storage.log.log import Log
from storage.log.segments import PLACE_FRAMES
from storage.log.state import LogSizes
from tests.simulation.disk import NO_LIMIT, Fault, SimulatedDisk
from tests.simulation.environment import ManualClock, SeededRng

FRAME = FRAME_HEADER_BYTES + 50
"""Bytes of one of `LogStore.frames`."""
MARK_BYTES = FRAME_HEADER_BYTES


class LogStore:
    def __init__(self, path: str, fs: Disk | SimulatedDisk) -> None:
        self.path = path
        self.fs = fs
        self.sizes = LogSizes(2_000, 10, 4_096, 1_000)
        self._seed = 0
        self.open()

    def open(self, proven: int = 0) -> Log:
        self._seed += 1
        environment = (self.fs, ManualClock(), SeededRng(self._seed))
        self.directory = StoreDirectory.open(self.path, *environment, create=True)
        try:
            self.log = Log.open(self.directory, self.sizes, proven=proven)
        except BaseException:
            self.directory.close()
            raise
        return self.log

    def close(self, clean: bool = True) -> None:
        try:
            self.log.close(clean)
        finally:
            self.directory.close()

    def reopen(self, clean: bool = True) -> Log:
        self.close(clean)
        return self.open()

    def append(self, count: int = 1, size: int = 50) -> list[Frame]:
        frames = self.frames(count, size)
        self.log.append(frames)
        return frames

    def frames(self, count: int = 1, size: int = 50) -> list[Frame]:
        log = self.log
        return [
            Frame(
                log.state.last + 1 + i,
                log.state.epoch,
                log.state.last_time + i,
                0,
                bytes([i % 256]) * size,
            )
            for i in range(count)
        ]

    def segments(self) -> list[str]:
        return [n for n in self.fs.names(f"{self.path}/log") if n.endswith(".storelog")]

    def segment(self, first: int) -> tuple[Path, bytes]:
        """The file of a segment, and its bytes."""
        path = Path(self.path, "log", segment_name(first))
        return path, path.read_bytes()

    def held(self) -> list[int]:
        return [frame.sequence for frame in self.log.reader.read(self.log.state.first)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LogStore]:
    store = LogStore(f"{tmp_path}/s", Disk())
    yield store
    store.close()


@pytest.fixture
def simulated() -> Iterator[LogStore]:
    store = LogStore("/s", SimulatedDisk())
    yield store
    store.close(clean=False)


def simulated_disk(store: LogStore) -> SimulatedDisk:
    assert isinstance(store.fs, SimulatedDisk)
    return store.fs


def test_frames_come_back_over_segments_and_restarts(store: LogStore) -> None:
    written = []
    for count in (1, 3, 8, 2, 30, 1):
        written += store.append(count)
        assert list(store.log.reader.read(1)) == written
    assert len(store.segments()) == 3
    for clean in (True, False, True):
        log = store.reopen(clean)
        assert list(log.reader.read(1)) == written
        assert log.recovery.clean is clean
        assert (log.state.last, log.state.last_time) == (written[-1].sequence, written[-1].time)
        written += store.append()
    for start in range(1, len(written) + 2):
        assert list(store.log.reader.read(start)) == written[start - 1 :]
        assert list(store.log.reader.read(start, start + 4)) == written[start - 1 : start + 4]


def test_bugs_of_the_writer_are_not_written(store: LogStore) -> None:
    [good] = store.frames()
    for bad in (
        good._replace(sequence=2),
        good._replace(time=good.time - 1),
        good._replace(epoch=0),
        good._replace(flags=1),
    ):
        with pytest.raises(AssertionError):
            store.log.append([bad])
    assert store.log.state.last == 0
    store.log.append([good])


def test_unclean_stop_copies_what_is_not_proven(store: LogStore) -> None:
    store.append(2)
    store.append(3)
    log = store.reopen(clean=False)
    assert (log.recovery.copied, log.recovery.cut_bytes) == (3, 0)
    assert store.segments() == [segment_name(1), segment_name(3)]
    log = store.reopen(clean=False)
    assert store.segments() == [segment_name(1), segment_name(3)], "the same again: it is replaced"
    log.mark()
    log = store.reopen(clean=False)
    assert log.recovery.copied == 0, "a mark proves them"
    assert store.held() == [1, 2, 3, 4, 5]


def test_torn_tail_is_cut_and_kept_aside(store: LogStore) -> None:
    store.append(2)
    store.append(2)
    store.close(clean=False)
    path = Path(store.path, "log", segment_name(1))
    torn = b"torn bytes of a batch nobody was told of"
    path.write_bytes(path.read_bytes().rstrip(b"\0") + torn + bytes(70))
    foreign = [path.with_name(name) for name in ("notes.cut", "my.own.cut", "1.2.3.cut")]
    for each in foreign:
        each.touch()
    log = store.open()
    assert all(each.exists() for each in foreign)
    assert (log.recovery.cut_bytes, log.state.last) == (len(torn), 4)
    assert log.recovery.cut_file is not None
    assert Path(log.recovery.cut_file).read_bytes() == torn
    assert store.append()[0].sequence == 5
    assert store.held() == [1, 2, 3, 4, 5]


def test_zeros_are_kept_ahead_and_written_over(store: LogStore) -> None:
    path = Path(store.path, "log", segment_name(1))
    store.append()
    size = path.stat().st_size
    assert size == SEGMENT_HEADER_BYTES + FRAME + 1_000
    for _ in range(6):
        store.append()
        assert path.stat().st_size == size, "no append makes the file longer"
    assert store.held() == list(range(1, 8))
    store.append(2, size=300)
    store.append()
    assert path.stat().st_size == 2_000, "none beyond where the segment ends"
    store.append()
    assert len(store.segments()) == 2
    frames = SEGMENT_HEADER_BYTES + 8 * FRAME + 2 * (FRAME + 250)
    assert path.stat().st_size == frames, "and it lost them before the next was begun"
    store.close()
    last = Path(store.path, "log", segment_name(11))
    assert last.stat().st_size == SEGMENT_HEADER_BYTES + FRAME + MARK_BYTES, "a frame and the mark"
    store.open()
    assert store.held() == list(range(1, 12))


@pytest.mark.parametrize("body", [b"", b"\0" * 40])
def test_zeros_are_no_torn_bytes(store: LogStore, body: bytes) -> None:
    for _ in range(2):
        for _ in range(3):
            last = store.log.state.last_time
            store.log.append(
                [Frame(store.log.state.last + 1, store.log.state.epoch, last, 0, body)]
            )
        held = store.held()
        log = store.reopen(clean=False)
        assert (log.recovery.cut_bytes, log.recovery.cut_file) == (0, None)
        assert store.held() == held


def test_a_frame_that_became_zeros_is_missed(store: LogStore) -> None:
    for _ in range(4):
        store.append()
    store.close(clean=False)
    path, whole = store.segment(1)
    at = SEGMENT_HEADER_BYTES + FRAME
    path.write_bytes(whole[:at] + bytes(FRAME) + whole[at + FRAME :])
    with pytest.raises(LogDamaged, match="acknowledged") as refusal:
        store.open()
    assert (refusal.value.offset, refusal.value.sequence) == (at, 2)
    path.write_bytes(whole)
    store.open()


def test_cut_files_do_not_pile_up(store: LogStore) -> None:
    for n in range(12):
        store.append(1 + n)
        store.close(clean=False)
        last = Path(store.path, "log", store.segments()[-1])
        last.write_bytes(last.read_bytes() + b"torn")
        store.open()
    assert len([n for n in os.listdir(f"{store.path}/log") if n.endswith(".cut")]) == 8


def test_damage_under_a_later_batch_is_refused(store: LogStore) -> None:
    store.append(2)
    store.append(1)
    store.close(clean=False)
    path, whole = store.segment(1)
    at = SEGMENT_HEADER_BYTES + 60
    path.write_bytes(whole[:at] + b"?" + whole[at + 1 :])
    with pytest.raises(LogDamaged, match="acknowledged") as refusal:
        store.open()
    damage = refusal.value
    assert (damage.file, damage.offset, damage.sequence) == (str(path), SEGMENT_HEADER_BYTES, 1)
    path.write_bytes(whole)
    store.open()


def test_damage_in_an_older_segment_is_found_when_read(store: LogStore) -> None:
    store.append(10)
    store.append(10)
    store.close()
    path = Path(store.path, "log", segment_name(1))
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    log = store.open()
    assert [f.sequence for f in log.reader.read(11)] == list(range(11, 21))
    with pytest.raises(LogDamaged) as refusal:
        list(log.reader.read(1))
    assert refusal.value.sequence == 10


@pytest.mark.parametrize("size", [0, 1, SEGMENT_HEADER_BYTES - 1])
def test_torn_header_of_the_newest_segment_is_damage(store: LogStore, size: int) -> None:
    store.append(10)
    store.append(1)
    store.close(clean=False)
    path, whole = store.segment(11)
    path.write_bytes(whole[:size])
    with pytest.raises(LogDamaged) as refusal:
        store.open()
    assert (refusal.value.offset, refusal.value.sequence) == (0, 11)
    path.write_bytes(whole)
    store.open()


def test_store_without_a_segment_is_damage(store: LogStore) -> None:
    store.close()
    path, whole = store.segment(1)
    path.unlink()
    with pytest.raises(LogDamaged, match="missing"):
        store.open()
    path.write_bytes(whole)
    store.open()


def test_segment_of_another_store_is_damage(store: LogStore, tmp_path: Path) -> None:
    other = LogStore(f"{tmp_path}/other", Disk())
    other._seed = 99
    other.close()
    store.close()
    path = Path(store.path, "STORE")
    own = path.read_bytes()
    environment = (Disk(), ManualClock(), SeededRng(1234))
    third = StoreDirectory.open(f"{tmp_path}/third", *environment, create=True)
    third.close()
    path.write_bytes(Path(tmp_path, "third", "STORE").read_bytes())
    with pytest.raises(LogDamaged, match="another store"):
        store.open()
    path.write_bytes(own)
    store.open()


@pytest.mark.parametrize(
    ("other", "fault"), [(min(READ) - 1, StoreTooOld), (max(READ) + 1, StoreTooNew)]
)
def test_segment_of_another_format_is_refused(
    store: LogStore, monkeypatch: pytest.MonkeyPatch, other: int, fault: type[StoreFault]
) -> None:
    store.append(10)
    monkeypatch.setattr("storage.formats.frames.FORMAT", other)
    store.append(1)  # rolls
    monkeypatch.undo()
    store.close(clean=False)
    path, theirs = store.segment(11)
    with pytest.raises(fault, match=f"log format {other}"):
        store.open()
    assert path.read_bytes() == theirs
    path.write_bytes(_in_this_format(theirs))
    store.open()


def test_segment_of_the_format_before_is_read(
    store: LogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append(10)
    monkeypatch.setattr("storage.formats.frames.FORMAT", min(READ))
    store.append(1)  # rolls
    monkeypatch.undo()
    store.close()
    assert Path(store.path, "log", segment_name(11)).read_bytes()[9] == min(READ)
    store.open()
    assert store.held() == list(range(1, 12))
    before = Path(store.path, "log", segment_name(11)).read_bytes()
    store.append(1)
    store.close()
    newest = Path(store.path, "log", segment_name(12)).read_bytes()
    assert newest[9] == FORMAT, "what an older version can't read was put behind what it can"
    assert Path(store.path, "log", segment_name(11)).read_bytes().startswith(before[:-200])
    store.open()
    assert store.held() == list(range(1, 13))


def _in_this_format(segment: bytes) -> bytes:
    """The segment of `test_segment_of_another_format_is_refused` with its header written anew."""
    head = bytearray(segment)
    head[8:10] = FORMAT.to_bytes(2, "big")
    head[64:72] = blake2b(head[:64], digest_size=8).digest()
    head[96:104] = blake2b(head[:96], digest_size=8).digest()
    return bytes(head)


@pytest.mark.parametrize("clean", [True, False])
def test_newest_segment_missing_is_damage(store: LogStore, clean: bool) -> None:
    """Also after an unclean stop, when no CLOSED names it."""
    store.append(10)
    store.append(1)
    store.close(clean)
    path, content = store.segment(11)
    path.unlink()
    before = _files(store)
    with pytest.raises(LogDamaged) as refusal:
        store.open()
    assert refusal.value.sequence == 11
    assert _files(store) == before
    path.write_bytes(content)
    assert store.open().state.last == 11


def test_newest_segment_that_was_begun_only_may_be_missing(store: LogStore) -> None:
    """A crash between its name and NEWEST: nothing has been written to it."""
    store.append(10)
    store.log._roll(reserved=False)
    store.close(clean=False)
    Path(store.path, "log", segment_name(11)).unlink()
    assert store.open().state.last == 10


def test_a_log_that_ends_before_what_is_proven_is_left_as_it_is(store: LogStore) -> None:
    store.append(2)
    store.append(2)
    store.close(clean=False)
    path, whole = store.segment(1)
    at = SEGMENT_HEADER_BYTES + 3 * FRAME
    for left in (whole[:at], whole[:at] + b"?" + whole[at + 1 :]):
        path.write_bytes(left)
        before = _files(store)
        with pytest.raises(LogDamaged, match="the state has applied frames up to 4") as refusal:
            store.open(proven=4)
        damage = refusal.value
        assert (damage.file, damage.offset, damage.sequence) == (str(path), at, 4)
        assert _files(store) == before
    store.open(proven=3)
    assert store.held() == [1, 2, 3]


def _files(store: LogStore) -> dict[str, bytes]:
    folder = Path(store.path, "log")
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_digests_are_known_of_every_place(store: LogStore) -> None:
    written: list[Frame] = []
    for count in (10, 10, 3):
        frames = store.frames(count)
        assert store.log.append(frames) == [frame.digest() for frame in frames]
        written += frames
    wanted = {0: NO_DIGEST} | {frame.sequence: frame.digest() for frame in written}
    for clean in (True, False, False):
        for sequence, digest in wanted.items():
            assert store.log.reader.digest_at(sequence) == digest
        assert store.log.state.digest == digest
        assert store.log.reader.digest_at(24) is None
        store.reopen(clean)
    store.log.prune(15)
    assert store.log.reader.digest_at(10) == wanted[10], "of the one before the first"
    assert store.log.reader.digest_at(9) is None
    log = store.reopen()
    assert log.reader.digest_at(10) == wanted[10]


def test_segment_of_a_fork_is_damage(store: LogStore, tmp_path: Path) -> None:
    """Two histories of one store: whole segments of the one, put into the other."""
    store.append(10)
    store.close()
    fork = f"{tmp_path}/fork"
    shutil.copytree(store.path, fork)
    store.open()
    store.append(10, size=50)
    store.append(1)
    store.close()
    other = LogStore(fork, Disk())
    other.append(10, size=51)
    other.append(1)
    other.close()
    name = segment_name(21)
    path = Path(store.path, "log", name)
    own = path.read_bytes()
    path.write_bytes(Path(fork, "log", name).read_bytes()[: len(own)])
    store.open()
    with pytest.raises(LogDamaged, match="does not continue the one before") as refusal:
        list(store.log.reader.read(1))
    assert (refusal.value.file, refusal.value.sequence) == (str(path), 21)


def test_what_was_released_is_written_down(store: LogStore) -> None:
    store.log.append(store.frames(3), released=0)
    assert store.log.state.released == 0
    store.log.append(store.frames(2), released=2)
    assert store.reopen(clean=False).state.released == 2
    store.log.mark(released=4)
    assert store.reopen(clean=False).state.released == 4, "an empty segment's header says it too"
    for bad in (3, 6):
        with pytest.raises(AssertionError, match="shown"):
            store.log.append(store.frames(1), released=bad)
    assert store.reopen().state.released == 5, "alone, all that is durable"


def test_both_segments_hold_the_copied_frames(store: LogStore) -> None:
    """A recovery that named the new segment and did not get to cut the old one."""
    store.append(2)
    written = list(store.log.reader.read(1)) + store.append(3)
    store.close(clean=False)
    old, uncut = store.segment(1)
    store.open()
    store.close(clean=False)
    assert len(old.read_bytes()) < len(uncut)
    old.write_bytes(uncut + b"and torn bytes")
    for clean in (False, True):
        log = store.open()
        assert list(log.reader.read(1)) == written
        assert list(log.reader.read(2, 4)) == written[1:4]
        store.close(clean)
    store.open()


def test_prune_removes_whole_segments(store: LogStore) -> None:
    for _ in range(5):
        store.append(10)
    log = store.log
    log.prune(1)
    log.prune(10)
    assert log.state.first == 1
    log.prune(25)
    assert (log.state.first, store.segments()[0]) == (21, segment_name(21))
    assert store.held() == list(range(21, 51))
    with pytest.raises(LogPruned) as refusal:
        log.reader.read(20)
    assert refusal.value.detail == {"first": 21}
    log.prune(1_000)
    assert log.state.first == 41, "the last segment stays"
    log = store.reopen()
    assert (log.state.first, log.state.last) == (41, 50)


def test_prune_cut_short_is_finished_at_open(store: LogStore) -> None:
    for _ in range(3):
        store.append(10)
    one, content = store.segment(1)
    store.log.prune(21)
    store.close()
    one.write_bytes(content)
    log = store.open()
    assert (log.state.first, store.segments()) == (21, [segment_name(21)])


def test_read_that_is_overtaken_by_a_prune_says_so(store: LogStore) -> None:
    for _ in range(3):
        store.append(10)
    reader = store.log.reader.read(1)
    assert next(reader).sequence == 1
    store.log.prune(21)
    with pytest.raises(LogPruned):
        list(reader)


def test_a_read_takes_the_log_as_it_was_at_its_beginning(store: LogStore) -> None:
    """Another thread may read between any two steps of an append, a roll or a prune."""
    store.append(5)
    log = store.log
    log.state.last = 3  # the segment has its new size, and the log not yet its new end
    assert [frame.sequence for frame in log.reader.read(1)] == [1, 2, 3]
    log.state.last = 5
    store.append(6)
    store.append(5)
    log.state.first, segments = (
        1,
        log.state.segments,
    )  # the segments went, and its beginning is not said yet
    log.state.segments = segments[1:]
    with pytest.raises(LogPruned) as refusal:
        log.reader.read(3)
    assert refusal.value.detail == {"first": 12}


def test_any_frame_is_found_from_any_other(store: LogStore) -> None:
    """Whether its segment was written, walked, walked in part, or not looked at since the start."""
    store.sizes = LogSizes(1_000_000, 100, 4_096, 1_000)
    store.reopen()
    written: list[Frame] = []
    for number in range(70):
        written += store.append(random.Random(number).randrange(1, 6), size=number * 40)
        if number % 7 == 0:
            store.log.mark()
    asked = list(range(1, len(written) + 1))
    for seed in range(5):
        random.Random(seed).shuffle(asked)
        for sequence in asked:
            assert store.log.reader.frame(sequence) == written[sequence - 1]
        ends = [segment.first for segment in store.log.state.segments[1:]]
        for segment, end in zip(store.log.state.segments, ends, strict=False):
            frames = end - segment.first
            assert len(segment.places) == -(-frames // PLACE_FRAMES), "all of it has been walked"
        assert list(store.log.reader.read(1)) == written
        store.reopen(clean=bool(seed % 2))
        list(store.log.reader.read(1, asked[0]))


def test_a_frame_is_read_past_damage_in_the_bodies_before_it(store: LogStore) -> None:
    """A head that is damaged is another thing: then nobody knows where the next frame begins."""
    store.append(9)
    [large] = store.append(1, size=100_000)
    store.append(10)
    store.close()
    path = Path(store.path, "log", segment_name(1))
    content = bytearray(path.read_bytes())
    at = SEGMENT_HEADER_BYTES + 3 * FRAME
    content[at + FRAME - 1] ^= 1
    path.write_bytes(content)
    log = store.open()
    assert log.reader.frame(10) == large
    with pytest.raises(LogDamaged) as refusal:
        log.reader.frame(4)
    assert (refusal.value.sequence, refusal.value.offset) == (4, at)
    content[at + 20] ^= 1
    path.write_bytes(content)
    log = store.reopen()
    assert [log.reader.frame(sequence).sequence for sequence in (3, 11)] == [3, 11]
    with pytest.raises(LogDamaged) as refusal:
        log.reader.frame(10)
    assert (refusal.value.sequence, refusal.value.offset) == (4, at)


def test_a_frame_costs_few_reads_and_few_bytes(
    store: LogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one that is far from the beginning of a segment that was written or walked before."""
    store.sizes = LogSizes(1_000_000, 1_000, 4_096, 1_000)
    store.reopen()
    store.append(1_000)
    store.append(1)
    taken: list[int] = []
    read = DiskFile.read

    def counting(file: DiskFile, offset: int, count: int) -> bytes:
        taken.append(count)
        return read(file, offset, count)

    monkeypatch.setattr(DiskFile, "read", counting)
    for sequence in (1, 15, 16, 500, 1_000):
        taken.clear()
        store.log.reader.frame(sequence)
        assert sum(taken) <= 8 * 1024, "not a megabyte"


def test_epochs_are_known_from_headers_or_not_at_all(store: LogStore) -> None:
    log = store.log
    for epoch, count in ((1, 15), (2, 20), (3, 5)):
        log.state.epoch = epoch  # as another leader's frames bring it
        for _ in range(count):
            store.append()
    true = {frame.sequence: frame.epoch for frame in log.reader.read(1)}
    known = {sequence: log.reader.known_epoch(sequence) for sequence in true}
    unknown = {sequence for sequence, epoch in known.items() if epoch is None}
    assert unknown == {*range(11, 20), *range(31, 41)}, "in segments where it rose"
    assert all(epoch in (None, true[sequence]) for sequence, epoch in known.items())
    assert log.reader.known_epoch(0) == 1
    log.prune(21)
    assert (log.reader.known_epoch(20), log.reader.known_epoch(19)) == (2, None)


def test_reader_on_another_thread_sees_a_prefix(store: LogStore) -> None:
    stop = threading.Event()
    problems: list[str] = []
    rounds = 0

    def inspect() -> None:
        nonlocal rounds
        while not stop.is_set() or rounds == 0:
            start = random.randrange(1, store.log.state.last + 2)
            held = [frame.sequence for frame in store.log.reader.read(start)]
            if held != list(range(start, start + len(held))):
                problems.append(f"from {start}: {held}")
            rounds += 1

    reader = threading.Thread(target=inspect)
    reader.start()
    for _ in range(100):
        store.append(3, size=400)
    stop.set()
    reader.join()
    assert not problems
    assert rounds > 0


def test_large_frames(store: LogStore) -> None:
    [frame] = store.append(1, size=5_000_000)
    store.append()
    log = store.reopen(clean=False)
    assert next(log.reader.read(1)) == frame
    assert log.state.last == 2


def test_clean_close_is_noticed_when_undone(store: LogStore) -> None:
    store.append(3)
    store.close()
    path, whole = store.segment(1)
    for damaged in (whole[:-1], whole[:SEGMENT_HEADER_BYTES], whole + b"x", whole + whole[-52:]):
        path.write_bytes(damaged)
        with pytest.raises(LogDamaged, match="closed"):
            store.open()
    path.write_bytes(whole)
    assert store.open().recovery.clean


def test_open_and_close_without_a_write_change_nothing(store: LogStore) -> None:
    store.append(3)
    store.close()
    folder = Path(store.path, "log")
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    store.open().mark()
    store.close()
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before
    store.open()


# --- when the disk fails --------------------------------------------------------------------------


def test_failed_sync_is_final(simulated: LogStore) -> None:
    disk = simulated_disk(simulated)
    simulated.append(2)
    disk.plan = lambda kind, _path: Fault(errno.EIO) if kind == "sync" else None
    with pytest.raises(LogFailed):
        simulated.append(2)
    disk.plan = None
    assert simulated.log.state.last == 2
    before = disk.operations
    for refused in (simulated.append, simulated.log.mark, lambda: simulated.log.prune(1)):
        with pytest.raises(LogFailed):
            refused()
    simulated.close()
    assert disk.operations == before, "neither synced again, nor written"
    log = simulated.open()
    assert log.state.last == 2, "read past the page cache, the frames are not there"
    assert not log.recovery.clean
    simulated.append()
    assert simulated.held() == [1, 2, 3]


def test_full_disk_refuses_reads_on_and_resumes(simulated: LogStore) -> None:
    disk = simulated_disk(simulated)
    simulated.append(3)
    disk.capacity = sum(len(c) for c in disk.image().values() if c) + 300
    with pytest.raises(DiskFull):
        simulated.append(5, size=200)
    assert simulated.held() == [1, 2, 3]
    with pytest.raises(DiskFull):
        simulated.append(5, size=200)
    disk.capacity = NO_LIMIT
    simulated.append(2)
    assert simulated.held() == [1, 2, 3, 4, 5]
    simulated.log.close(clean=False)
    simulated.directory.close()
    assert simulated.open().state.last == 5


def test_a_disk_without_room_for_zeros_takes_frames(simulated: LogStore) -> None:
    disk = simulated_disk(simulated)
    disk.capacity = sum(len(c) for c in disk.image().values() if c) + 20_000
    before = disk.room("/s").bytes
    simulated.append(size=300)
    assert disk.room("/s").bytes == before - FRAME - 250, "there is not plenty of it"
    disk.capacity = NO_LIMIT
    disk.plan = lambda kind, path: _only_once(disk) if kind == "append" else None
    simulated.append()  # as a quota would: it refuses the zeros and takes the frame
    simulated.append()
    assert simulated.held() == [1, 2, 3]
    assert len(simulated.segments()) == 2, "what was cut back is not written on"


def _only_once(disk: SimulatedDisk) -> Fault:
    disk.plan = None
    return Fault(errno.EDQUOT, 200)


def test_reserve_takes_what_must_be_written(simulated: LogStore) -> None:
    disk = simulated_disk(simulated)
    simulated.append(3)
    disk.capacity = sum(len(c) for c in disk.image().values() if c)
    with pytest.raises(DiskFull):
        simulated.append()
    simulated.log.append(simulated.frames(), reserved=True)
    with pytest.raises(DiskFull):
        simulated.append()
    assert simulated.log.state.last == 4, "what the reserve gave is not for everybody"
    simulated.close()
    log = simulated.open()
    assert (log.state.last, log.recovery.clean) == (4, True), "closed cleanly on a full disk"
    with pytest.raises(DiskFull):
        simulated.append()
    disk.capacity = NO_LIMIT
    simulated.append()
    assert disk.exists("/s/log/RESERVE")


def test_no_more_files_is_a_full_disk(simulated: LogStore) -> None:
    disk = simulated_disk(simulated)
    simulated.append(10)
    disk.files = len(disk.image())
    with pytest.raises(DiskFull):
        simulated.append()  # begins a segment
    assert simulated.held() == list(range(1, 11))
    simulated.log.append(simulated.frames(), reserved=True)
    with pytest.raises(DiskFull):
        simulated.append()
    log = simulated.reopen(clean=False)
    assert (log.state.last, simulated.held()) == (11, list(range(1, 12)))
    with pytest.raises(DiskFull):
        simulated.append()
    disk.files = NO_LIMIT
    simulated.append()
    assert simulated.held() == list(range(1, 13))
    assert simulated.log.tail.reserve.held


def test_files_that_others_need_are_left_to_them(simulated: LogStore) -> None:
    disk = simulated_disk(simulated)
    disk.files = len(disk.image()) + 7
    with pytest.raises(DiskFull):
        simulated.log.append(simulated.frames(), spare=Room(0, 8))
    simulated.log.append(simulated.frames(), spare=Room(0, 7))
    simulated.log.append(simulated.frames(), spare=Room(0, 8), reserved=True)
    assert not simulated.log.tail.reserve.held, "it was given up for them"


def test_a_start_without_files_lives_on_the_reserve(simulated: LogStore) -> None:
    disk = simulated_disk(simulated)
    simulated.append(3)
    simulated.close(clean=False)
    disk.files = len(disk.image())
    simulated.directory = StoreDirectory.open("/s", disk, ManualClock(), SeededRng(9))
    log = Log.inspect(simulated.directory, simulated.sizes)
    log.make_room(Room(1_000, 8))
    assert disk.room("/s").files == 16
    with pytest.raises(DiskFull, match="17 files"):
        log.make_room(Room(1_000, 17))
    log.recover()
    assert (log.state.last, log.tail.reserve.held) == (3, True), "and holds it again"
    simulated.log = log


def test_a_quota_is_a_full_disk_that_the_file_system_does_not_show(simulated: LogStore) -> None:
    disk = simulated_disk(simulated)
    simulated.append()
    used = sum(len(content) for content in disk.image().values() if content)
    disk.quota = used + 50_000
    assert disk.room("/s").bytes == NO_LIMIT
    with pytest.raises(DiskFull):
        simulated.log.append(simulated.frames(), spare=Room(51_000, 8))
    simulated.log.append(simulated.frames(), spare=Room(30_000, 8))
    disk.quota = used + 5_000
    with pytest.raises(DiskFull):
        simulated.append(size=10_000)
    simulated.append()
    assert simulated.held() == [1, 2, 3]
    simulated.close()
    assert simulated.open().state.last == 3


def test_one_write_and_one_sync_for_a_group(simulated: LogStore) -> None:
    disk = simulated_disk(simulated)
    simulated.append()
    before = disk.operations
    simulated.append(8)
    assert disk.operations == before + 2


def test_a_full_disk_after_a_recovery_that_was_cut_off(simulated: LogStore) -> None:
    """Torn bytes stand where the recovery had no time to cut them."""
    disk = simulated.fs
    assert isinstance(disk, SimulatedDisk)
    simulated.append()
    simulated.log.mark()  # so that it is provably durable, and stays where it is
    torn = disk.open(f"{simulated.path}/log/{simulated.segments()[-1]}")
    torn.append(b"torn" * 20)
    torn.close()
    simulated.close(clean=False)
    disk.plan = lambda kind, path: (
        Fault(errno.EIO) if kind == "truncate" and path.endswith(".storelog") else None
    )
    with pytest.raises(OSError, match="Input/output"):
        simulated.open()
    disk.plan = None
    simulated.open()
    disk.plan = lambda kind, path: Fault(errno.ENOSPC) if kind == "append" else None
    with pytest.raises(DiskFull):
        simulated.append()
    disk.plan = None
    simulated.append(2)
    assert simulated.held() == [1, 2, 3]
    simulated.reopen()
    assert simulated.held() == [1, 2, 3]


@pytest.mark.parametrize(("epochs", "bad"), [((1, 2, 1), 3), ((2, 1, 1), 2), ((1, 1, 2), None)])
def test_an_epoch_that_falls_is_damage(
    store: LogStore, epochs: tuple[int, ...], bad: int | None
) -> None:
    """Frames that are whole, and of an epoch that had ended: no crash makes them."""
    store.close(clean=False)
    path = Path(store.path, "log", segment_name(1))
    head = path.read_bytes()[:SEGMENT_HEADER_BYTES]
    header = SegmentHeader.decode(head)
    codec, data = FrameCodec(header.salt), [head]
    for number, epoch in enumerate(epochs, 1):
        frame = Frame(number, epoch, header.time, 0, b"x")
        data.append(codec.encode(frame, number - 1, number - 1))
    path.write_bytes(b"".join(data))
    if bad is None:
        assert store.open().state.epoch == 2
        return
    with pytest.raises(LogDamaged, match="its epoch 1 is lower than 2 before it") as refusal:
        store.open()
    offset = SEGMENT_HEADER_BYTES + (bad - 1) * (FRAME_HEADER_BYTES + 1)
    assert (refusal.value.offset, refusal.value.sequence) == (offset, bad)
    path.write_bytes(head)
    store.open()
