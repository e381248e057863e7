"""Scheduler of a node: the queue of fibers that wait for a time slice, and the pool of greenlets.

Each iteration of the loop runs one slice, whatever waits. Every second slice is for the holders of
priority locks, as other commits wait for these. The other ranks take turns, and users within a
rank: four hundred scripts of one user delay another's by one slice each time, not by four hundred.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from greenlet import getcurrent, greenlet

from actors.execution.blocking import Deadlines, raise_error
from protocol import limits
from protocol.environment import Clock

IDLE_WORKERS: Final = 256
"""Greenlets kept for the next script: a new one costs 30 µs, most of it for its stack."""


LOCK: Final = 0
"""Rank of a script that holds a priority lock."""
NODE: Final = 1
"""Rank of the node's own work."""
SCRIPT: Final = 2
FEED: Final = 3
"""Rank of feeds that read the log."""
SURFACE: Final = 4
"""Rank of surfaces: decoding and encoding of long values."""
RANKS: Final = 5


class UserQueues:
    """Queues of calls, one for each user, popped round robin."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[Callable[[], None]]] = {}
        # Invariant: a user is in `_order`, once, exactly if it has a queue, which is not empty.
        self._order: deque[str] = deque()
        """Users with waiting calls, in the order of their turns."""

    def __bool__(self) -> bool:
        return bool(self._order)

    def add(self, user: str, call: Callable[[], None]) -> None:
        """Append a call to its user's queue."""
        if (line := self._lines.get(user)) is not None:
            line.append(call)
        else:
            self._lines[user] = deque((call,))
            self._order.append(user)

    def pop(self) -> Callable[[], None]:
        """Remove the next user's oldest call, and return it."""
        user = self._order.popleft()
        line = self._lines[user]
        call = line.popleft()
        if line:
            self._order.append(user)
        else:
            del self._lines[user]
        return call

    def waiting_of(self, user: str) -> int:
        """Return the number of a user's calls."""
        line = self._lines.get(user)
        return 0 if line is None else len(line)


class FiberScheduler:
    """Queue of fibers that wait for a time slice on one loop, and greenlets to run them."""

    slice_us = limits.SLICE_US
    """Default length of a slice (µs)."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self.loop = loop
        self.clock = clock
        self.deadlines = Deadlines(loop, clock, raise_error)
        """Ends of the waits of parked fibers."""
        self._lines: list[UserQueues] = [UserQueues() for _ in range(RANKS)]
        """Waiting fibers by rank, then by user."""
        self._waiting = 0
        """Number of waiting fibers."""
        self._last = LOCK
        """Rank of the last slice."""
        self._turn = NODE
        """Rank that has the next slice which is not for LOCK."""
        self.idle: list[greenlet] = []
        """Idle greenlets."""

    def queue(self, rank: int, user: str, resume: Callable[[], None]) -> None:
        """Queue a fiber for its next slice. :param user: user of the fiber; empty: the node"""
        # While fibers wait, exactly one call of `_next` is scheduled.
        if not self._waiting:
            self.loop.call_soon(self._next)
        self._waiting += 1
        self._lines[rank].add(user, resume)

    def waiting_of(self, rank: int, user: str) -> int:
        """Return the number of a user's fibers of a rank that wait for a slice."""
        return self._lines[rank].waiting_of(user)

    def worker(self) -> greenlet:
        """Return a greenlet that runs the function passed by a switch, and then is idle again."""
        assert getcurrent().parent is None, "a fiber is made on the loop, and not in another fiber"
        if self.idle:
            return self.idle.pop()
        worker = greenlet(partial(_serve, weakref.ref(self)))
        worker.switch()  # to its first wait: a greenlet references its first arguments to its end
        return worker

    def _next(self) -> None:
        # One slice in each iteration of the loop: sockets and mailboxes get their turn in between.
        resume = self._pop()
        self._waiting -= 1
        # Before `resume`: a fiber that queues itself there would schedule a second call.
        if self._waiting:
            self.loop.call_soon(self._next)
        resume()

    def _pop(self) -> Callable[[], None]:
        lines = self._lines
        if self._last == LOCK or not lines[LOCK]:
            rank = self._turn
            for _ in range(NODE, RANKS):
                following = rank + 1 if rank + 1 < RANKS else NODE
                if lines[rank]:
                    self._last, self._turn = rank, following
                    return lines[rank].pop()
                rank = following
        self._last = LOCK
        return lines[LOCK].pop()


def _serve(scheduler: weakref.ref[FiberScheduler]) -> None:
    """Body of a worker greenlet: run the function it is switched to with, then be idle until the
    next.

    The garbage collector does not look into a greenlet's frames. So an idle one references neither
    the scheduler that holds it nor itself.
    """
    loop_side = getcurrent().parent
    assert loop_side is not None
    while True:
        work = loop_side.switch()
        work()
        del work  # an idle worker must not keep its last script alive
        owner = scheduler()
        if owner is None or len(owner.idle) >= IDLE_WORKERS:
            return
        owner.idle.append(getcurrent())
        del owner
