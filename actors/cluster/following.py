"""Follower state: the promised epoch, log matching with the leader, released frames.

Log matching (Kafka KIP-101): each log keeps the end of every leader epoch. `last_common_frame`
finds the last common frame of two logs, and the follower truncates its log to it
(`storage/log/log.py`, `Log.cut`) before it appends frames of the leader.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import NamedTuple

from protocol.agreement import ReleasedFrame
from protocol.errors import Diverged
from storage.formats.positions import EpochEnd, EpochHistory

__all__ = [
    "EpochEnd", "EpochHistory", "EpochPromise", "frame_at", "holds", "last_common_frame", "last_of",
]  # fmt: skip


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
    at = bisect_right(history, epoch, key=lambda epoch_end: epoch_end.epoch) - 1
    return history[at] if at >= 0 and history[at].epoch == epoch else None


def last_common_frame(ours: EpochHistory, theirs: EpochHistory) -> int:
    """Return the last common frame of two logs; 0: they share none.

    An epoch has one leader, and a leader never rolls back a frame. So two logs with frames of one
    epoch are equal up to the end of the shorter one in that epoch (KIP-101).

    :raises Diverged: both end there at the same sequence with different frames
    """
    # Newest first: before the newest epoch that both hold, the logs are equal.
    for own in reversed(ours):
        other = last_of(theirs, own.epoch)
        if other is None:
            continue
        # One leader wrote both frames. A difference is a fault, and no reason to truncate.
        if own.last == other.last and own.digest != other.digest:
            raise Diverged(
                f"frame {own.last} of epoch {own.epoch} differs from that in the leader's log",
                seq=own.last,
            )
        return min(own.last, other.last)
    return 0


def frame_at(log: EpochHistory, sequence: int) -> ReleasedFrame | None:
    """Return the epoch and sequence of a frame of the log; None: the log has no such frame."""
    # The frame belongs to the first epoch that ends at its sequence or later.
    at = bisect_left(log, sequence, key=lambda epoch_end: epoch_end.last)
    return ReleasedFrame(log[at].epoch, sequence) if sequence > 0 and at < len(log) else None


def holds(log: EpochHistory, released: ReleasedFrame) -> bool:
    """True if a log holds a released frame, and thus all frames before it.

    A log with frames of an epoch holds those its leader wrote, from the first on. The sequence
    alone proves nothing: another leader may have written unreleased frames there.
    """
    epoch_end = last_of(log, released.epoch)
    return epoch_end is not None and epoch_end.last >= released.sequence
