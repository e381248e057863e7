"""Deferred admission: requests that arrive while a surface is full are judged a little later.

A script counts as running from its request until it only waits for messages. When a thousand long
polls arrive at once, most have not run their first slice when the next one arrives. That one is
deferred for some iterations of the loop. By then the earlier ones wait, or they really run and it
is refused.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

TURNS: Final = 50
"""Iterations of the loop that a request is deferred: a few milliseconds, a tenth of a second on a
busy node."""


class AdmissionQueue:
    """FIFO of deferred requests.

    :param full: returns True if there is no free slot
    """

    turn_seconds = 0.002
    """Longest judging per iteration of the loop, seconds: each admitted connection goes on with its
    next frames."""

    def __init__(self, loop: asyncio.AbstractEventLoop, full: Callable[[], bool]) -> None:
        self._loop = loop
        self._full = full
        self._put_off: deque[tuple[int, Callable[[], None]]] = deque()
        self._turn = 0
        self._scheduled = False

    def judge(self, again: Callable[[], None]) -> None:
        """Call `again` as soon as there is a free slot, or the deferral is over."""
        self._put_off.append((self._turn + TURNS, again))
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turn += 1
        ends = self._loop.time() + self.turn_seconds
        try:
            for _ in range(len(self._put_off)):
                until, again = self._put_off[0]
                if self._turn < until and self._full():
                    break
                self._put_off.popleft()
                again()
                if self._loop.time() >= ends:
                    break
        finally:  # the loop reports an exception; later requests are still judged
            self._scheduled = bool(self._put_off)
            if self._scheduled:
                self._loop.call_soon(self._next_turn)
