"""Commit tickets: the commit that a response waits for, as one value.

A full disk or a new leader rolls back pending commits, and their sequences are assigned again. A
sequence alone could then name another commit. So a ticket includes the generation: the number of
roll-backs before the commit was made or read. Both are taken at the same moment, when the commit is
made or read, and never change separately.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from operator import attrgetter
from typing import Final, NamedTuple

from protocol.errors import Failed

Why = Callable[[int], BaseException]
"""Function that makes the error for requests waiting for a rolled-back sequence."""


class CommitTicket(NamedTuple):
    """A commit, including all before it."""

    sequence: int
    """Sequence of the commit; 0: none."""
    generation: int
    """`RollBacks.generation` when the commit was made, or when the reading transaction began."""


NO_COMMIT: Final = CommitTicket(0, 0)
"""Ticket of a response that shows no pending commit."""


class _RollBack(NamedTuple):
    """Roll-back that applies to consecutive generations."""

    generation: int
    """First of these generations."""
    upto: int
    """Last commit that was kept."""
    why: Why


class RollBacks:
    """Roll-backs of a ledger since its start."""

    def __init__(self) -> None:
        self.generation = 1
        """Number of the current generation; begins at 1, and each roll-back adds 1."""
        self._done: list[_RollBack] = []

    def add(self, upto: int, why: Why) -> None:
        """Record a roll-back of all commits after `upto`, and begin the next generation."""
        last = self._done[-1] if self._done else None
        # Equal roll-backs in a row share an entry: a disk that stays full adds only one.
        if last is None or (last.upto, last.why) != (upto, why):
            self._done.append(_RollBack(self.generation, upto, why))
        self.generation += 1

    def why(self, ticket: CommitTicket) -> Why | None:
        """Return the reason for which a commit was rolled back; None if it was not."""
        sequence, generation = ticket
        # The usual case: no roll-back since.
        if generation == self.generation or not sequence:
            return None
        at = bisect_right(self._done, generation, key=attrgetter("generation")) - 1
        # A later roll-back may reach further back than the first one after the ticket.
        for one in self._done[at:]:
            if sequence > one.upto:
                return one.why
        return None


def rolled_back(sequence: int) -> Failed:
    """Return the error for a commit that was rolled back without a known reason."""
    return Failed(f"commit {sequence} was rolled back")
