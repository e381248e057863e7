"""Log reads: a thread reads the log while the node serves, on behalf of code on the loop.

`LogReads` is the interface on the loop. It takes the newest frames from the tail in memory. For
others it asks the thread: for record history, for a feed that has to catch up, for a follower. The
same thread checks older segments in the background (log_checks.py).

Damage is logged once, whichever read met it, and reported to each read that needs the frame. It
stops nothing: the state holds the effects of those frames, and the rest of the log stays readable.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import structlog

from actors.commits.committer import Committer
from actors.log_pins import Pin, Pins
from actors.runtime import Runtime, Supervised, ThreadActor, ask, handles
from protocol import limits
from protocol.errors import LogPruned, Refusal
from protocol.requests import Request
from protocol.values import Value
from storage.faults import LogDamaged
from storage.formats.frames import FRAME_HEADER_BYTES, Frame
from storage.formats.positions import LogPosition
from storage.log.reader import LogReader
from storage.log.segments import pruned
from storage.records.history import HistoryPart, SearchResult, follow, search

log = structlog.get_logger("node")


@dataclass(slots=True)
class LogChecks:
    """Progress and findings of the check of older segments. Written by one thread, read by any."""

    checked: int = 0
    """Last sequence checked in this round."""
    rounds: int = 0
    """Completed rounds."""
    damage: dict[tuple[str, int], LogDamaged] = field(default_factory=dict)
    """Damage found, by file and offset."""

    def found(self, begins: int) -> list[LogDamaged]:
        """Return the damage in the part of the log that still exists.

        :param begins: first sequence of the log
        """
        return [one for one in list(self.damage.values()) if one.sequence >= begins]

    def info(self, begins: int) -> dict[str, Value]:
        """Return the object that INFO FOR NODE shows."""
        return {
            "checked": self.checked,
            "rounds": self.rounds,
            "damage": [
                {"file": one.file, "offset": one.offset, "sequence": one.sequence, "what": one.what}
                for one in self.found(begins)
            ],
        }


@dataclass(frozen=True, slots=True)
class ReadFrames(Request[list[Frame]]):
    """Read frames in order: at least one, and no more once their bodies exceed `bytes_max`."""

    after: int
    """Sequence before the first frame to read."""
    upto: int
    """Last sequence to read; it must be durable."""
    bytes_max: int


@dataclass(frozen=True, slots=True)
class ReadStored(Request[list[tuple[Frame, bytes]]]):
    """Read frames like `ReadFrames`, each with its digest."""

    after: int
    upto: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class ReadFrame(Request[Frame]):
    """Read one frame."""

    sequence: int


@dataclass(frozen=True, slots=True)
class ReadLogPosition(Request[LogPosition]):
    """Return the log position (sequence, epoch, time, digest) at a frame, or before the first
    frame."""

    sequence: int


@dataclass(frozen=True, slots=True)
class FollowRecord(Request[HistoryPart]):
    """Follow the chain of a record's changes backwards."""

    key: bytes
    at: int
    """Sequence of the commit with the first change to return."""
    count: int
    """Maximum number of changes."""


@dataclass(frozen=True, slots=True)
class SearchRecord(Request[SearchResult]):
    """Search a part of the log for the newest change of a record."""

    key: bytes
    below: int
    """Sequence below which to search."""


@dataclass(frozen=True, slots=True)
class CheckNextPart(Request[bool]):
    """Check the next part of the log. Replies True if the round is complete."""


class LogReadActor(ThreadActor):
    """Blocks on the disk while the log is read.

    :param log: readable from this thread too; see `LogReader`
    :param checks: receives the findings
    """

    answers = (Refusal, LogDamaged)

    def __init__(self, runtime: Runtime, log: LogReader, checks: LogChecks) -> None:
        super().__init__(runtime)
        self._log = log
        self._checks = checks
        self._frames: Iterator[Frame] | None = None

    @handles(ReadFrames)
    def read_frames(self, asked: ReadFrames) -> list[Frame]:
        """Return frames in order. Each call seeks again: that costs less than the message.

        :raises LogPruned: the log begins later
        :raises LogDamaged: the first frame is damaged; a damaged later one ends the result before
            it
        """
        found, held = list[Frame](), 0
        try:
            for frame in self._log.read(asked.after + 1, asked.upto):
                held += len(frame.body)
                if found and held > asked.bytes_max:
                    break
                found.append(frame)
        except (LogPruned, LogDamaged, OSError) as error:
            if not found:
                raise self._caller_error(error, asked.after + 1) from error
        return found

    @handles(ReadStored)
    def read_stored(self, asked: ReadStored) -> list[tuple[Frame, bytes]]:
        """Return frames with their digests, which are computed on this thread to keep the loop
        free."""
        found = self.read_frames(ReadFrames(asked.after, asked.upto, asked.bytes_max))
        return [(frame, frame.digest()) for frame in found]

    @handles(ReadFrame)
    def read_frame(self, asked: ReadFrame) -> Frame:
        """Return one frame.

        :raises LogPruned: the log begins later
        :raises LogDamaged: the frame is damaged
        """
        try:
            return self._log.frame(asked.sequence)
        except (LogPruned, LogDamaged, OSError) as error:
            raise self._caller_error(error, asked.sequence) from error

    @handles(ReadLogPosition)
    def read_standing(self, asked: ReadLogPosition) -> LogPosition:
        """Return the log position at a frame.

        :raises LogPruned: the log begins later
        :raises LogDamaged: the frame is damaged
        """
        try:
            return self._log.position_at(asked.sequence)
        except (LogPruned, LogDamaged, OSError) as error:
            raise self._caller_error(error, asked.sequence) from error

    @handles(FollowRecord)
    def follow_record(self, asked: FollowRecord) -> HistoryPart:
        """Return changes of a record, newest first. :raises LogDamaged: in the first frame"""
        try:
            return follow(self._log, asked.key, asked.at, asked.count)
        except (LogDamaged, OSError) as error:
            raise self._caller_error(error, asked.at) from error

    @handles(SearchRecord)
    def search_record(self, asked: SearchRecord) -> SearchResult:
        """Return the newest change of a record in a part of the log. :raises LogDamaged: a frame is
        damaged"""
        try:
            return search(self._log, asked.key, asked.below)
        except (LogDamaged, OSError) as error:
            raise self._caller_error(error, asked.below) from error

    def _caller_error(self, error: LogPruned | LogDamaged | OSError, sequence: int) -> Exception:
        """Return the exception for the caller, and note the damage if there is any."""
        if isinstance(error, LogPruned):
            return error
        damage = error if isinstance(error, LogDamaged) else _unreadable(error, sequence)
        self._note(damage)
        return damage

    @handles(CheckNextPart)
    def check_some(self, _message: CheckNextPart) -> bool:
        """Check the next part."""
        if self._frames is None:
            self._continue_at(self._log.first)
        try:
            return self._read_some()
        except LogPruned:
            self._continue_at(self._log.first)
        except LogDamaged as damage:
            self._note(damage)
            self._continue_at(self._log.segment_after(damage.sequence))
        except OSError as error:
            at = self._checks.checked + 1
            self._note(_unreadable(error, at))
            self._continue_at(self._log.segment_after(at))
        return False

    def on_stop(self) -> None:
        """Close the segment being read."""
        self._frames = None

    def _continue_at(self, sequence: int) -> None:
        """Continue the check at a sequence, up to the last segment.

        The last segment was read at the start, and later frames were written by this process.
        """
        upto = self._log.state.newest - 1
        self._frames = iter(()) if sequence > upto else self._log.read(sequence, upto)

    def _read_some(self) -> bool:
        left = limits.LOG_CHECK_BYTES
        assert self._frames is not None
        for frame in self._frames:
            self._checks.checked = frame.sequence
            left -= len(frame.body) + FRAME_HEADER_BYTES
            if left <= 0:
                return False
        self._frames = None
        self._checks.rounds += 1
        return True

    def _note(self, damage: LogDamaged) -> None:
        if self._checks.damage.setdefault((damage.file, damage.offset), damage) is damage:
            log.error(
                "the log is damaged",
                file=damage.file,
                offset=damage.offset,
                sequence=damage.sequence,
                what=damage.what,
            )


def _unreadable(error: OSError, sequence: int) -> LogDamaged:
    """Return a read error of the disk as damage."""
    return LogDamaged(error.filename or "log", 0, sequence, f"it can't be read: {error}")


class LogReads:
    """Frames of the log, for code on the loop.

    :param committer: provides the tail
    :param log: only its in-memory metadata is used
    :param reader: supervised actor that reads the log
    :param pins: pins of the log
    """

    def __init__(
        self, committer: Committer, log: LogReader, reader: Supervised[Any], pins: Pins
    ) -> None:
        self._committer = committer
        self._log = log
        self._reader = reader
        self._pins = pins

    @property
    def begins(self) -> int:
        """First sequence of the log."""
        return self._log.first

    async def frames(self, after: int, upto: int, bytes_max: int) -> list[Frame]:
        """Return the frames after one sequence up to another: at least one if there are any, and no
        more once their bodies exceed `bytes_max`.

        :param upto: durable, and released if the frames are shown to a client
        :raises LogPruned: the log begins later
        :raises LogDamaged: the first frame is damaged
        :raises Busy: too many reads of the log wait
        """
        assert upto <= self._committer.synced_seq, "a frame that may be taken back"
        if after >= upto:
            return []
        tail = self._committer.tail
        if after + 1 >= tail.first:
            return tail.after(after, upto, bytes_max)
        return await ask(self._reader.ref, ReadFrames(after, upto, bytes_max))

    async def stored(self, after: int, upto: int, bytes_max: int) -> list[tuple[Frame, bytes]]:
        """Return frames like `frames`, with their digests, from the disk, released or not. Frames
        that are not released may yet be truncated.

        :param upto: in the log
        :raises LogPruned: the log begins later
        :raises LogDamaged: the first frame is damaged
        :raises Busy: too many reads of the log wait
        """
        return await ask(self._reader.ref, ReadStored(after, upto, bytes_max))

    async def frame(self, sequence: int) -> Frame:
        """Return one frame.

        :param sequence: like `upto` of `frames`
        :raises LogPruned: the log begins later
        :raises LogDamaged: the frame is damaged
        :raises Busy: too many reads of the log wait
        """
        assert 1 <= sequence <= self._committer.synced_seq, "a frame that may be taken back"
        tail = self._committer.tail
        if sequence >= tail.first:
            return tail.after(sequence - 1, sequence, 0)[0]
        if sequence < self.begins:
            raise pruned(sequence, self.begins)
        return await ask(self._reader.ref, ReadFrame(sequence))

    async def position_at(self, sequence: int) -> LogPosition:
        """Return the log position at a frame, or before the first frame of the log.

        :param sequence: like `upto` of `frames`
        :raises LogPruned: the log begins later
        :raises LogDamaged: the frame is damaged
        :raises Busy: too many reads of the log wait
        """
        assert sequence <= self._committer.synced_seq, "a frame that may be taken back"
        tail = self._committer.tail
        if sequence >= tail.first:
            frame = tail.after(sequence - 1, sequence, 0)[0]
            return LogPosition(sequence, frame.epoch, frame.time, frame.digest())
        return await ask(self._reader.ref, ReadLogPosition(sequence))

    def bytes_from(self, sequence: int) -> int:
        """Return an upper bound of the log's bytes from a sequence on."""
        return self._log.bytes_from(sequence)

    async def epoch_at(self, sequence: int) -> int | None:
        """Return the leader epoch of a frame, or of the frame before the first that the log holds.
        Return None if it is unknown: the log begins later or the frame is not released yet.

        :raises LogDamaged: the frame had to be read and is damaged
        :raises Busy: too many reads of the log wait
        """
        if not self.begins - 1 <= sequence <= self._committer.commit_index:
            return None
        epoch = self._log.known_epoch(sequence)
        if epoch is not None or sequence < self.begins:
            return epoch
        try:
            return (await self.frame(sequence)).epoch
        except LogPruned:
            return None

    async def changes(self, key: bytes, at: int, count: int) -> HistoryPart:
        """Return changes of a record from a commit backwards; see `storage.records.history.follow`.

        :param at: like `upto` of `frames`
        :raises LogDamaged: the first frame is damaged
        :raises Busy: too many reads of the log wait
        """
        assert at <= self._committer.synced_seq, "a frame that may be taken back"
        return await ask(self._reader.ref, FollowRecord(key, at, count))

    async def search(self, key: bytes, below: int) -> SearchResult:
        """Return the newest change of a record in a part of the log; see
        `storage.records.history.search`.

        :param below: at most one above what `upto` of `frames` may be
        :raises LogDamaged: a frame is damaged
        :raises Busy: too many reads of the log wait
        """
        assert below <= self._committer.synced_seq + 1, "a frame that may be taken back"
        return await ask(self._reader.ref, SearchRecord(key, below))

    def pin(self, sequence: int) -> Pin:
        """Keep the log from a sequence on from being pruned, until the pin expires. Use it in a
        `with` statement, which releases it.

        :raises LogPruned: the log begins later already
        """
        return self._pins.pin(sequence)
