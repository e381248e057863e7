"""How the end of a log is found at an open: what was durable, what may have been, what is torn.

Nothing is changed here. What is made of it, and the numbers of the invariants, stand in log.py.

That a frame s had been durable, so that whoever lacks it now has lost it, is shown by any of

- a frame or mark behind it, in its segment, whose `durable up to` is s or more;
- a later segment: it was begun when all before it was durable;
- CLOSED, which says where the log ended, and NEWEST, which says that a later segment was there;
- the state: it takes a frame only from the log's word that it is durable. What it holds
  (`Lineage.proves`) is flushed now and then, so that is an old s, or none. Only a state of this
  store speaks here; that it is of this history too, and not of a copy that went on further, can't
  be told when the frame it stands at is missing. Both are refused.

When none of these remains the frame is taken for one that nobody was told of: someone who cuts the
last segment *and* takes what stood behind the cut and the state away is believed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from protocol.doors import File
from storage.faults import LogDamaged
from storage.frames import (
    CLEAN,
    MARK,
    NEW_EPOCH,
    Frame,
    Placed,
    Walk,
    end_of_content,
    find_proof,
)
from storage.histories import Standing
from storage.segments import Segment


@dataclass(frozen=True, slots=True)
class Recovery:
    """What an open found and did; for the node's own messages."""

    clean: bool
    """The log had been closed, or nothing was ever written into it."""
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
    digest: bytes
    """Digest of the last good frame; of an empty segment, of the one before it."""
    durable_at: Standing
    """Of the frame `durable`."""
    released: int
    """The highest sequence that is said to have been released."""
    unproven: list[Placed] = field(default_factory=list)
    """The good frames after that."""
    marked: bool = False
    """It ends with a mark …"""
    clean: bool = False
    """… of a clean close."""
    good: int = 0
    """Byte offset where the good frames end."""
    bad: str | None = None
    """What is wrong with what stands there. Zeros are, until `refuse_damage` was called."""


def find_ending(file: File, segment: Segment) -> Ending:
    """Walk the last segment. :raises LogDamaged: a frame is whole, and not the one to be there"""
    header, before = segment.header, segment.first - 1
    epoch = header.epoch + bool(header.flags & NEW_EPOCH)
    durable_at = Standing(before, header.epoch, header.time, header.joins)
    ending = Ending(before, epoch, header.time, before, header.joins, durable_at, header.released)
    walk = Walk(file, segment.codec, header.size, segment.size)
    newest_durable: Frame | None = None
    for placed in walk:
        frame, upto, released, offset = placed
        _refuse_misplaced(segment, placed, ending)
        if upto > ending.durable:
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
    if walk.forged:
        raise LogDamaged(segment.path, walk.offset, ending.last + 1, str(walk.bad))
    ending.good, ending.bad = walk.offset, walk.bad
    # Of two frames only: a digest of each would cost a start as much again as their checksums.
    if newest_durable is not None:
        ending.durable_at = Standing(
            newest_durable.sequence, newest_durable.epoch, newest_durable.time,
            newest_durable.digest(),
        )  # fmt: skip
    unproven = ending.unproven
    ending.digest = unproven[-1].frame.digest() if unproven else ending.durable_at.digest
    return ending


def _refuse_misplaced(segment: Segment, placed: Placed, ending: Ending) -> None:
    """A frame that is whole but not the one that belongs here."""
    frame, upto, released, offset = placed
    expected = ending.last if frame.flags & MARK else ending.last + 1
    if frame.sequence != expected:
        what = f"a frame of sequence {frame.sequence} stands in its place"
    elif not ending.durable <= upto <= ending.last:
        what = f"it says that {upto} was durable, after {ending.durable} and {ending.last}"
    elif released < ending.released:
        what = f"it says that {released} was released, after {ending.released}"
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


def refuse_lost(segment: Segment, ending: Ending, proven: int) -> None:
    """Refuse a log that ends before what is known from elsewhere to have been in it.

    :raises LogDamaged:
    """
    if ending.last < proven:
        what = (
            f"the log ends here, and the state holds frames up to {proven}: they were lost, or"
            " the state is a copy from elsewhere"
        )
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
