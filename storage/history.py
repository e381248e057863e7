"""The history of a record, read backwards from the log.

Each change of a record says which commit changed it before: a chain to follow from any change down
to the one that made the record, at the cost of one frame each, however long the log is. What no
chain leads to has to be searched for, frame by frame: the deletion of a record that is no more, and
with it all that there was before another was made in its place.

Both are done in parts, since whoever reads the log reads it for others too.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from protocol import limits
from protocol.errors import LogPruned
from storage import effects
from storage.frames import Frame
from storage.log_reading import LogReader

PART_BYTES: Final = limits.MIB
"""Read of the log in one part, of bodies …"""
PART_CHANGES: Final = 64
"""… and changes followed, …"""
PART_FRAMES: Final = 1_024
"""… or frames searched: some milliseconds."""
STRIDE: Final = 16
"""Frames searched forwards before the ones before them: as many at first, more while they are
short."""


class Change(NamedTuple):
    """What one commit did to a record."""

    sequence: int
    time: int
    """Log time, microseconds since 1970."""
    by: str
    reason: str | None
    fields: bytes | None
    """Packed, as the commit left them; None: it deleted the record."""
    previous: int
    """The commit that changed it before; 0: it made the record."""


class Trail(NamedTuple):
    """Some changes of a record in a row, newest first."""

    changes: list[Change]
    goes_on: int
    """The commit that made the next one; 0: the last of these made the record."""
    read: int
    """Bytes of the log that were read."""


class Searched(NamedTuple):
    """What a part of the log has of a record."""

    found: int
    """The newest commit of it that changed the record; 0: none."""
    reached: int
    """None from this one on did, but for that."""
    frames: int
    """How many were read …"""
    read: int
    """… and the bytes they have."""


def change_in(frame: Frame, key: bytes) -> Change | None:
    """What a commit did to the record with a key; None: nothing.

    :raises EffectsDamaged: its body is no commit
    """
    body = frame.body
    if not _holds(body, key):
        return None
    who, each = effects.read(body, _nothing)
    for effect in each:
        if effect[1] != key:
            continue
        if effect[0] == effects.PUT_RECORD:
            return Change(frame.sequence, frame.time, who.by, who.reason, effect[2], effect[3])
        if effect[0] == effects.DELETE_RECORD:
            return Change(frame.sequence, frame.time, who.by, who.reason, None, effect[2])
    return None


def follow(log: LogReader, key: bytes, at: int, count: int) -> Trail:
    """Changes of a record from a commit on downwards: some, and at least one where the log holds
    that commit and it is one.

    :param at: at most the newest commit in the log
    :raises LogDamaged: the first of the frames is not what was written
    """
    found, read = list[Change](), 0
    while at and len(found) < min(count, PART_CHANGES) and read < PART_BYTES:
        try:
            frame = log.frame(at)
        except LogPruned:
            break
        read += len(frame.body)
        change = change_in(frame, key)
        if change is None:
            assert not found, "what a record's change names as the one before is one"
            return Trail(found, 0, read)
        found.append(change)
        at = change.previous
    return Trail(found, at, read)


def search(log: LogReader, key: bytes, below: int) -> Searched:
    """Look for the newest change of a record before a commit, in a part of what is there.

    Every frame on the way is read whole, and so checked: what is damaged is not passed over.

    :param below: at most the one that follows the newest in the log
    :raises LogDamaged: a frame is not what was written
    """
    frames, read, stride = 0, 0, STRIDE
    while below > log.first and frames < PART_FRAMES and read < PART_BYTES:
        start, before = max(log.first, below - stride), read
        holding = list[int]()
        try:
            for frame in log.read(start, below - 1):
                read += len(frame.body)
                if _holds(frame.body, key):
                    holding.append(frame.sequence)
            for sequence in reversed(holding):
                if change_in(log.frame(sequence), key) is not None:
                    return Searched(sequence, sequence, frames + below - sequence, read)
        except LogPruned:
            break
        frames += below - start
        below = start
        stride = min(2 * stride, PART_FRAMES) if read - before < PART_BYTES // 4 else stride
    return Searched(0, max(below, log.first), frames, read)


def _holds(body: bytes, key: bytes) -> bool:
    """Whether a key stands anywhere in a body; looked for in steps, for a search of megabytes holds
    up every other thread."""
    if len(body) <= PART_BYTES:
        return key in body
    overlap = len(key) - 1
    return any(
        body.find(key, at, at + PART_BYTES + overlap) >= 0 for at in range(0, len(body), PART_BYTES)
    )


def _nothing() -> None:
    """The log's thread gives way by itself: between the steps others have the interpreter."""
