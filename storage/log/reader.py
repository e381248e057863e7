"""Read side of the log: frames and their positions. log.py has the format and its invariants."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from storage.formats.frames import COPIED, Frame
from storage.formats.positions import LogEnd, LogPosition
from storage.log.segments import FIRST_OF, LogExtent, pruned
from storage.log.state import LogState


class LogReader:
    """Frames of a log, for any thread: it opens files of its own, and sees the log as it is at the
    call."""

    def __init__(self, state: LogState) -> None:
        self.state = state

    @property
    def first(self) -> int:
        """First sequence that can be read; of an empty log, the first to be assigned."""
        return self.state.first

    @property
    def last(self) -> int:
        """Last sequence; always durable."""
        return self.state.last

    def segment_after(self, sequence: int) -> int:
        """Return the first sequence of the segment after the one that holds `sequence`.

        For the last segment it is the next sequence to be assigned.
        """
        segments = self.state.segments
        at = bisect_right(segments, sequence, key=FIRST_OF)
        return segments[at].first if at < len(segments) else self.state.last + 1

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
        newest = self.state.last
        segments = self.state.segments
        if from_sequence < segments[0].first:
            raise pruned(from_sequence, segments[0].first)
        extent = LogExtent(self.state.fs, segments, newest, lambda: self.state.first)
        return extent.read(from_sequence, newest if upto is None else min(upto, newest))

    def frame(self, sequence: int) -> Frame:
        """Read one frame.

        :param sequence: at most `last`
        :raises LogPruned: the log begins later
        :raises LogDamaged: the frame is not as written
        """
        [frame] = self.read(sequence, sequence)
        return frame

    def end_at(self, sequence: int) -> LogEnd:
        """Return the position of an earlier frame as a log end, with the log time of the real end.

        :raises LogPruned: the log begins later
        :raises LogDamaged: the frame is not as written
        """
        if sequence >= self.state.last:
            return self.state.end
        epoch = self.position_at(sequence).epoch
        return LogEnd(sequence, epoch, self.state.last_time, self.state.store_id, epoch)

    def known_epoch(self, sequence: int) -> int | None:
        """Return the epoch of a frame from segment headers alone; None if they don't determine it.

        Also knows the frame before the log's first one. Reads no frame.

        :param sequence: at most `last`
        """
        segments = self.state.segments
        if sequence + 1 < segments[0].first:
            return None
        at = bisect_right(segments, sequence + 1, key=FIRST_OF) - 1
        before = segments[at].header.epoch
        if segments[at].first == sequence + 1:
            # In segments made by a recovery, older versions recorded the epoch of the first frame.
            copied = segments[at].header.flags & COPIED
            return before if at == 0 or not copied else None
        newest = at + 1 == len(segments)
        after = self.state.epoch if newest else segments[at + 1].header.epoch
        return before if before == after else None  # epochs never fall

    def bytes_from(self, sequence: int) -> int:
        """Return the bytes of the segments from that of a sequence on, without trailing zeros."""
        segments = self.state.segments
        at = max(bisect_right(segments, sequence, key=FIRST_OF) - 1, 0)
        return sum(segment.size for segment in segments[at:])

    def digest_at(self, sequence: int) -> bytes | None:
        """Return the digest of a frame, or of the one before the first.

        None if the log has neither.

        :raises LogDamaged: the frame is not as written
        """
        # Without a read: the end, and the frame before the first of each segment.
        if sequence == self.state.last:
            return self.state.digest
        for segment in self.state.segments:
            if segment.first == sequence + 1:
                return segment.header.joins
        if not self.state.first <= sequence < self.state.last:
            return None
        return self.frame(sequence).digest()

    def position_at(self, sequence: int) -> LogPosition:
        """Return the log position of a frame, or of the one before the first.

        Time and epoch of the latter come from the first header: those with which the log began.

        :param sequence: at most `last`
        :raises LogPruned: the log begins later
        :raises LogDamaged: the frame is not as written
        """
        segments = self.state.segments
        header = segments[0].header
        if sequence == header.first - 1:
            return LogPosition(sequence, header.epoch, header.time, header.joins)
        frame = self.frame(sequence)
        return LogPosition(sequence, frame.epoch, frame.time, frame.digest())
