"""Record history, read backwards from the log.

Each change of a record names the commit that changed it before. This chain leads from any change
back to the creation, at one frame per step, whatever the length of the log. No chain leads to the
deletion of a record, or to versions before a deletion and re-creation. These are found by a search,
frame by frame.

Both work in bounded parts, because the log thread also serves other readers.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from protocol import limits
from protocol.errors import LogPruned
from storage.formats import effects
from storage.formats.frames import Frame
from storage.log.reader import LogReader

PART_BYTES: Final = limits.MIB
"""Limits of one part, some milliseconds of work: bytes of bodies read, …"""
PART_CHANGES: Final = 64
"""… changes followed, …"""
PART_FRAMES: Final = 1_024
"""… frames searched."""
STRIDE: Final = 16
"""Frames in the first step of a backward search; each step reads forwards. Steps grow while frames
are short."""


class HistoryEntry(NamedTuple):
    """Change of a record by one commit."""

    sequence: int
    time: int
    """Log time, microseconds since 1970."""
    by: str
    reason: str | None
    fields: bytes | None
    """Packed fields after the commit; None: it deleted the record."""
    previous: int
    """Sequence of the commit that changed it before; 0: this one created the record."""


class HistoryPart(NamedTuple):
    """Consecutive changes of a record, newest first."""

    changes: list[HistoryEntry]
    goes_on: int
    """Sequence of the next older change; 0: the last one listed created the record."""
    read: int
    """Bytes read from the log."""


class SearchResult(NamedTuple):
    """Result of searching a part of the log for a record."""

    found: int
    """Sequence of the newest change found; 0: none."""
    reached: int
    """Sequence down to which the log was searched; no newer commit but `found` changed it."""
    frames: int
    """Number of frames read."""
    read: int
    """Bytes of their bodies."""


def change_in(frame: Frame, key: bytes) -> HistoryEntry | None:
    """Return the change that a commit made to a record; None: it made none.

    :raises EffectsDamaged: the body is not a valid commit
    """
    body = frame.body
    # Before the decoding: most frames lack the key, and a search in bytes is far cheaper.
    if not _holds(body, key):
        return None
    who, each = effects.read(body, _nothing)
    for effect in each:
        # The bytes of the key may also be in a value, or be the bound of a range.
        if effect[1] != key:
            continue
        if effect[0] == effects.PUT_RECORD:
            return HistoryEntry(
                frame.sequence, frame.time, who.by, who.reason, effect[2], effect[3]
            )
        if effect[0] == effects.DELETE_RECORD:
            return HistoryEntry(frame.sequence, frame.time, who.by, who.reason, None, effect[2])
    return None


def follow(log: LogReader, key: bytes, at: int, count: int) -> HistoryPart:
    """Follow the chain of a record's changes backwards from a commit. Returns at least one change
    if the log still holds that commit and it changed the record.

    :param at: sequence to start from, at most the newest in the log
    :param count: maximum number of changes
    :raises LogDamaged: the first frame is corrupt
    """
    found, read = list[HistoryEntry](), 0
    # Bytes are checked before a read, so one change is read whatever its size.
    while at and len(found) < min(count, PART_CHANGES) and read < PART_BYTES:
        try:
            frame = log.frame(at)
        # `goes_on` keeps the sequence, and shows the caller that the log begins later.
        except LogPruned:
            break
        read += len(frame.body)
        change = change_in(frame, key)
        if change is None:
            # Only the start may change another record: callers also try a likely commit.
            assert not found, "what a record's change names as the one before is one"
            return HistoryPart(found, 0, read)
        found.append(change)
        at = change.previous
    return HistoryPart(found, at, read)


def search(log: LogReader, key: bytes, below: int) -> SearchResult:
    """Search a part of the log backwards for the newest change of a record before a commit. Every
    frame on the way is read and verified, so damage is not skipped.

    :param below: exclusive upper bound, at most the newest sequence plus one
    :raises LogDamaged: a frame is corrupt
    """
    # The log is read forwards only, so a search backwards goes in strides.
    frames, read, stride = 0, 0, STRIDE
    while below > log.first and frames < PART_FRAMES and read < PART_BYTES:
        start, before = max(log.first, below - stride), read
        holding = list[int]()
        try:
            for frame in log.read(start, below - 1):
                read += len(frame.body)
                if _holds(frame.body, key):
                    holding.append(frame.sequence)
            # Newest first. Frames are read again, as their bodies together may take much memory.
            for sequence in reversed(holding):
                if change_in(log.frame(sequence), key) is not None:
                    return SearchResult(sequence, sequence, frames + below - sequence, read)
        except LogPruned:
            break
        frames += below - start
        below = start
        stride = min(2 * stride, PART_FRAMES) if read - before < PART_BYTES // 4 else stride
    return SearchResult(0, max(below, log.first), frames, read)


def _holds(body: bytes, key: bytes) -> bool:
    """Return True if a key occurs anywhere in a body. Searches in steps, because one search of
    megabytes would block every other thread."""
    if len(body) <= PART_BYTES:
        return key in body
    # Each piece goes on into the next one, so that no key is cut in two.
    overlap = len(key) - 1
    return any(
        body.find(key, at, at + PART_BYTES + overlap) >= 0 for at in range(0, len(body), PART_BYTES)
    )


def _nothing() -> None:
    """Do nothing: the log thread needs no `tick`, as other threads run between the steps."""
