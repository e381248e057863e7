"""Follower state: epochs that it accepts, log matching with the leader, released frames.

Log matching (Kafka KIP-101): each log keeps the end of every leader epoch. `last_common_frame`
finds the last common frame of two logs, and the follower truncates its log to it
(`storage/log/log.py`, `Log.cut`) before it appends frames of the leader.

Lag of a follower: is everything on its disk that it could have had a moment ago? For the leader's
view, that is all on the leader's disk; for the follower's view, the commit index
it has received. The newest frames are always still on their way. So the end of the log becomes a
goal from time to time, and a follower that misses it for a second is late.

Flow control window of a follower: batches sent and not acknowledged yet. Several batches may be on
their way, so that the latency of the link does not limit throughput. Their bytes are bounded, so
that a stalled follower costs little memory.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from enum import StrEnum
from typing import Final

from protocol.agreement import ReleasedFrame
from protocol.errors import Diverged
from storage.formats.positions import EpochEnd, EpochHistory

# --- log matching ---------------------------------------------------------------------------------


__all__ = [
    "EpochEnd", "EpochHistory", "accepts_epoch", "frame_at", "holds", "last_common_frame",
    "last_of",
]  # fmt: skip


def accepts_epoch(promised: int, epoch: int) -> bool:
    """Cluster rule 5: True if a node that has promised an epoch accepts a leader of another (Raft
    §5.1). The promise is made before it sends its history, and before it leads."""
    return epoch >= promised


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


# --- lag ------------------------------------------------------------------------------------------


LATE_US: Final = 1_000_000


class Lag:
    """Lag of a follower that has just attached.

    :param end: first goal; the follower is late until it gets there, however soon
    :param synced: last frame on its disk
    """

    def __init__(self, end: int, synced: int) -> None:
        self._goal: int | None = None if synced >= end else end
        self._set_us: int | None = None
        """Time at which the goal was set (µs); None: it is late already."""

    def ends(self, upto: int, synced: int, now_us: int) -> None:
        """Note the last frame that it could have now, and the last on its disk."""
        # A goal stays until it is reached: while clients write, a moving goal never would be.
        if self._goal is None and synced < upto:
            self._goal, self._set_us = upto, now_us

    def synced(self, upto: int) -> None:
        """Note that all frames up to one are on its disk."""
        if self._goal is not None and upto >= self._goal:
            self._goal = self._set_us = None

    def is_late(self, now_us: int) -> bool:
        """True if it has lacked a frame for more than a second that it could have had."""
        if self._goal is None:
            return False
        return self._set_us is None or now_us - self._set_us > LATE_US


# --- flow control ---------------------------------------------------------------------------------


BATCH_BYTES: Final = 200
"""Memory of a batch beside its frames, about (bytes); counted as sent."""


class Window:
    """Flow control window.

    :param bytes_max: with this many bytes on their way, nothing more is sent
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._sent: deque[tuple[int, int, int]] = deque()
        """Last frame, bytes and sending time (µs) of each batch."""
        self._asked_us: int | None = None
        """Time of the oldest unanswered heartbeat (µs)."""
        self.bytes = 0
        """Bytes on their way."""

    @property
    def is_open(self) -> bool:
        """True if another batch may be sent, of any size."""
        # Checked before each batch, so the bound is exceeded by one batch at most.
        return self.bytes < self._bytes_max

    def sent(self, upto: int, size: int, now_us: int) -> None:
        """Note that a batch was sent, up to a frame."""
        self._sent.append((upto, size + BATCH_BYTES, now_us))
        self.bytes += size + BATCH_BYTES

    def asked(self, now_us: int) -> None:
        """Note that a heartbeat was sent."""
        if self._asked_us is None:
            self._asked_us = now_us

    def acknowledged(self, upto: int) -> None:
        """Note that the follower has synced all frames up to one."""
        # Any acknowledgement answers a heartbeat. Only synced frames leave the window.
        self._asked_us = None
        while self._sent and self._sent[0][0] <= upto:
            self.bytes -= self._sent.popleft()[1]

    @property
    def unsynced_since_us(self) -> int | None:
        """Monotonic time (µs) of the oldest batch that the follower has not synced; None: there is
        none."""
        return self._sent[0][2] if self._sent else None

    @property
    def owed_since_us(self) -> int | None:
        """Monotonic time (µs) of the oldest message that the follower has not answered; None: there
        is none. A follower that answers heartbeats but syncs nothing still owes its batches."""
        owed = [self._sent[0][2]] if self._sent else []
        if self._asked_us is not None:
            owed.append(self._asked_us)
        return min(owed, default=None)


# --- sync status ----------------------------------------------------------------------------------


def stranded(leader: str) -> str:
    """Return the message of a stranded node.

    :param leader: display name of the leader it followed
    """
    return (
        f"this node is stranded: it shows commits that {leader} does not have, and follows no"
        f" node. If {leader} has an older copy of its directory, or should not lead, stop it and"
        " start this node again; otherwise delete the directory of this node and join it again"
    )


class SyncStatus(StrEnum):
    """Status word in INFO FOR NODE."""

    COPYING = "copying"
    """Its directory is being filled with a copy of the store."""
    CATCHING_UP = "catching up"
    """It has a log, and lacks frames that it could have."""
    IN_SYNC = "in sync"
    """Everything that it could have had a second ago is on its disk. The leader's report counts all
    frames on its own disk, the follower's report the commit index it has received."""
    COPY_FAILED = "copy failed"
    """It needs a copy and has none, because, say, the leader's log no longer has frames that it
    lacks."""
    STRANDED = "stranded"
    """It shows frames that are not in its leader's history. Nothing was rolled back: an operator
    has to find the cause, and rebuild one of the two nodes."""
