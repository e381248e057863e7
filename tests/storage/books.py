"""A ledger over the engine in memory, with its log in a list."""

from __future__ import annotations

from typing import Any

from storage.catalog.tables import Table
from storage.engine.engine import Engine
from storage.engine.memory import MemoryEngine
from storage.formats import effects
from storage.formats.effects import Attribution, Effect
from storage.formats.frames import Frame
from storage.formats.positions import LogEnd
from storage.indexes import derived
from storage.records.records import RecordChanges, Stored
from storage.txn.ledger import Ledger
from storage.txn.transaction import Transaction
from tests.simulation.environment import ManualClock, SeededRng

BY = Attribution("ana", "wire test")


def digests(frames: list[Frame], upto: int | None = None) -> list[bytes]:
    """Of the frames of a log from its beginning, as the log says them with what is durable."""
    return [frame.digest() for frame in frames[:upto]]


def put(
    tx: Transaction, table: Table, id: Any, fields: dict[str, Any], before: Stored | None
) -> None:
    changes = RecordChanges(tx, table)
    changes.put(id, fields, before)
    changes.write(lambda: None)


def is_part_settled(ledger: Ledger) -> bool:
    """Whether the engine holds a part of a commit, so that only what is in flight over it makes it
    the state of any one commit."""
    return ledger._part_at > 0


class Book:
    """What most tests of the rules need."""

    def __init__(self, engine: Engine | None = None) -> None:
        self.clock = ManualClock()
        self.engine = engine or MemoryEngine()
        self.frames: list[Frame] = []
        self.ledger = self.ledger_on(self.engine, LogEnd())

    def ledger_on(self, engine: Engine, end: LogEnd) -> Ledger:
        """Another ledger, which hands its frames to this book."""
        return Ledger(engine, end, self.clock, SeededRng(1), self.frames.append, derived.kept)

    def begin_transaction(self) -> Transaction:
        return self.ledger.begin_transaction()

    def commit(self, tx: Transaction) -> int:
        return self.ledger.commit(tx, BY).sequence

    def durable(self) -> None:
        self.ledger.durable(self.ledger.state.committed, digests(self.frames))

    def effects(self, sequence: int) -> list[Effect]:
        return effects.decode(self.frames[sequence - 1].body).effects
