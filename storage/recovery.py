"""How the end of a log is found at an open: what was durable, what may have been, what is torn.

Nothing is changed here. What is made of it, and the numbers of the invariants, stand in log.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from protocol.doors import File
from storage.faults import LogDamaged
from storage.frames import (
    CLEAN,
    MARK,
    SEGMENT_HEADER_BYTES,
    Placed,
    Walk,
    end_of_content,
    find_proof,
)
from storage.segments import Segment


@dataclass(frozen=True, slots=True)
class Recovery:
    """What an open found and did; for the node's own messages."""

    clean: bool
    """The log had been closed."""
    last: int
    copied: int = 0
    """Frames that were not provably durable and now are."""
    cut_bytes: int = 0
    """Torn bytes taken off the end: parts of frames that nobody was told of."""
    cut_file: str | None = None
    """Where the torn bytes went; None with cut bytes: the disk had no room for them."""


@dataclass(slots=True)
class Ending:
    """What the frames of the last segment say, in the order in which they were walked."""

    last: int
    """Sequence of the last good frame; of an empty segment, of the one before it."""
    epoch: int
    time: int
    """Log time of the last frame, microseconds."""
    durable: int
    """The highest sequence that is shown to have been durable."""
    unproven: list[Placed] = field(default_factory=list)
    """The good frames after that."""
    marked: bool = False
    """It ends with a mark …"""
    clean: bool = False
    """… of a clean close."""
    good: int = SEGMENT_HEADER_BYTES
    """Byte offset where the good frames end."""
    bad: str | None = None
    """What is wrong with what stands there. Zeros are, until `refuse_damage` was called."""


def find_ending(file: File, segment: Segment) -> Ending:
    """Walk the last segment. :raises LogDamaged: a frame is whole, and not the one to be there"""
    header = segment.header
    ending = Ending(segment.first - 1, header.epoch, header.time, segment.first - 1)
    walk = Walk(file, segment.codec, SEGMENT_HEADER_BYTES, segment.size)
    for placed in walk:
        frame, upto, offset = placed
        _refuse_misplaced(segment, placed, ending)
        if upto > ending.durable:
            ending.durable = upto
            ending.unproven = [p for p in ending.unproven if p.frame.sequence > upto]
        ending.clean = bool(frame.flags & CLEAN)
        ending.marked = bool(frame.flags & MARK)
        if not ending.marked:
            ending.unproven.append(placed)
            ending.last = frame.sequence
            segment.note(frame.sequence, offset)
        ending.epoch, ending.time = frame.epoch, max(ending.time, frame.time)
    ending.good, ending.bad = walk.offset, walk.bad
    return ending


def _refuse_misplaced(segment: Segment, placed: Placed, ending: Ending) -> None:
    """A frame that is whole but not the one that belongs here."""
    frame, upto, offset = placed
    expected = ending.last if frame.flags & MARK else ending.last + 1
    if frame.sequence != expected:
        what = f"a frame of sequence {frame.sequence} stands in its place"
    elif not ending.durable <= upto <= ending.last:
        what = f"it says that {upto} was durable, after {ending.durable} and {ending.last}"
    elif frame.epoch < ending.epoch:
        what = f"its epoch {frame.epoch} is older than {ending.epoch} before it"
    else:
        return
    raise LogDamaged(segment.path, offset, ending.last + 1, what)


def refuse_changed(segment: Segment, ending: Ending, closed: dict[str, object]) -> None:
    """After a clean close the log ends exactly where CLOSED says; anything else is damage.

    :param closed: what CLOSED says
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
        what = f"the log ends at sequence {ending.last} here; it ended at {at}"
    else:
        return
    raise LogDamaged(segment.path, ending.good, ending.last + 1, what)


def end_of_torn(file: File, segment: Segment, ending: Ending) -> int:
    """Where the torn bytes behind the good frames end: there, when nothing but zeros follows.

    :raises LogDamaged: they are not torn, but what is left of something acknowledged
    """
    end = end_of_content(file, ending.good, segment.size)
    if end > ending.good:
        assert ending.bad is not None, "a walk ends at a bad frame, or at the end"
        proof = find_proof(file, segment.codec, ending.good, segment.size, ending.last + 1)
        if proof is not None:
            what = f"{ending.bad}, and byte {proof} shows that it had been acknowledged"
            raise LogDamaged(segment.path, ending.good, ending.last + 1, what)
    return end
