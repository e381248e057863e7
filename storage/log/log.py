"""Write-ahead log: the append-only source of truth of a store, in segments of bounded size.

    log/00000000000000000001.storelog   a segment, named by the first sequence it may hold
    log/BEGINS      the first sequence the log still holds; absent: 1
    log/NEWEST      the first sequence of the newest segment that was ever written to; absent: 1
    log/CLOSED      the end of the log at a clean close; removed before the log grows again
    log/HISTORY     the epochs that have ended, with their last frames: positions.py; absent: none
    log/RESERVE     preallocated space, given up on a full disk for writes that must succeed;
                    and RESERVE.1 and so on, of the same size
    log/….cut       bytes that a recovery or a truncation cut off, kept for the operator

Invariants, on which the code below relies:

 1. Sequences have no gaps. A frame is followed, in its segment or at the head of the next, by the
    one whose sequence is one more.
 2. `append` returns only after the frames are fsynced; `last` is always durable. Frames of one call
    are one write and one fsync.
 3. A segment gets its final name only when its header, and its initial frames, are fsynced; and
    a segment is begun only when everything before it is durable. So a segment with a torn header is
    damage, and `first - 1` of a segment was durable when it was begun.
 4. A frame records the sequence that was durable when it was encoded (`durable up to`), never more
    than the sequence before its own; a mark records the sequence before it.
 5. The first failed fsync is final (LogFailed): the descriptor is neither synced nor written again.
    A failed write is final too, unless the disk is full. Then the file is cut back and *synced*
    before DiskFull is raised, so that refused frames can't come back. The segment is not written
    again: the next frames go to a new one, whose new salt invalidates left-over bytes. If even the
    cut is refused, and the left-over frames would be found by a start, UnknownOutcome is raised;
    no write happens before the cut is done and synced.
 6. Valid bytes in the wrong place are always damage: no crash makes them.
 7. Only the last segment can be torn, and only when there is no CLOSED. Torn means: from the first
    bad frame s on, no valid frame records s as durable. Anything else is damage, and is refused:
    never skipped, never cut.
 8. After an unclean stop no frame is appended to an old segment. The frames not provably durable,
    D+1 to the last good frame, are read past the page cache and copied to a new segment named D+1,
    synced and renamed in one step. Then the old segment is cut at D.
 9. NEWEST is durable before the first byte goes into the segment it names. So a log whose last
    segment begins earlier has lost one, with acknowledged frames.
10. The last segment may have zeros behind its frames, preallocated because an fsync that extends
    the file is much slower. Zeros up to the end of the file are no frames. They are cut off,
    durably, before CLOSED is written and before the next segment is begun, so a closed segment ends
    with its last frame.
11. A sealed log never writes to a segment that was opened again: the first write after an open
    begins a new one. Only the previous process knew which nonce counts it had used under the key of
    the old segment (`sealing.py`), and a copy of the directory would reuse them for other data.
12. Released frames are never cut. Others are truncated, if a new leader went on differently
    (`actors/cluster/log_matching.py` finds the last common frame, KIP-101): whole segments, the
    newest first and each durably before the next, NEWEST before any of them. Then, as in a
    recovery, a new segment, empty and flagged COPIED, takes over behind the last frame that stays.
    So no truncated bytes are in a segment that is written again.

Crashes in between, and why each is harmless:

- Recovery between naming the new segment D+1 and cutting the old one at D: both hold D+1 and on.
  The new one's header is flagged COPIED; readers switch to it at its first sequence and ignore
  later frames of the segment before.
- Recovery when D+1 is the first sequence of the torn segment itself: the new segment takes over its
  name, in one rename. That covers repeated recoveries too.
- Recovery before the rename: the new file is below `tmp/`, which the next open empties.
- A roll: the same, with no frames in the new segment. An empty segment is a usual state.
- A roll before NEWEST: it names an older segment, which is true of the log all the same.
- A prune: BEGINS is durable before the first unlink. At open, segments below BEGINS are removed; a
  log that begins later than BEGINS lost a segment.
- STORE there but no segment: the first segment was durable before STORE was written, so it is lost.
- A truncation, between two segments to be removed: the log ends with the older one. The rest was
  not released either, and the next attempt truncates it.
- A truncation between the new segment and the end of the old one: as of a recovery.
- HISTORY before the frame that it was written for: `storage/formats/positions.py`.
- A close between its mark and CLOSED: like any unclean stop, with all frames known durable.

One thread uses a `Log`: its `state`, its `tail` and its `markers`. Others are given its `reader`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar, Self

from protocol.environment import File, Room
from protocol.errors import DiskFull, Stranded
from storage.faults import LogDamaged
from storage.files.directory import StoreDirectory, segment_name
from storage.files.disk_reserve import NO_ROOM, Reserve, disk_full, drop_temporary
from storage.files.metadata_file import replace_file
from storage.formats import positions
from storage.formats.frames import (
    BODY_BYTES_MAX,
    CLEAN,
    COPIED,
    LOG_FLAGS,
    MARK,
    NEW_EPOCH,
    SALT_BYTES,
    Frame,
    FrameWalker,
    PlacedFrame,
    SegmentHeader,
    begin,
)
from storage.formats.positions import EpochHistory, LogPosition
from storage.log import recovery
from storage.log.marker_files import MarkerFiles
from storage.log.reader import LogReader
from storage.log.recovery import (
    Recovery,
    SegmentEnd,
    end_of_torn,
    find_ending,
    refuse_changed,
    refuse_lost,
)
from storage.log.retention import LogRetention
from storage.log.segments import FIRST_OF, Segment, find_segments
from storage.log.state import LogSizes, LogState
from storage.log.tail_writer import TailWriter


class Log:
    """Open write-ahead log of a store; the module head has its invariants.

    Owned by one thread; `reader` may be used by others.
    """

    writes: ClassVar[type[TailWriter]] = TailWriter
    """Class of its tail writer: a planted fault takes another."""

    def __init__(self, directory: StoreDirectory, sizes: LogSizes) -> None:
        """Internal; call `inspect`."""
        room = Room(sizes.reserve_bytes, sizes.reserve_files)
        reserve = Reserve(directory.fs, directory.log_path, room)
        self.state = LogState(directory, sizes)
        self.reader = LogReader(self.state)
        self.tail = self.writes(self.state, reserve)
        self.markers = MarkerFiles(directory, reserve)
        self._left_over: Sequence[str] = ()  # segments that a prune had no time to remove
        self._ending: SegmentEnd | None = None  # between `inspect` and `recover`
        self._marked = False  # nothing to mark since the last mark
        self._closed_file = False  # log/CLOSED exists
        self._newest = 1  # contents of NEWEST
        self.recovery = Recovery(True, 0)

    # --- opening ---------------------------------------------------------------------------------

    @classmethod
    def open(
        cls, directory: StoreDirectory, sizes: LogSizes | None = None, *, proven: int = 0
    ) -> Log:
        """Open and recover the log: `inspect`, then `recover`."""
        log = cls.inspect(directory, sizes)
        log.recover(proven)
        return log

    @classmethod
    def begin_after(
        cls, directory: StoreDirectory, at: LogPosition, history: EpochHistory = ()
    ) -> None:
        """Create the empty log of a restored or copied store, beginning after a given frame.

        The directory must not have a log yet.

        :param at: position of that frame
        :param history: epochs that ended before it (KIP-101)
        :raises DiskFull: there is no room for it
        :raises OSError: the disk fails
        """
        log = cls(directory, LogSizes())
        log.state.last, log.state.epoch, log.state.last_time = at.sequence, at.epoch, at.time
        log.state.digest, log.state.released = at.digest, at.sequence
        # BEGINS first: without it the frames before this segment would count as lost.
        log.markers.write("BEGINS", {"first": at.sequence + 1}, reserved=False)
        if history:
            facts = positions.pack_history(history, at.sequence + 1)
            log.markers.write("HISTORY", facts, reserved=False)
        log._begin_segment(at, [], 0)
        log.tail.close_file()

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
            log.tail.close_file()
            raise
        return log

    def make_room(self, needed: Room) -> None:
        """Release the reserve if the disk has less room than needed.

        The room is needed, for instance, to open the state.

        `recover` fills the reserve again as soon as possible.

        :raises DiskFull: there is too little room even so
        :raises OSError: the disk fails
        """
        if self.tail.headroom.left(needed) is None:
            self.tail.reserve.release()
            if self.tail.headroom.left(needed) is None:
                raise DiskFull(
                    f"no room left on the disk to open the state: it needs another {needed.bytes}"
                    f" bytes and {needed.files} files"
                )

    def _read_segments(self) -> None:
        state = self.state
        if not state.fs.exists(state.path):
            raise LogDamaged(state.path, 0, 1, "the directory is missing")
        # A process that was killed may have left names that are visible but not durable.
        state.fs.sync_directory(state.path)
        facts, store_id = self.markers, state.store_id
        state.first, self._newest = facts.first("BEGINS"), facts.first("NEWEST")
        state.segments, self._left_over = find_segments(
            state.fs, state.path, state.first, self._newest, store_id, state.key
        )
        state.epoch_ends = self._read_epoch_ends()
        closed = facts.read("CLOSED")
        self._closed_file = closed is not None
        segment = state.segments[-1]
        self.tail.reserve.inspect()
        self.tail.file = file = state.fs.open(segment.path)
        if closed is None:
            # The page cache may show bytes that no fsync has brought to the disk (invariant 8).
            file.forget_cache()
        self._ending = ending = find_ending(file, segment)
        state.last, state.epoch, state.last_time = ending.last, ending.epoch, ending.time
        state.digest, state.released = ending.digest, ending.released
        self._marked = ending.marked
        if closed is not None:
            refuse_changed(segment, ending, closed)
        else:
            segment.size = end_of_torn(file, segment, ending)

    def _read_epoch_ends(self) -> EpochHistory:
        told = self.markers.read("HISTORY")
        try:
            return positions.read_history(told)
        except (KeyError, TypeError, ValueError):
            path = f"{self.state.path}/HISTORY"
            raise LogDamaged(path, 0, self.state.first, "it holds no epoch history") from None

    def recover(self, proven: int = 0) -> None:
        """Recover the log for writing.

        After an unclean stop, its unproven end moves to a new segment.

        :param proven: sequence up to which frames are known from elsewhere to have been durable,
            see recovery.py
        :raises LogDamaged: a proven frame is missing; nothing was changed
        :raises DiskFull: no room to recover into
        :raises OSError: the disk fails
        """
        state = self.state
        file, segment, ending = self.tail.file, state.segments[-1], self._ending
        assert file is not None and ending is not None, "recovered once, and not when closed"
        self.tail.file = self._ending = None
        try:
            # Refuse before anything is changed.
            refuse_lost(segment, ending, proven)
            if self._closed_file:
                self.tail.file = file
                self.tail.worn = state.key is not None  # invariant 11
                self.recovery = Recovery(True, state.last)
            else:
                self._move_tail(file, segment, ending, ending.unproven)
            self._unlink_all(self._left_over)
            recovery.drop_old_tails(state.fs, state.path, (self.recovery.cut_file,))
            self.tail.reserve.fill()
        except BaseException:
            file.close()
            self.tail.close_file()
            raise

    def _move_tail(
        self, file: File, old: Segment, ending: SegmentEnd, unproven: Sequence[PlacedFrame]
    ) -> None:
        """Copy the frames that were not provably durable to a new segment (invariant 8)."""
        state = self.state
        good = ending.good
        # Never written to: one segment with only its header.
        is_new = len(state.segments) == 1 and good == old.size == old.header.size
        cut_bytes = old.size - good
        cut_file = None
        if cut_bytes:
            cut_file = recovery.save_torn_tail(state.fs, state.path, state.tmp, file, old, good)
        # Behind a proven end the header records the epoch of the next frame, as after a roll.
        at = ending.durable_at if ending.unproven else state.here
        # Named before the old segment is cut. After a crash in between COPIED decides.
        copied = partial(self._begin_segment, at, unproven, COPIED)
        fresh = self.tail.reserve.spend(copied)
        if fresh.path != old.path:
            self._shorten_old(file, old, unproven[0].offset if unproven else good)
        file.close()
        self._marked = False
        self.recovery = Recovery(is_new, state.last, len(unproven), cut_bytes, cut_file)

    # --- writing ---------------------------------------------------------------------------------

    def append(
        self,
        frames: Sequence[Frame],
        *,
        released: int | None = None,
        reserved: bool = False,
        spare: Room | None = None,
    ) -> list[bytes]:
        """Append frames with one write and one fsync. They are durable on return.

        :param frames: they follow `last` and each other without a gap; epoch and time never fall
        :param released: commit index: highest sequence that may have been shown to a client; never
            falls. None: all durable frames
        :param reserved: may use the disk space held back for writes that must succeed on a full
            disk
        :param spare: free disk space that must be left for other writers
        :returns: the digests of the frames
        :raises DiskFull: none of the frames is in the log; a later call may succeed
        :raises LogFailed: final; only the next open can tell if they are in the log
        """
        state = self.state
        if not frames:
            return []
        self.tail.refuse_failed()
        self.tail.require_room(reserved, spare, sum(len(frame.body) for frame in frames))
        self._prepare_to_write(reserved)
        if self._is_full():
            self._roll(reserved)
        self._note_newest(reserved)
        sequence, epoch, time = state.last, state.epoch, state.last_time
        for frame in frames:
            sequence += 1
            assert frame.sequence == sequence, "a gap in the sequences"
            assert frame.epoch >= epoch and frame.time >= time, "epoch or log time fell"
            assert not frame.flags & LOG_FLAGS, "a flag of the log's own"
            assert len(frame.body) <= BODY_BYTES_MAX, "a frame over its limit"
            epoch, time = frame.epoch, frame.time
        # HISTORY must be durable before the first frame of the next epoch (positions.py).
        if epoch > state.last_epoch:
            self._note_epoch_ends(frames, reserved)
        # Encode last, and then write in any case: each seal uses up a nonce count, and a gap in the
        # counts of a segment is damage.
        segment = state.segments[-1]
        encode, durable, shown = segment.codec.encode, state.last, self._shown(released)
        offset = segment.size
        parts = [encode(frame, durable, shown) for frame in frames]
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        self.tail.write(data, reserved, len(parts[0]))
        # Only after the sync: a refused frame leaves no offset behind.
        for frame, data in zip(frames, parts, strict=True):
            segment.note(frame.sequence, offset)
            offset += len(data)
        segment.size = offset
        state.last, state.epoch, state.last_time = sequence, epoch, time
        self._marked = False
        digests = [frame.digest() for frame in frames]
        state.digest, state.released = digests[-1], shown
        return digests

    def _shown(self, released: int | None) -> int:
        """Return the commit index to record."""
        shown = self.state.last if released is None else released
        assert self.state.released <= shown <= self.state.last, (
            "shown before it was durable, or taken back"
        )
        return shown

    def mark(self, clean: bool = False, released: int | None = None) -> None:
        """Write a mark frame that records all frames as durable, unless the log ends with one.

        Called when the log becomes idle: without a frame behind them, the last frames can't be
        proven to be acknowledged.

        :param clean: the log is being closed
        :param released: as for `append`
        :raises DiskFull: as `append`
        :raises LogFailed: as `append`
        """
        state = self.state
        shown = self._shown(released)
        if self._marked and shown == state.released and not clean:
            return
        self.tail.refuse_failed()
        self._prepare_to_write(reserved=True)
        self._note_newest(reserved=True)
        segment = state.segments[-1]
        flags = MARK | CLEAN if clean else MARK
        frame = Frame(state.last, state.epoch, state.last_time, flags, b"")
        data = segment.codec.encode(frame, state.last, shown)
        self.tail.write(data, True, None, ends=clean)
        segment.size += len(data)
        state.released = shown
        self._marked = True

    def begin_epoch(self) -> None:
        """Begin the next epoch, because the log so far was restored.

        :raises DiskFull: the log is unchanged
        :raises LogFailed: as `append`
        """
        self.tail.refuse_failed()
        self._prepare_to_write(reserved=False)
        self._roll(reserved=False, flags=NEW_EPOCH)
        self.state.epoch += 1

    def leave_epoch(self) -> None:
        """Undo `begin_epoch` if no frame was written since, to continue a restored log.

        :raises DiskFull: the log is unchanged
        :raises LogFailed: as `append`
        """
        state = self.state
        header = state.segments[-1].header
        if not state.begins_epoch(header):
            return
        self.tail.refuse_failed()
        self._prepare_to_write(reserved=False)
        # The new header takes its epoch from here; a refused roll restores it.
        epoch, state.epoch = state.epoch, header.epoch
        try:
            self._roll(reserved=False)
        except DiskFull:
            state.epoch = epoch
            raise

    def close(self, clean: bool = True, released: int | None = None) -> None:
        """Close the log, so that the next open need not recover. Idempotent.

        :param clean: False leaves the log as a crash would
        :param released: as for `append`
        :raises LogFailed: the disk failed at the last moment; the log is closed nevertheless
        :raises OSError: likewise, at writing CLOSED
        """
        if self.tail.file is None:
            return
        try:
            if clean and self.tail.failed is None and not self._closed_file:
                # CLOSED comes last: it records the size without zeros, and with the mark.
                self.mark(clean=True, released=released)
                self.tail.take_zeros_off(reserved=True)
                segment = self.state.segments[-1]
                facts = {"first": segment.first, "last": self.state.last, "size": segment.size}
                self.markers.write("CLOSED", facts)
        except DiskFull:
            pass  # no room for CLOSED: the next open recovers as after a crash, and loses nothing
        finally:
            self.tail.close_file()

    def cut(self, after: int) -> None:
        """Truncate the log after a frame: the last one that it shares with the log of a new leader
        (KIP-101; invariant 12).

        The uncommitted frames behind it are saved in a `.cut` file for the operator.

        :raises Stranded: some of them were released; nothing was truncated
        :raises DiskFull: nothing was truncated
        :raises LogPruned: the log begins later; nothing was truncated
        :raises LogDamaged: the frame is not as written; nothing was truncated
        :raises LogFailed: final; the next open finds all of them, some or none
        """
        state = self.state
        if after < state.released:
            raise Stranded(
                f"the log cannot be cut after {after}: it is released up to {state.released}",
                released=state.released,
            )
        if after >= state.last:
            return
        self.tail.refuse_failed()
        # Reads first: they may find damage, and nothing is changed yet.
        at = self.reader.position_at(after)
        count = bisect_right(state.segments, after + 1, key=FIRST_OF)
        old, gone = state.segments[count - 1], state.segments[count:]
        offset = self._offset_of(old, after + 1)
        self._open_again()
        # First, since NEWEST must never name a segment that is gone: that would be damage.
        if self._newest > old.first:
            self._write_newest(old.first, reserved=True)
        try:
            self.tail.close_file()
            self._set_aside([(old, offset), *((segment, 0) for segment in gone)])
            # Newest first, each durably: a crash in between leaves no gap.
            for segment in reversed(gone):
                self._unlink_all([segment.path])
            state.segments = state.segments[:count]
            state.last, state.last_time, state.digest = after, at.time, at.digest
            # In a restored log, the segment that is begun again had started another epoch.
            state.epoch = at.epoch + (old.first > after and bool(old.header.flags & NEW_EPOCH))
            flags = COPIED if old.first <= after else 0
            begin = partial(self._begin_segment, state.here, [], flags)
            self.tail.reserve.spend(begin)
            if old.first <= after:
                self._truncate(old, offset)
        except (OSError, DiskFull) as error:
            # Perhaps truncated in part: only the next open can tell which frames are left.
            self.tail.fail(error)
        self._marked = False

    def _offset_of(self, segment: Segment, sequence: int) -> int:
        """Return the offset of a frame in its segment.

        :raises LogDamaged: the frame is not there
        """
        _, place = segment.place_before(sequence)
        file = self.state.fs.open_read(segment.path)
        try:
            walk = FrameWalker(file, segment.codec, place, segment.size)
            for _ in walk.heads(sequence):
                pass
        finally:
            file.close()
        if walk.bad is not None:
            raise LogDamaged(segment.path, walk.offset, sequence, walk.bad)
        return walk.offset

    def _set_aside(self, cut: Sequence[tuple[Segment, int]]) -> None:
        """Save the truncated bytes of segments, as far as the disk has room.

        :param cut: segments, each with the offset of the first byte to be cut
        """
        state = self.state
        saved = []
        for segment, offset in cut:
            file = state.fs.open_read(segment.path)
            try:
                saved.append(
                    recovery.save_torn_tail(state.fs, state.path, state.tmp, file, segment, offset)
                )
            finally:
                file.close()
        recovery.drop_old_tails(state.fs, state.path, saved)

    def _shorten_old(self, file: File, segment: Segment, size: int) -> None:
        """Truncate an old segment, best effort.

        Readers stop at the next segment's first sequence anyway.

        On a full disk that refuses even this, the segment is left as it is (`_shorten` names such
        file systems).
        """
        try:
            file.truncate(size)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            return
        file.sync()
        segment.size = size

    def _truncate(self, segment: Segment, size: int) -> None:
        """Truncate an older segment that is not open."""
        file = self.state.fs.open(segment.path)
        try:
            self._shorten_old(file, segment, size)
        finally:
            file.close()

    def retire(
        self,
        flushed: int,
        keep: LogRetention | None,
        now_us: int,
        settle: Callable[[int], int] = int,
    ) -> None:
        """Prune segments beyond the retention, as far as the state has flushed their frames.

        :param flushed: sequence that the state has flushed; later frames are only in the log
        :param keep: retention; None: keep all
        :param now_us: log time
        :param settle: called before pruning with the first sequence that would be kept. Returns
            that or an earlier sequence that a reader still needs
        :raises DiskFull: as `prune`
        :raises OSError: as `prune`
        """
        state = self.state
        if keep is None:
            return
        below = min(flushed + 1, keep.begins(state.segments, state.last, now_us))
        at = bisect_right(state.segments, below, key=FIRST_OF) - 1
        self.prune(settle(state.segments[max(at, 0)].first))

    def give_way(self, flushed: int) -> int:
        """Free disk space: prune all frames that the state has flushed. Return their number.

        :raises DiskFull: as `prune`
        :raises OSError: as `prune`
        """
        state = self.state
        before = state.first
        last = state.segments[-1]
        # If the last segment is flushed too, and large, roll: the last segment is never pruned.
        if flushed >= state.last >= last.first and last.size >= state.sizes.reserve_bytes:
            self.tail.refuse_failed()
            self._prepare_to_write(reserved=True)
            # `_prepare_to_write` may have begun a new segment already.
            if state.segments[-1] is last:
                self._roll(reserved=True)
        self.prune(flushed + 1)
        return state.first - before

    def prune(self, below: int) -> None:
        """Remove whole segments whose frames are all below a sequence. The last segment stays.

        :raises DiskFull: nothing was removed
        :raises OSError: the disk fails; the log is whole, and the next open finishes
        """
        state = self.state
        self.tail.refuse_failed()
        keep = bisect_right(state.segments, below, key=FIRST_OF) - 1
        if keep <= 0:
            return
        gone, kept = state.segments[:keep], state.segments[keep:]
        # Durable before the first unlink: a crash in between leaves segments that the open removes.
        self.markers.write("BEGINS", {"first": kept[0].first})
        state.first = kept[0].first
        state.segments = kept
        self._unlink_all([segment.path for segment in gone])

    def _unlink_all(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.state.fs.unlink(path)
        if paths:
            self.state.fs.sync_directory(self.state.path)

    def _prepare_to_write(self, reserved: bool) -> None:
        """Do all that must be durable before the next byte of the log."""
        self._open_again()
        self.tail.cut_torn(reserved)
        if self.tail.worn:
            self._roll(reserved)

    def _open_again(self) -> None:
        """Remove CLOSED, since the log is about to grow beyond it."""
        if self._closed_file:
            try:
                self.markers.remove("CLOSED")
            except OSError as error:
                self.tail.fail(error)
            self._closed_file = False

    def _note_newest(self, reserved: bool) -> None:
        """Record the last segment in NEWEST before its first write (invariant 9).

        :raises DiskFull: the segment must not be written yet
        """
        first = self.state.segments[-1].first
        if first != self._newest:
            self._write_newest(first, reserved)

    def _write_newest(self, first: int, reserved: bool) -> None:
        try:
            self.markers.write("NEWEST", {"first": first}, reserved)
        except OSError as error:
            self.tail.fail(error)
        self._newest = first

    def _note_epoch_ends(self, frames: Sequence[Frame], reserved: bool) -> None:
        """Record the epochs that these frames end in HISTORY (KIP-101).

        :raises DiskFull: the frames must not be written yet
        """
        state = self.state
        present = state.present
        # HISTORY may be ahead of the log after a crash or a truncation: the log decides.
        before = [one for one in state.epoch_ends if one.epoch < present.epoch]
        ended = tuple([*before, *positions.epochs_ended(present, frames)][-positions.EPOCHS_KEPT :])
        if ended == state.epoch_ends:
            return
        try:
            self.markers.write("HISTORY", positions.pack_history(ended, state.last + 1), reserved)
        except OSError as error:
            self.tail.fail(error)
        state.epoch_ends = ended

    def _is_full(self) -> bool:
        """True if the last segment takes no more frames; a mark may still follow."""
        state = self.state
        segment = state.segments[-1]
        frames = state.last - segment.first + 1
        return (
            segment.size >= state.sizes.segment_bytes
            or frames >= state.sizes.segment_frames
            or not segment.header.is_of_this_format
        )

    def _roll(self, reserved: bool, flags: int = 0) -> None:
        self.tail.take_zeros_off(reserved)
        begin = partial(self._begin_segment, self.state.here, [], flags)
        try:
            self.tail.reserve.spend(begin, reserved)
        except OSError as error:
            # Which of the two segments will be found is unknown if the directory's sync failed.
            self.tail.fail(error)

    def _begin_segment(self, at: LogPosition, copied: Sequence[PlacedFrame], flags: int) -> Segment:
        """Create a segment, complete and durable before it gets its name, and make it the last one.

        :param at: position of the frame before its first. The header records it as the log's end
            once earlier segments are pruned
        :param copied: frames to begin with
        :raises DiskFull: no segment was made; the last one is unchanged
        """
        state = self.state
        first, epoch = at.sequence + 1, at.epoch
        if state.segments and state.segments[-1].first == first:
            # It takes over the name, and the COPIED flag, which makes readers switch to it at its
            # first sequence: the segment before may still hold the torn bytes of a recovery that
            # was interrupted.
            header = state.segments[-1].header
            flags |= header.flags & COPIED
            # The replaced segment began an epoch without a frame: the new one begins it.
            if header.flags & NEW_EPOCH and state.epoch > header.epoch:
                flags, epoch = flags | NEW_EPOCH, header.epoch
        salt = state.rng.bytes(SALT_BYTES)
        # Commit indexes never fall in a segment, so begin with that of the first copied frame.
        released = copied[0].released if copied else state.released
        plain = SegmentHeader(
            state.store_id, salt, first, epoch, at.time,
            flags=flags, joins=at.digest, released=released,
        )  # fmt: skip
        header, codec = begin(plain, state.key, state.rng)
        parts = [header.encode()]
        parts.extend(codec.encode(p.frame, p.synced_seq, p.released) for p in copied)
        data = b"".join(parts)
        path = f"{state.path}/{segment_name(first)}"
        try:
            replace_file(state.fs, state.tmp, path, data)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            drop_temporary(state.fs, state.tmp, path)
            raise disk_full() from error
        segment = Segment(path, header, codec, len(data))
        offset = header.size
        for placed, part in zip(copied, parts[1:], strict=True):
            segment.note(placed.frame.sequence, offset)
            offset += len(part)
        self.tail.close_file()
        # A segment that was empty, or torn from its first frame on, is replaced under its name.
        # Assign a new list: readers on other threads iterate over the old one.
        state.segments = [s for s in state.segments if s.first < first] + [segment]
        self.tail.file = state.fs.open(path)
        self.tail.zeros = 0
        self.tail.worn = self.tail.torn = False
        return segment
