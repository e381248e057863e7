"""Recovery: find the end of the log at an open. Which frames were durable, may be, or are torn.

log.py acts on the result, and has the numbered invariants. Torn bytes that it cuts off are kept for
the operator in `.cut` files.

A frame s is proven to have been durable, so that a log without it has lost it, by any of

- a frame or mark behind it, in its segment, whose `durable up to` is s or more;
- a later segment: it was begun when all before it was durable;
- CLOSED, which records where the log ended, and NEWEST, which records that a later segment existed;
- the state: a frame is applied only after the log has reported it durable. The state's position
  (`Lineage.proves`) is flushed from time to time, so it proves an old s, or none. Only a state of
  this store counts. If the frame of its position is missing, a state of this history looks like
  that of a copy that went on further. Both are refused.

Without any of these the frame counts as never acknowledged. If the last segment is cut *and* the
frames behind the cut and the state are removed too, the loss is not detected.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from protocol.environment import File, Fs
from storage.faults import LogDamaged
from storage.files.disk_reserve import NO_ROOM, drop_temporary
from storage.files.metadata_file import replace_file
from storage.formats.frames import (
    CLEAN,
    MARK,
    NEW_EPOCH,
    Frame,
    FrameWalker,
    PlacedFrame,
    end_of_content,
    find_proof,
)
from storage.formats.positions import LogPosition
from storage.log.segments import Segment


@dataclass(frozen=True, slots=True)
class Recovery:
    """Result of a recovery, for the node's log messages."""

    clean: bool
    """True if the log was closed cleanly, or never written to."""
    last: int
    copied: int = 0
    """Number of frames that were not provably durable and now are."""
    cut_bytes: int = 0
    """Torn bytes cut off the end: parts of frames that were never acknowledged."""
    cut_file: str | None = None
    """File with the cut bytes. None although bytes were cut: the disk had no room for it."""


@dataclass(slots=True)
class SegmentEnd:
    """Findings of a walk over the last segment's frames."""

    last: int
    """Sequence of the last good frame; of an empty segment, of the frame before it."""
    epoch: int
    time: int
    """Log time of the last frame (µs)."""
    durable: int
    """Highest sequence proven to have been durable."""
    digest: bytes
    """Digest of the last good frame; of an empty segment, of the frame before it."""
    durable_at: LogPosition
    """Position of the frame `durable`."""
    released: int
    """Highest sequence recorded as released (commit index)."""
    unproven: list[PlacedFrame] = field(default_factory=list)
    """Good frames after `durable`."""
    marked: bool = False
    """True if the log ends with a mark."""
    clean: bool = False
    """True if that mark is of a clean close."""
    good: int = 0
    """Byte offset where the good frames end."""
    bad: str | None = None
    """Description of the bad bytes there. Also set for trailing zeros, which `end_of_torn` accepts.
    """


def find_ending(file: File, segment: Segment) -> SegmentEnd:
    """Walk the last segment.

    :raises LogDamaged: a whole frame is not the expected one
    """
    header, before = segment.header, segment.first - 1
    epoch = header.epoch + bool(header.flags & NEW_EPOCH)
    # The frame before the segment was durable when the segment was begun (invariant 3).
    durable_at = LogPosition(before, header.epoch, header.time, header.joins)
    ending = SegmentEnd(
        before, epoch, header.time, before, header.joins, durable_at, header.released
    )
    walk = FrameWalker(file, segment.codec, header.size, segment.size)
    newest_durable: Frame | None = None
    for placed in walk:
        frame, upto, released, offset = placed
        _refuse_misplaced(segment, placed, ending)
        # Proof that all up to `upto` was durable when this frame was encoded (invariant 4).
        if upto > ending.durable:
            # `unproven` begins with the frame after `durable`, and has no gaps.
            newest_durable = ending.unproven[upto - ending.durable - 1].frame
            ending.unproven = ending.unproven[upto - ending.durable :]
            ending.durable = upto
        ending.released = released
        ending.clean = bool(frame.flags & CLEAN)
        ending.marked = bool(frame.flags & MARK)
        if not ending.marked:
            ending.unproven.append(placed)
            ending.last = frame.sequence
            segment.note(frame.sequence, offset)
        ending.epoch, ending.time = frame.epoch, max(ending.time, frame.time)
    # No crash makes an intact frame in the wrong place, so this is damage (invariant 6).
    if walk.forged:
        raise LogDamaged(segment.path, walk.offset, ending.last + 1, str(walk.bad))
    ending.good, ending.bad = walk.offset, walk.bad
    # Compute two digests only: one for each frame would double the cost of verifying checksums.
    if newest_durable is not None:
        ending.durable_at = LogPosition(
            newest_durable.sequence, newest_durable.epoch, newest_durable.time,
            newest_durable.digest(),
        )  # fmt: skip
    unproven = ending.unproven
    ending.digest = unproven[-1].frame.digest() if unproven else ending.durable_at.digest
    return ending


def _refuse_misplaced(segment: Segment, placed: PlacedFrame, ending: SegmentEnd) -> None:
    """Check that a whole frame is the expected one.

    :raises LogDamaged: it is another
    """
    frame, upto, released, offset = placed
    expected = ending.last if frame.flags & MARK else ending.last + 1
    if frame.sequence != expected:
        what = f"expected sequence {expected}, found {frame.sequence}"
    elif not ending.durable <= upto <= ending.last:
        what = f"its synced sequence {upto} is not between {ending.durable} and {ending.last}"
    elif released < ending.released:
        what = f"its commit index {released} is lower than {ending.released} before it"
    elif frame.epoch < ending.epoch:
        what = f"its epoch {frame.epoch} is lower than {ending.epoch} before it"
    else:
        return
    raise LogDamaged(segment.path, offset, ending.last + 1, what)


def refuse_changed(segment: Segment, ending: SegmentEnd, closed: dict[str, object]) -> None:
    """After a clean close, check that the log ends exactly as CLOSED records.

    :param closed: contents of CLOSED
    :raises LogDamaged:
    """
    at = f"sequence {closed.get('last')}, byte {closed.get('size')}, when it was closed"
    if ending.bad is not None:
        what = f"{ending.bad}; the log ended at {at}"
    elif (
        closed.get("last") != ending.last
        or closed.get("size") != segment.size
        or closed["first"] != segment.first
        or not ending.clean
    ):
        what = f"the log ends at sequence {ending.last}, but it ended at {at}"
    else:
        return
    raise LogDamaged(segment.path, ending.good, ending.last + 1, what)


def refuse_lost(segment: Segment, ending: SegmentEnd, proven: int) -> None:
    """Check that the log does not end before frames known from elsewhere to have been in it.

    :raises LogDamaged:
    """
    if ending.last < proven:
        what = (
            f"the log ends here, but the state has applied frames up to {proven}: they were lost,"
            " or the state is a copy from elsewhere"
        )
        raise LogDamaged(segment.path, ending.good, ending.last + 1, what)


def end_of_torn(file: File, segment: Segment, ending: SegmentEnd) -> int:
    """Return the offset where the torn bytes behind the good frames end.

    Trailing zeros don't count.

    :raises LogDamaged: the bytes are not torn, but the rest of acknowledged frames
    """
    # Zeros behind the last frame are preallocated space (invariant 10).
    end = end_of_content(file, ending.good, segment.size)
    if end > ending.good:
        assert ending.bad is not None, "a walk ends at a bad frame, or at the end"
        # A later frame that records these bytes as durable makes them damage (invariant 7).
        proof = find_proof(file, segment.codec, ending.good, segment.size, ending.last + 1)
        if proof is not None:
            what = f"{ending.bad}, but byte {proof} shows that it had been acknowledged"
            raise LogDamaged(segment.path, ending.good, ending.last + 1, what)
    return end


CUT_SUFFIX: Final = ".cut"
_CUT_NAME: Final = re.compile(rf"[0-9]{{20}}\.[0-9]+{re.escape(CUT_SUFFIX)}")
CUT_FILES_KEPT: Final = 8
"""Number of `.cut` files kept."""


def save_torn_tail(
    fs: Fs, folder: str, tmp: str, file: File, segment: Segment, offset: int
) -> str | None:
    """Save the bytes of a segment from `offset` on. Return the path.

    None if the disk is full: the file serves only the operator, so it may be lost.

    :raises OSError: the disk fails other than by being full
    """
    target = f"{folder}/{segment.first:020d}.{offset}{CUT_SUFFIX}"
    try:
        data = file.read(offset, segment.size - offset)
        replace_file(fs, tmp, target, data)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        drop_temporary(fs, tmp, target)
        return None
    return target


def drop_old_tails(fs: Fs, folder: str, saved: Collection[str | None]) -> None:
    """Remove all but `CUT_FILES_KEPT` files: those just saved, then the last ones of the log. Files
    that another program put there stay.

    :param saved: paths returned by `save_torn_tail`
    """

    def place(name: str) -> tuple[bool, int, int]:
        first, offset = name.removesuffix(CUT_SUFFIX).split(".")
        # A log that is cut farther back than before has its new file before the older ones.
        return f"{folder}/{name}" in saved, int(first), int(offset)

    names = sorted((name for name in fs.names(folder) if _CUT_NAME.fullmatch(name)), key=place)
    for name in names[:-CUT_FILES_KEPT]:
        fs.unlink(f"{folder}/{name}")
