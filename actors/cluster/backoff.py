"""Exponential backoff with jitter: each pause is about twice the one before, up to a bound.

Each pause is drawn from the upper half of its range, so that nodes that lost a connection together
do not all come back at once.
"""

from __future__ import annotations

from typing import Final

from protocol.environment import Rng

FIRST_MS: Final = 100
LONGEST_MS: Final = 10_000


class Backoff:
    """Pauses between the attempts of one client."""

    def __init__(self, rng: Rng) -> None:
        self._rng = rng
        self._next_ms = FIRST_MS

    def next_seconds(self) -> float:
        """Return the pause before the next attempt (s)."""
        at_most, self._next_ms = self._next_ms, min(2 * self._next_ms, LONGEST_MS)
        least = at_most // 2
        # `below` excludes its bound, so the longest pause is possible.
        return (least + self._rng.below(at_most - least + 1)) / 1_000

    def over(self) -> None:
        """Reset after a success: the next pause is a short one."""
        self._next_ms = FIRST_MS
