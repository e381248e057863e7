"""Random histories over a ledger whose process dies now and then."""

from __future__ import annotations

import random
from typing import Any

from storage.engine.state_hash import state_hash
from storage.formats.positions import LogEnd
from tests.storage.books import Book
from tests.storage.engines import EngineHome, MemoryStore


class LedgerStory(Book):
    """Base of random histories of a ledger. `states` has the model after each commit.

    :param store: where the state is kept
    :param steps: how many things happen
    """

    states: list[Any]

    def __init__(self, seed: int, store: EngineHome | None, steps: int) -> None:
        self.random = random.Random(seed)
        self.store = store or MemoryStore()
        self.steps = steps
        super().__init__(self.store.engine)
        self.commits = self.conflicts = self.crashes = 0

    def _die(self, least: int = 0) -> int:
        """The process dies. The log kept what was durable, and perhaps some of the rest. Where it
        ends now."""
        synced = max(self.ledger.synced_seq, least)
        end = self.random.randint(synced, self.ledger.state.committed)
        engine = self.store.crash()
        del self.frames[end:], self.states[end + 1 :]
        self.clock.step_wall(self.random.randrange(-1_000_000, 1_000_000))
        time = self.frames[-1].time if self.frames else 0
        self.ledger = self.ledger_on(engine, LogEnd(end, 1, time))
        for frame in self.frames[engine.applied :]:
            self.ledger.replay(frame)
        self.crashes += 1
        return end

    def _check_replay(self) -> None:
        """The whole log, replayed into an empty engine, gives the same state."""
        fresh = MemoryStore().engine
        ledger = self.ledger_on(fresh, LogEnd(len(self.frames)))
        for frame in self.frames:
            ledger.replay(frame)
        assert state_hash(fresh) == state_hash(self.store.engine)
