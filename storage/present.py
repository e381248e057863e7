"""The newest state, read without a transaction.

For what only reads, and is over before control is given away: nothing can have changed meanwhile,
so there is nothing to remember of what was read. What it saw in flight is told by `saw`, as with a
transaction: an answer waits until that is durable.
"""

from __future__ import annotations

from storage.ledger import Ledger
from storage.tickets import CommitTicket


class Present:
    """As much of a transaction as reading takes; made where it is used, and dropped there."""

    __slots__ = ("_ledger", "_now_us", "saw")

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._now_us = 0
        self.saw = 0
        """The highest sequence in flight that a read depended on; 0: none."""

    @property
    def ticket(self) -> CommitTicket:
        """The newest commit in flight that a read depended on, before control is given away."""
        return CommitTicket(self.saw, self._ledger.roll_backs.generation)

    @property
    def now_us(self) -> int:
        """Log time, the same at each call. Most reads never ask: it is looked at when one does."""
        if not self._now_us:
            self._now_us = self._ledger.log_time()
        return self._now_us

    def get(self, key: bytes) -> bytes | None:
        """The value of a key."""
        ledger = self._ledger
        flight = ledger.flight
        found = flight.get(key) if flight.layers else None
        if found is None:
            return ledger.engine.get(key)
        sequence, value = found
        if sequence > self.saw:
            self.saw = sequence
        return value
