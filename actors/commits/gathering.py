"""When to run what comes in numbers, so that it is run together: what a commit costs it costs once
for all that is in it.

- What comes in one turn of the loop is run at its end, for a slice; what is left after that in the
  next turn. Where the surface says that it has brought all that it read, and the loop has nothing
  else to call, that is the end: asyncio tells nobody else.
- Where many came together lately the first that come wait for as many, for a slice at most: clients
  that were answered together come again one closely after the other, and a commit for the first of
  them would cost as much as one for all. Whoever is alone waits for nobody, and after many once.
- What comes while the log has a batch waits for its return: what is committed then could not be
  given to the log any sooner. It waits for `HOLD_US` at most: a disk that stalls is no reason not
  to look.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from protocol import limits

if TYPE_CHECKING:
    from actors.commits.committer import Committer
    from actors.runtime import Runtime

HOLD_US: Final = 5_000
"""How long what has come waits for the log to return a batch, at most."""
LESS: Final = 7 / 8
"""What is left, each time that some are run, of how many are expected together."""
MANY: Final = 4
"""When others were waited for in vain: so many are expected, at most, for each that came beside the
first. Behind one that stayed alone nobody is."""


class Gathering:
    """See the head of the file. On the loop only.

    :param run: runs what has come, for a slice; answers whether something is left
    :param waiting: how many have come and were not run
    """

    def __init__(
        self,
        runtime: Runtime,
        committer: Committer,
        run: Callable[[], bool],
        waiting: Callable[[], int],
    ) -> None:
        self._loop = runtime.loop
        self._ready = runtime.ready
        self._monotonic_us = runtime.clock.monotonic_us
        self._committer = committer
        self._run = run
        self._waiting = waiting
        self._together = 1.0
        """How many came together lately."""
        self._scheduled = False
        self._running = False
        self._at_end: asyncio.Handle | None = None
        """The look at the end of this turn."""
        self._hold: asyncio.TimerHandle | None = None
        """Runs while what has come is held."""
        self._since_us: int | None = None
        """When the first came of what has not been run."""
        self._stopped = False
        committer.on_return.append(self._log_returned)

    def soon(self) -> None:
        """Something has come."""
        if self._running:
            return  # what comes of a run is run with it, or is left of it
        if self._since_us is None:
            self._since_us = self._monotonic_us()
        if self._scheduled:
            return
        if self._hold is None or not (self._committer.log_is_busy or self._awaits()):
            self._let_go()
            self._scheduled = True
            self._at_end = self._loop.call_soon(self._look)

    def turn_ends(self) -> None:
        """Who calls has brought all that it will in this turn of the loop."""
        at_end = self._at_end
        if at_end is not None and self._ready() == 1:
            at_end.cancel()
            self._look()

    def _awaits(self) -> bool:
        """Whether more are likely to come in a moment."""
        return self._together >= 2 and self._waiting() < self._together

    def stop(self) -> None:
        """The node stops: nothing is held any more."""
        self._stopped = True
        self._let_go()

    def _let_go(self) -> None:
        if self._hold is not None:
            self._hold.cancel()
            self._hold = None

    def _look(self) -> None:
        """A turn is over."""
        self._scheduled = False
        self._at_end = None
        if self._stopped:
            self._go()
        elif self._committer.log_is_busy:
            self._hold_for(HOLD_US)
        elif (left_us := self._worth_waiting_us()) > 0:
            self._hold_for(left_us)
        else:
            self._go()

    def _worth_waiting_us(self) -> int:
        """How long to wait for more that is likely to come."""
        if self._since_us is None or not self._awaits():
            return 0
        return self._since_us + limits.SLICE_US - self._monotonic_us()

    def _hold_for(self, for_us: int) -> None:
        if self._hold is None:
            self._hold = self._loop.call_later(for_us / 1_000_000, self._held_long_enough)

    def _held_long_enough(self) -> None:
        self._hold = None
        self._together = min(self._together, MANY * (self._waiting() - 1.0))
        self._go()

    def _log_returned(self) -> None:
        if self._hold is not None:
            self._let_go()
            self._look()

    def _go_on(self) -> None:
        self._scheduled = False
        self._go()

    def _go(self) -> None:
        self._since_us = None
        self._together = max(self._waiting(), self._together * LESS)
        self._running = True
        try:
            left = self._run()
        finally:
            self._running = False
        if left and not self._scheduled and self._hold is None:
            self._scheduled = True
            self._loop.call_soon(self._go_on)
