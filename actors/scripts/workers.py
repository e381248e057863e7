"""Where turns come from: the queue of those that wait for a slice, and the greenlets."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from greenlet import getcurrent, greenlet

from protocol import limits
from protocol.doors import Clock

IDLE_WORKERS: Final = 256
"""Greenlets kept for the next script: a new one costs 30 µs, most of it for its stack."""


class Turns:
    """The queue of work that waits for a slice on one loop, and greenlets to run it.

    Slices go round by user: four hundred scripts of one user hold another's back by one slice each
    time, and not by four hundred.
    """

    slice_us = limits.SLICE_US
    """How long a slice is, but for work that says otherwise."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self.loop = loop
        self.clock = clock
        self._lines: dict[str, deque[Callable[[], None]]] = {}
        """What waits, by user."""
        self._order: deque[str] = deque()
        """Users with something that waits, in the order of their next slices."""
        self._hurried: deque[Callable[[], None]] = deque()
        self._hurried_last = False
        """True if the last slice was of what hurries."""
        self._waiting = 0
        self.idle: list[greenlet] = []
        """Those that have nothing to do."""

    def queue(self, resume: Callable[[], None], user: str, *, hurries: bool = False) -> None:
        """Resume work when its turn comes.

        :param user: whose it is; empty: the node's own
        :param hurries: every second slice is for what does, however much waits
        """
        if hurries:
            self._hurried.append(resume)
        elif (line := self._lines.get(user)) is not None:
            line.append(resume)
        else:
            self._lines[user] = deque((resume,))
            self._order.append(user)
        self._waiting += 1
        if self._waiting == 1:
            self.loop.call_soon(self._next)

    def waiting_of(self, user: str) -> int:
        """Return how much work of a user waits for a slice."""
        line = self._lines.get(user)
        return 0 if line is None else len(line)

    def worker(self) -> greenlet:
        """A greenlet that runs what it is switched to with, and then is idle again."""
        assert getcurrent().parent is None, "a turn is made on the loop, and not in another turn"
        if self.idle:
            return self.idle.pop()
        worker = greenlet(partial(_serve, weakref.ref(self)))
        worker.switch()  # up to its first wait: what a greenlet begins with it holds to its end
        return worker

    def _next(self) -> None:
        self._waiting -= 1
        if self._waiting:
            self.loop.call_soon(self._next)
        self._pop()()

    def _pop(self) -> Callable[[], None]:
        hurries = self._hurried_last = bool(
            self._hurried and not (self._hurried_last and self._order)
        )
        if hurries:
            return self._hurried.popleft()
        user = self._order.popleft()
        line = self._lines[user]
        resume = line.popleft()
        if line:
            self._order.append(user)
        else:
            del self._lines[user]
        return resume


def _serve(turns: weakref.ref[Turns]) -> None:
    """What a worker does: run what it is switched to with, and be idle until the next.

    The collector does not look into a greenlet's frames, so an idle one holds neither the turns
    that hold it nor itself.
    """
    loop_side = getcurrent().parent
    assert loop_side is not None
    while True:
        work = loop_side.switch()
        work()
        del work  # an idle worker keeps nothing of its last script
        owner = turns()
        if owner is None or len(owner.idle) >= IDLE_WORKERS:
            return
        owner.idle.append(getcurrent())
        del owner
