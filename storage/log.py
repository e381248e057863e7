"""The log: the append-only truth of a store, in segments of at most so many bytes and frames.

    log/00000000000000000001.storelog   a segment, named by the first sequence it may hold
    log/BEGINS      the first sequence the log still holds; absent: 1
    log/NEWEST      the first sequence of the newest segment that was ever written to; absent: 1
    log/CLOSED      where the log ended at a clean close; gone before anything is written after it
    log/HISTORY     the epochs that have ended, and with which frame: epochs.py; absent: none has
    log/RESERVE     room given up when the disk is full, so that what must be written still can be;
                    and RESERVE.1 and so on, with as much each
    log/….cut       bytes that a recovery or a cut took off, for people

What holds, and what the code below relies on:

 1. Sequences have no gaps. A frame is followed, in its segment or at the head of the next, by the
    one whose sequence is one more.
 2. `append` returns only after the frames are synced; `last` is always durable. Frames of one call
    are one write and one sync.
 3. A segment gets its final name only when its header, and whatever it begins with, is synced; and
    a segment is begun only when everything before it is durable. So a segment with a torn header is
    damage, and `first - 1` of a segment was durable when it was begun.
 4. A frame says what was durable when it was encoded (`durable up to`), never more than the
    sequence before its own; a mark, the sequence before it.
 5. The first failed sync is final (LogFailed): the descriptor is neither synced nor written again.
    A failed write is final too, unless the disk is full; then the file is cut back and *synced*
    before DiskFull is raised, so that refused frames can't come back, and the segment is not
    written again: the next frames go to a new one, whose salt no left-over bytes know. Where even
    the cut is refused, and frames that are left would be found by a start, UnknownOutcome is
    raised; nothing is written before the cut was done, and synced.
 6. Bytes that are valid but stand in the wrong place are damage wherever they stand: no crash makes
    them.
 7. Only the last segment can be torn, and only when there is no CLOSED. Torn means: from the first
    bad frame s on, nothing valid says that s was durable. Anything else is damage, and is refused:
    never skipped, never cut.
 8. After an unclean stop nothing is appended to an old segment. What was not provably durable, D+1
    to the last good frame, is read past the page cache and put into a new segment named D+1,
    synced and renamed in one step. Then the old segment is cut at D.
 9. NEWEST is durable before the first byte goes into the segment it names. So a log whose last
    segment begins earlier has lost one, and what was acknowledged with it.
10. The last segment may have zeros behind its frames, put there ahead of what will be written: a
    sync that makes the file longer costs much more. Zeros up to the end of the file are no bytes of
    a frame. They are cut off, durably, before CLOSED is written and before the next segment is
    begun, so a closed segment ends with its last frame.
11. A sealed log writes to no segment that was opened: the first write after an open begins a new
    one. Which counts were used under the key of the old one only who used them knew
    (`sealing.py`), and a copy of the directory would use the same ones for something else.
12. What was released is never cut. What was not is, when another leader went on otherwise: whole
    segments, the newest first and each durably before the next, NEWEST before any of them; then,
    as a recovery does, a new segment, empty and flagged COPIED, takes over behind the last frame
    that stays. So no bytes of what was cut are in a segment that is written again.

Crashes in between, and why each is harmless:

- Recovery between naming the new segment D+1 and cutting the old one at D: both hold D+1 and on.
  The new one's header is flagged COPIED; readers go over to it at its first sequence and ignore
  what the segment before holds from there on.
- Recovery when D+1 is the first sequence of the torn segment itself: the new segment takes over its
  name, in one rename. That covers recovery after recovery after recovery too.
- Recovery before the rename: the new file is below `tmp/`, which the next open empties.
- A roll: the same, with nothing in the new segment. A new segment without frames is a usual state.
- A roll before NEWEST: it names an older segment, which is true of the log all the same.
- A prune: BEGINS is durable before the first unlink. At open, segments below BEGINS are removed; a
  log that begins later than BEGINS lost a segment.
- STORE there but no segment: the first segment was durable before STORE was written, so it is lost.
- A cut, between two segments that go: the log ends with the older, and has been cut in part. What
  is left of it was not released either, and is cut by who asked for it next.
- A cut between the new segment and the end of the old one: as of a recovery.
- HISTORY before the frame that it was written for: epochs.py.
- A close between its mark and CLOSED: like any unclean stop, with all frames known durable.

One thread uses a `Log`. `read` may be called from others: it opens files of its own, and sees the
log as it was when it was called.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial

from protocol.doors import File, Room
from protocol.errors import DiskFull, Stranded
from storage import epochs, torn_tails
from storage.directory import StoreDirectory, segment_name
from storage.epochs import History
from storage.facts import replace_file
from storage.faults import LogDamaged
from storage.frames import (
    BODY_BYTES_MAX,
    CLEAN,
    COPIED,
    LOG_FLAGS,
    MARK,
    NEW_EPOCH,
    SALT_BYTES,
    Frame,
    Placed,
    SegmentHeader,
    Walk,
    begin,
)
from storage.histories import Standing
from storage.log_reading import LogSizes
from storage.log_writing import LogWriter
from storage.recovery import Ending, Recovery, refuse_lost
from storage.reserve import NO_ROOM, disk_full, drop_temporary
from storage.retention import Keep
from storage.segments import FIRST_OF, Segment


class Log(LogWriter):
    """One open log. See the head of this file."""

    # --- opening ---------------------------------------------------------------------------------

    @classmethod
    def open(
        cls, directory: StoreDirectory, sizes: LogSizes | None = None, *, proven: int = 0
    ) -> Log:
        """`look`, then `recover`."""
        log = cls.look(directory, sizes)
        log.recover(proven)
        return log

    @classmethod
    def begin_after(cls, directory: StoreDirectory, at: Standing, history: History = ()) -> None:
        """Make the log of a store that is restored, or copied from another node: what it will hold
        comes after a frame of the store that it was, and nothing before that is in it. There must
        be none yet.

        :param at: that frame
        :param history: the reigns that had ended before it
        :raises DiskFull: no room for it
        :raises OSError: as the disk says
        """
        log = cls(directory, LogSizes())
        log.last, log.epoch, log.last_time = at.sequence, at.epoch, at.time
        log.digest, log.released = at.digest, at.sequence
        log._facts.write("BEGINS", {"first": at.sequence + 1}, reserved=False)
        if history:
            facts = epochs.facts(history, at.sequence + 1)
            log._facts.write("HISTORY", facts, reserved=False)
        log._begin_segment(at, [], 0)
        log._close_file()

    def recover(self, proven: int = 0) -> None:
        """Make it fit to be written: after an unclean stop, its end is moved to a new segment.

        :param proven: all up to here is known from elsewhere to have been durable: see recovery.py
        :raises LogDamaged: that is not here. Nothing was changed
        :raises DiskFull: no room to recover into
        :raises OSError: as the disk says
        """
        file, segment, ending = self._file, self._segments[-1], self._ending
        assert file is not None and ending is not None, "recovered once, and not when closed"
        self._file = self._ending = None
        try:
            refuse_lost(segment, ending, proven)
            if self._closed_file:
                self._file = file
                self._worn = self._key is not None  # invariant 11
                self.recovery = Recovery(True, self.last)
            else:
                self._move_tail(file, segment, ending, ending.unproven)
            self._unlink_all(self._left_over)
            torn_tails.drop_old(self._fs, self._path)
            self._reserve.fill()
        except BaseException:
            file.close()
            self._close_file()
            raise

    def _move_tail(
        self, file: File, old: Segment, ending: Ending, unproven: Sequence[Placed]
    ) -> None:
        """Invariant 8: make a new segment of what was not provably durable."""
        good = ending.good
        is_new = len(self._segments) == 1 and good == old.size == old.header.size
        cut_bytes = old.size - good
        cut_file = None
        if cut_bytes:
            cut_file = torn_tails.set_aside(self._fs, self._path, self._tmp, file, old, good)
        # Behind an end that is proven the header says what the log goes on with, as after a roll.
        at = ending.durable_at if ending.unproven else self._here
        copied = partial(self._begin_segment, at, unproven, COPIED)
        fresh = self._reserve.spend(copied)
        if fresh.path != old.path:
            self._shorten_old(file, old, unproven[0].offset if unproven else good)
        file.close()
        self._marked = False
        self.recovery = Recovery(is_new, self.last, len(unproven), cut_bytes, cut_file)

    # --- writing ---------------------------------------------------------------------------------

    def append(
        self,
        frames: Sequence[Frame],
        *,
        released: int | None = None,
        reserved: bool = False,
        spare: Room | None = None,
    ) -> list[bytes]:
        """Make frames durable: one write, one sync. They are, when this returns.

        :param frames: following `last` and each other without a gap; epoch and time never fall
        :param released: the highest sequence that anybody may have been shown; never falls. None:
            all that is durable
        :param reserved: may use the room held back for what has to be written on a full disk
        :param spare: what others must still find free on the disk when this is written
        :returns: the digests of the frames
        :raises DiskFull: none of them is in the log; a later call may succeed
        :raises LogFailed: final; whether they are in the log only the next open can tell
        """
        if not frames:
            return []
        self._refuse_failed()
        self._require_room(reserved, spare, sum(len(frame.body) for frame in frames))
        self._prepare_to_write(reserved)
        if self._is_full():
            self._roll(reserved)
        self._note_newest(reserved)
        sequence, epoch, time = self.last, self.epoch, self.last_time
        for frame in frames:
            sequence += 1
            assert frame.sequence == sequence, "a gap in the sequences"
            assert frame.epoch >= epoch and frame.time >= time, "epoch or log time fell"
            assert not frame.flags & LOG_FLAGS, "a flag of the log's own"
            assert len(frame.body) <= BODY_BYTES_MAX, "a frame over its limit"
            epoch, time = frame.epoch, frame.time
        if epoch > self.last_epoch:
            self._note_reigns(frames, reserved)
        # Last of all, and written in any case: a seal that is made has its count, and a gap in the
        # counts of a segment is damage.
        segment = self._segments[-1]
        encode, durable, shown = segment.codec.encode, self.last, self._shown(released)
        offset = segment.size
        parts = [encode(frame, durable, shown) for frame in frames]
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        self._write(data, reserved, len(parts[0]))
        for frame, data in zip(frames, parts, strict=True):
            segment.note(frame.sequence, offset)
            offset += len(data)
        segment.size = offset
        self.last, self.epoch, self.last_time = sequence, epoch, time
        self._marked = False
        digests = [frame.digest() for frame in frames]
        self.digest, self.released = digests[-1], shown
        return digests

    def _shown(self, released: int | None) -> int:
        """What to write down as released."""
        shown = self.last if released is None else released
        assert self.released <= shown <= self.last, "shown before it was durable, or taken back"
        return shown

    def mark(self, clean: bool = False, released: int | None = None) -> None:
        """Write down that everything is durable, unless the log's end says so already.

        For when the log falls idle: frames that nothing follows can't be proved acknowledged.

        :param clean: the log is being closed
        :param released: as for `append`
        :raises DiskFull: as `append`
        :raises LogFailed: as `append`
        """
        shown = self._shown(released)
        if self._marked and shown == self.released and not clean:
            return
        self._refuse_failed()
        self._prepare_to_write(reserved=True)
        self._note_newest(reserved=True)
        segment = self._segments[-1]
        flags = MARK | CLEAN if clean else MARK
        frame = Frame(self.last, self.epoch, self.last_time, flags, b"")
        data = segment.codec.encode(frame, self.last, shown)
        self._write(data, True, None, ends=clean)
        segment.size += len(data)
        self.released = shown
        self._marked = True

    def begin_epoch(self) -> None:
        """What is written from now on is of the next epoch: what is here was restored.

        :raises DiskFull: the log is what it was
        :raises LogFailed: as `append`
        """
        self._refuse_failed()
        self._prepare_to_write(reserved=False)
        self._roll(reserved=False, flags=NEW_EPOCH)
        self.epoch += 1

    def leave_epoch(self) -> None:
        """Take `begin_epoch` back, where nothing was written since: what was restored goes on.

        :raises DiskFull: the log is what it was
        :raises LogFailed: as `append`
        """
        header = self._segments[-1].header
        if not self._begins_epoch(header):
            return
        self._refuse_failed()
        self._prepare_to_write(reserved=False)
        epoch, self.epoch = self.epoch, header.epoch
        try:
            self._roll(reserved=False)
        except DiskFull:
            self.epoch = epoch
            raise

    def close(self, clean: bool = True, released: int | None = None) -> None:
        """Close the log; the next open has nothing to recover. Closing twice does nothing.

        :param clean: False leaves it as a crash would
        :param released: as for `append`
        :raises LogFailed: the disk failed at the last moment. The log is closed nevertheless
        :raises OSError: likewise, at writing CLOSED
        """
        if self._file is None:
            return
        try:
            if clean and self._failed is None and not self._closed_file:
                self.mark(clean=True, released=released)
                self._take_zeros_off(reserved=True)
                segment = self._segments[-1]
                facts = {"first": segment.first, "last": self.last, "size": segment.size}
                self._facts.write("CLOSED", facts)
        except DiskFull:
            pass  # no room to say so: the next open takes it for an unclean stop, and loses nothing
        finally:
            self._close_file()

    def cut(self, after: int) -> None:
        """End the log with a frame: what stands behind it was not released, and gives way to what
        another leader went on with. It is set aside for people. See invariant 12.

        :raises Stranded: some of it was released. Nothing was cut
        :raises DiskFull: likewise
        :raises LogPruned: the log begins later. Likewise
        :raises LogDamaged: the frame is not what was written. Likewise
        :raises LogFailed: final; the next open finds all of it, some or nothing
        """
        if after < self.released:
            raise Stranded(
                f"the log is to be cut after {after}, and up to {self.released} it was released",
                released=self.released,
            )
        if after >= self.last:
            return
        self._refuse_failed()
        at = self.standing(after)
        count = bisect_right(self._segments, after + 1, key=FIRST_OF)
        old, gone = self._segments[count - 1], self._segments[count:]
        offset = self._offset_of(old, after + 1)
        self._open_again()
        if self._newest > old.first:
            self._say_newest(old.first, reserved=True)
        try:
            self._close_file()
            self._set_aside([(old, offset), *((segment, 0) for segment in gone)])
            for segment in reversed(gone):
                self._unlink_all([segment.path])
            self._segments = self._segments[:count]
            self.last, self.last_time, self.digest = after, at.time, at.digest
            # Where it was restored another epoch began with the segment that is begun anew.
            self.epoch = at.epoch + (old.first > after and bool(old.header.flags & NEW_EPOCH))
            flags = COPIED if old.first <= after else 0
            begin = partial(self._begin_segment, self._here, [], flags)
            self._reserve.spend(begin)
            if old.first <= after:
                self._truncate(old, offset)
        except (OSError, DiskFull) as error:
            self._fail(error)
        self._marked = False

    def _offset_of(self, segment: Segment, sequence: int) -> int:
        """Where a frame stands in its segment. :raises LogDamaged: not there"""
        _, place = segment.place_before(sequence)
        file = self._fs.open_read(segment.path)
        try:
            walk = Walk(file, segment.codec, place, segment.size)
            for _ in walk.heads(sequence):
                pass
        finally:
            file.close()
        if walk.bad is not None:
            raise LogDamaged(segment.path, walk.offset, sequence, walk.bad)
        return walk.offset

    def _set_aside(self, cut: Sequence[tuple[Segment, int]]) -> None:
        """Keep what is cut off segments, as far as the disk has room for it.

        :param cut: each with the first byte that goes
        """
        for segment, offset in cut:
            file = self._fs.open_read(segment.path)
            try:
                torn_tails.set_aside(self._fs, self._path, self._tmp, file, segment, offset)
            finally:
                file.close()
        torn_tails.drop_old(self._fs, self._path)

    def _shorten_old(self, file: File, segment: Segment, size: int) -> None:
        """Housekeeping: readers stop at the next segment's first sequence by themselves. So it is
        left as it is where a full disk refuses that too (`_shorten` says which does)."""
        try:
            file.truncate(size)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            return
        file.sync()
        segment.size = size

    def _truncate(self, segment: Segment, size: int) -> None:
        """Cut an older segment."""
        file = self._fs.open(segment.path)
        try:
            self._shorten_old(file, segment, size)
        finally:
            file.close()

    def retire(
        self, flushed: int, keep: Keep | None, now_us: int, settle: Callable[[int], int] = int
    ) -> None:
        """Prune what need not be kept, as far as the state has it.

        :param flushed: what the state has flushed: what is behind it is the log's alone
        :param keep: None: all of it
        :param now_us: log time
        :param settle: asked before anything goes: told where the log would begin, answers that or
            an earlier sequence, which somebody needs
        :raises DiskFull: as `prune`
        :raises OSError: as `prune`
        """
        if keep is None:
            return
        below = min(flushed + 1, keep.begins(self._segments, self.last, now_us))
        at = bisect_right(self._segments, below, key=FIRST_OF) - 1
        self.prune(settle(self._segments[max(at, 0)].first))

    def give_way(self, flushed: int) -> int:
        """The disk is full: prune all that the state has flushed. Answers how many frames went.

        :raises DiskFull: as `prune`
        :raises OSError: as `prune`
        """
        before = self.first
        last = self._segments[-1]
        if flushed >= self.last >= last.first and last.size >= self._sizes.reserve_bytes:
            self._refuse_failed()
            self._prepare_to_write(reserved=True)
            if self._segments[-1] is last:
                self._roll(reserved=True)
        self.prune(flushed + 1)
        return self.first - before

    def prune(self, below: int) -> None:
        """Remove whole segments that hold only frames below a sequence. The last one stays.

        :raises DiskFull: nothing was removed
        :raises OSError: as the disk says; the log is whole, and the next open finishes
        """
        self._refuse_failed()
        keep = bisect_right(self._segments, below, key=FIRST_OF) - 1
        if keep <= 0:
            return
        gone, kept = self._segments[:keep], self._segments[keep:]
        self._facts.write("BEGINS", {"first": kept[0].first})
        self.first = kept[0].first
        self._segments = kept
        self._unlink_all([segment.path for segment in gone])

    def _unlink_all(self, paths: Sequence[str]) -> None:
        for path in paths:
            self._fs.unlink(path)
        if paths:
            self._fs.sync_directory(self._path)

    def _prepare_to_write(self, reserved: bool) -> None:
        """Everything that has to be durable before the next byte of the log is."""
        self._open_again()
        self._cut_torn(reserved)
        if self._worn:
            self._roll(reserved)

    def _open_again(self) -> None:
        """It does not end where CLOSED says any more."""
        if self._closed_file:
            try:
                self._facts.remove("CLOSED")
            except OSError as error:
                self._fail(error)
            self._closed_file = False

    def _note_newest(self, reserved: bool) -> None:
        """Invariant 9. :raises DiskFull: nothing may be written to the last segment yet"""
        first = self._segments[-1].first
        if first != self._newest:
            self._say_newest(first, reserved)

    def _say_newest(self, first: int, reserved: bool) -> None:
        try:
            self._facts.write("NEWEST", {"first": first}, reserved)
        except OSError as error:
            self._fail(error)
        self._newest = first

    def _note_reigns(self, frames: Sequence[Frame], reserved: bool) -> None:
        """Frames begin another epoch. :raises DiskFull: they may not be written yet"""
        present = self.present
        before = [one for one in self.reigns if one.epoch < present.epoch]
        ended = tuple([*before, *epochs.ending(present, frames)][-epochs.KEPT :])
        if ended == self.reigns:
            return
        try:
            self._facts.write("HISTORY", epochs.facts(ended, self.last + 1), reserved)
        except OSError as error:
            self._fail(error)
        self.reigns = ended

    def _is_full(self) -> bool:
        """Whether the last segment is closed to frames; a mark may still follow them."""
        segment = self._segments[-1]
        frames = self.last - segment.first + 1
        return (
            segment.size >= self._sizes.segment_bytes
            or frames >= self._sizes.segment_frames
            or not segment.header.is_of_this_format
        )

    def _roll(self, reserved: bool, flags: int = 0) -> None:
        self._take_zeros_off(reserved)
        begin = partial(self._begin_segment, self._here, [], flags)
        try:
            self._reserve.spend(begin, reserved)
        except OSError as error:
            # Which of the two segments will be found is unknown if the directory's sync failed.
            self._fail(error)

    @property
    def _here(self) -> Standing:
        """Where the log ends; of the epoch that its next frame is of."""
        return Standing(self.last, self.epoch, self.last_time, self.digest)

    def _begin_segment(self, at: Standing, copied: Sequence[Placed], flags: int) -> Segment:
        """Make a segment, whole and durable before it has a name, and append to it from now on.

        :param at: the frame before its first: where the log ends by its header, once the segments
            before it are gone
        :param copied: what it begins with
        :raises DiskFull: there is none; the last is what it was
        """
        first, epoch = at.sequence + 1, at.epoch
        if self._segments and self._segments[-1].first == first:
            # It takes over the name, and with it that readers come to it at its first sequence: the
            # segment before may still hold the torn bytes of a recovery that was cut off.
            header = self._segments[-1].header
            flags |= header.flags & COPIED
            if header.flags & NEW_EPOCH and self.epoch > header.epoch:
                flags, epoch = flags | NEW_EPOCH, header.epoch
        salt = self._rng.bytes(SALT_BYTES)
        released = copied[0].released if copied else self.released
        plain = SegmentHeader(
            self._store_id, salt, first, epoch, at.time,
            flags=flags, joins=at.digest, released=released,
        )  # fmt: skip
        header, codec = begin(plain, self._key, self._rng)
        parts = [header.encode()]
        parts.extend(codec.encode(p.frame, p.durable_upto, p.released) for p in copied)
        data = b"".join(parts)
        path = f"{self._path}/{segment_name(first)}"
        try:
            replace_file(self._fs, self._tmp, path, data)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            drop_temporary(self._fs, self._tmp, path)
            raise disk_full() from error
        segment = Segment(path, header, codec, len(data))
        offset = header.size
        for placed, part in zip(copied, parts[1:], strict=True):
            segment.note(placed.frame.sequence, offset)
            offset += len(part)
        self._close_file()
        # A segment that held nothing, or was torn from its first frame on, gives up its name.
        # A new list, for readers of the old one.
        self._segments = [s for s in self._segments if s.first < first] + [segment]
        self._file = self._fs.open(path)
        self._zeros = 0
        self._worn = self._torn = False
        return segment
