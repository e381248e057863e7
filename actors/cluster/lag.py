"""A follower's lag: whether all that it could have a moment ago is on its disk.

That is all that a leader has on its own disk, and what a follower hears to be released. The newest
of it never is there yet: it is on its way. So a goal is set from time to time, the end at that
time, and the follower is late if it has not come to its goal in a second.
"""

from __future__ import annotations

from typing import Final

LATE_US: Final = 1_000_000


class Lag:
    """Of a follower that has just attached.

    :param end: its first goal; until it has come there it is late, however soon that is
    :param synced: the last frame on its disk
    """

    def __init__(self, end: int, synced: int) -> None:
        self._goal: int | None = None if synced >= end else end
        self._set_us: int | None = None
        """When it was set; None: it is late already."""

    def ends(self, upto: int, synced: int, now_us: int) -> None:
        """So much it could have now, and so much is on its disk."""
        if self._goal is None and synced < upto:
            self._goal, self._set_us = upto, now_us

    def synced(self, upto: int) -> None:
        """All up to a frame is on its disk."""
        if self._goal is not None and upto >= self._goal:
            self._goal = self._set_us = None

    def is_late(self, now_us: int) -> bool:
        """True if it lacks something that it could have had for more than a second."""
        if self._goal is None:
            return False
        return self._set_us is None or now_us - self._set_us > LATE_US
