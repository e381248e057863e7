"""Log time: what expires, falls due and ends goes by it, on every node of a store by that of who
leads.

A node that leads, or is alone, has its own: the wall clock as it was at the start, or the end of
the log if that is later, and the monotonic clock from then on. A node that follows goes by its
leader's, as it was told when it attached and as frames say since; in between its monotonic clock
goes on. What it is told has been on its way, so it is never ahead of its leader, and tells nothing
to be gone that is there, whatever its own wall clock says. It steps back only where another leads
whose time is earlier. A node that comes to lead goes on from the latest of both.
"""

from __future__ import annotations

from protocol.doors import Clock


class LogTime:
    """Microseconds since 1970.

    :param end: log time of the newest frame
    """

    def __init__(self, clock: Clock, end: int) -> None:
        self._clock = clock
        self._ticks = clock.monotonic_us()
        self._time = max(end, clock.wall_us())
        self._own = self._time - self._ticks
        """Its own time is so far ahead of the monotonic clock."""
        self._epoch = 0
        """Whose time it was told last."""

    def now(self) -> int:
        """Never earlier than it was, but see `follows`."""
        ticks = self._clock.monotonic_us()
        if ticks > self._ticks:
            self._time += ticks - self._ticks
            self._ticks = ticks
        return self._time

    def reaches(self, time: int) -> None:
        """It is so late at least."""
        self._time = max(self.now(), time)

    def follows(self, epoch: int, time: int) -> None:
        """It was so late, for who leads in an epoch, when that one said so. The same one may have
        said it sooner before; of another it holds whatever was thought until now."""
        if epoch != self._epoch:
            self.now()
            self._epoch, self._time = epoch, time
        self.reaches(time)

    def leads(self, end: int) -> None:
        """It is this node's own to say from now on. Who led before may have had a clock that is
        ahead: what it said ends at a time ends then.

        :param end: log time of the newest frame
        """
        self.reaches(max(end, self._clock.monotonic_us() + self._own))
