"""Whether the peer of a connection is still there, where something is open and nothing comes.

A peer that vanishes without a word, its machine off or a proxy before it stuck, looks like one that
takes its time. So it is asked, with a PING, and taken for gone when nothing comes of that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

QUIET_SECONDS: Final = 20.0
"""Without a byte from the peer while something is open; then it is asked. The beat of a feed comes
sooner, every 15."""
ANSWER_SECONDS: Final = 20.0
"""For anything to come once it was asked."""
LEAVING_SECONDS: Final = 60.0
"""For anything to come of a node that has said BYE, where it can't be asked: one that is stopping
has 30 seconds for what is under way, and cuts it off then."""


class Pulse:
    """That of one connection, looked at while something is open there.

    :param is_open: whether something is
    :param ask: asks the peer if it can, and answers in how many seconds anything must come of it;
        None: it owes nothing now, or nothing it says would be heard
    :param lost: called when nothing came in that time
    """

    def __init__(
        self,
        is_open: Callable[[], bool],
        ask: Callable[[], float | None],
        lost: Callable[[], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._is_open = is_open
        self._ask = ask
        self._lost = lost
        self._heard = self._loop.time()
        self._asked: float | None = None
        """When it was asked for the last time; None: something has come since."""
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Something is open."""
        if self._timer is None:
            self._look_in(QUIET_SECONDS)

    def heard(self) -> None:
        """Something has come."""
        self._heard = self._loop.time()

    def stop(self) -> None:
        """The connection is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_in(self, seconds: float) -> None:
        self._timer = self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        if not self._is_open():
            self._asked = None
        elif self._asked is not None and self._heard < self._asked:
            self._lost()
        else:
            self._look_in(self._next())

    def _next(self) -> float:
        """Ask it if it has been quiet for long: seconds until it is to be looked at again."""
        self._asked = None
        now = self._loop.time()
        left = self._heard + QUIET_SECONDS - now
        if left > 0:
            return left
        seconds = self._ask()
        if seconds is None:
            return QUIET_SECONDS
        self._asked = now
        return seconds
