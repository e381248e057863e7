"""Segments of the log: one file each, and frames read out of several of them.

What holds between segments, and what their names and flags mean, stands at the head of log.py.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

from protocol.doors import File, Fs
from protocol.errors import LogPruned
from storage.directory import SEGMENT_SUFFIX, segment_name
from storage.faults import LogDamaged, StoreTooNew, StoreTooOld
from storage.frames import (
    COPIED,
    MARK,
    SEALED_HEADER_BYTES,
    BadHeader,
    Frame,
    FrameCodec,
    OtherFormat,
    SegmentHeader,
    Walk,
    opened,
)
from storage.sealing import Key

PLACE_FRAMES: Final = 8
"""Of so many frames of a segment one is remembered by its place: a byte of memory for each frame of
the log, and a read of one walks past seven heads at most."""


def _no_places() -> array[int]:
    return array("Q")


@dataclass(slots=True)
class Segment:
    """A segment under its final name."""

    path: str
    header: SegmentHeader
    codec: FrameCodec
    size: int
    """Bytes of it that count. Of all but the last segment: all. Behind that the last has zeros."""
    places: array[int] = field(default_factory=_no_places)
    """Offsets of its first frame and of each `PLACE_FRAMES`-th after that, as far as somebody has
    written or walked it."""

    @property
    def first(self) -> int:
        return self.header.first

    def note(self, sequence: int, offset: int) -> None:
        """Where a frame stands; said of each in turn, and kept of some."""
        if sequence - self.header.first == len(self.places) * PLACE_FRAMES:
            self.places.append(offset)

    def place_before(self, sequence: int) -> tuple[int, int]:
        """The nearest frame at or before a sequence whose place is remembered, and that place."""
        at = min((sequence - self.header.first) // PLACE_FRAMES, len(self.places) - 1)
        if at < 0:
            return self.header.first, self.header.size
        return self.header.first + at * PLACE_FRAMES, self.places[at]


def open_segment(fs: Fs, path: str, first: int, store_id: bytes, key: Key | None = None) -> Segment:
    """A segment by its header; its frames are looked at when they are read.

    :param first: the sequence that its name tells
    :param key: what the store is sealed with; None: it is not
    :raises WrongKey: it is sealed, and not with this key
    :raises LogDamaged: its header is none, or another's
    :raises StoreTooNew: a later version wrote it
    :raises StoreTooOld: an earlier one did
    """
    file = fs.open_read(path)
    try:
        data, size = file.read(0, SEALED_HEADER_BYTES), file.size()
    finally:
        file.close()
    try:
        header = SegmentHeader.decode(data)
        codec = opened(header, key)
    except BadHeader as error:
        raise LogDamaged(path, 0, first, str(error)) from None
    except OtherFormat as error:
        fault = StoreTooNew if error.newer else StoreTooOld
        raise fault(f"{path} has {error}") from None
    if header.store_id != store_id:
        raise LogDamaged(path, 0, first, "the segment belongs to another store")
    if header.first != first:
        raise LogDamaged(path, 0, first, f"the segment is that of sequence {header.first}")
    return Segment(path, header, codec, size)


def find_segments(
    fs: Fs, folder: str, begins: int, newest: int, store_id: bytes, key: Key | None = None
) -> tuple[list[Segment], list[str]]:
    """The segments of a log, oldest first, and the paths of those that a prune left over.

    :param begins: the first sequence that the log still holds, by its facts
    :param newest: the first sequence of the newest segment that was ever written to
    :param key: what the store is sealed with; None: it is not
    :raises WrongKey: one is sealed, and not with this key
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
            found.append(open_segment(fs, path, int(stem), store_id, key))
    missing = None
    if not found or found[0].first != begins:
        missing = begins
    elif found[-1].first < newest:
        missing = newest
    if missing is not None:
        path = f"{folder}/{segment_name(missing)}"
        raise LogDamaged(path, 0, missing, "the segment is missing")
    return found, left_over


FIRST_OF: Final = attrgetter("first")
"""The key by which segments are searched."""


@dataclass(frozen=True, slots=True)
class Extent:
    """What a reader may read: the log as it was when this was made, while it goes on. Such a list
    of segments is never changed, the newest of them only grows, and all of `last` is in them."""

    fs: Fs
    segments: list[Segment]
    last: int
    """The newest sequence there was."""
    begins: Callable[[], int]
    """The first sequence that the log holds now."""

    def read(self, sequence: int, last: int) -> Iterator[Frame]:
        """Frames `sequence` to `last`.

        :raises LogPruned: the log has begun later meanwhile
        :raises LogDamaged: at the frame that is not what was written
        """
        segments = self.segments
        at = bisect_right(segments, sequence, key=FIRST_OF) - 1
        while sequence <= last:
            segment, newest = segments[at], at + 1 == len(segments)
            end = self.last + 1 if newest else segments[at + 1].first
            superseded = not newest and bool(segments[at + 1].header.flags & COPIED)
            stop = min(end, last + 1)
            try:
                file = self.fs.open_read(segment.path)
            except FileNotFoundError:
                if self.begins() > sequence:
                    raise pruned(sequence, self.begins()) from None
                raise LogDamaged(segment.path, 0, sequence, "the segment is missing") from None
            # The newest segment's places are noted by whoever writes it, and it may have grown.
            places = None if newest else _Places(segment)
            whole = stop == end and not newest and not superseded
            try:
                frames = _read_one(file, segment, sequence, stop, whole, places)
                for frame in frames:
                    yield frame
            finally:
                file.close()
                if places is not None:
                    places.keep()
            sequence = stop
            at += 1
            if sequence <= last and segments[at].header.joins != frame.digest():
                what = "the segment does not continue the one before it"
                raise LogDamaged(segments[at].path, 0, sequence, what)


class _Places:
    """Places that a walk finds, of a segment that others walk too: each replaces what is known by
    what it knows, if that is more."""

    __slots__ = ("_found", "_next", "_segment")

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._found: array[int] | None = None
        self._next = segment.first + len(segment.places) * PLACE_FRAMES

    def note(self, sequence: int, offset: int) -> None:
        """Where a frame stands; none is left out between the first one and those known before."""
        if sequence != self._next:
            return
        if self._found is None:
            self._found = self._segment.places[:]
        self._found.append(offset)
        self._next += PLACE_FRAMES

    def keep(self) -> None:
        """The walk is over."""
        found = self._found
        if found is not None and len(found) > len(self._segment.places):
            self._segment.places = found


def _read_one(
    file: File, segment: Segment, sequence: int, stop: int, whole: bool, places: _Places | None
) -> Iterator[Frame]:
    """Frames sequence … stop-1 of one segment.

    :param whole: nothing but marks may follow them in the segment
    :param places: learns what this walk sees
    """
    expected, offset = segment.place_before(sequence)
    walk = Walk(file, segment.codec, offset, segment.size)
    for found, flags, at in walk.heads(sequence):
        if _belongs(segment, found, flags, at, expected, stop):
            if places is not None:
                places.note(expected, at)
            expected += 1
    if walk.bad is not None:
        raise LogDamaged(segment.path, walk.offset, expected, walk.bad)
    for frame, _, _, at in walk:
        if not _belongs(segment, frame.sequence, frame.flags, at, expected, stop):
            continue
        if places is not None:
            places.note(expected, at)
        yield frame
        expected += 1
        if expected == stop and not whole:
            return
    if walk.bad is not None:
        raise LogDamaged(segment.path, walk.offset, expected, walk.bad)
    if expected < stop:
        raise LogDamaged(segment.path, walk.offset, expected, "the segment ends before it")


def _belongs(segment: Segment, found: int, flags: int, at: int, expected: int, stop: int) -> bool:
    """Whether a frame is the one to stand there; False: a mark does, and may.

    :raises LogDamaged: neither
    """
    if flags & MARK:
        if found == expected - 1:
            return False
        what = f"a mark of sequence {found} stands in its place"
    elif found == expected and expected < stop:
        return True
    else:
        what = f"a frame of sequence {found} stands in its place"
    raise LogDamaged(segment.path, at, expected, what)


def pruned(wanted: int, first: int) -> LogPruned:
    """The refusal of a read before the log's beginning."""
    return LogPruned(
        f"sequence {wanted} is no longer in the log: it begins at {first}", first=first
    )
