"""Log backups: the frames of a log from a sequence on, as they were committed.

The stream of a log backup is frames as `frames.py` draws them, one behind the other, their checks
keyed with the first bytes of the file's salt. So each frame of a file that is cut or damaged proves
itself, also within a chunk that is not whole, unless the file is sealed: then chunks do.

A frame keeps its digest through a backup, and with it its place in a history.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Final

from protocol.doors import File, Rng
from protocol.errors import BackupCorrupt, BackupCut
from storage.backups.container import Reader, Sink, Writer
from storage.backups.facts import LogFacts, Written
from storage.backups.forms import Form
from storage.frames import LOG_FLAGS, SALT_BYTES, Frame, FrameCodec, Walk
from storage.histories import LATEST_US, MOST, Standing
from storage.log_reading import LogReader
from storage.sealing import Key

SLICE_BYTES: Final = 1 << 18
"""Bodies of frames that are written in one slice, about."""
SLICE_FRAMES: Final = 256
_ENDLESS: Final = 1 << 62


def before(log: LogReader, first: int) -> Standing:
    """The frame before the first one of a backup. May read a frame: for a thread.

    :param first: at most one more than the log's last
    :raises LogPruned: the log begins later
    :raises LogDamaged: it can't be read
    """
    return log.standing(first - 1)


class LogCopy:
    """A log backup on its way into a file. Fit for a thread of its own.

    :param sink: takes the bytes of the file
    :param key: what it is sealed with; None: it is not
    """

    def __init__(self, facts: LogFacts, sink: Sink, rng: Rng, key: Key | None = None) -> None:
        self._facts = facts
        self._writer = Writer(facts, sink, rng, key)
        self._codec = FrameCodec(self._writer.salt[:SALT_BYTES])
        self._last = facts.before.sequence

    def add(self, frames: Sequence[Frame]) -> None:
        """The next frames."""
        for frame in frames:
            assert frame.sequence == self._last + 1, "a gap in the sequences"
            self._writer.add(self._codec.encode(frame, self._last, self._last))
            self._last += 1

    def end(self) -> Written:
        """All of them were added."""
        facts = self._facts
        assert self._last == facts.last, "the log ends elsewhere than it was said to"
        count = facts.last - facts.before.sequence
        digest = self._writer.end(count, count, facts.last)
        return Written(Form.LOG, count, facts.last, self._writer.size, digest, facts.version)


def write(
    frames: Iterable[Frame], facts: LogFacts, sink: Sink, rng: Rng, key: Key | None = None
) -> Generator[None, None, Written]:
    """Write a log backup, giving control back between slices.

    :param frames: `facts.first` to `facts.last`
    :raises LogDamaged, LogPruned: as reading them does
    """
    copy = LogCopy(facts, sink, rng, key)
    some: list[Frame] = []
    size = 0
    for frame in frames:
        some.append(frame)
        size += len(frame.body)
        if size >= SLICE_BYTES or len(some) >= SLICE_FRAMES:
            copy.add(some)
            some, size = [], 0
            yield
    copy.add(some)
    return copy.end()


class LogBackup:
    """A log backup that is read.

    :param file: stays the caller's to close
    :raises BackupCut, BackupCorrupt, WrongKey, StoreTooNew: as `container.Reader`
    """

    def __init__(self, file: File, key: Key | None = None) -> None:
        self._reader = Reader(file, key)
        self.facts = self._reader.facts(LogFacts)
        self.sealed = self._reader.header.sealed
        self.last = self.facts.before.sequence
        """Sequence of the last frame that was read."""
        self.time = self.facts.before.time
        """Its log time, microseconds since 1970."""

    @property
    def offset(self) -> int:
        """How many bytes of the file have been read."""
        return self._reader.offset

    @property
    def sha256(self) -> bytes:
        """Of what was read so far."""
        return self._reader.sha256

    def frames(self) -> Iterator[Frame]:
        """The frames, each proved.

        :raises BackupCut: after the last one that is whole, the file ends early
        :raises BackupCorrupt: at the one that is not what was written
        """
        stream = _Stream(self._reader)
        walk = Walk(stream, FrameCodec(self._reader.header.salt[:SALT_BYTES]), 0, _ENDLESS)
        epoch = self.facts.before.epoch
        for frame, _, _, _ in walk:
            if frame.sequence != self.last + 1:
                raise self._corrupt(f"a frame of sequence {frame.sequence} stands in its place")
            if frame.epoch < epoch or frame.time < self.time or frame.flags & LOG_FLAGS:
                raise self._corrupt("the frame does not follow the one before it")
            if frame.epoch > MOST or frame.time > LATEST_US:
                raise self._corrupt("the frame is of no time")
            self.last, self.time, epoch = frame.sequence, frame.time, frame.epoch
            yield frame
        if stream.problem is not None:
            raise stream.problem.also(sequence=self.last + 1)
        if walk.offset != stream.length:
            raise self._corrupt(walk.bad or "the frames end early")
        end = self._reader.end
        assert end is not None, "a stream ends with the file's end or with a problem"
        count = self.last - self.facts.before.sequence
        if (end.items, end.sequence) != (count, self.last) or self.last != self.facts.last:
            raise self._corrupt("the frames end early")

    def _corrupt(self, what: str) -> BackupCorrupt:
        at = self._reader.offset
        return BackupCorrupt(
            f"it is damaged at sequence {self.last + 1}, before byte {at}: {what}",
            offset=at,
            sequence=self.last + 1,
        )


class _Stream:
    """The stream of a container as a file that is read forwards (`protocol.doors.File`)."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._chunks = reader.chunks()
        self._held = b""
        self._start = 0
        self._ended = False
        self.problem: BackupCut | BackupCorrupt | None = None
        """Why the stream ended before its end."""

    @property
    def length(self) -> int:
        """Where the stream ended, once it has."""
        return self._start + len(self._held)

    def read(self, offset: int, count: int) -> bytes:
        """As a file's. What is before `offset` is not read again."""
        parts, have = [self._held[offset - self._start :]], self.length - offset
        while have < count and not self._ended:
            part = self._next()
            parts.append(part)
            have += len(part)
        self._held, self._start = b"".join(parts), offset
        return self._held[:count]

    def _next(self) -> bytes:
        try:
            return next(self._chunks)
        except StopIteration:
            self._ended = True
            return b""
        except (BackupCut, BackupCorrupt) as problem:
            self._ended, self.problem = True, problem
            return self._reader.unproven()
