"""Log backups: the frames of a log from one sequence on, as committed.

The stream of a log backup is a concatenation of frames (format: `frames.py`), with checks keyed
with the first bytes of the file's salt. So each frame of a cut or damaged file can be verified on
its own, also within an incomplete chunk. In a sealed file only whole chunks can be verified.

A frame keeps its digest in a backup, and so its position in a history.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Final

from protocol.environment import File, Rng
from protocol.errors import BackupCorrupt, BackupCut
from storage.formats.container import (
    BackupFileForm,
    ContainerReader,
    ContainerWriter,
    LogFacts,
    Sink,
    WrittenBackup,
)
from storage.formats.frames import LOG_FLAGS, SALT_BYTES, Frame, FrameCodec, FrameWalker
from storage.formats.positions import LATEST_US, MOST, LogPosition
from storage.formats.sealing import Key
from storage.log.reader import LogReader

SLICE_BYTES: Final = 1 << 18
"""Approximate bytes of frame bodies written in one slice."""
SLICE_FRAMES: Final = 256
_ENDLESS: Final = 1 << 62


def before(log: LogReader, first: int) -> LogPosition:
    """Return the position of the frame before a backup's first.

    May read a frame: call it in a thread.

    :param first: at most one more than the log's last sequence
    :raises LogPruned: the log begins later
    :raises LogDamaged: the log is unreadable there
    """
    # A restore on top compares this digest with the frame at which its store ends.
    return log.position_at(first - 1)


class LogBackupWriter:
    """Writer of a log backup. Safe to run in a thread of its own.

    :param sink: takes the bytes of the file
    :param key: key that seals the file; None: in clear
    """

    def __init__(self, facts: LogFacts, sink: Sink, rng: Rng, key: Key | None = None) -> None:
        self._facts = facts
        self._writer = ContainerWriter(facts, sink, rng, key)
        # Checks of its own salt: a frame copied from another backup or segment fails them.
        self._codec = FrameCodec(self._writer.salt[:SALT_BYTES])
        self._last = facts.before.sequence

    def add(self, frames: Sequence[Frame]) -> None:
        """Append the next frames, without a gap in their sequences."""
        for frame in frames:
            assert frame.sequence == self._last + 1, "a gap in the sequences"
            # Durable and released fields name the frame before, as in a log that syncs each frame.
            self._writer.add(self._codec.encode(frame, self._last, self._last))
            self._last += 1

    def end(self) -> WrittenBackup:
        """Finish the file after the last frame."""
        facts = self._facts
        assert self._last == facts.last, "the log ends elsewhere than it was said to"
        count = facts.last - facts.before.sequence
        digest = self._writer.end(count, count, facts.last)
        return WrittenBackup(
            BackupFileForm.LOG, count, facts.last, self._writer.size, digest, facts.version
        )


def write(
    frames: Iterable[Frame], facts: LogFacts, sink: Sink, rng: Rng, key: Key | None = None
) -> Generator[None, None, WrittenBackup]:
    """Write a log backup. Yields between slices.

    :param frames: `facts.first` to `facts.last`
    :raises LogDamaged, LogPruned: reading the frames fails
    """
    copy = LogBackupWriter(facts, sink, rng, key)
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
    """Reader of a log backup.

    :param file: closed by the caller
    :raises BackupCut, BackupCorrupt, WrongKey, StoreTooNew: as `container.Reader`
    """

    def __init__(self, file: File, key: Key | None = None) -> None:
        self._reader = ContainerReader(file, key)
        self.facts = self._reader.facts(LogFacts)
        self.sealed = self._reader.header.sealed
        self.last = self.facts.before.sequence
        """Sequence of the last frame read."""
        self.time = self.facts.before.time
        """Log time of the last frame read (µs since 1970)."""

    @property
    def offset(self) -> int:
        """Bytes of the file read so far."""
        return self._reader.offset

    @property
    def sha256(self) -> bytes:
        """SHA-256 of the bytes read so far."""
        return self._reader.sha256

    def frames(self) -> Iterator[Frame]:
        """Yield the frames, each verified.

        :raises BackupCut: the file ends early; raised after the last whole frame
        :raises BackupCorrupt: a frame is not as written; raised at that frame
        """
        stream = _Stream(self._reader)
        # The length of the stream is unknown until its last chunk, hence an end that never comes.
        walk = FrameWalker(stream, FrameCodec(self._reader.header.salt[:SALT_BYTES]), 0, _ENDLESS)
        epoch = self.facts.before.epoch
        for frame, _, _, _ in walk:
            if frame.sequence != self.last + 1:
                raise self._corrupt(
                    f"expected the frame of sequence {self.last + 1}, found that of"
                    f" {frame.sequence}"
                )
            # Checksums prove bytes, not history: epochs and log time never fall in a log.
            if frame.epoch < epoch or frame.time < self.time or frame.flags & LOG_FLAGS:
                raise self._corrupt(
                    "the epoch or time of the frame is lower than that of the frame before it"
                )
            if frame.epoch > MOST or frame.time > LATEST_US:
                raise self._corrupt("the epoch or time of the frame is out of range")
            self.last, self.time, epoch = frame.sequence, frame.time, frame.epoch
            yield frame
        # The cause before its effect: a broken chunk also leaves the last frame incomplete.
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
    """Forward-only file (`protocol.environment.File`) over the stream of a container."""

    def __init__(self, reader: ContainerReader) -> None:
        self._reader = reader
        self._chunks = reader.chunks()
        self._held = b""
        self._start = 0
        self._ended = False
        self.problem: BackupCut | BackupCorrupt | None = None
        """Error that ended the stream early; None: no error."""

    @property
    def length(self) -> int:
        """Stream length in bytes; final once the stream has ended."""
        return self._start + len(self._held)

    def read(self, offset: int, count: int) -> bytes:
        """Read as from a file. Data before `offset` is discarded."""
        # The walker reads forwards only, so memory holds one window, not the file.
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
            # Frames carry checksums of their own, so whole frames of a broken chunk still count.
            self._ended, self.problem = True, problem
            return self._reader.unproven()
