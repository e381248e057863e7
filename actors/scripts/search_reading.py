"""Reading of a search: the part of a statement's execution that it uses.

A measurement of recall has a reading of its own, with the transaction that it reads in: it reads a
snapshot for seconds, and no commit is a conflict with that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from language.sizing import WorkingMemory
from storage.txn.transaction import Transaction


class Reading(Protocol):
    """Part of a statement's execution that a search uses."""

    @property
    def transaction(self) -> Transaction:
        """Transaction that it reads in."""

    @property
    def memory(self) -> WorkingMemory:
        """Its memory account."""

    @property
    def tick(self) -> Callable[..., None]:
        """Charges for CPU work, and may yield; see `language.env.Env`."""

    def hold(self, size: int) -> None:
        """Count bytes that it holds."""

    def count_read(self, rows: int) -> None:
        """Count rows that it has read."""


class SeparateReading:
    """Reading in another transaction than that of a statement, or of no statement."""

    def __init__(
        self, transaction: Transaction, memory: WorkingMemory, tick: Callable[..., None]
    ) -> None:
        self.transaction = transaction
        self.memory = memory
        self.tick = tick

    def hold(self, size: int) -> None:
        """Count bytes that it holds."""
        self.memory.held += size

    def count_read(self, rows: int) -> None:
        """Count no rows: they are no rows of a statement."""
