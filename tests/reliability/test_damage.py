"""R8, the log's part: flipped bits, cut files, swapped and repeated frames."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b

import pytest

from storage.faults import LogDamaged, StoreDamaged, StoreFault, StoreTooNew
from storage.files import cluster_file, node_file, rebuild_marker
from storage.files.directory import StoreDirectory
from storage.formats.frames import (
    MARK,
    SEGMENT_HEADER_BYTES,
    Frame,
    FrameCodec,
    FrameWalker,
    SegmentHeader,
)
from storage.log.log import Log
from tests.reliability.crashes import MACHINE, PATH, open_store
from tests.simulation.disk import Image, SimulatedDisk
from tests.simulation.environment import ManualClock, SeededRng
from tests.tables import case

FLIPS = 2_000
FLIPS_HARD = 20_000
TRUNCATIONS = 1_000
MIXES = 1_000
LOG = f"{PATH}/log"


@dataclass(frozen=True)
class Place:
    """Where one frame, or mark, stands in an undamaged log."""

    path: str
    start: int
    end: int
    expected: int
    """The sequence that stands here, or for a mark the one after it."""
    mark: bool


@dataclass(frozen=True)
class Specimen:
    """An undamaged log."""

    image: Image
    frames: list[Frame]
    proven: int
    """The log itself shows that all up to here was acknowledged."""
    closed: bool
    places: list[Place]

    @property
    def segments(self) -> list[str]:
        return [path for path in self.image if path.endswith(".storelog")]

    def content(self, path: str) -> bytes:
        content = self.image[path]
        assert content is not None
        return content


def specimen(seed: int, closed: bool) -> Specimen:
    """A log of several segments with groups, marks, and bodies that look like frames."""
    rng = random.Random(seed)
    disk = SimulatedDisk(dict(MACHINE))
    directory, log = open_store(disk, SeededRng(seed))
    frames: list[Frame] = []
    impostor = FrameCodec(b"impostor")
    while len(frames) < 60:
        group = [
            Frame(
                log.state.last + 1 + i,
                1,
                log.state.last_time + i,
                0,
                _body(rng, impostor, log.state.last + 2),
            )
            for i in range(rng.choice([1, 2, 3]))
        ]
        log.append(group)
        frames += group
        if rng.random() < 0.1:
            log.mark()
    if not closed:  # so that the last group, and nothing else, is without proof
        log.append([Frame(log.state.last + 1, 1, log.state.last_time, 0, b"last")])
        frames += list(log.reader.read(log.state.last))
    log.close(clean=closed)
    directory.close()
    image = disk.image()
    places, proven = _places(image)
    return Specimen(image, frames, log.state.last if closed else proven, closed, places)


def _body(rng: random.Random, impostor: FrameCodec, sequence: int) -> bytes:
    if rng.random() < 0.2:
        return impostor.encode(Frame(sequence, 1, 1, 0, b"not a frame"), sequence - 1, 0)
    return rng.randbytes(rng.choice([0, 3, 30, 120]))


def _places(image: Image) -> tuple[list[Place], int]:
    disk = SimulatedDisk(image)
    places: list[Place] = []
    proven = 0
    for path in [path for path in image if path.endswith(".storelog")]:
        file = disk.open_read(path)
        header = SegmentHeader.decode(file.read(0, SEGMENT_HEADER_BYTES))
        walk = FrameWalker(file, FrameCodec(header.salt), SEGMENT_HEADER_BYTES, file.size())
        for frame, durable, _, offset in walk:
            mark = bool(frame.flags & MARK)
            expected = frame.sequence + mark
            places.append(Place(path, offset, walk.offset, expected, mark))
            proven = max(proven, durable)
        file.close()
    return places, proven


def examine(image: Image, whole: Specimen) -> LogDamaged | None:
    """Open and read a damaged log.

    :returns: how it was refused, or None when what it holds is right and all of what is proven
    """
    disk = SimulatedDisk(image)
    directory: StoreDirectory | None = None
    log: Log | None = None
    try:
        directory, log = open_store(disk, SeededRng(1))
        held = list(log.reader.read(log.state.first))
    except LogDamaged as damage:
        return damage
    finally:
        if log is not None:
            log.close(clean=False)
        if directory is not None:
            directory.close()
    assert held == whole.frames[: len(held)], "a wrong answer"
    assert len(held) >= whole.proven, f"{len(held)} of {whole.proven} proven frames are left"
    assert not whole.closed, "a closed log was changed and nobody noticed"
    return None


def specimens() -> list[Specimen]:
    return [specimen(seed, closed) for seed in (1, 2) for closed in (True, False)]


def flipped(whole: Specimen, rng: random.Random) -> tuple[Image, str, int]:
    """The log with one bit changed, and where."""
    facts = [f"{LOG}/{name}" for name in ("CLOSED", "NEWEST")]
    files = [*whole.segments, *[path for path in facts if path in whole.image]]
    path = rng.choice(files)
    content = bytearray(whole.content(path))
    at = rng.randrange(len(content))
    content[at] ^= 1 << rng.randrange(8)
    return {**whole.image, path: bytes(content)}, path, at


def flip_bits(count: int) -> dict[str, int]:
    """Flip bits, one at a time; counts of what came of it."""
    rng = random.Random(8)
    counts = {"refused": 0, "unproven": 0}
    wholes = specimens()
    for n in range(count):
        whole = wholes[n % len(wholes)]
        image, path, at = flipped(whole, rng)
        damage = examine(image, whole)
        counts["unproven" if damage is None else "refused"] += 1
        place = next((p for p in whole.places if p.path == path and p.start <= at < p.end), None)
        if damage is not None and place is not None:
            named = (damage.file, damage.offset, damage.sequence)
            assert named == (path, place.start, place.expected), "the damage is elsewhere"
            assert f"{path} is damaged at byte {place.start}" in str(damage)
    return counts


@pytest.mark.parametrize("flips", [FLIPS, pytest.param(FLIPS_HARD, marks=pytest.mark.hard)])
def test_flipped_bits(flips: int, figure: Callable[[str, object], None]) -> None:
    counts = flip_bits(flips)
    assert counts["refused"] > counts["unproven"] > 0
    figure("R8 log, bits flipped", f"{flips}: {counts}, 0 wrong answers")


def truncate(count: int) -> dict[str, int]:
    """Cut segments short, one at a time; counts of what came of it."""
    rng = random.Random(9)
    counts = {"refused": 0, "unproven": 0}
    wholes = specimens()
    while sum(counts.values()) < count:
        whole = rng.choice(wholes)
        path = rng.choice(whole.segments)
        size = rng.randrange(len(whole.content(path)))
        last = path == whole.segments[-1]
        if last and not whole.closed:
            # Without CLOSED, only what is proven by what is left can be missed.
            size = rng.randrange(_end_of_proof(whole), len(whole.content(path)))
        if not last and _only_marks(whole, path, size):
            continue  # marks at the end of an older segment say what the next segment says too
        damage = examine({**whole.image, path: whole.content(path)[:size]}, whole)
        counts["unproven" if damage is None else "refused"] += 1
        assert damage is not None or (last and not whole.closed)
        assert damage is None or damage.file == path
    return counts


def test_truncations(figure: Callable[[str, object], None]) -> None:
    counts = truncate(TRUNCATIONS)
    assert counts["unproven"] > 0
    figure("R8 log, truncations", f"{TRUNCATIONS}: {counts}, 0 wrong answers")


def _only_marks(whole: Specimen, path: str, size: int) -> bool:
    """Whether a cut takes whole marks and nothing else."""
    lost = [place for place in whole.places if place.path == path and place.end > size]
    return all(place.mark and place.start >= size for place in lost)


def _end_of_proof(whole: Specimen) -> int:
    """Where the proven frames of the last segment end."""
    path = whole.segments[-1]
    ends = [p.end for p in whole.places if p.path == path and p.expected <= whole.proven]
    return max(ends, default=SEGMENT_HEADER_BYTES)


def mixed(whole: Specimen, rng: random.Random) -> tuple[Image, int]:
    """The log with two frames swapped, or one copied to another place; and the first sequence that
    is in the wrong place."""
    one, two = sorted(rng.sample(range(len(whole.places)), 2))
    first, second = whole.places[one], whole.places[two]
    cut = whole.content(first.path)[first.start : first.end]
    other = whole.content(second.path)[second.start : second.end]
    if rng.random() < 0.5:  # swap
        image = _spliced(whole.image, second, cut)
        return _spliced(image, first, other), first.expected
    if rng.random() < 0.5:  # repeat the earlier behind the later
        return _spliced(whole.image, second, other + cut), second.expected + 1
    return _spliced(whole.image, first, other + cut), first.expected  # or the later before it


def _spliced(image: Image, place: Place, data: bytes) -> Image:
    content = image[place.path]
    assert content is not None
    return {**image, place.path: content[: place.start] + data + content[place.end :]}


def test_swapped_and_repeated_frames(figure: Callable[[str, object], None]) -> None:
    rng = random.Random(10)
    counts = {"refused": 0, "unproven": 0}
    wholes = specimens()
    for n in range(MIXES):
        whole = wholes[n % len(wholes)]
        image, _ = mixed(whole, rng)
        if image == whole.image:
            continue
        damage = examine(image, whole)
        counts["unproven" if damage is None else "refused"] += 1
    assert counts["refused"] > 0.9 * MIXES
    figure(
        "R8 log, frames swapped or repeated", f"{sum(counts.values())}: {counts}, 0 wrong answers"
    )


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("gone", ["first", "middle", "last"])
def test_missing_segment(gone: str, closed: bool) -> None:
    whole = specimen(3, closed)
    at = {"first": 0, "middle": len(whole.segments) // 2, "last": -1}[gone]
    image = {p: c for p, c in whole.image.items() if p != whole.segments[at]}
    assert examine(image, whole) is not None


@pytest.mark.parametrize("name", ["STORE", "log/CLOSED", "log/NEWEST"])
def test_damaged_facts_are_refused(name: str) -> None:
    whole = specimen(4, closed=True)
    path = f"{PATH}/{name}"
    for at in range(len(whole.content(path))):
        content = bytearray(whole.content(path))
        content[at] ^= 1
        with pytest.raises((StoreDamaged, StoreTooNew)) as refusal:
            open_store(SimulatedDisk({**whole.image, path: bytes(content)}), SeededRng(1))
        assert path in str(refusal.value)


OPENED: dict[str, Callable[[StoreDirectory], object]] = {
    "STORE": lambda _directory: None,
    "NODE": node_file.load_node,
    "CLUSTER": cluster_file.load,
    "DAMAGED": rebuild_marker.damage,
    "log/CLOSED": Log.open,
    "log/NEWEST": Log.open,
    "log/BEGINS": Log.open,
    "log/HISTORY": Log.open,
}
"""Each small file, and what reads it."""
SAME = {("log/CLOSED", "log/NEWEST"), ("log/CLOSED", "log/BEGINS")}
"""Say the same `first`, of the same store."""


def test_a_small_file_with_a_checksum_that_holds_something_else_is_named() -> None:
    """Another file was put in its place, say, or it holds what no version wrote."""
    whole = specimen(4, closed=True)
    others = {name: whole.content(f"{PATH}/{name}") for name in ("STORE", "log/CLOSED")}
    lines = (b"{", b"\xff", b"[" * 100_000, b"[1]", b'{"format": "2"}', b'{"format": 2}')
    for line in lines:
        others[line[:20].decode(errors="replace")] = line + b"\n" + _checksum(line) + b"\n"
    for name, reads in OPENED.items():
        path = f"{PATH}/{name}"
        for of, content in others.items():
            if of == name or (of, name) in SAME:
                continue
            with case(name, of):
                disk = SimulatedDisk({**whole.image, path: content})
                with pytest.raises(StoreFault) as refusal:
                    clock, rng = ManualClock(), SeededRng(1)
                    reads(StoreDirectory.open(PATH, disk, clock, rng, create=False))
                said = str(refusal.value)
                assert path in said and not said.endswith("'"), "it names the file, and says more"


def _checksum(line: bytes) -> bytes:
    return blake2b(line, digest_size=8).hexdigest().encode()
