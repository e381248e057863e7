"""What is released goes to the state engine, a part at a time, and others have their turn between.

Nothing goes as long as the engine would make a writer wait: this is the thread that everybody waits
for. What is not settled stays in flight, where every read finds it, and the engine is asked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from storage.ledger import Ledger

STALL_SECONDS: Final = 0.01
"""How often a state that takes nothing is asked again."""


class Settling:
    """On the loop only.

    :param later: has `more` called, in a turn of its own
    """

    ledger: Ledger

    def __init__(self, loop: asyncio.AbstractEventLoop, later: Callable[[], None]) -> None:
        self._loop = loop
        self._later = later
        self._coming = False
        """Whether a turn for more is on its way."""
        self._stalled: asyncio.TimerHandle | None = None
        """Asks an engine again that takes nothing."""
        self._takes_nothing = False
        """True if the engine took nothing when it was asked last."""

    def some(self) -> bool:
        """Bring a part of what is released to the engine, and have the rest follow. False: it takes
        nothing for now."""
        self._takes_nothing = not self.ledger.may_settle
        if self._takes_nothing:
            if self._stalled is None:
                self._stalled = self._loop.call_later(STALL_SECONDS, self._look_again)
            return False
        if self.ledger.settle():
            self._come()
        return True

    def more(self) -> bool:
        """The turn for more has come; as `some`."""
        self._coming = False
        return self.some()

    def _come(self) -> None:
        if not self._coming:
            self._coming = True
            self._later()

    def _look_again(self) -> None:
        self._stalled = None
        self._come()  # in a turn of the actor's, which tells what fails

    @property
    def waiting_bytes(self) -> int:
        """What is in flight because the engine takes nothing. May be read from another thread."""
        return self.ledger.flight.bytes if self._takes_nothing else 0

    def close(self) -> None:
        """Ask no more."""
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
