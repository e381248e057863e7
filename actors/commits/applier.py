"""Applier: brings released commits to the state engine, in slices.

It stops while the engine would make a writer wait, since it runs on the loop. Commits that are not
applied stay pending, where every read finds them; the engine is asked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from storage.txn.ledger import Ledger

STALL_SECONDS: Final = 0.01
"""Interval of asking a stalled engine again (s)."""


class Applier:
    """On the loop only.

    :param later: has `more` called, in a loop iteration of its own
    """

    ledger: Ledger

    def __init__(self, loop: asyncio.AbstractEventLoop, later: Callable[[], None]) -> None:
        self._loop = loop
        self._later = later
        self._coming = False
        """True while a call of `more` is scheduled."""
        self._stalled: asyncio.TimerHandle | None = None
        """Asks an engine again that takes nothing."""
        self._takes_nothing = False
        """True if the engine took nothing when it was asked last."""

    def some(self) -> bool:
        """Apply a slice of the released commits and schedule the rest. False: the engine is
        stalled."""
        self._takes_nothing = not self.ledger.may_apply
        if self._takes_nothing:
            # One timer, however many releases come while the engine is stalled.
            if self._stalled is None:
                self._stalled = self._loop.call_later(STALL_SECONDS, self._retry)
            return False
        # One part of about a millisecond; the rest follows as a message of its own.
        if self.ledger.apply_next():
            self._schedule()
        return True

    def more(self) -> bool:
        """Apply another slice; as `some`."""
        self._coming = False
        return self.some()

    def _schedule(self) -> None:
        # At most one message is on its way: each slice schedules the next.
        if not self._coming:
            self._coming = True
            self._later()

    def _retry(self) -> None:
        self._stalled = None
        self._schedule()  # as a message to the actor, which reports what fails

    @property
    def waiting_bytes(self) -> int:
        """Bytes of pending commits held back by a stalled engine. Thread-safe."""
        return self.ledger.state.flight.bytes if self._takes_nothing else 0

    def close(self) -> None:
        """Ask no more."""
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
