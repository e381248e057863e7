"""Failure detector of a connection: probes a silent peer while requests are open.

A peer that vanishes silently, because its machine is off or a proxy is stuck, looks like a slow
one. So it is sent a PING, and considered lost if nothing is received after that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

QUIET_SECONDS: Final = 20.0
"""Seconds of silence while requests are open, after which the peer is probed. Longer than the
interval of a feed's heartbeats, 15 seconds."""
ANSWER_SECONDS: Final = 20.0
"""Seconds for any data to be received after a probe."""
LEAVING_SECONDS: Final = 60.0
"""Seconds for any data from a node that has said BYE, when it cannot be probed. A stopping node
gives pending requests 30 seconds, and cuts them off then."""


class Pulse:
    """Failure detector of one connection, active while requests are open.

    :param is_open: returns True while requests are open
    :param ask: probes the peer if possible. Returns the seconds in which any data must be received;
        None: the peer owes no answer, or its answer would not be read
    :param lost: called if nothing was received in that time
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
        """Time of the last probe; None: data was received since."""
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Start watching: a request was opened."""
        if self._timer is None:
            self._look_in(QUIET_SECONDS)

    def on_data(self) -> None:
        """Record received data."""
        self._heard = self._loop.time()

    def stop(self) -> None:
        """Stop watching: the connection is closed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_in(self, seconds: float) -> None:
        self._timer = self._loop.call_later(seconds, self._check_silence)

    def _check_silence(self) -> None:
        self._timer = None
        if not self._is_open():
            self._asked = None
        elif self._asked is not None and self._heard < self._asked:
            self._lost()
        else:
            self._look_in(self._next())

    def _next(self) -> float:
        """Probe the peer if it was silent for long. Return the seconds until the next check."""
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
