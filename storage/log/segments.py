"""Log segments, one file each, and reads of frames across them.

log.py has the invariants between segments, and the meaning of their names and flags.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

from protocol.environment import File, Fs
from protocol.errors import LogPruned
from storage.faults import LogDamaged, StoreTooNew, StoreTooOld
from storage.files.directory import SEGMENT_SUFFIX, segment_name
from storage.formats.frames import (
    COPIED,
    MARK,
    SEALED_HEADER_BYTES,
    BadHeader,
    Frame,
    FrameCodec,
    FrameWalker,
    OtherFormat,
    SegmentHeader,
    opened,
)
from storage.formats.sealing import Key

PLACE_FRAMES: Final = 8
"""Interval of remembered frame offsets: one for each 8 frames.

That is a byte of memory for each frame of the log, and a read of one frame skips at most seven
heads.
"""


def _no_places() -> array[int]:
    return array("Q")


@dataclass(slots=True)
class Segment:
    """Segment under its final name."""

    path: str
    header: SegmentHeader
    codec: FrameCodec
    size: int
    """Bytes in use: the file's size, except for the last segment, which has zeros behind."""
    places: array[int] = field(default_factory=_no_places)
    """Offsets of the first frame and of each `PLACE_FRAMES`-th after it, as far as written or
    walked."""

    @property
    def first(self) -> int:
        return self.header.first

    def note(self, sequence: int, offset: int) -> None:
        """Note the offset of a frame. Called for each in turn; keeps every `PLACE_FRAMES`-th."""
        if sequence - self.header.first == len(self.places) * PLACE_FRAMES:
            self.places.append(offset)

    def place_before(self, sequence: int) -> tuple[int, int]:
        """Return sequence and offset of the nearest remembered frame at or before a sequence."""
        # Offsets may be known only for the first part of the segment.
        at = min((sequence - self.header.first) // PLACE_FRAMES, len(self.places) - 1)
        if at < 0:
            return self.header.first, self.header.size
        return self.header.first + at * PLACE_FRAMES, self.places[at]


def open_segment(fs: Fs, path: str, first: int, store_id: bytes, key: Key | None = None) -> Segment:
    """Open a segment by its header; its frames are checked when they are read.

    :param first: sequence in its name
    :param key: key of the store; None: in clear
    :raises WrongKey: the segment is sealed with another key
    :raises LogDamaged: its header is invalid, or another segment's
    :raises StoreTooNew: a later version wrote it
    :raises StoreTooOld: an earlier version wrote it
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
        raise LogDamaged(path, 0, first, f"the segment header names sequence {header.first}")
    return Segment(path, header, codec, size)


def find_segments(
    fs: Fs, folder: str, begins: int, newest: int, store_id: bytes, key: Key | None = None
) -> tuple[list[Segment], list[str]]:
    """Find the segments of a log, oldest first, and left-overs of an unfinished prune.

    The left-overs are returned as paths.

    :param begins: first sequence that the log still holds, by BEGINS
    :param newest: first sequence of the newest segment ever written to, by NEWEST
    :param key: key of the store; None: in clear
    :raises WrongKey: a segment is sealed with another key
    :raises LogDamaged: the first or the newest is missing, or a header is not as written
    :raises StoreTooNew: a later version wrote one
    :raises StoreTooOld: an earlier version wrote one
    """
    found: list[Segment] = []
    left_over: list[str] = []
    for name in fs.names(folder):
        stem = name.removesuffix(SEGMENT_SUFFIX)
        if stem == name or not stem.isdigit():
            continue
        path = f"{folder}/{name}"
        if int(stem) < begins:
            # BEGINS is durable before a prune removes files, which a crash then leaves.
            left_over.append(path)
        else:
            found.append(open_segment(fs, path, int(stem), store_id, key))
    # Ends only: a read that meets a gap in between refuses it.
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
"""Search key of a list of segments."""


@dataclass(frozen=True, slots=True)
class LogExtent:
    """Readable part of the log, fixed when made, while the log goes on.

    The list of segments is never modified; only its newest segment grows. All frames up to `last`
    are in them, unless pruned.
    """

    fs: Fs
    segments: list[Segment]
    last: int
    """Newest sequence at that time."""
    begins: Callable[[], int]
    """Returns the first sequence that the log holds now."""

    def read(self, sequence: int, last: int) -> Iterator[Frame]:
        """Read frames `sequence` to `last`.

        :raises LogPruned: the frame has been pruned meanwhile
        :raises LogDamaged: a frame is not as written; raised at that frame
        """
        segments = self.segments
        at = bisect_right(segments, sequence, key=FIRST_OF) - 1
        while sequence <= last:
            segment, newest = segments[at], at + 1 == len(segments)
            end = self.last + 1 if newest else segments[at + 1].first
            # A COPIED segment takes over at its first sequence; later frames here are ignored.
            superseded = not newest and bool(segments[at + 1].header.flags & COPIED)
            stop = min(end, last + 1)
            try:
                file = self.fs.open_read(segment.path)
            except FileNotFoundError:
                # A prune advances the beginning before it removes files; a loss does not.
                if self.begins() > sequence:
                    raise pruned(sequence, self.begins()) from None
                raise LogDamaged(segment.path, 0, sequence, "the segment is missing") from None
            # The writer notes the newest segment's offsets, and may have appended meanwhile.
            places = None if newest else _Places(segment)
            # The newest may grow, and a superseded one has frames to ignore.
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
            # Each header has the digest of the frame before: no foreign segment passes.
            if sequence <= last and segments[at].header.joins != frame.digest():
                what = "the segment does not continue the one before it"
                raise LogDamaged(segments[at].path, 0, sequence, what)


class _Places:
    """Frame offsets found by one walk, in a segment that other threads may walk too.

    At the end each walk replaces the segment's list by its own, if that is longer.
    """

    __slots__ = ("_found", "_next", "_segment")

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._found: array[int] | None = None
        self._next = segment.first + len(segment.places) * PLACE_FRAMES

    def note(self, sequence: int, offset: int) -> None:
        """Note the offset of a frame, without gaps from the last known one on."""
        if sequence != self._next:
            return
        if self._found is None:
            # A copy: other walks use the segment's list meanwhile.
            self._found = self._segment.places[:]
        self._found.append(offset)
        self._next += PLACE_FRAMES

    def keep(self) -> None:
        """Store the offsets after the walk."""
        found = self._found
        # Another walk may have come further.
        if found is not None and len(found) > len(self._segment.places):
            self._segment.places = found


def _read_one(
    file: File, segment: Segment, sequence: int, stop: int, whole: bool, places: _Places | None
) -> Iterator[Frame]:
    """Read frames sequence … stop-1 of one segment.

    :param whole: check that only marks follow them in the segment
    :param places: collects the offsets of this walk
    """
    expected, offset = segment.place_before(sequence)
    walk = FrameWalker(file, segment.codec, offset, segment.size)
    # Bodies before the first wanted frame are neither read nor verified.
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
    """True if a frame is the expected one; False for a valid mark.

    :raises LogDamaged: it is neither
    """
    if flags & MARK:
        if found == expected - 1:
            return False
        what = f"expected a mark of sequence {expected - 1}, found one of {found}"
    elif found == expected and expected < stop:
        return True
    else:
        what = f"expected the frame of sequence {expected}, found that of {found}"
    raise LogDamaged(segment.path, at, expected, what)


def pruned(wanted: int, first: int) -> LogPruned:
    """Return the refusal of a read before the log's beginning."""
    return LogPruned(
        f"sequence {wanted} is no longer in the log: it begins at {first}", first=first
    )
