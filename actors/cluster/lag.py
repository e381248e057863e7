"""A follower's lag: whether all that had been released a moment ago is on its disk.

What is released right now never is: it is on its way. So a goal is set from time to time, whatever
is released then, and the follower is late if it has not come to its goal in a second.
"""

from __future__ import annotations

from typing import Final

LATE_US: Final = 1_000_000


class Lag:
    """Of a follower that has just attached.

    :param released: its first goal; until it has come there it is late, however soon that is
    :param synced: the last frame on its disk
    """

    def __init__(self, released: int, synced: int) -> None:
        self._goal: int | None = None if synced >= released else released
        self._set_us: int | None = None
        """When it was set; None: it is late already."""

    def released(self, upto: int, synced: int, now_us: int) -> None:
        """So much is released, and so much is on its disk."""
        if self._goal is None and synced < upto:
            self._goal, self._set_us = upto, now_us

    def synced(self, upto: int) -> None:
        """All up to a frame is on its disk."""
        if self._goal is not None and upto >= self._goal:
            self._goal = self._set_us = None

    def is_late(self, now_us: int) -> bool:
        """Whether it lacks something that was released more than a second ago."""
        if self._goal is None:
            return False
        return self._set_us is None or now_us - self._set_us > LATE_US
