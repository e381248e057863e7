"""Exponential backoff: each pause about twice as long as the one before, up to a bound.

Each is drawn from the upper half of what it may be, so that those who lost something together don't
all come back in one moment.
"""

from __future__ import annotations

from typing import Final

from protocol.doors import Rng

FIRST_MS: Final = 100
LONGEST_MS: Final = 10_000


class Backoff:
    """The pauses of one who tries again and again."""

    def __init__(self, rng: Rng) -> None:
        self._rng = rng
        self._next_ms = FIRST_MS

    def next_seconds(self) -> float:
        """How long to wait before the next attempt, in seconds."""
        at_most, self._next_ms = self._next_ms, min(2 * self._next_ms, LONGEST_MS)
        least = at_most // 2
        return (least + self._rng.below(at_most - least + 1)) / 1_000

    def over(self) -> None:
        """An attempt went well: the next pause is a short one."""
        self._next_ms = FIRST_MS
