"""The store as it was at one commit, kept for a while so that several transactions read the same.

Only what is released is read there: no answer from a moment waits, and nothing of it is ever taken
back. What is read there was right then, and may not be now: nothing is changed on the ground of it.

A moment costs what the engine may not compact away, and the layers that were in flight over it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.layers import Layer
from storage.transactions import Transaction

if TYPE_CHECKING:
    from storage.ledger import Ledger


class Moment:
    """What is released in a ledger, as it is now.

    Whoever makes one has to `end` it before the engine is closed. The ledger ends it where rights
    change: they are judged as they were in it.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.sequence = ledger.released_upto
        """The commit whose state is read."""
        self.time_us = ledger.log_time()
        """Log time when it was made: what `time::now()` says in it."""
        self.view = ledger.engine.snapshot()
        self.layers = [
            one for one in reversed(ledger.flight.layers) if one.sequence <= self.sequence
        ]
        """What was released and not in the engine yet, the newest first."""
        self.ended = False
        self._readers = 0
        ledger.moments.add(self)

    def froze(self, layer: Layer) -> bool:
        """Whether it is read through a layer."""
        return layer in self.layers

    def begin(self) -> Transaction:
        """A transaction that reads it."""
        assert not self.ended, "a moment that has ended is read"
        self._readers += 1
        return _Reading(self, self._ledger)

    def left(self) -> None:
        """One that read it has ended."""
        self._readers -= 1
        self._close()

    def end(self) -> None:
        """Let it go, once nobody reads it any more. Ending twice is fine."""
        self.ended = True
        self._close()

    def _close(self) -> None:
        if self.ended and not self._readers:
            self.view.close()
            self.layers.clear()
            self._ledger.moments.discard(self)


def read_released(ledger: Ledger) -> Transaction:
    """A transaction that reads what is released by now, whatever is in flight. It changes nothing,
    and what it answers waits for nothing."""
    moment = Moment(ledger)
    transaction = moment.begin()
    moment.end()
    return transaction


class _Reading(Transaction):
    """A transaction that reads a moment, and has been paused from its beginning on."""

    is_past = True

    def __init__(self, moment: Moment, ledger: Ledger) -> None:
        super().__init__(ledger, moment.sequence, moment.time_us)
        self._moment = moment
        self._view = moment.view
        self._frozen = moment.layers
        self.released = moment.sequence

    def _changing(self) -> Layer:
        raise AssertionError("nothing is changed in a moment that is over")

    def release(self) -> None:
        if not self.ended:
            self.ended = True
            self._moment.left()
