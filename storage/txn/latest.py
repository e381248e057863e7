"""Point reads of the newest state without a transaction.

For reads that complete before control is yielded. No commit can come in between, so no read set is
kept. As in a transaction, `saw` names the newest pending commit that was read: the response waits
until it is released.
"""

from __future__ import annotations

from storage.txn.ledger import Ledger
from storage.txn.tickets import CommitTicket


class LatestState:
    """Reader of the newest state, with the reading part of a transaction's interface. Use and
    discard it at once."""

    __slots__ = ("_ledger", "_now_us", "saw")

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._now_us = 0
        self.saw = 0
        """Highest pending sequence that a read depended on; 0: none."""

    @property
    def ticket(self) -> CommitTicket:
        """Ticket of the newest pending commit that a read depended on; take it before yielding
        control."""
        return CommitTicket(self.saw, self._ledger.state.roll_backs.generation)

    @property
    def now_us(self) -> int:
        """Log time (µs), the same at each call. Read at the first call, which most reads never
        make."""
        if not self._now_us:
            self._now_us = self._ledger.log_time()
        return self._now_us

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None."""
        state = self._ledger.state
        flight = state.flight
        # Pending writes are newer than the engine; most of the time there are none.
        found = flight.get(key) if flight.write_sets else None
        if found is None:
            return state.engine.get(key)
        # A pending deletion counts as found, with the value None: the engine is not asked.
        sequence, value = found
        if sequence > self.saw:
            self.saw = sequence
        return value
