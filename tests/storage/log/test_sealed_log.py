"""The log of a sealed store."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

import pytest

from protocol.errors import DiskFull, WrongKey
from storage.faults import LogDamaged, StoreDamaged, StoreFault, StoreNotSealed
from storage.files import rebuild_marker
from storage.files.directory import StoreDirectory
from storage.files.node_file import load_node, save_node
from storage.formats import frames
from storage.formats.frames import FRAME_HEADER_BYTES, SEALED_HEADER_BYTES, Frame, SegmentHeader
from storage.formats.sealing import FrameSealer, Key
from storage.log.log import Log
from storage.log.state import LogSizes
from tests.reliability.crashes import enumerate_crashes
from tests.simulation.disk import Fault, Image, SimulatedDisk
from tests.simulation.environment import ManualClock, SeededRng
from tests.storage.backups.held import KEY, OTHER_KEY
from tests.storage.seals import NonceUsedTwice, Seals, counted

PATH = "/s"
SIZES = LogSizes(2_000, 10, 4_096, 1_000)
CANARY = b"canary in the log"
SEED, STATES = 5, 400
"""Crash states that show a log which counts on."""


class SealedLogStore:
    def __init__(
        self, disk: SimulatedDisk | None = None, key: Key | None = KEY, seed: int = 0
    ) -> None:
        self.disk = disk or SimulatedDisk()
        self.key = key
        self._seed = seed

    def open(self, seed: int | None = None) -> Log:
        self._seed += 1
        rng = SeededRng(self._seed if seed is None else seed)
        self.directory = StoreDirectory.open(
            PATH, self.disk, ManualClock(), rng, create=True, key=self.key
        )
        try:
            self.log = Log.open(self.directory, SIZES)
        except BaseException:
            self.directory.close()
            raise
        return self.log

    def append(self, count: int = 1, body: bytes = CANARY) -> None:
        log = self.log
        log.append(
            [
                Frame(log.state.last + 1 + at, log.state.epoch, log.state.last_time, 0, body)
                for at in range(count)
            ]
        )

    def close(self, clean: bool = True) -> None:
        self.log.close(clean)
        self.directory.close()

    def image(self) -> Image:
        return self.disk.image()

    def segments(self) -> list[str]:
        return [f"{PATH}/log/{n}" for n in self.disk.names(f"{PATH}/log") if "storelog" in n]


def filled(
    frames_each: tuple[int, ...] = (12, 5), clean: bool = True, seed: int = 0
) -> SealedLogStore:
    """A store whose log has several segments."""
    store = SealedLogStore(seed=seed)
    for count in frames_each:
        store.open()
        for _ in range(count):
            store.append()
        store.close(clean)
    return store


def opened(image: Image, key: Key | None = KEY) -> list[Frame]:
    """All frames of the store that a disk holds. Raises what refuses it."""
    store = SealedLogStore(SimulatedDisk(dict(image)), key)
    log = store.open(seed=99)
    try:
        return list(log.reader.read(log.state.first))
    finally:
        store.close(clean=False)


def bodies(found: list[Frame]) -> list[bytes]:
    return [frame.body for frame in found]


# --- keys -----------------------------------------------------------------------------------------


def test_what_is_written_is_read_and_nothing_of_it_is_in_clear() -> None:
    store = filled()
    assert bodies(opened(store.image())) == [CANARY] * 17
    assert b"canary" not in b"".join(content or b"" for content in store.image().values())
    plain = SealedLogStore(key=None)
    plain.open()
    plain.append()
    assert b"canary" in b"".join(content or b"" for content in plain.disk.image().values())


@pytest.mark.parametrize("key", [None, OTHER_KEY], ids=["none", "another"])
def test_another_key_is_told_from_damage(key: Key | None) -> None:
    image = filled().image()
    with pytest.raises(WrongKey, match=KEY.id.hex()):
        opened(image, key)
    if key is not None:  # the log says so too, where STORE was put in from elsewhere
        store = SealedLogStore(key=OTHER_KEY)
        store.open()
        store.close()
        image[f"{PATH}/STORE"] = store.image()[f"{PATH}/STORE"]
        for name in ("NEWEST", "CLOSED"):
            image.pop(f"{PATH}/log/{name}")
        with pytest.raises(WrongKey, match="the log is sealed with key"):
            opened(image, key)


def test_a_store_is_sealed_from_its_first_start_or_never() -> None:
    plain = SealedLogStore(key=None)
    plain.open()
    plain.append()
    plain.close()
    before = plain.image()
    with pytest.raises(StoreNotSealed, match="from its first start or never"):
        opened(before)
    assert plain.image() == before
    sealed = filled()
    before = sealed.image()
    with pytest.raises(WrongKey, match="no key was given: use --key-file"):
        opened(before, None)
    assert sealed.image() == before


def test_facts_are_sealed_too() -> None:
    store = filled()
    store.open()
    node = replace(load_node(store.directory), endpoints=("canary.example:1",))
    save_node(store.directory, node)
    rebuild_marker.record_damage(store.directory, "canary of the damage")
    assert load_node(store.directory) == node
    assert rebuild_marker.damage(store.directory) == "canary of the damage"
    image = store.image()
    assert b"canary" not in b"".join(content or b"" for content in image.values())
    for name in ("NODE", "STORE", "DAMAGED", "log/NEWEST"):
        content = image[f"{PATH}/{name}"]
        assert content is not None and b'"sealed"' in content
        with pytest.raises(StoreDamaged):  # each opens under its own name alone
            other = "STORE" if name == "NODE" else "NODE"
            moved = SimulatedDisk({**image, f"{PATH}/{other}": content})
            StoreDirectory.open(PATH, moved, ManualClock(), SeededRng(1), key=KEY).read(
                f"{PATH}/{other}"
            )


def test_facts_of_another_store_of_the_same_key_do_not_open() -> None:
    one, other = SealedLogStore(), SealedLogStore(seed=50)
    for store in (one, other):
        store.open()
        load_node(store.directory)
        rebuild_marker.record_damage(store.directory, "of this store")
    for name in ("NODE", "DAMAGED"):
        moved = SimulatedDisk({**one.image(), f"{PATH}/{name}": other.image()[f"{PATH}/{name}"]})
        directory = StoreDirectory.open(PATH, moved, ManualClock(), SeededRng(1), key=KEY)
        with pytest.raises(StoreDamaged, match="cannot be decrypted"):
            load_node(directory) if name == "NODE" else rebuild_marker.damage(directory)


# --- nonces ---------------------------------------------------------------------------------------


def starts(count: int) -> Seals:
    """A store that is started so often and ends in any way; copies of it go on by themselves."""
    rng = random.Random(count)
    store, copies = SealedLogStore(), 0
    with counted() as seals:
        for number in range(count):
            log = store.open(seed=number)
            if rng.random() < 0.8:
                store.append(rng.randrange(1, 4), rng.randbytes(rng.randrange(60)))
            if rng.random() < 0.2:
                log.mark()
            if rng.random() < 0.05:
                copies += 1
                copy = SealedLogStore(SimulatedDisk(store.image()))
                copy.open(seed=10_000_000 + number)
                copy.append(2, b"a copy")
                copy.close()
            log.prune(log.state.last - 20)
            way = rng.randrange(3)
            if way == 0:
                store.close()
            elif way == 1:
                store.disk.kill()
            else:
                store.disk.cut_power(rng)
    assert copies
    return seals


@pytest.mark.timeout(900)
@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.hard)])
def test_no_nonce_twice_over_starts(count: int, figure: Callable[[str, object], None]) -> None:
    seals = starts(count)
    told = f"{seals.count} seals, {len(seals.keys)} keys, 0 nonces twice"
    figure(f"sealed log: {count} starts", told)


@pytest.mark.parametrize("states", [STATES, pytest.param(6_000, marks=pytest.mark.hard)])
def test_no_nonce_twice_over_full_disks_and_recoveries(
    states: int, figure: Callable[[str, object], None]
) -> None:
    """R1's workload: full disks, kills, power cuts, recoveries that are cut, and from each crash
    state a store that goes on by itself."""
    with counted() as seals:
        done = enumerate_crashes(SEED, states, key=KEY)
    figure(
        "sealed log: crash states",
        f"{done.states}, {done.recoveries_cut} in a recovery; 0 lost; {seals.count} seals,"
        f" {len(seals.keys)} keys, 0 nonces twice",
    )


class GoesOnWhereItWasOpened(Log):
    """Counts on from what stands in the segment."""

    def recover(self, proven: int = 0) -> None:
        super().recover(proven)
        segment, seal = self.state.segments[-1], self.state.segments[-1].header.seal
        if self.tail.worn and seal is not None:
            self.tail.worn = False
            beside = frames._named(segment.header)
            file = self.state.fs.open_read(segment.path)
            walk = frames.FrameWalker(file, segment.codec, segment.header.size, segment.size)
            count = sum(1 for _ in walk) + 1
            segment.codec.sealer = FrameSealer(KEY, seal.salt, beside, count)


def test_a_log_that_counts_on_is_caught() -> None:
    with counted(), pytest.raises(NonceUsedTwice):
        enumerate_crashes(SEED, STATES, GoesOnWhereItWasOpened, key=KEY)


def test_frames_that_a_full_disk_refused_before_they_were_written_leave_no_gap() -> None:
    """The first of an epoch, for which HISTORY found no room."""
    store = SealedLogStore()
    log = store.open()
    store.append(3)
    refused: list[str] = []

    def full(kind: str, path: str) -> Fault | None:
        if kind != "append" or "HISTORY" not in path or refused:
            return None
        refused.append(path)
        return Fault(errno.ENOSPC)

    store.disk.plan = full
    frame = Frame(
        log.state.last + 1, log.state.epoch + 1, log.state.last_time, 0, b"of the next epoch"
    )
    with pytest.raises(DiskFull):
        log.append([frame])
    assert refused and log.state.last == 3
    log.append([frame])
    store.append(2)
    assert [each.sequence for each in log.reader.read(1)] == [1, 2, 3, 4, 5, 6]
    store.close()
    assert bodies(opened(store.image()))[3] == b"of the next epoch"


# --- what is put where it does not belong ---------------------------------------------------------


def test_a_segment_that_was_read_takes_no_seal() -> None:
    store = filled()
    store.open()
    with pytest.raises(AssertionError, match="takes no seals"):
        store.log.state.segments[-1].codec.encode(Frame(18, 1, 1, 0, b""), 17, 17)


def placed(data: bytes) -> list[tuple[int, int]]:
    """Where each frame of a segment begins and ends."""
    found, at = [], SEALED_HEADER_BYTES
    while at + FRAME_HEADER_BYTES <= len(data) and any(data[at : at + 4]):
        end = at + FRAME_HEADER_BYTES + int.from_bytes(data[at : at + 4], "big")
        found.append((at, end))
        at = end
    return found


def rewritten(data: bytes, span: tuple[int, int], change: Callable[[bytearray], None]) -> bytes:
    """A segment with one frame changed, and its checks made to fit: what somebody does who can
    write to the directory, and has no key."""
    header = SegmentHeader.decode(data)
    start, end = span
    frame = bytearray(data[start:end])
    change(frame)
    plain = frames.FrameCodec(header.salt)
    fields = frames._COVERED.unpack(frame[16:60])
    sequence, epoch, durable, released, time, flags = fields
    body = bytes(frame[60:])
    made = plain.encode(Frame(sequence, epoch, time, flags, body), durable, released)
    return data[:start] + made + data[end:]


def flip(where: int) -> Callable[[bytearray], None]:
    """Another bit at a place."""

    def change(frame: bytearray) -> None:
        frame[where] ^= 1

    return change


def attempts(image: Image, other: Image) -> Iterator[tuple[str, Image]]:
    """What can be done to a log without its key."""
    paths = sorted(path for path in image if path.endswith(".storelog"))
    content = {path: image[path] or b"" for path in paths}
    foreign = {path: other[path] or b"" for path in sorted(other) if path.endswith(".storelog")}
    for path in paths:
        data, spans = content[path], placed(content[path])
        for number, span in enumerate(spans):
            start, end = span
            yield "cut out", {**image, path: data[:start] + data[end:]}
            yield "repeated", {**image, path: data[:end] + data[start:end] + data[end:]}
            if number + 1 < len(spans):
                yield "cut behind", {**image, path: data[:end]}
            for at, name in (
                (0, "body"),
                (8, "tag"),
                (16, "sequence"),
                (32, "durable"),
                (48, "time"),
            ):
                where = {"body": 70, "tag": end - start - 1}.get(name, at + 7)

                def flip(frame: bytearray, where: int = where) -> None:
                    frame[where] ^= 1

                yield f"another {name}", {**image, path: rewritten(data, span, flip)}
        for (a, b), (c, d) in pairwise(spans):
            yield "swapped", {**image, path: data[:a] + data[c:d] + data[a:b] + data[d:]}
        for theirs in foreign.values():
            if theirs != data:
                yield "another's segment", {**image, path: theirs}
                head = data[:SEALED_HEADER_BYTES]
                yield "another's frames", {**image, path: head + theirs[SEALED_HEADER_BYTES:]}
                for (a, b), (c, d) in zip(spans, placed(theirs), strict=False):
                    yield "another's frame", {**image, path: data[:a] + theirs[c:d] + data[b:]}
        for at in range(SEALED_HEADER_BYTES):
            flipped = bytearray(data)
            flipped[at] ^= 1 << at % 8
            yield "another header", {**image, path: bytes(flipped)}
        for at in (15, 47, 55, 63, 87, 95):  # with checks that fit
            header = bytearray(data[:104])
            header[at] ^= 1
            header[64:72] = frames._sum(bytes(header[:64]))
            header[96:104] = frames._sum(bytes(header[:96]))
            yield "a forged header", {**image, path: bytes(header) + data[104:]}
    for first, second in pairwise(paths):
        both: Image = {first: content[second], second: content[first]}
        yield "segments swapped", {**image, **both}
    for path in paths:
        yield "a segment gone", {name: data for name, data in image.items() if name != path}
    plain = SealedLogStore(key=None)
    plain.open()
    plain.append(3, b"forged")
    plain.close()
    for path, clear in plain.image().items():
        if path.endswith(".storelog"):
            yield "a segment in clear", {**image, path: clear}
    for name in ("CLOSED", "NEWEST"):
        path = f"{PATH}/log/{name}"
        yield "facts in clear", {**image, path: plain.image().get(path) or b"{}\n"}
        yield "another's facts", {**image, path: other[path]}


def test_every_swap_cut_repeat_and_splice_is_noticed(figure: Callable[[str, object], None]) -> None:
    image, other = filled((12, 5)).image(), filled((11, 6), seed=50).image()
    whole, tried, marks = opened(image), dict[str, int](), 0
    for what, tampered in attempts(image, other):
        tried[what] = tried.get(what, 0) + 1
        try:
            found = opened(tampered)
        except (StoreFault, WrongKey):
            continue
        # What a mark at the end of an older segment says, the next one says too.
        assert found == whole and what in ("cut out", "cut behind"), f"{what}: not noticed"
        marks += 1
    assert len(tried) == 19, sorted(tried)
    assert marks < 10
    figure(
        "sealed log: tampered",
        f"{sum(tried.values())} in {len(tried)} ways, {marks} of marks that said nothing;"
        " 0 not noticed",
    )


def test_without_the_seals_it_is_not_noticed() -> None:
    """The rig's own check: with frames in clear, and the same hands, a forged one is read."""
    store = SealedLogStore(key=None)
    store.open()
    for _ in range(3):
        store.append()
    store.close()
    path = store.segments()[0]
    data = store.image()[path]
    assert data is not None
    span = (104, 104 + FRAME_HEADER_BYTES + len(CANARY))
    found = opened({**store.image(), path: rewritten(data, span, flip(70))}, None)
    assert bodies(found)[0] != CANARY


def test_an_unclean_end_forged_is_damage_and_not_torn() -> None:
    """What a crash leaves does not pass its checks; what passes them and does not open was put
    there."""
    store = filled((3,), clean=False)
    path = store.segments()[-1]
    data = store.image()[path]
    assert data is not None
    last = placed(data)[-1]
    with pytest.raises(LogDamaged, match="not sealed for this place"):
        opened({**store.image(), path: rewritten(data, last, flip(70))})
    torn = data[: last[1] - 5] + bytes(len(data) - last[1] + 5)
    assert len(opened({**store.image(), path: torn})) == 2
