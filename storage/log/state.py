"""State of a log: its segments and its ends, shared by the parts of a `Log`. See log.py."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.limits import (
    LOG_AHEAD_BYTES,
    LOG_RESERVE_BYTES,
    LOG_RESERVE_FILES,
    SEGMENT_BYTES,
    SEGMENT_FRAMES,
)
from storage.files.directory import StoreDirectory
from storage.formats.frames import NEW_EPOCH, NO_DIGEST, SegmentHeader
from storage.formats.positions import EpochEnd, EpochHistory, LogEnd, LogPosition
from storage.log.segments import Segment


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


class LogState:
    """Changed by one thread. Others may read it: each change assigns one whole value."""

    def __init__(self, directory: StoreDirectory, sizes: LogSizes) -> None:
        self.fs = directory.fs
        self.rng = directory.rng
        self.path = directory.log_path
        self.tmp = directory.tmp_path
        self.store_id = directory.store_id.bytes
        self.key = directory.key
        self.sizes = sizes
        self.segments: list[Segment] = []
        """Segments, oldest first. A change assigns a new list: readers iterate over the old one."""
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

    @property
    def present(self) -> EpochEnd:
        """The epoch that the log ends in, with its end so far."""
        return EpochEnd(self.last_epoch, self.last, self.digest)

    @property
    def newest(self) -> int:
        """The first sequence of the last segment."""
        return self.segments[-1].first

    @property
    def length(self) -> int:
        """Bytes of all segments, without preallocated zeros."""
        return sum(segment.size for segment in tuple(self.segments))

    @property
    def last_epoch(self) -> int:
        """Epoch of the last frame; of an empty log, of the frame before its first."""
        header = self.segments[-1].header
        return header.epoch if self.begins_epoch(header) else self.epoch

    @property
    def end(self) -> LogEnd:
        """Position of the log's end."""
        return LogEnd(self.last, self.last_epoch, self.last_time, self.store_id, self.epoch)

    def begins_epoch(self, header: SegmentHeader) -> bool:
        """True if the last segment begins an epoch and is still empty."""
        return bool(header.flags & NEW_EPOCH) and header.first > self.last

    @property
    def here(self) -> LogPosition:
        """Position of the log's end, with the epoch of its next frame."""
        return LogPosition(self.last, self.epoch, self.last_time, self.digest)
