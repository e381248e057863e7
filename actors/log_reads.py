"""The log is read while the node serves: by one thread, for whoever is on the loop.

`LogReads` is what those use. It gives a frame from the tail, where the newest are in memory, and
else asks the thread: for history, for a feed that has to catch up, for a follower. The same thread
reads older segments through in the background (log_checks.py).

What is damaged is logged once, whoever met it, and told to whoever needed that frame. It ends
nothing: the state holds what those frames did, and the rest of the log is read all the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import structlog

from actors.commits import Committer
from actors.log_pins import Pin, Pins
from actors.runtime import Runtime, Supervised, ThreadActor, ask, handles
from protocol import limits
from protocol.errors import LogPruned, Refusal
from protocol.requests import Request
from protocol.values import Value
from storage.faults import LogDamaged
from storage.frames import FRAME_HEADER_BYTES, Frame
from storage.histories import Standing
from storage.history import Searched, Trail, follow, search
from storage.log_reading import LogReader
from storage.segments import pruned

log = structlog.get_logger("node")


@dataclass(slots=True)
class LogChecks:
    """What is known of the log's older segments. Written by one thread, read by any."""

    checked: int = 0
    """The sequence that this round of checks has come to."""
    rounds: int = 0
    """Rounds that have come to their end."""
    damage: dict[tuple[str, int], LogDamaged] = field(default_factory=dict)
    """By file and offset."""

    def found(self, begins: int) -> list[LogDamaged]:
        """The damage in what the log still holds.

        :param begins: the first sequence that it does
        """
        return [one for one in list(self.damage.values()) if one.sequence >= begins]

    def info(self, begins: int) -> dict[str, Value]:
        """What INFO FOR NODE shows of it."""
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
    """Read frames in order: at least one, and no more once their bodies pass so many bytes."""

    after: int
    """The first wanted is the next one."""
    upto: int
    """The last wanted: one that is durable."""
    bytes_max: int


@dataclass(frozen=True, slots=True)
class ReadStored(Request[list[tuple[Frame, bytes]]]):
    """As `ReadFrames`, each frame with its digest."""

    after: int
    upto: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class ReadFrame(Request[Frame]):
    """Read one frame, wherever it stands."""

    sequence: int


@dataclass(frozen=True, slots=True)
class ReadStanding(Request[Standing]):
    """Find out where the history stands with a frame, or with the one before the first."""

    sequence: int


@dataclass(frozen=True, slots=True)
class FollowRecord(Request[Trail]):
    """Read some changes of a record, each the one before the last."""

    key: bytes
    at: int
    """The commit that made the first."""
    count: int
    """How many at most."""


@dataclass(frozen=True, slots=True)
class SearchRecord(Request[Searched]):
    """Search a part of the log for the newest change of a record."""

    key: bytes
    below: int
    """Before this commit."""


@dataclass(frozen=True, slots=True)
class CheckSome(Request[bool]):
    """Read the next part. Answers whether the round is over."""


class LogReadActor(ThreadActor):
    """Waits for the disk while the log is read.

    :param log: read from this thread too; see `LogReader`
    :param checks: is told what is found
    """

    answers = (Refusal, LogDamaged)

    def __init__(self, runtime: Runtime, log: LogReader, checks: LogChecks) -> None:
        super().__init__(runtime)
        self._log = log
        self._checks = checks
        self._frames: Iterator[Frame] | None = None

    @handles(ReadFrames)
    def read_frames(self, asked: ReadFrames) -> list[Frame]:
        """Some frames in order. Each time anew: to find the first costs less than the message.

        :raises LogPruned: the log begins later
        :raises LogDamaged: the first is not what was written; a later one is not there
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
                raise self._told(error, asked.after + 1) from error
        return found

    @handles(ReadStored)
    def read_stored(self, asked: ReadStored) -> list[tuple[Frame, bytes]]:
        """As `read_frames`; the digests are made here, where they hold nobody up."""
        found = self.read_frames(ReadFrames(asked.after, asked.upto, asked.bytes_max))
        return [(frame, frame.digest()) for frame in found]

    @handles(ReadFrame)
    def read_frame(self, asked: ReadFrame) -> Frame:
        """One frame.

        :raises LogPruned: the log begins later
        :raises LogDamaged: it is not what was written
        """
        try:
            return self._log.frame(asked.sequence)
        except (LogPruned, LogDamaged, OSError) as error:
            raise self._told(error, asked.sequence) from error

    @handles(ReadStanding)
    def read_standing(self, asked: ReadStanding) -> Standing:
        """:raises LogPruned: the log begins later
        :raises LogDamaged: the frame is not what was written
        """
        try:
            return self._log.standing(asked.sequence)
        except (LogPruned, LogDamaged, OSError) as error:
            raise self._told(error, asked.sequence) from error

    @handles(FollowRecord)
    def follow_record(self, asked: FollowRecord) -> Trail:
        """:raises LogDamaged: the first frame is not what was written"""
        try:
            return follow(self._log, asked.key, asked.at, asked.count)
        except (LogDamaged, OSError) as error:
            raise self._told(error, asked.at) from error

    @handles(SearchRecord)
    def search_record(self, asked: SearchRecord) -> Searched:
        """:raises LogDamaged: a frame is not what was written"""
        try:
            return search(self._log, asked.key, asked.below)
        except (LogDamaged, OSError) as error:
            raise self._told(error, asked.below) from error

    def _told(self, error: LogPruned | LogDamaged | OSError, sequence: int) -> Exception:
        """What whoever asked for a frame hears."""
        if isinstance(error, LogPruned):
            return error
        damage = error if isinstance(error, LogDamaged) else _unreadable(error, sequence)
        self._note(damage)
        return damage

    @handles(CheckSome)
    def check_some(self, _message: CheckSome) -> bool:
        """Read the next part."""
        if self._frames is None:
            self._go_on(self._log.first)
        try:
            return self._read_some()
        except LogPruned:
            self._go_on(self._log.first)
        except LogDamaged as damage:
            self._note(damage)
            self._go_on(self._log.segment_after(damage.sequence))
        except OSError as error:
            at = self._checks.checked + 1
            self._note(_unreadable(error, at))
            self._go_on(self._log.segment_after(at))
        return False

    def on_stop(self) -> None:
        """Close the segment that was being read."""
        self._frames = None

    def _go_on(self, sequence: int) -> None:
        """Go on from a sequence, up to the last segment: that one was read at the start, and what
        has been written since is in memory."""
        upto = self._log.newest - 1
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
    """The disk can't read what it was given: damage by another name."""
    return LogDamaged(error.filename or "log", 0, sequence, f"it can't be read: {error}")


class LogReads:
    """Frames of the log, for those on the loop. See the head of the file.

    :param committer: has the tail
    :param log: asked for what it has in memory alone
    :param reader: the place of the actor that reads it
    :param pins: what of it must stay
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
        """The first sequence that the log holds."""
        return self._log.first

    async def frames(self, after: int, upto: int, bytes_max: int) -> list[Frame]:
        """The frames that follow a sequence, up to another one: at least one, unless there is none
        between them, and no more once their bodies pass so many bytes.

        :param upto: released, where somebody is to be shown them; durable in any case
        :raises LogPruned: the log begins later
        :raises LogDamaged: the first of them is not what was written
        :raises Busy: too many wait for the log to be read
        """
        assert upto <= self._committer.durable_upto, "a frame that may be taken back"
        if after >= upto:
            return []
        tail = self._committer.tail
        if after + 1 >= tail.first:
            return tail.after(after, upto, bytes_max)
        return await ask(self._reader.ref, ReadFrames(after, upto, bytes_max))

    async def stored(self, after: int, upto: int, bytes_max: int) -> list[tuple[Frame, bytes]]:
        """As `frames`, with their digests, and from the disk: whether they are released or may
        have to give way.

        :param upto: in the log
        :raises LogPruned: the log begins later
        :raises LogDamaged: the first of them is not what was written
        :raises Busy: too many wait for the log to be read
        """
        return await ask(self._reader.ref, ReadStored(after, upto, bytes_max))

    async def frame(self, sequence: int) -> Frame:
        """One frame.

        :param sequence: as `upto` of `frames`
        :raises LogPruned: the log begins later
        :raises LogDamaged: it is not what was written
        :raises Busy: too many wait for the log to be read
        """
        assert 1 <= sequence <= self._committer.durable_upto, "a frame that may be taken back"
        tail = self._committer.tail
        if sequence >= tail.first:
            return tail.after(sequence - 1, sequence, 0)[0]
        if sequence < self.begins:
            raise pruned(sequence, self.begins)
        return await ask(self._reader.ref, ReadFrame(sequence))

    async def standing(self, sequence: int) -> Standing:
        """Where the history stands with a frame, or with the one before the first that there is.

        :param sequence: as `upto` of `frames`
        :raises LogPruned: the log begins later
        :raises LogDamaged: the frame is not what was written
        :raises Busy: too many wait for the log to be read
        """
        assert sequence <= self._committer.durable_upto, "a frame that may be taken back"
        tail = self._committer.tail
        if sequence >= tail.first:
            frame = tail.after(sequence - 1, sequence, 0)[0]
            return Standing(sequence, frame.epoch, frame.time, frame.digest())
        return await ask(self._reader.ref, ReadStanding(sequence))

    def bytes_from(self, sequence: int) -> int:
        """What the log takes from a sequence on, at most."""
        return self._log.bytes_from(sequence)

    async def epoch_at(self, sequence: int) -> int | None:
        """The epoch of a frame, or of the one before the first that the log holds; None: the log
        does not know it, since it begins later or has not released so much yet.

        :raises LogDamaged: the frame had to be read, and is not what was written
        :raises Busy: too many wait for the log to be read
        """
        if not self.begins - 1 <= sequence <= self._committer.released_upto:
            return None
        epoch = self._log.known_epoch(sequence)
        if epoch is not None or sequence < self.begins:
            return epoch
        try:
            return (await self.frame(sequence)).epoch
        except LogPruned:
            return None

    async def changes(self, key: bytes, at: int, count: int) -> Trail:
        """Changes of a record from a commit on downwards; see `storage.history.follow`.

        :param at: as `upto` of `frames`
        :raises LogDamaged: the first frame is not what was written
        :raises Busy: too many wait for the log to be read
        """
        assert at <= self._committer.durable_upto, "a frame that may be taken back"
        return await ask(self._reader.ref, FollowRecord(key, at, count))

    async def search(self, key: bytes, below: int) -> Searched:
        """The newest change of a record in a part of the log; see `storage.history.search`.

        :param below: at most behind what `upto` of `frames` may be
        :raises LogDamaged: a frame is not what was written
        :raises Busy: too many wait for the log to be read
        """
        assert below <= self._committer.durable_upto + 1, "a frame that may be taken back"
        return await ask(self._reader.ref, SearchRecord(key, below))

    def pin(self, sequence: int) -> Pin:
        """Keep the log from a sequence on from being pruned, for as long as a pin lasts. What
        pins it releases it: `with`.

        :raises LogPruned: the log begins later already
        """
        return self._pins.pin(sequence)
