"""The mark that a log gets which has fallen idle. It says that all before it is durable: the next
frame would, and may be long in coming."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from storage.txn.ledger import Ledger

IDLE_SECONDS: Final = 1.0
"""Without a new commit."""


class IdleMarks:
    """On the loop only.

    :param mark: has the log marked
    """

    ledger: Ledger

    def __init__(self, loop: asyncio.AbstractEventLoop, mark: Callable[[], None]) -> None:
        self._loop = loop
        self._mark = mark
        self._timer: asyncio.TimerHandle | None = None

    def on_progress(self) -> None:
        """Start the timer if no commit is unsynced: some became durable, or were rolled back."""
        # One timer, which re-arms itself: commits that follow neither set nor cancel it.
        if self._timer is None and self.ledger.state.committed == self.ledger.synced_seq:
            self._arm(self.ledger.state.committed)

    def _arm(self, seen: int) -> None:
        self._timer = self._loop.call_later(IDLE_SECONDS, self._mark_if_idle, seen)

    def _mark_if_idle(self, seen: int) -> None:
        if self.ledger.state.committed == seen:
            self._timer = None
            self._mark()
        else:
            # Commits came during that second: the idle time starts over.
            self._arm(self.ledger.state.committed)

    def close(self) -> None:
        """Mark no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
