"""Deferred requests: what comes while a surface runs as much as it may is judged a little later.

A script counts as running from its request on, and no more once it waits for messages. Of a
thousand that come at once, all of which will only wait, most have not had their first turn when the
next one is there. So that one is put off for some turns of the loop: either those before it wait by
then, or they do run, and it is refused.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

TURNS: Final = 50
"""For how many turns of the loop something is put off: a few milliseconds, a tenth of a second when
the node is busy."""


class Deferred:
    """What was put off, first come first judged.

    :param full: whether there is no room
    """

    turn_seconds = 0.002
    """Longest judging in one turn of the loop: each connection goes on with its next frames."""

    def __init__(self, loop: asyncio.AbstractEventLoop, full: Callable[[], bool]) -> None:
        self._loop = loop
        self._full = full
        self._put_off: deque[tuple[int, Callable[[], None]]] = deque()
        self._turn = 0
        self._scheduled = False

    def judge(self, again: Callable[[], None]) -> None:
        """Call `again` as soon as there is room, or the time is over."""
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
        finally:  # one that raises is the loop's to report, and ends nothing for those behind it
            self._scheduled = bool(self._put_off)
            if self._scheduled:
                self._loop.call_soon(self._next_turn)
