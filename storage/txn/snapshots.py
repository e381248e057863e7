"""Pinned snapshot (the user's *moment*): the store at one commit, for several transactions to read.

It shows only released commits: no response from it waits, and none of its reads can be rolled back.
Its data may be stale, so no change may be based on it.

A pinned snapshot costs the data that the engine can't compact away, and the write sets that were
pending over it.
"""

from __future__ import annotations

from storage.txn.committed_state import CommittedState
from storage.txn.transaction import Transaction
from storage.txn.write_set import WriteSet


class PinnedSnapshot:
    """Pinned snapshot of the committed state at its commit index.

    The caller must `end` it before the engine is closed. The ledger ends it when privileges change,
    because they are checked as of the snapshot.

    :param now_us: log time (µs)
    """

    def __init__(self, state: CommittedState, now_us: int) -> None:
        self._state = state
        self.sequence = state.commit_index
        """Sequence of the commit whose state is read."""
        self.time_us = now_us
        """Log time (µs) of its creation, which `time::now()` returns in it."""
        # The engine is never ahead of the commit index, so its snapshot fits as it is.
        self.view = state.engine.snapshot()
        self.folded = state.marked.version
        """Version of the changes by folds that the view has."""
        # Later pending commits may still be rolled back.
        self.write_sets = [
            one for one in reversed(state.flight.write_sets) if one.sequence <= self.sequence
        ]
        """Released write sets that the engine had not applied yet, newest first."""
        self.ended = False
        self._readers = 0
        state.moments.add(self)

    def begin_transaction(self) -> Transaction:
        """Begin a transaction that reads the snapshot."""
        assert not self.ended, "a moment that has ended is read"
        self._readers += 1
        return _Reading(self, self._state)

    def left(self) -> None:
        """Release one reader, which has ended."""
        self._readers -= 1
        self._close()

    def end(self) -> None:
        """Release the snapshot once its last reader has ended. Idempotent."""
        self.ended = True
        self._close()

    def _close(self) -> None:
        if self.ended and not self._readers:
            self.view.close()
            self.write_sets.clear()
            self._state.moments.discard(self)


def read_released(state: CommittedState, now_us: int) -> Transaction:
    """Begin a read-only transaction at the commit index. Its response never waits for a commit.

    :param now_us: log time (µs)
    """
    moment = PinnedSnapshot(state, now_us)
    transaction = moment.begin_transaction()
    # Its only reader keeps it open, and closes it at its own end.
    moment.end()
    return transaction


class _Reading(Transaction):
    """Transaction that reads a pinned snapshot; paused from its beginning on."""

    is_past = True

    def __init__(self, moment: PinnedSnapshot, state: CommittedState) -> None:
        super().__init__(state, moment.sequence, moment.time_us)
        self._moment = moment
        self._view = moment.view
        self._frozen = moment.write_sets
        self._folded = moment.folded
        self.released = moment.sequence

    def _changing(self) -> WriteSet:
        raise AssertionError("nothing is changed in a moment that is over")

    def release(self) -> None:
        # It is not among the paused transactions: no commit is validated against its reads.
        if not self._reads.ended:
            self._reads.ended = True
            self._moment.left()
