"""How a thread that others wait for gets the interpreter while the loop is busy."""

from __future__ import annotations

import threading
from typing import Final

GIVE_WAY_AFTER_US: Final = 300
"""Beyond what the disk needs."""
GIVE_WAY_EVERY_US: Final = 250
GIVE_WAY_TIMES: Final = 4
"""How often for one batch; after that the pauses between double."""
GIVE_WAY_SECONDS: Final = 0.0002
POSTPONE_US: Final = 1_000
POSTPONE_MOST_US: Final = 10_000
"""Beyond that whoever waits for what is out is not made to wait for others."""


class Urgent:
    """Lets a thread that others wait for have the interpreter while the loop is busy.

    A loop that always finds work gives the interpreter lock up only for the moment of its select
    call, and takes it back before a waiting thread has even woken. The interpreter's switch
    interval does not help then: the waiter starts its wait anew at each such moment. A commit could
    take 300 ms that way (measured: 3 commits/s beside a loop busy in steps of 50 µs). So, once a
    batch has been out for longer than the disk needs for one, the loop stands still for at most
    GIVE_WAY_SECONDS now and then, until the batch is done.
    """

    __slots__ = ("_done", "_next_us", "_quickest_us", "_times", "since_us")

    def __init__(self) -> None:
        self._done = threading.Lock()
        self._done.acquire()
        self.since_us = 0
        self._next_us = 0
        self._times = 0
        self._quickest_us = 0

    def handed_over(self, now_us: int) -> None:
        """On the loop: the thread has work that somebody waits for."""
        if not self.since_us:
            self.since_us = now_us
            self._next_us = now_us + self._quickest_us + GIVE_WAY_AFTER_US
            self._times = 0
            self._done.acquire(blocking=False)

    def postpone(self, now_us: int) -> None:
        """On the loop: more work for the thread has come, to follow what is out. As long as it
        comes the loop is doing what others wait for, and goes on with that."""
        until_us = min(now_us + POSTPONE_US, self.since_us + POSTPONE_MOST_US)
        self._next_us = max(self._next_us, until_us)

    def finished(self, took_us: int) -> None:
        """In the thread: the batch is done.

        :param took_us: from the batch in hand to its end. The quickest of late tells what the disk
            needs; the others waited for the interpreter too.
        """
        self._quickest_us = min(took_us, self._quickest_us + self._quickest_us // 16 + 10)
        if self._done.locked():
            self._done.release()

    def settled(self) -> None:
        """On the loop: nothing is out any more."""
        self.since_us = 0

    def give_way(self, now_us: int) -> None:
        """On the loop, between two pieces of work, while something is out."""
        if now_us >= self._next_us:
            # The thread needs the interpreter about three times for a batch. If it was let in
            # more often than that, it is not the loop that it waits for but the disk.
            self._times += 1
            self._next_us = now_us + (GIVE_WAY_EVERY_US << max(self._times - GIVE_WAY_TIMES, 0))
            self._done.acquire(timeout=GIVE_WAY_SECONDS)
