"""Log time: the clock for expiry and deadlines, which the leader sets for all nodes of a store.

A leader, or single node, has its own log time. It starts at the wall clock, or at the end of the
log if that is later, and advances with the monotonic clock. A follower adopts its leader's log
time when it attaches and with each frame; in between it advances with its own monotonic clock.
Messages take time to arrive, so a follower is never ahead of its leader and never expires early,
whatever its wall clock says. Log time steps back only for a new leader whose time is earlier. A
node that becomes leader continues from the latest of its own and the adopted time.
"""

from __future__ import annotations

from protocol.environment import Clock


class LogTime:
    """Log time, in microseconds since 1970.

    :param end: log time of the newest frame
    """

    def __init__(self, clock: Clock, end: int) -> None:
        self._clock = clock
        self._ticks = clock.monotonic_us()
        # A wall clock that was set back must not put log time behind the newest frame.
        self._time = max(end, clock.wall_us())
        self._own = self._time - self._ticks
        """Offset (µs) of the node's own log time from its monotonic clock."""
        self._epoch = 0
        """Epoch of the leader that last reported its time."""

    def now(self) -> int:
        """Return the log time. Never falls, except as `follows` describes."""
        ticks = self._clock.monotonic_us()
        if ticks > self._ticks:
            self._time += ticks - self._ticks
            self._ticks = ticks
        return self._time

    def reaches(self, time: int) -> None:
        """Advance log time to at least `time`."""
        self._time = max(self.now(), time)

    def follows(self, epoch: int, time: int) -> None:
        """Adopt the time that the leader of an epoch reported.

        A later report of the same leader only advances log time. The first one of another leader
        replaces it, even by an earlier time.
        """
        if epoch != self._epoch:
            # Use up the ticks so far: they belong to the time that is replaced.
            self.now()
            self._epoch, self._time = epoch, time
        self.reaches(time)

    def leads(self, end: int) -> None:
        """Become the source of log time, as the new leader.

        The previous leader's clock may have been ahead. Deadlines that it set keep their log time.

        :param end: log time of the newest frame
        """
        self.reaches(max(end, self._clock.monotonic_us() + self._own))
