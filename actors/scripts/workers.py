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
    """The queue of scripts that wait for a slice on one loop, and greenlets to run them."""

    slice_us = limits.SLICE_US
    """How long a slice is, but for work that says otherwise."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self.loop = loop
        self.clock = clock
        self._waiting: deque[Callable[[], None]] = deque()
        self.idle: list[greenlet] = []
        """Those that have nothing to do."""

    def queue(self, resume: Callable[[], None], *, hurries: bool = False) -> None:
        """Resume a script when its turn comes.

        :param hurries: after the next one, however many wait: every second slice is its own
        """
        if hurries:
            self._waiting.insert(1, resume)
        else:
            self._waiting.append(resume)
        if len(self._waiting) == 1:
            self.loop.call_soon(self._next)

    def worker(self) -> greenlet:
        """A greenlet that runs what it is switched to with, and then is idle again."""
        assert getcurrent().parent is None, "a turn is made on the loop, and not in another turn"
        if self.idle:
            return self.idle.pop()
        worker = greenlet(partial(_serve, weakref.ref(self)))
        worker.switch()  # up to its first wait: what a greenlet begins with it holds to its end
        return worker

    def _next(self) -> None:
        resume = self._waiting.popleft()
        if self._waiting:
            self.loop.call_soon(self._next)
        resume()


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
