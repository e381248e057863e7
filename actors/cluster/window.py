"""Flow control window of a follower: batches sent and not acknowledged yet.

Several batches may be on their way, so that the latency of the link does not limit throughput.
Their bytes are bounded, so that a stalled follower costs little memory.
"""

from __future__ import annotations

from collections import deque
from typing import Final

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
