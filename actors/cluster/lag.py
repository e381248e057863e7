"""Lag of a follower: is everything on its disk that it could have had a moment ago?

For the leader's view, that is all on the leader's disk; for the follower's view, the commit index
it has received. The newest frames are always still on their way. So the end of the log becomes a
goal from time to time, and a follower that misses it for a second is late.
"""

from __future__ import annotations

from typing import Final

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
