"""Long work of a surface, reading a body of megabytes above all, in turns with everybody else's.

It is plain synchronous code that is handed a `tick` to call, and runs as scripts do: see
`actors/scripts/turns.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar
from weakref import WeakValueDictionary

from actors.scripts.turns import Turn
from actors.scripts.workers import Turns

Found = TypeVar("Found")


class _LoopClock:
    """The loop's own time: virtual where the loop's is."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._time = loop.time

    def wall_us(self) -> int:
        """Not asked for here."""
        raise NotImplementedError

    def monotonic_us(self) -> int:
        """Microseconds on the loop's clock."""
        return int(self._time() * 1_000_000)

    def boottime_us(self) -> int:
        """Not asked for here."""
        raise NotImplementedError


PACE_SECONDS: Final = 0.016
"""What connections may take together of one turn of the loop: eight slices."""


class Pace:
    """Time of a turn of the loop that many connections share. Each is short; a thousand that are
    ready at once are not, and the loop serves all of them before anything else."""

    def __init__(self) -> None:
        self.is_spent = False
        self._seconds = 0.0
        self._renews = False

    def spend(self, seconds: float) -> None:
        """Count time, until the next turn of the loop."""
        self._seconds += seconds
        if self._seconds > PACE_SECONDS / 4 and not self._renews:
            self._renews = True  # not for each: that costs as much as a GET
            asyncio.get_running_loop().call_soon(self._renew)
        self.is_spent = self._seconds >= PACE_SECONDS

    def _renew(self) -> None:
        self.is_spent = self._renews = False
        self._seconds = 0.0


class LongWork:
    """Runs it on one loop; the pieces of several wait for each other in a queue."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._turns = Turns(loop, _LoopClock(loop))
        self._reading: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By user, for as long as somebody holds or awaits them."""

    def reading_of(self, user: str) -> asyncio.Lock:
        """What is held while something of a user's is read of which only then is known how much it
        takes: of one user one thing at a time is, in the order in which they came."""
        found = self._reading.get(user)
        if found is None:
            found = self._reading[user] = asyncio.Lock()
        return found

    def later(self, user: str, call: Callable[[], None]) -> None:
        """Make a short call in its turn. :param user: whose work it is"""
        self._turns.queue(call, user)

    async def run(self, user: str, work: Callable[[Callable[[], None]], Found]) -> Found:
        """What `work(tick)` answers or raises. Whoever waits may be cancelled: the work then ends
        at its next turn.

        :param user: whose work it is
        """
        turn, found = Turn(self._turns, user), list[Found]()
        turn.start_in_line(lambda: found.append(work(turn.tick)), _nothing)
        try:
            await asyncio.wait((turn.outcome,))
        finally:
            if not turn.ended:
                turn.cancel()
            # Who is cancelled hears no more of it, also where it has failed in this very turn.
            turn.outcome.add_done_callback(asyncio.Future.exception)
        turn.outcome.result()
        return found.pop()


def _nothing() -> None:
    """Nothing has to be done before the loop gets its turn."""
