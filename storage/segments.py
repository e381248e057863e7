"""Segments of the log: one file each, and frames read out of several of them.

What holds between segments, and what their names and flags mean, stands at the head of log.py.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from protocol.doors import File, Fs
from protocol.errors import LogPruned
from storage.directory import SEGMENT_SUFFIX, segment_name
from storage.faults import LogDamaged, StoreTooNew, StoreTooOld
from storage.frames import (
    COPIED,
    MARK,
    SEGMENT_HEADER_BYTES,
    BadHeader,
    Frame,
    FrameCodec,
    OtherFormat,
    SegmentHeader,
    Walk,
)

INDEX_BYTES: Final = 64 * 1024
"""Distance between two remembered places of a segment: what a read of one frame may walk."""


@dataclass(slots=True)
class Segment:
    """A segment under its final name."""

    path: str
    header: SegmentHeader
    codec: FrameCodec
    size: int
    """Bytes of it that count. Of all but the last segment: all. Behind that the last has zeros."""
    places: list[tuple[int, int]] = field(default_factory=list)
    """(sequence, offset) of some frames, ascending; grows while the segment is walked."""

    @property
    def first(self) -> int:
        return self.header.first

    def note(self, sequence: int, offset: int) -> None:
        """Remember a place, if the one before it is far enough away."""
        if not self.places or offset - self.places[-1][1] >= INDEX_BYTES:
            self.places.append((sequence, offset))

    def place_before(self, sequence: int) -> tuple[int, int]:
        """The nearest remembered place at or before a sequence."""
        at = bisect_right(self.places, (sequence, 1 << 63)) - 1
        return self.places[at] if at >= 0 else (self.first, SEGMENT_HEADER_BYTES)


def open_segment(fs: Fs, path: str, first: int, store_id: bytes) -> Segment:
    """A segment by its header; its frames are looked at when they are read.

    :param first: the sequence that its name tells
    :raises LogDamaged: its header is none, or another's
    :raises StoreTooNew: a later version wrote it
    :raises StoreTooOld: an earlier one did
    """
    file = fs.open_read(path)
    try:
        data, size = file.read(0, SEGMENT_HEADER_BYTES), file.size()
    finally:
        file.close()
    try:
        header = SegmentHeader.decode(data)
    except BadHeader as error:
        raise LogDamaged(path, 0, first, str(error)) from None
    except OtherFormat as error:
        fault = StoreTooNew if error.newer else StoreTooOld
        raise fault(f"{path} has {error}") from None
    if header.store_id != store_id:
        raise LogDamaged(path, 0, first, "the segment belongs to another store")
    if header.first != first:
        raise LogDamaged(path, 0, first, f"the segment is that of sequence {header.first}")
    return Segment(path, header, FrameCodec(header.salt), size)


def find_segments(
    fs: Fs, folder: str, begins: int, newest: int, store_id: bytes
) -> tuple[list[Segment], list[str]]:
    """The segments of a log, oldest first, and the paths of those that a prune left over.

    :param begins: the first sequence that the log still holds, by its facts
    :param newest: the first sequence of the newest segment that was ever written to
    :raises LogDamaged: the first or the newest is missing, or a header is not what was written
    :raises StoreTooNew: a later version wrote one
    :raises StoreTooOld: an earlier one did
    """
    found: list[Segment] = []
    left_over: list[str] = []
    for name in fs.names(folder):
        stem = name.removesuffix(SEGMENT_SUFFIX)
        if stem == name or not stem.isdigit():
            continue
        path = f"{folder}/{name}"
        if int(stem) < begins:
            left_over.append(path)
        else:
            found.append(open_segment(fs, path, int(stem), store_id))
    missing = None
    if not found or found[0].first != begins:
        missing = begins
    elif found[-1].first < newest:
        missing = newest
    if missing is not None:
        path = f"{folder}/{segment_name(missing)}"
        raise LogDamaged(path, 0, missing, "the segment is missing")
    return found, left_over


@dataclass(frozen=True, slots=True)
class Extent:
    """What a reader may read: segments as they were when it was made, while the log goes on."""

    fs: Fs
    segments: list[Segment]
    sizes: list[int]
    """Bytes of each that counted then."""
    ends: list[int]
    """Of each, the first sequence that is not its own any more."""
    begins: Callable[[], int]
    """The first sequence that the log holds now."""

    def read(self, sequence: int, last: int) -> Iterator[Frame]:
        """Frames `sequence` to `last`.

        :raises LogPruned: the log has begun later meanwhile
        :raises LogDamaged: at the frame that is not what was written
        """
        segments = self.segments
        at = bisect_right([segment.first for segment in segments], sequence) - 1
        while sequence <= last:
            segment, newest = segments[at], at + 1 == len(segments)
            superseded = not newest and bool(segments[at + 1].header.flags & COPIED)
            stop = min(self.ends[at], last + 1)
            whole = stop == self.ends[at] and not superseded
            try:
                file = self.fs.open_read(segment.path)
            except FileNotFoundError:
                if self.begins() > sequence:
                    raise pruned(sequence, self.begins()) from None
                raise LogDamaged(segment.path, 0, sequence, "the segment is missing") from None
            # The newest segment's places are noted by whoever writes it.
            places = [] if newest else list(segment.places)
            try:
                frames = _read_one(file, segment, sequence, stop, whole, self.sizes[at], places)
                for frame in frames:
                    yield frame
            finally:
                file.close()
                if len(places) > len(segment.places):
                    segment.places = places
            sequence = stop
            at += 1
            if sequence <= last and segments[at].header.joins != frame.digest():
                what = "the segment does not continue the one before it"
                raise LogDamaged(segments[at].path, 0, sequence, what)


def _read_one(
    file: File,
    segment: Segment,
    sequence: int,
    stop: int,
    whole: bool,
    size: int,
    places: list[tuple[int, int]],
) -> Iterator[Frame]:
    """Frames sequence … stop-1 of one segment.

    :param whole: nothing but marks may follow them in the segment
    :param places: learns what this walk sees beyond its last one
    """
    expected, offset = segment.place_before(sequence)
    known = places[-1][1] if places else SEGMENT_HEADER_BYTES
    walk = Walk(file, segment.codec, offset, size)
    for frame, _, _, at in walk:
        if frame.flags & MARK:
            if frame.sequence != expected - 1:
                what = f"a mark of sequence {frame.sequence} stands in its place"
                raise LogDamaged(segment.path, at, expected, what)
            continue
        if frame.sequence != expected or expected >= stop:
            what = f"a frame of sequence {frame.sequence} stands in its place"
            raise LogDamaged(segment.path, at, expected, what)
        if at - known >= INDEX_BYTES:
            places.append((expected, at))
            known = at
        if expected >= sequence:
            yield frame
        expected += 1
        if expected == stop and not whole:
            return
    if walk.bad is not None:
        raise LogDamaged(segment.path, walk.offset, expected, walk.bad)
    if expected < stop:
        raise LogDamaged(segment.path, walk.offset, expected, "the segment ends before it")


def pruned(wanted: int, first: int) -> LogPruned:
    """The refusal of a read before the log's beginning."""
    return LogPruned(
        f"sequence {wanted} is no longer in the log: it begins at {first}", first=first
    )
