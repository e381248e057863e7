"""What is on its way to a follower: sent, and not acknowledged yet.

Several batches may be, so that the time which a link takes bounds nobody's writing. How many bytes
they are is bounded, so that a follower that takes nothing costs nobody much either.
"""

from __future__ import annotations

from collections import deque
from typing import Final

BATCH_BYTES: Final = 200
"""What is remembered of a batch, about; it counts as if it were sent."""


class Window:
    """:param bytes_max: with as many on their way nothing more is sent"""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._sent: deque[tuple[int, int, int]] = deque()
        """Of each batch its last frame, its bytes, and when it was sent."""
        self._asked_us: int | None = None
        """When a sign of life was asked for that has not come."""
        self.bytes = 0
        """Of all that is on its way."""

    @property
    def is_open(self) -> bool:
        """Whether a batch may be sent, however large it is."""
        return self.bytes < self._bytes_max

    def sent(self, upto: int, size: int, now_us: int) -> None:
        """A batch was sent, up to a frame."""
        self._sent.append((upto, size + BATCH_BYTES, now_us))
        self.bytes += size + BATCH_BYTES

    def asked(self, now_us: int) -> None:
        """A sign of life was asked for."""
        if self._asked_us is None:
            self._asked_us = now_us

    def acknowledged(self, upto: int) -> None:
        """The follower has all up to a frame on its disk."""
        self._asked_us = None
        while self._sent and self._sent[0][0] <= upto:
            self.bytes -= self._sent.popleft()[1]

    @property
    def unsynced_since_us(self) -> int | None:
        """Since when something that was sent is not on the follower's disk, on the monotonic clock;
        None: all of it is."""
        return self._sent[0][2] if self._sent else None

    @property
    def owed_since_us(self) -> int | None:
        """Since when the follower has not answered for something, on the monotonic clock; None: it
        has answered for all. Who answers signs of life, and brings nothing to its disk, owes that.
        """
        owed = [self._sent[0][2]] if self._sent else []
        if self._asked_us is not None:
            owed.append(self._asked_us)
        return min(owed, default=None)
