"""Tickets: which commit an answer waits for, as one value.

A full disk or another leader rolls back what is in flight, and its sequences are given again. A
sequence alone would then name another's commit, so a ticket holds the generation with it: the
number of roll-backs before the commit was made or read. Both are written down at once, by whoever
makes or reads the commit, and are never changed apart.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from operator import attrgetter
from typing import Final, NamedTuple

from protocol.errors import Failed

Why = Callable[[int], BaseException]
"""Makes the error for those who wait for a sequence that was rolled back."""


class CommitTicket(NamedTuple):
    """A commit, and with it all before it."""

    sequence: int
    """0: no commit at all."""
    generation: int
    """`RollBacks.generation` when it was made, or when the transaction began that read it."""


NO_COMMIT: Final = CommitTicket(0, 0)
"""The ticket of an answer that shows nothing in flight."""


class _RollBack(NamedTuple):
    """Generations of which the same was rolled back."""

    generation: int
    """The first of them."""
    upto: int
    """The last commit that stayed."""
    why: Why


class RollBacks:
    """All of one ledger since its start."""

    def __init__(self) -> None:
        self.generation = 1
        """Number of the roll-backs so far, from 1."""
        self._done: list[_RollBack] = []

    def add(self, upto: int, why: Why) -> None:
        """Roll back all behind a commit, and begin the next generation."""
        last = self._done[-1] if self._done else None
        if last is None or (last.upto, last.why) != (upto, why):
            self._done.append(_RollBack(self.generation, upto, why))
        self.generation += 1

    def why(self, ticket: CommitTicket) -> Why | None:
        """Return why a commit was rolled back; None: it was not."""
        sequence, generation = ticket
        if generation == self.generation or not sequence:
            return None
        at = bisect_right(self._done, generation, key=attrgetter("generation")) - 1
        for one in self._done[at:]:
            if sequence > one.upto:
                return one.why
        return None


def rolled_back(sequence: int) -> Failed:
    """Return the error for a commit that was rolled back for no reason that is known."""
    return Failed(f"commit {sequence} was taken back")
