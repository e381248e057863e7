"""A follower: whose frames it takes, and where its log and its leader's agree; and whether a log
holds what was told to be released."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import NamedTuple

from protocol.agreement import Released
from protocol.errors import Diverged
from storage.epochs import History, Reign

__all__ = ["History", "Promised", "Reign", "frame_at", "holds", "joint", "last_of"]


class Promised(NamedTuple):
    """What a node has promised, on its disk, before it tells anybody its history and before it
    writes a frame as a leader."""

    epoch: int
    """Nobody of an older one is listened to."""

    def takes(self, epoch: int) -> bool:
        """Whether frames of a leader are taken."""
        return epoch >= self.epoch

    def promise(self, epoch: int) -> Promised:
        """Follow, or lead, in an epoch."""
        assert self.takes(epoch), "an older epoch than was promised"
        return Promised(epoch)


def last_of(history: History, epoch: int) -> Reign | None:
    """What a history has of an epoch."""
    at = bisect_right(history, epoch, key=lambda reign: reign.epoch) - 1
    return history[at] if at >= 0 and history[at].epoch == epoch else None


def joint(ours: History, theirs: History) -> int:
    """The last frame up to which two logs are the same; 0: they share none.

    An epoch has one leader, and a leader never takes a frame back: two logs that have frames of one
    epoch are the same up to where the shorter of them ends in it.

    :raises Diverged: both end there with the same frame, and it is not the same
    """
    for reign in reversed(ours):
        other = last_of(theirs, reign.epoch)
        if other is None:
            continue
        if reign.last == other.last and reign.digest != other.digest:
            raise Diverged(
                f"frame {reign.last} of epoch {reign.epoch} is another one in the leader's log",
                seq=reign.last,
            )
        return min(reign.last, other.last)
    return 0


def frame_at(log: History, sequence: int) -> Released | None:
    """What the frame at a sequence of a log is told as; None: the log has none there."""
    at = bisect_left(log, sequence, key=lambda reign: reign.last)
    return Released(log[at].epoch, sequence) if sequence > 0 and at < len(log) else None


def holds(log: History, released: Released) -> bool:
    """Whether a log holds a frame that some leader has released, and with it all before.

    Who has frames of its epoch has those that its leader wrote, from the first one on. The sequence
    alone would say nothing: others may have written there, and released nothing of it.
    """
    reign = last_of(log, released.epoch)
    return reign is not None and reign.last >= released.sequence
