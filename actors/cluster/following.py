"""Follower state: the promised epoch, log matching with the leader, released frames.

Log matching (Kafka KIP-101): each log keeps the end of every leader epoch. `joint` finds the last
common frame of two logs, and the follower truncates its log to it (`storage/log/log.py`, `Log.cut`)
before it appends frames of the leader.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import NamedTuple

from protocol.agreement import ReleasedFrame
from protocol.errors import Diverged
from storage.formats.positions import EpochEnd, EpochHistory

__all__ = ["EpochHistory", "EpochPromise", "EpochEnd", "frame_at", "holds", "joint", "last_of"]


class EpochPromise(NamedTuple):
    """Durable promise of a node: made before it sends its epoch history, and before it writes a
    frame as leader."""

    epoch: int
    """Lowest leader epoch that this node accepts."""

    def takes(self, epoch: int) -> bool:
        """True if frames of a leader of this epoch are accepted."""
        return epoch >= self.epoch

    def promise(self, epoch: int) -> EpochPromise:
        """Return the promise for an epoch to follow or lead in."""
        assert self.takes(epoch), "an older epoch than was promised"
        return EpochPromise(epoch)


def last_of(history: EpochHistory, epoch: int) -> EpochEnd | None:
    """Return the end of an epoch in a history, or None."""
    at = bisect_right(history, epoch, key=lambda reign: reign.epoch) - 1
    return history[at] if at >= 0 and history[at].epoch == epoch else None


def joint(ours: EpochHistory, theirs: EpochHistory) -> int:
    """Return the last common frame of two logs; 0: they share none.

    An epoch has one leader, and a leader never rolls back a frame. So two logs with frames of one
    epoch are equal up to the end of the shorter one in that epoch (KIP-101).

    :raises Diverged: both end there at the same sequence with different frames
    """
    for reign in reversed(ours):
        other = last_of(theirs, reign.epoch)
        if other is None:
            continue
        if reign.last == other.last and reign.digest != other.digest:
            raise Diverged(
                f"frame {reign.last} of epoch {reign.epoch} differs from that in the leader's log",
                seq=reign.last,
            )
        return min(reign.last, other.last)
    return 0


def frame_at(log: EpochHistory, sequence: int) -> ReleasedFrame | None:
    """Return the epoch and sequence of a frame of the log; None: the log has no such frame."""
    at = bisect_left(log, sequence, key=lambda reign: reign.last)
    return ReleasedFrame(log[at].epoch, sequence) if sequence > 0 and at < len(log) else None


def holds(log: EpochHistory, released: ReleasedFrame) -> bool:
    """True if a log holds a released frame, and thus all frames before it.

    A log with frames of an epoch holds those its leader wrote, from the first on. The sequence
    alone proves nothing: another leader may have written unreleased frames there.
    """
    reign = last_of(log, released.epoch)
    return reign is not None and reign.last >= released.sequence
