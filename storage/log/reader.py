"""Read side of the log: find, check and read segments. log.py has the format and its invariants."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from protocol.environment import File, Room
from protocol.errors import DiskFull
from protocol.limits import (
    LOG_AHEAD_BYTES,
    LOG_RESERVE_BYTES,
    LOG_RESERVE_FILES,
    SEGMENT_BYTES,
    SEGMENT_FRAMES,
)
from storage.faults import LogDamaged, LogFailed
from storage.files.directory import StoreDirectory
from storage.files.disk_reserve import FreeSpaceCheck, Reserve
from storage.formats import positions
from storage.formats.frames import COPIED, NEW_EPOCH, NO_DIGEST, Frame, SegmentHeader
from storage.formats.positions import EpochEnd, EpochHistory, LogEnd, LogPosition
from storage.log.marker_files import MarkerFiles
from storage.log.recovery import Recovery, SegmentEnd, end_of_torn, find_ending, refuse_changed
from storage.log.segments import FIRST_OF, LogExtent, Segment, find_segments, pruned


@dataclass(frozen=True, slots=True)
class LogSizes:
    """Sizes of a log's parts."""

    segment_bytes: int = SEGMENT_BYTES
    """Bytes after which a segment is closed."""
    segment_frames: int = SEGMENT_FRAMES
    """Frames after which a segment is closed."""
    reserve_bytes: int = LOG_RESERVE_BYTES
    """Bytes held back for writes on a full disk."""
    ahead_bytes: int = LOG_AHEAD_BYTES
    """Zero bytes preallocated behind the end of the last segment."""
    reserve_files: int = LOG_RESERVE_FILES
    """Files held back for writes on a full disk."""


class LogReader:
    """Log that is read but not written. Owned by one thread; `read` may be called from others."""

    def __init__(self, directory: StoreDirectory, sizes: LogSizes) -> None:
        """Internal; call `inspect`."""
        self._fs = directory.fs
        self._rng = directory.rng
        self._path = directory.log_path
        self._tmp = directory.tmp_path
        self._store_id = directory.store_id.bytes
        self._key = directory.key
        self._sizes = sizes
        reserve = Room(sizes.reserve_bytes, sizes.reserve_files)
        self._reserve = Reserve(directory.fs, directory.log_path, reserve)
        self.headroom = FreeSpaceCheck(directory.fs, directory.log_path, directory.tmp_path)
        self._facts = MarkerFiles(directory, self._reserve)
        self._zeros = 0
        """Zero bytes preallocated behind the last segment's end and not overwritten yet."""
        self._segments: list[Segment] = []
        self._left_over: Sequence[str] = ()  # segments that a prune had no time to remove
        self._file: File | None = None
        self._ending: SegmentEnd | None = None  # between `inspect` and `recover`
        self._failed: LogFailed | None = None
        self._marked = False  # nothing to mark since the last mark
        self._closed_file = False  # log/CLOSED exists
        self._newest = 1  # contents of NEWEST
        self._worn = False  # the last segment was cut back, take a new one: see invariant 5
        self._torn = False  # … or is to be cut back, as soon as there is room
        self.first = 1
        """First sequence that can be read; of an empty log, the first to be assigned."""
        self.last = 0
        """Last sequence; always durable."""
        self.epoch = 0
        """Epoch of the next frame.

        It is the last frame's, except in a restored log without later frames; see `last_epoch`.
        """
        self.last_time = 0
        """Log time of the last frame (µs); of an empty log, its creation."""
        self.digest = NO_DIGEST
        """Digest of the last frame."""
        self.released = 0
        """Commit index recorded in the log: highest sequence known to be released."""
        self.epoch_ends: EpochHistory = ()
        """Ended epochs, as HISTORY records them (KIP-101)."""
        self.recovery = Recovery(True, 0)

    @classmethod
    def inspect(cls, directory: StoreDirectory, sizes: LogSizes | None = None) -> Self:
        """Open the log of a store for reading, without changing anything.

        Checks every byte of the last segment and the header of each; the frames of the others are
        checked when they are read.

        :raises LogDamaged: frames that may have been acknowledged are missing
        :raises WrongKey: the log is sealed with another key than the directory's
        :raises StoreTooNew: a later version wrote it
        :raises StoreTooOld: an earlier version wrote it
        :raises OSError: the disk fails
        """
        log = cls(directory, sizes or LogSizes())
        try:
            log._read_segments()
        except BaseException:
            log._close_file()
            raise
        return log

    def make_room(self, needed: Room) -> None:
        """Release the reserve if the disk has less room than needed.

        The room is needed, for instance, to open the state.

        `recover` fills the reserve again as soon as possible.

        :raises DiskFull: there is too little room even so
        :raises OSError: the disk fails
        """
        if self.headroom.left(needed) is None:
            self._reserve.release()
            if self.headroom.left(needed) is None:
                raise DiskFull(
                    f"no room left on the disk to open the state: it needs another {needed.bytes}"
                    f" bytes and {needed.files} files"
                )

    def _read_segments(self) -> None:
        if not self._fs.exists(self._path):
            raise LogDamaged(self._path, 0, 1, "the directory is missing")
        # A process that was killed may have left names that are visible but not durable.
        self._fs.sync_directory(self._path)
        facts, store_id = self._facts, self._store_id
        self.first, self._newest = facts.first("BEGINS"), facts.first("NEWEST")
        self._segments, self._left_over = find_segments(
            self._fs, self._path, self.first, self._newest, store_id, self._key
        )
        self.epoch_ends = self._read_epoch_ends()
        closed = facts.read("CLOSED")
        self._closed_file = closed is not None
        segment = self._segments[-1]
        self._reserve.inspect()
        self._file = file = self._fs.open(segment.path)
        if closed is None:
            # The page cache may show bytes that no fsync has brought to the disk (invariant 8).
            file.forget_cache()
        self._ending = ending = find_ending(file, segment)
        self.last, self.epoch, self.last_time = ending.last, ending.epoch, ending.time
        self.digest, self.released = ending.digest, ending.released
        self._marked = ending.marked
        if closed is not None:
            refuse_changed(segment, ending, closed)
        else:
            segment.size = end_of_torn(file, segment, ending)

    def _read_epoch_ends(self) -> EpochHistory:
        told = self._facts.read("HISTORY")
        try:
            return positions.read_history(told)
        except (KeyError, TypeError, ValueError):
            path = f"{self._path}/HISTORY"
            raise LogDamaged(path, 0, self.first, "it holds no epoch history") from None

    @property
    def present(self) -> EpochEnd:
        """The epoch that the log ends in, with its end so far."""
        return EpochEnd(self.last_epoch, self.last, self.digest)

    @property
    def newest(self) -> int:
        """The first sequence of the last segment."""
        return self._segments[-1].first

    @property
    def length(self) -> int:
        """Bytes of all segments, without preallocated zeros."""
        return sum(segment.size for segment in tuple(self._segments))

    def segment_after(self, sequence: int) -> int:
        """Return the first sequence of the segment after the one that holds `sequence`.

        For the last segment it is the next sequence to be assigned.
        """
        segments = self._segments
        at = bisect_right(segments, sequence, key=FIRST_OF)
        return segments[at].first if at < len(segments) else self.last + 1

    def read(self, from_sequence: int, upto: int | None = None) -> Iterator[Frame]:
        """Read frames from a sequence on, in order, up to the log's present end.

        Skipping to the first frame uses the offsets noted when the segment was written or read
        before. Elsewhere it reads the head of each frame.

        :param upto: the last sequence wanted
        :raises LogPruned: the log begins later; raised at the call, or later if it is pruned
            meanwhile
        :raises LogDamaged: a frame is not as written; raised at that frame
        """
        # Read both now, and in this order: the log thread appends and prunes meanwhile.
        newest = self.last
        segments = self._segments
        if from_sequence < segments[0].first:
            raise pruned(from_sequence, segments[0].first)
        extent = LogExtent(self._fs, segments, newest, lambda: self.first)
        return extent.read(from_sequence, newest if upto is None else min(upto, newest))

    def frame(self, sequence: int) -> Frame:
        """Read one frame.

        :param sequence: at most `last`
        :raises LogPruned: the log begins later
        :raises LogDamaged: the frame is not as written
        """
        [frame] = self.read(sequence, sequence)
        return frame

    @property
    def last_epoch(self) -> int:
        """Epoch of the last frame; of an empty log, of the frame before its first."""
        header = self._segments[-1].header
        return header.epoch if self._begins_epoch(header) else self.epoch

    @property
    def end(self) -> LogEnd:
        """Position of the log's end."""
        return LogEnd(self.last, self.last_epoch, self.last_time, self._store_id, self.epoch)

    def end_at(self, sequence: int) -> LogEnd:
        """Return the position of an earlier frame as a log end, with the log time of the real end.

        :raises LogPruned: the log begins later
        :raises LogDamaged: the frame is not as written
        """
        if sequence >= self.last:
            return self.end
        epoch = self.position_at(sequence).epoch
        return LogEnd(sequence, epoch, self.last_time, self._store_id, epoch)

    def _begins_epoch(self, header: SegmentHeader) -> bool:
        """True if the last segment begins an epoch and is still empty."""
        return bool(header.flags & NEW_EPOCH) and header.first > self.last

    def known_epoch(self, sequence: int) -> int | None:
        """Return the epoch of a frame from segment headers alone; None if they don't determine it.

        Also knows the frame before the log's first one. Reads no frame.

        :param sequence: at most `last`
        """
        segments = self._segments
        if sequence + 1 < segments[0].first:
            return None
        at = bisect_right(segments, sequence + 1, key=FIRST_OF) - 1
        before = segments[at].header.epoch
        if segments[at].first == sequence + 1:
            # In segments made by a recovery, older versions recorded the epoch of the first frame.
            copied = segments[at].header.flags & COPIED
            return before if at == 0 or not copied else None
        newest = at + 1 == len(segments)
        after = self.epoch if newest else segments[at + 1].header.epoch
        return before if before == after else None  # epochs never fall

    def bytes_from(self, sequence: int) -> int:
        """Return the bytes of the segments from that of a sequence on, without trailing zeros."""
        segments = self._segments
        at = max(bisect_right(segments, sequence, key=FIRST_OF) - 1, 0)
        return sum(segment.size for segment in segments[at:])

    def digest_at(self, sequence: int) -> bytes | None:
        """Return the digest of a frame, or of the one before the first.

        None if the log has neither.

        :raises LogDamaged: the frame is not as written
        """
        # Without a read: the end, and the frame before the first of each segment.
        if sequence == self.last:
            return self.digest
        for segment in self._segments:
            if segment.first == sequence + 1:
                return segment.header.joins
        if not self.first <= sequence < self.last:
            return None
        return self.frame(sequence).digest()

    def position_at(self, sequence: int) -> LogPosition:
        """Return the log position of a frame, or of the one before the first.

        Time and epoch of the latter come from the first header: those with which the log began.

        :param sequence: at most `last`
        :raises LogPruned: the log begins later
        :raises LogDamaged: the frame is not as written
        """
        segments = self._segments
        header = segments[0].header
        if sequence == header.first - 1:
            return LogPosition(sequence, header.epoch, header.time, header.joins)
        frame = self.frame(sequence)
        return LogPosition(sequence, frame.epoch, frame.time, frame.digest())

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
