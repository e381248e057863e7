"""Yields the interpreter lock (GIL) of a busy loop to a thread that answers wait for."""

from __future__ import annotations

import threading
from typing import Final

GIVE_WAY_AFTER_US: Final = 300
"""Delay before the first yield, beyond the time that the disk needs for a batch."""
GIVE_WAY_EVERY_US: Final = 250
GIVE_WAY_TIMES: Final = 4
"""Yields for one batch at this interval; after that the interval doubles each time."""
GIVE_WAY_SECONDS: Final = 0.0002
POSTPONE_US: Final = 1_000
POSTPONE_MOST_US: Final = 10_000
"""Longest postponement. Beyond it the waiters of the batch under way go before new work."""


class GilYield:
    """Lets a thread that answers wait for have the interpreter while the loop is busy.

    A loop that always finds work releases the GIL only for the moment of its select call, and takes
    it back before a waiting thread has even woken. The interpreter's switch interval does not help
    then: the waiter starts its wait again at each such moment. A commit could take 300 ms that way
    (measured: 3 commits/s beside a loop busy in steps of 50 µs). So the loop pauses now and then
    once a batch has been under way for longer than the disk needs, until it is done. Each pause is
    at most GIVE_WAY_SECONDS.
    """

    __slots__ = ("_done", "_next_us", "_quickest_us", "_times", "since_us")

    def __init__(self) -> None:
        self._done = threading.Lock()
        self._done.acquire()
        self.since_us = 0
        self._next_us = 0
        self._times = 0
        self._quickest_us = 0

    def begin_batch(self, now_us: int) -> None:
        """Note that the thread has work that answers wait for. On the loop."""
        if not self.since_us:
            self.since_us = now_us
            self._next_us = now_us + self._quickest_us + GIVE_WAY_AFTER_US
            self._times = 0
            self._done.acquire(blocking=False)

    def postpone(self, now_us: int) -> None:
        """Put off the next yield: more work for the thread has come, to follow the batch under way.
        As long as it comes the loop is serving requests, and goes on with that. On the loop."""
        until_us = min(now_us + POSTPONE_US, self.since_us + POSTPONE_MOST_US)
        self._next_us = max(self._next_us, until_us)

    def finished(self, took_us: int) -> None:
        """Note that the batch is done. In the thread.

        :param took_us: duration from receipt of the batch to its end. The shortest of late
            approximates the time of the disk; the others waited for the GIL too.
        """
        self._quickest_us = min(took_us, self._quickest_us + self._quickest_us // 16 + 10)
        if self._done.locked():
            self._done.release()

    def end_batch(self) -> None:
        """Note that no batch is under way any more. On the loop."""
        self.since_us = 0

    def yield_gil(self, now_us: int) -> None:
        """Yield the GIL if it is time. On the loop, between two pieces of work, while a batch is
        under way."""
        if now_us >= self._next_us:
            # The thread needs the interpreter about three times for a batch. If it was let in
            # more often than that, it is not the loop that it waits for but the disk.
            self._times += 1
            self._next_us = now_us + (GIVE_WAY_EVERY_US << max(self._times - GIVE_WAY_TIMES, 0))
            self._done.acquire(timeout=GIVE_WAY_SECONDS)
