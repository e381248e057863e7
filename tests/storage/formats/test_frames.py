"""Bytes of the log: headers, frames, the walk over them, and the search for proof."""

from __future__ import annotations

import random
from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.formats.frames import (
    FORMAT,
    FRAME_HEADER_BYTES,
    LENGTH_MAX,
    MARK,
    READ,
    BadHeader,
    Frame,
    FrameCodec,
    FrameWalker,
    OtherFormat,
    SegmentHeader,
    find_proof,
)
from tests.storage.backups.held import HeldFile

SALT = b"saltsalt"
U64 = st.integers(0, 2**64 - 1)
FRAMES = st.builds(Frame, U64, U64, U64, st.integers(0, 2**32 - 1), st.binary(max_size=300))


def walk(data: bytes, salt: bytes = SALT) -> tuple[list[Frame], FrameWalker]:
    found = FrameWalker(HeldFile(data), FrameCodec(salt), 0, len(data))
    return [placed.frame for placed in found], found


def proof(data: bytes, sequence: int, offset: int = 0) -> int | None:
    return find_proof(HeldFile(data), FrameCodec(SALT), offset, len(data), sequence)


@given(st.lists(FRAMES, max_size=5))
def test_frames_come_back(frames: list[Frame]) -> None:
    codec = FrameCodec(SALT)
    found, end = walk(b"".join(codec.encode(frame, 7, 6) for frame in frames))
    assert found == frames
    assert end.bad is None


@given(FRAMES, st.data())
def test_any_changed_bit_shows(frame: Frame, data: st.DataObject) -> None:
    encoded = bytearray(FrameCodec(SALT).encode(frame, 1, 0))
    bit = data.draw(st.integers(0, len(encoded) * 8 - 1))
    encoded[bit // 8] ^= 1 << bit % 8
    found, end = walk(bytes(encoded))
    assert found == []
    assert end.bad is not None
    assert end.offset == 0


@given(FRAMES, st.data())
def test_any_cut_shows(frame: Frame, data: st.DataObject) -> None:
    whole = FrameCodec(SALT).encode(frame, 1, 0)
    size = data.draw(st.integers(1, len(whole) - 1))
    found, end = walk(whole[:size])
    assert found == []
    assert end.bad is not None


def test_the_digest_is_of_the_frame_and_not_of_where_it_stands() -> None:
    frame = Frame(2, 3, 6, 0x700, b"body")
    covered = (2).to_bytes(8, "big") + (3).to_bytes(8, "big") + (6).to_bytes(8, "big")
    covered += (0x700).to_bytes(4, "big") + b"body"
    assert frame.digest() == blake2b(covered, digest_size=16).digest()
    for salt, durable, released in ((SALT, 1, 0), (b"another!", 1, 1)):
        [found], _ = walk(FrameCodec(salt).encode(frame, durable, released), salt)
        assert found.digest() == frame.digest()
    others = [
        frame._replace(sequence=1), frame._replace(epoch=1), frame._replace(time=1),
        frame._replace(flags=1), frame._replace(body=b"bodz"),
    ]  # fmt: skip
    assert len({other.digest() for other in [frame, *others]}) == 6


def test_impossible_length_is_not_believed() -> None:
    data = bytearray(FrameCodec(SALT).encode(Frame(1, 1, 1, 0, b"x"), 0, 0))
    data[0:4] = (LENGTH_MAX + 1).to_bytes(4, "big")
    _, end = walk(bytes(data))
    assert end.bad == "the length of the frame is out of range"


def test_walk_crosses_its_windows() -> None:
    codec = FrameCodec(SALT)
    sizes = [0, 100, 700_000, 3, 2_500_000, 1, 1_048_576 - FRAME_HEADER_BYTES, 5]
    frames = [Frame(n, 1, 1, 0, bytes([n]) * size) for n, size in enumerate(sizes)]
    found, end = walk(b"".join(codec.encode(frame, 0, 0) for frame in frames))
    assert found == frames
    assert end.bad is None


def test_any_changed_bit_of_a_segment_header_shows() -> None:
    whole = SegmentHeader(bytes(16), SALT, 5, 2, 123).encode()
    for bit in range(len(whole) * 8):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(BadHeader):
            SegmentHeader.decode(bytes(damaged))
    with pytest.raises(BadHeader):
        SegmentHeader.decode(whole[:-1])


@pytest.mark.parametrize("form", [min(READ) - 1, max(READ) + 1])
def test_another_format_is_told_from_damage(form: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.formats.frames.FORMAT", form)
    other = SegmentHeader(bytes(16), SALT, 1, 1, 1).encode()
    monkeypatch.undo()
    for size in (72, len(other)):  # what is behind the first 72 bytes is each format's own
        with pytest.raises(OtherFormat) as refusal:
            SegmentHeader.decode(other[:size])
        assert refusal.value.newer is (form > FORMAT)


@pytest.mark.parametrize("sequence", [1, 255, 2**40])
@pytest.mark.parametrize("noise", [0, 51, 1_048_576 - 30])
def test_proof_is_found_behind_noise(sequence: int, noise: int) -> None:
    later = FrameCodec(SALT).encode(Frame(sequence + 1, 1, 1, 0, b"later"), sequence, 0)
    data = random.Random(1).randbytes(noise) + later
    assert proof(data, sequence) == noise
    assert proof(data, sequence + 1) is None
    assert proof(bytes(noise) + later, sequence) == noise


def test_mark_is_proof() -> None:
    mark = FrameCodec(SALT).encode(Frame(9, 1, 1, MARK, b""), 9, 9)
    assert proof(b"noise" + mark, 9) == 5
    assert proof(b"noise" + mark, 10) is None


def test_frames_of_one_batch_prove_nothing_about_each_other() -> None:
    codec = FrameCodec(SALT)
    batch = b"".join(codec.encode(Frame(n, 1, 1, 0, b"x"), 9, 9) for n in (11, 12, 13))
    assert proof(b"torn 10" + batch, 10) is None


def test_damaged_or_foreign_frames_prove_nothing() -> None:
    later = FrameCodec(SALT).encode(Frame(11, 1, 1, 0, b"later"), 10, 10)
    for at in range(len(later)):
        damaged = bytearray(later)
        damaged[at] ^= 64
        assert proof(bytes(damaged), 10) is None
    foreign = FrameCodec(b"another!").encode(Frame(11, 1, 1, 0, later), 10, 10)
    assert proof(foreign[: FRAME_HEADER_BYTES + 20], 10) is None
