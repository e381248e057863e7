"""The image of a sealed state: what comes back of it is what a flush covered, or nothing does."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from protocol.environment import Room
from protocol.errors import DiskFull, WrongKey
from storage.engine.engine import EngineFailed, EngineUnreadable
from storage.engine.memory import MemoryEngine
from storage.engine.sealed import NAME, SealedEngine
from storage.files.directory import StoreDirectory
from storage.formats import container
from storage.formats.container import StateFacts, form_of, pack_pairs
from storage.formats.sealing import Key
from tests.simulation.disk import NO_LIMIT, Fault, Image, SimulatedDisk
from tests.simulation.environment import ManualClock, SeededRng
from tests.storage.backups import held
from tests.storage.backups.held import KEY, OTHER_KEY, HeldFile
from tests.storage.seals import counted

PATH = "/s"
IMAGE = f"{PATH}/state/{NAME}"
_seeds = iter(range(1, 1 << 60))


def directory_on(disk: SimulatedDisk, key: Key = KEY) -> StoreDirectory:
    environment = (disk, ManualClock(), SeededRng(next(_seeds)))
    return StoreDirectory.open(PATH, *environment, create=True, key=key)


def opened(disk: SimulatedDisk) -> SealedEngine:
    directory = directory_on(disk)
    try:
        return SealedEngine(MemoryEngine(), directory)
    finally:
        directory.close()


def put(engine: SealedEngine, number: int, count: int = 5) -> None:
    batch = engine.batch()
    for at in range(count):
        batch.put(b"\0\1canary%d" % (number + at), b"canary value %d" % number * 3)
    engine.write(batch, number)


def contents(engine: SealedEngine) -> dict[bytes, bytes]:
    return {key: value for pairs in engine.scan(b"\0\1", b"\xff") for key, value in pairs}


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of some bytes, so that an image has many of them."""
    monkeypatch.setattr(container, "CHUNK_BYTES", 64)


def image_of(disk: SimulatedDisk) -> bytes:
    content = disk.image()[IMAGE]
    assert content is not None
    return content


def test_what_was_flushed_comes_back_and_nothing_is_in_clear(disk: SimulatedDisk) -> None:
    engine = opened(disk)
    assert (engine.applied, contents(engine)) == (0, {})
    put(engine, 1)
    put(engine, 2)
    engine.flush()
    before = contents(engine)
    put(engine, 3)
    again = opened(disk)
    assert (again.applied, again.flushed_sequence(), contents(again)) == (2, 2, before)
    everything = b"".join(content or b"" for content in disk.image().values())
    assert b"canary" not in everything
    assert form_of(HeldFile(image_of(disk))) is None, "it is no backup"


def test_another_key_is_told_from_damage(disk: SimulatedDisk) -> None:
    put(engine := opened(disk), 1)
    engine.close()
    other = SimulatedDisk()
    directory = directory_on(other, OTHER_KEY)
    file = other.open(IMAGE, create=True)
    file.append(image_of(disk))
    with pytest.raises(WrongKey):
        SealedEngine(MemoryEngine(), directory)


def test_an_image_in_clear_is_nobodys(disk: SimulatedDisk) -> None:
    """Who can write to the directory and has no key can make one, of any state."""
    put(engine := opened(disk), 1)
    engine.close()
    parts: list[bytes] = []
    writer = container.ContainerWriter(StateFacts("0.1.0", 0), parts.append, SeededRng(1))
    writer.add(pack_pairs([(b"\0\1forged", b"owner")]))
    writer.end(1, 0, 0)
    forged = SimulatedDisk({**disk.image(), IMAGE: b"".join(parts)})
    with pytest.raises(EngineUnreadable, match="the state is not sealed"):
        opened(forged)


@pytest.mark.usefixtures("small")
def test_every_cut_change_swap_and_splice_is_noticed(
    disk: SimulatedDisk, figure: Callable[[str, object], None]
) -> None:
    engine = opened(disk)
    for number in range(1, 9):
        put(engine, number)
    engine.flush()
    first = image_of(disk)
    put(engine, 9)
    engine.flush()
    second, whole = image_of(disk), contents(engine)
    tried = 0
    for broken in _broken(second, first):
        left = SimulatedDisk({**disk.image(), IMAGE: broken})
        with pytest.raises((EngineUnreadable, WrongKey)):
            opened(left)
        tried += 1
    assert contents(opened(disk)) == whole
    figure("sealed state: images tampered with", f"{tried}, 0 not noticed")


def _broken(whole: bytes, other: bytes) -> Iterator[bytes]:
    yield from (whole[:at] for at in range(0, len(whole), 3))
    for at in range(len(whole)):
        flipped = bytearray(whole)
        flipped[at] ^= 1 << at % 8
        yield bytes(flipped)
    spans, theirs = held.chunks(whole), held.chunks(other)
    for (a, b), (c, d) in pairwise(spans):
        yield whole[:a] + whole[c:d] + whole[a:b] + whole[d:]
        yield whole[:b] + whole[a:b] + whole[b:]
        yield whole[:a] + whole[b:]
    for (a, b), (c, d) in zip(spans, theirs, strict=False):
        yield whole[:a] + other[c:d] + whole[b:]
    yield whole + b"x"


def test_a_full_disk_puts_an_image_off_and_leaves_the_one_before(disk: SimulatedDisk) -> None:
    engine = opened(disk)
    put(engine, 1)
    engine.flush()
    before = disk.image()
    put(engine, 2, count=400)
    disk.capacity = sum(len(content or b"") for content in before.values()) + 200
    with pytest.raises(DiskFull):
        engine.flush()
    assert disk.image() == before
    with pytest.raises(DiskFull):
        engine.flush(Room(100, 10))
    disk.capacity = NO_LIMIT
    assert (engine.applied, engine.flushed_sequence()) == (2, 1)
    engine.flush(Room(1 << 30, 10))
    assert opened(disk).applied == 2


def test_a_disk_that_fails_is_said(disk: SimulatedDisk) -> None:
    engine = opened(disk)
    put(engine, 1)
    engine.flush()
    put(engine, 2)
    for failing in ("append", "sync", "rename"):
        disk.plan = lambda kind, path, failing=failing: (
            Fault(errno.EIO) if kind == failing and NAME in path else None
        )
        with pytest.raises(EngineFailed):
            engine.flush()
        disk.plan = None
        assert opened(disk).applied == 1


class FlushedStateLost(AssertionError):
    """A crash left what no flush has covered."""


def crashes(disk: SimulatedDisk, work: Callable[[], object], may: set[int]) -> int:
    """Cut the power at each operation of something; answers how many states were looked at.

    :param may: what an image may stand at
    """
    chance, states = random.Random(1), 0

    def look(_kind: str, _path: str) -> None:
        nonlocal states
        image: Image
        for image in disk.crash_point().images(40, chance):
            states += 1
            try:
                found = opened(SimulatedDisk(dict(image)))
            except EngineUnreadable as error:
                raise FlushedStateLost(str(error)) from error
            if found.applied not in may:
                raise FlushedStateLost(f"it stands at {found.applied}")

    disk.watch = look
    try:
        work()
        look("", "")
    finally:
        disk.watch = None
    return states


def test_a_crash_leaves_one_image_or_the_other(
    disk: SimulatedDisk, figure: Callable[[str, object], None]
) -> None:
    engine = opened(disk)
    states = 0
    for number in range(1, 6):
        put(engine, number, count=30)
        states += crashes(disk, engine.flush, {number - 1, number})
        assert opened(disk).applied == number
    assert states > 100
    figure("sealed state: crash states of images", f"{states}, 0 that were neither")


@pytest.mark.usefixtures("small")
def test_no_nonce_is_used_twice(disk: SimulatedDisk) -> None:
    with counted() as seals:
        for number in range(1, 30):
            engine = opened(disk)
            put(engine, number)
            engine.flush()
            put(engine, number + 100)
            if number % 2:
                engine.close()
    assert seals.count > 500 and len(seals.keys) > 40
