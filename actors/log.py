"""Log actor: the thread that writes and syncs the write-ahead log, one group of commits at a time.

Invariants:

- `FramesSynced` is sent only after the fsync that covers its frames has returned.
- After the first failed fsync the log is never appended to, marked or pruned again.
- Durable commits have to fit into the state: RocksDB that once met a full disk refuses all writes
  until it is opened again. So the disk must have room for a batch and for all that the state has
  yet to flush. Otherwise the batch is refused, as on a full disk.
- On a full disk old log is dropped first, up to the state's flushed sequence, in spite of retention
  and pins. Only then is a batch refused. Even then its leading commits that only remove data are
  written with the reserve.
- After a full disk refused a batch, all commits submitted before the commits actor was notified are
  dropped too, since they build on the refused ones. `generation` tells them from later commits,
  which get the same sequences.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any, Final, TypeVar

import structlog
from pykka import ActorRef
from pykka._envelope import Envelope

from actors.log_pins import Pins
from actors.runtime import Runtime, ThreadActor, tell_now
from protocol.environment import Room
from protocol.errors import DiskFull, Refusal, UnknownOutcome
from protocol.requests import Request
from storage.formats.effects import only_removes
from storage.formats.frames import Frame
from storage.formats.positions import EpochEnd
from storage.log.log import Log
from storage.log.retention import LogRetention

log = structlog.get_logger("node")

T = TypeVar("T")

SPARE_BYTES: Final = 1024 * 1024
SPARE_FILES: Final = 8
"""Free space, beside the state's unflushed bytes, that must remain.

It covers the small files that RocksDB and the log write, RocksDB's tables, and the file system's
metadata. The latter takes some 100 KiB a file on a copy-on-write file system whose quota counts it.
"""


def has_room(log: Log, unflushed_bytes: Callable[[], int], count: int) -> bool:
    """Return True if the disk seems to have room, in log and state, for a commit of `count` bytes.

    Callable from any thread. This is an estimate; the append itself decides.
    """
    return log.tail.may_take(Room(unflushed_bytes() + 2 * count + SPARE_BYTES, SPARE_FILES))


@dataclass(frozen=True, slots=True)
class AppendFrames:
    """Write a batch of commits."""

    frames: list[Frame]
    generation: int
    released: int
    """Commit index when the batch was submitted: the highest sequence shown to any client."""


@dataclass(frozen=True, slots=True)
class WriteMark:
    """Write a mark: all frames before it are durable. Sent when the log falls idle."""

    released: int


@dataclass(frozen=True, slots=True)
class NoteCommitIndex:
    """Note the commit index at which a node of a cluster stops; later frames may be durable but
    unreleased."""

    released: int


@dataclass(frozen=True, slots=True)
class FindEnd(Request[EpochEnd]):
    """Return the end of the log, after all messages sent before."""


@dataclass(frozen=True, slots=True)
class TruncateLog(Request[EpochEnd]):
    """Truncate the log after a frame; see `Log.cut`. Replies with the new end."""

    after: int


@dataclass(frozen=True, slots=True)
class Prune(Request[int]):
    """Drop whole segments beyond retention. Replies with the first sequence of the log."""

    flushed: int
    """Flushed sequence of the state: no later frame is dropped."""
    keep: LogRetention | None
    """Retention rule; None: all of the log is kept."""
    now_us: int
    """Current log time."""


@dataclass(frozen=True, slots=True)
class DropFlushedLog(Request[int]):
    """Drop all log up to the state's flushed sequence, on a full disk. Replies with the number of
    frames dropped."""


@dataclass(frozen=True, slots=True)
class FramesSynced:
    """Message to the commits actor: all frames up to a sequence are synced."""

    upto: int
    written_bytes: int
    digests: list[bytes]
    """Digests of the frames of this batch, the last of which is `upto`."""
    epoch: int
    """Leader epoch of the last frame."""
    generation: int
    """Generation in which the batch was submitted."""
    reserved: bool = False
    """True if the batch was written with the reserve, on a full disk."""


@dataclass(frozen=True, slots=True)
class LogFull:
    """Message to the commits actor: the disk is full and the commits of this generation are
    dropped."""

    generation: int
    refusal: DiskFull | UnknownOutcome
    """UnknownOutcome: some of the commits may be in the log and could not be cut off again."""


@dataclass(slots=True)
class LogFigures:
    """Counters of the log since the start. One thread writes each; any thread reads."""

    given_way: int = 0
    """Frames dropped before their retention ended, because the disk was full."""


class LogActor(ThreadActor):
    """Owns the log.

    :param log: open and recovered; the actor closes it
    :param commits: receives `FramesSynced` and `LogFull`
    :param unflushed_bytes: returns the bytes that a flush of the state would write; None: the state
        needs no disk
    :param flushed: returns the flushed sequence of the state, up to which a full disk may drop log;
        None: a full disk drops nothing
    :param figures: counters to update
    :param holds: True if the state can keep so many bytes more in its memtable until it is flushed
    :param pins: parts of the log that must stay, except on a full disk; None: there are none
    """

    def __init__(
        self,
        runtime: Runtime,
        log: Log,
        commits: ActorRef[Any],
        unflushed_bytes: Callable[[], int] | None = None,
        flushed: Callable[[], int] | None = None,
        figures: LogFigures | None = None,
        holds: Callable[[int], bool] | None = None,
        pins: Pins | None = None,
    ) -> None:
        super().__init__(runtime)
        self._log = log
        self._commits = commits
        self._unflushed_bytes = unflushed_bytes
        self._flushed = flushed
        self._figures = figures or LogFigures()
        self._holds = holds
        self._pins = Pins(runtime.clock, log.state.first) if pins is None else pins
        self._last_batch_bytes = 0
        self._refused = 0
        """Newest generation of which a full disk has refused a batch."""
        self._generation = 0
        """Generation of the batch being written."""
        self._released: int | None = None
        """Commit index when the node stopped; None: all that is durable."""
        self._broken = False

    def on_batch(self, batch: list[Envelope[Any]]) -> None:
        """Write all consecutive appends of a batch of messages with one write and one fsync."""
        began_us = self.runtime.clock.monotonic_us()
        frames: list[Frame] = []
        released = 0
        for envelope in batch:
            message = envelope.message
            if type(message) is AppendFrames:
                if message.generation > self._refused:
                    frames += message.frames
                    released, self._generation = message.released, message.generation
                continue
            if frames:
                self._append(frames, released)
                frames = []
            if type(message) is WriteMark:
                self._mark(message.released)
            elif type(message) is Prune:
                self._prune(envelope, message)
            elif type(message) is DropFlushedLog:
                self.reply(envelope, self._give_way())
            elif type(message) is FindEnd:
                self.reply(envelope, self._log.state.present)
            elif type(message) is TruncateLog:
                self._cut(envelope, message.after)
            elif type(message) is NoteCommitIndex:
                self._released = message.released
            else:
                raise self._unknown(message)
        if frames:
            self._append(frames, released)
        # Tells the loop that the batch is done; how long it took tunes the loop's GIL yields.
        if self.runtime.urgent is not None:
            self.runtime.urgent.finished(self.runtime.clock.monotonic_us() - began_us)

    def on_stop(self) -> None:
        """Close the log, with a mark of a clean shutdown."""
        self._log.close(not self._broken, self._released)

    def _mark(self, released: int) -> None:
        try:
            self._guarded(partial(self._log.mark, released=released))
        except DiskFull:
            return  # the next frame proves the same as the mark would have

    def _prune(self, envelope: Envelope[Any], asked: Prune) -> None:
        try:
            decide_prune = self._pins.decide_prune
            retire = partial(
                self._log.retire, asked.flushed, asked.keep, asked.now_us, decide_prune
            )
            self._guarded(retire)
        except DiskFull as refusal:
            self._pins.gone(self._log.state.first)
            self.refuse(envelope, refusal)
        else:
            self._pins.gone(self._log.state.first)
            self.reply(envelope, self._log.state.first)

    def _cut(self, envelope: Envelope[Any], after: int) -> None:
        before = self._log.state.last
        try:
            self._guarded(partial(self._log.cut, after))
        except Refusal as refusal:
            self.refuse(envelope, refusal)
            return
        if before > after:
            log.warning("unreleased frames were cut off", after=after, last=before)
        self.reply(envelope, self._log.state.present)

    def _give_way(self) -> int:
        """Drop old log to make room. Return the number of frames dropped."""
        if self._flushed is None:
            return 0
        try:
            gone = self._guarded(partial(self._log.give_way, self._flushed()))
        except DiskFull:
            return 0  # not even room to record the new beginning of the log
        self._pins.gone(self._log.state.first)
        if gone:
            self._figures.given_way += gone
            log.warning(
                "the disk is full: old log was dropped", frames=gone, begins=self._log.state.first
            )
        return gone

    def _spare(self, batch_bytes: int) -> Room | None:
        """Return the free space required before a batch is written.

        It is room for the batch in the log. In the state it is room for the batch, for the previous
        one, which may not be applied yet, and for all unflushed data.
        """
        if self._unflushed_bytes is None:
            return None
        pending, self._last_batch_bytes = self._last_batch_bytes, batch_bytes
        # Twice the batch: once in the log, once in the state.
        needed = self._unflushed_bytes() + pending + 2 * batch_bytes + SPARE_BYTES
        return Room(needed, SPARE_FILES)

    def _append(self, frames: list[Frame], released: int) -> None:
        """Write a batch; on a full disk make room and try again.

        First old log is dropped. Then the leading frames that only remove data are written with the
        reserve. The commits actor is notified of frames that are not written.
        """
        refused = self._refusal_of(frames, released)
        if refused is not None and self._give_way():
            refused = self._refusal_of(frames, released, refused)
        if refused is None:
            return
        removing = list(takewhile(lambda frame: only_removes(frame.body), frames))
        if removing:
            still = self._refusal_of(removing, released, refused, reserved=True)
            if still is None and len(removing) == len(frames):
                return
            refused = still or refused
        # The whole batch is of one generation: a later generation begins only after the commits
        # actor has received this `LogFull` or the log's end.
        self._refused = self._generation
        self.runtime.cross(tell_now, self._commits, LogFull(self._refused, refused))

    def _refusal_of(
        self,
        frames: list[Frame],
        released: int,
        before: DiskFull | UnknownOutcome | None = None,
        reserved: bool = False,
    ) -> DiskFull | UnknownOutcome | None:
        """Write a batch, or the beginning of it. Return its refusal, or None if it is durable.

        :param before: an earlier refusal of the batch. If its partial write could not be cut off
            then (UnknownOutcome), that holds until another write succeeds, even if the disk is full
            now
        :param reserved: True if the reserve may be used
        """
        try:
            self._write(frames, released, reserved)
        except UnknownOutcome as unknown:
            return unknown
        except DiskFull as full:
            return before or full
        return None

    def _write(self, frames: list[Frame], released: int, reserved: bool = False) -> None:
        """Make frames durable and report that. :raises DiskFull: none of them is in the log"""
        written = sum(len(frame.body) for frame in frames)
        spare = self._spare(written)
        if reserved and self._holds is not None and self._holds(2 * written):
            spare = None  # the memtable keeps it until the disk has room for a flush
        append = partial(
            self._log.append, frames, released=released, reserved=reserved, spare=spare
        )
        digests = self._guarded(append)
        last = frames[-1]
        durable = FramesSynced(
            last.sequence, written, digests, last.epoch, self._generation, reserved
        )
        self.runtime.cross(tell_now, self._commits, durable)

    def _guarded(self, work: Callable[[], T]) -> T:
        """Run an operation on the log, and close the log on any error that is not a refusal.

        A refusal leaves the log unchanged. After any other error its file descriptor is never used
        again.
        """
        try:
            with self._log.tail.headroom.turn():
                return work()
        except Refusal:
            raise
        except BaseException:
            self._broken = True
            self._log.close(clean=False)
            raise
