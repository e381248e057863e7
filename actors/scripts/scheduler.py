"""Scheduler: the queue of fibers that wait for a time slice, and the pool of greenlets."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from greenlet import getcurrent, greenlet

from protocol import limits
from protocol.environment import Clock

IDLE_WORKERS: Final = 256
"""Greenlets kept for the next script: a new one costs 30 µs, most of it for its stack."""


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
    """Scheduler: queue of fibers that wait for a time slice on one loop, and greenlets to run them.

    Slices go round robin by user: four hundred scripts of one user delay another's by one slice
    each time, not by four hundred.
    """

    slice_us = limits.SLICE_US
    """Default length of a slice (µs)."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self.loop = loop
        self.clock = clock
        self._lines = UserQueues()
        """Waiting fibers, by user."""
        self._high_priority: deque[Callable[[], None]] = deque()
        self._high_priority_last = False
        """True if the last slice was of high priority."""
        self.idle: list[greenlet] = []
        """Idle greenlets."""

    def queue(self, resume: Callable[[], None], user: str, *, high_priority: bool = False) -> None:
        """Queue a fiber for its next slice.

        :param user: user of the fiber; empty: the node
        :param high_priority: every other slice is for such fibers, however many others
            wait
        """
        # While fibers wait, exactly one call of `_next` is scheduled.
        if not self.has_waiting:
            self.loop.call_soon(self._next)
        if high_priority:
            self._high_priority.append(resume)
        else:
            self._lines.add(user, resume)

    @property
    def has_waiting(self) -> bool:
        """True if a fiber waits for a slice."""
        return bool(self._lines or self._high_priority)

    def waiting_of(self, user: str) -> int:
        """Return the number of a user's fibers that wait for a slice."""
        return self._lines.waiting_of(user)

    def worker(self) -> greenlet:
        """Return a greenlet that runs the function passed by a switch, and then is idle again."""
        assert getcurrent().parent is None, "a turn is made on the loop, and not in another turn"
        if self.idle:
            return self.idle.pop()
        worker = greenlet(partial(_serve, weakref.ref(self)))
        worker.switch()  # to its first wait: a greenlet references its first arguments to its end
        return worker

    def _next(self) -> None:
        # One slice in each iteration of the loop: sockets and mailboxes get their turn in between.
        resume = self._pop()
        # Before `resume`: a fiber that queues itself there would schedule a second call.
        if self.has_waiting:
            self.loop.call_soon(self._next)
        resume()

    def _pop(self) -> Callable[[], None]:
        # High priority gets every other slice, and all of them while no other fiber waits.
        high_priority = self._high_priority_last = bool(
            self._high_priority and not (self._high_priority_last and self._lines)
        )
        return self._high_priority.popleft() if high_priority else self._lines.pop()


def _serve(turns: weakref.ref[FiberScheduler]) -> None:
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
        owner = turns()
        if owner is None or len(owner.idle) >= IDLE_WORKERS:
            return
        owner.idle.append(getcurrent())
        del owner
