"""The log's thread: takes every commit that waits, writes and syncs them once, and says so.

Invariants:

- `Durable(n)` is said only after the sync that covers n has returned.
- After the first failed sync nothing is appended, marked or pruned any more.
- What is durable has to fit into the state. So a batch is refused, as on a full disk, unless the
  disk has room for it and for all that the state has yet to flush: RocksDB that once met a full
  disk takes nothing more until it is opened again.
- On a full disk old log goes first, however much of it was to be kept or is pinned, down to what
  the state has flushed; only then is a batch refused. What stands first in it and only takes
  something away is written with the reserve even then.
- After a full disk refused a batch, every commit handed over before the commits actor heard of it
  is dropped too: those commits were made on top of the refused ones. `generation` tells them from
  what comes later and takes their sequences again.
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
from protocol.doors import Room
from protocol.errors import DiskFull, Refusal, UnknownOutcome
from protocol.requests import Request
from storage.effects import only_removes
from storage.epochs import Reign
from storage.frames import Frame
from storage.log import Log
from storage.retention import Keep

log = structlog.get_logger("node")

T = TypeVar("T")

SPARE_BYTES: Final = 1024 * 1024
SPARE_FILES: Final = 8
"""Beside what the state has to flush: for the small files that RocksDB and the log write, for its
tables, and for what a file system takes to name them, which is some 100 KiB a file where it copies
what it changes and a quota counts that."""


def has_room(log: Log, unflushed_bytes: Callable[[], int], count: int) -> bool:
    """Whether the disk seems to have room for a commit of so many bytes, in log and state. From any
    thread; the log has the last word."""
    return log.may_take(Room(unflushed_bytes() + 2 * count + SPARE_BYTES, SPARE_FILES))


@dataclass(frozen=True, slots=True)
class Append:
    """Write a batch of commits."""

    frames: list[Frame]
    generation: int
    released: int
    """The highest sequence that anybody had been shown when the batch was handed over."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Note in the log that all before is durable: the log has fallen idle."""

    released: int


@dataclass(frozen=True, slots=True)
class Ends:
    """The node stops, and is in a cluster: no more was released than this, whatever is durable."""

    released: int


@dataclass(frozen=True, slots=True)
class FindEnd(Request[Reign]):
    """Find out where the log ends, behind all that was said before."""


@dataclass(frozen=True, slots=True)
class Cut(Request[Reign]):
    """End the log with a frame; see `Log.cut`. Answers where it ends now."""

    after: int


@dataclass(frozen=True, slots=True)
class Prune(Request[int]):
    """Drop whole segments that need not be kept. Answers where the log begins."""

    flushed: int
    """What the state has flushed: nothing behind it goes."""
    keep: Keep | None
    """None: all of it."""
    now_us: int
    """Log time."""


@dataclass(frozen=True, slots=True)
class GiveWay(Request[int]):
    """The disk is full: drop all that the state has flushed. Answers how many frames went."""


@dataclass(frozen=True, slots=True)
class Durable:
    """Said to the commits actor: all up to a sequence is on the disk."""

    upto: int
    written_bytes: int
    digests: list[bytes]
    """Of the frames of this batch, which end with `upto`."""
    epoch: int
    """Of the last of them."""
    generation: int
    """That they were handed over in."""
    reserved: bool = False
    """Whether they were written with the reserve, on a full disk."""


@dataclass(frozen=True, slots=True)
class LogFull:
    """Said to the commits actor: the disk is full, this generation's commits are not taken."""

    generation: int
    refusal: DiskFull | UnknownOutcome
    """The latter: some of them may be in it, and could not be taken back."""


@dataclass(slots=True)
class LogFigures:
    """What is counted of the log since the start. Written by one thread each, read by any."""

    given_way: int = 0
    """Frames dropped before their time, because the disk was full."""


class LogActor(ThreadActor):
    """Owns the log.

    :param log: open and recovered; the actor closes it
    :param commits: hears `Durable` and `LogFull`
    :param unflushed_bytes: what a flush of the state would write; None: it needs no disk
    :param flushed: what the state has flushed, of which a full disk may take the log; None: it
        takes nothing
    :param figures: what is counted
    :param holds: whether the state keeps so many bytes more in memory until it is flushed
    :param pins: what of it has to stay, but on a full disk; None: nobody's
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
        self._pins = Pins(runtime.clock, log.first) if pins is None else pins
        self._last_batch_bytes = 0
        self._refused = 0
        """The newest generation that a full disk has refused something of."""
        self._generation = 0
        """Of what is being written."""
        self._released: int | None = None
        """What was released when the node stopped; None: all that is durable."""
        self._broken = False

    def on_batch(self, batch: list[Envelope[Any]]) -> None:
        """One write and one sync for all appends that stand together."""
        began_us = self.runtime.clock.monotonic_us()
        frames: list[Frame] = []
        released = 0
        for envelope in batch:
            message = envelope.message
            if type(message) is Append:
                if message.generation > self._refused:
                    frames += message.frames
                    released, self._generation = message.released, message.generation
                continue
            if frames:
                self._append(frames, released)
                frames = []
            if type(message) is Mark:
                self._mark(message.released)
            elif type(message) is Prune:
                self._prune(envelope, message)
            elif type(message) is GiveWay:
                self.reply(envelope, self._give_way())
            elif type(message) is FindEnd:
                self.reply(envelope, self._log.present)
            elif type(message) is Cut:
                self._cut(envelope, message.after)
            elif type(message) is Ends:
                self._released = message.released
            else:
                raise self._unknown(message)
        if frames:
            self._append(frames, released)
        if self.runtime.urgent is not None:
            self.runtime.urgent.finished(self.runtime.clock.monotonic_us() - began_us)

    def on_stop(self) -> None:
        """Close the log and say in it that it was closed in order."""
        self._log.close(not self._broken, self._released)

    def _mark(self, released: int) -> None:
        try:
            self._guarded(partial(self._log.mark, released=released))
        except DiskFull:
            return  # what the mark would have proved, the next frame proves

    def _prune(self, envelope: Envelope[Any], asked: Prune) -> None:
        try:
            settle = self._pins.settle
            retire = partial(self._log.retire, asked.flushed, asked.keep, asked.now_us, settle)
            self._guarded(retire)
        except DiskFull as refusal:
            self._pins.gone(self._log.first)
            self.refuse(envelope, refusal)
        else:
            self._pins.gone(self._log.first)
            self.reply(envelope, self._log.first)

    def _cut(self, envelope: Envelope[Any], after: int) -> None:
        before = self._log.last
        try:
            self._guarded(partial(self._log.cut, after))
        except Refusal as refusal:
            self.refuse(envelope, refusal)
            return
        if before > after:
            log.warning("frames that were not released gave way", after=after, last=before)
        self.reply(envelope, self._log.present)

    def _give_way(self) -> int:
        """Drop old log for room. Answers how many frames went."""
        if self._flushed is None:
            return 0
        try:
            gone = self._guarded(partial(self._log.give_way, self._flushed()))
        except DiskFull:
            return 0  # not even room to say where the log begins
        self._pins.gone(self._log.first)
        if gone:
            self._figures.given_way += gone
            log.warning(
                "the disk is full: old log was dropped", frames=gone, begins=self._log.first
            )
        return gone

    def _spare(self, batch_bytes: int) -> Room | None:
        """What must be free before a batch is written: room for it in the log, and in the state
        for it, for the one before that may not be there yet, and for what is not flushed."""
        if self._unflushed_bytes is None:
            return None
        pending, self._last_batch_bytes = self._last_batch_bytes, batch_bytes
        needed = self._unflushed_bytes() + pending + 2 * batch_bytes + SPARE_BYTES
        return Room(needed, SPARE_FILES)

    def _append(self, frames: list[Frame], released: int) -> None:
        """Write a batch; on a full disk once more when old log has given way, and then, with the
        reserve, what only takes something away, up to the first frame that does not. What is not
        written the commits actor hears of."""
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
        # All of this batch is of one generation: a later one begins only after the commits actor
        # has heard what is said here, or has asked for the log's end.
        self._refused = self._generation
        self.runtime.cross(tell_now, self._commits, LogFull(self._refused, refused))

    def _refusal_of(
        self,
        frames: list[Frame],
        released: int,
        before: DiskFull | UnknownOutcome | None = None,
        reserved: bool = False,
    ) -> DiskFull | UnknownOutcome | None:
        """Write a batch, or the beginning of it. Answers what refuses it.

        :param before: what has refused it. Where nothing could be taken back of it then, that is so
            until something is written behind it, whatever a full disk says now
        :param reserved: whether it may take the reserve
        """
        try:
            self._write(frames, released, reserved)
        except UnknownOutcome as unknown:
            return unknown
        except DiskFull as full:
            return before or full
        return None

    def _write(self, frames: list[Frame], released: int, reserved: bool = False) -> None:
        """Make frames durable, and say so. :raises DiskFull: none of them is in the log"""
        written = sum(len(frame.body) for frame in frames)
        spare = self._spare(written)
        if reserved and self._holds is not None and self._holds(2 * written):
            spare = None  # the state waits with it for a disk that has room for its flush
        append = partial(
            self._log.append, frames, released=released, reserved=reserved, spare=spare
        )
        digests = self._guarded(append)
        last = frames[-1]
        durable = Durable(last.sequence, written, digests, last.epoch, self._generation, reserved)
        self.runtime.cross(tell_now, self._commits, durable)

    def _guarded(self, work: Callable[[], T]) -> T:
        """Whatever the log raises but a refusal, which leaves it as it was, ends it: its descriptor
        is not used again."""
        try:
            with self._log.headroom.turn():
                return work()
        except Refusal:
            raise
        except BaseException:
            self._broken = True
            self._log.close(clean=False)
            raise
