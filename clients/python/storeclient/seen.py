"""Session guarantees: tracks the newest commit that a client has seen, so that no other node shows
it anything older (read your writes, monotonic reads)."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from storeclient.answers import Answer
from storeclient.changes import Position

_FIRST_WORD: Final = re.compile(
    r"(?:\s|--[^\n]*|//[^\n]*|\#[^\n]*|/\*.*?\*/)*(?P<word>[A-Za-z_]+)", re.DOTALL
)
_READING: Final = frozenset(("SELECT", "RETURN", "READ"))


def seems_to_read(script: str) -> bool:
    """True if a script begins like a read-only one. If it writes after all, a follower refuses it,
    and it is sent to the leader."""
    found = _FIRST_WORD.match(script)
    return found is not None and found["word"].upper() in _READING


class SeenMark(NamedTuple):
    """State of `Seen` at the start of a request."""

    untold: int
    """Number of changes with unknown sequence."""
    seq: int
    """Newest commit; 0: none."""


class Seen:
    """The newest commit that a client has seen, and whether that includes all its own changes.
    Changes may have an unknown sequence: operations on seals, those on keys and messages at nodes
    before minor 8, and requests without an answer."""

    def __init__(self) -> None:
        self._position: Position | None = None
        self._is_of_epoch = True
        """True if the position's epoch is that of its commit. Otherwise the commit's may be later:
        operations on keys and messages answer a sequence without an epoch."""
        self._untold = 0
        """Changes so far with an unknown sequence."""
        self._covered = 0
        """Number of those that are not newer than the position."""

    @property
    def after(self) -> int | None:
        """Sequence that a read has to see (causal token); None: any."""
        return None if self._position is None else self._position.seq

    @property
    def is_whole(self) -> bool:
        """True if `after` covers all changes of this client."""
        return self._covered == self._untold

    def untold(self) -> None:
        """Record a possible change of this client with an unknown sequence."""
        self._untold += 1

    def mark(self) -> SeenMark:
        """Return the state that an answer of the leader to a request sent now will cover."""
        return SeenMark(self._untold, self.after or 0)

    def told(self, position: Position, mark: SeenMark | None = None) -> None:
        """Record the position in an answer.

        :param mark: result of `mark` at the start of the request, if the leader answered it
        """
        if self._is_newer(position, mark):
            self._position, self._is_of_epoch = position, True
        if mark is not None:
            self._covered = max(self._covered, mark.untold)

    def reached(self, seq: int, epoch: int | None = None) -> None:
        """Record a commit of the same history. :param epoch: None: unknown"""
        before = self._position
        if before is None:
            self._position, self._is_of_epoch = Position(seq, None, epoch), epoch is not None
        elif seq > before.seq:
            self._position = Position(seq, before.store, epoch or before.epoch)
            self._is_of_epoch = epoch is not None

    def _is_newer(self, position: Position, mark: SeenMark | None) -> bool:
        """Return True if a position is newer. One in a later history is, even with a lower
        sequence: the higher commits were rolled back."""
        before = self._position
        if before is None or position.store != before.store or position.seq > before.seq:
            return True
        if position.epoch is None or before.epoch is None or position.epoch < before.epoch:
            return False
        if position.seq == before.seq or position.epoch == before.epoch:
            return position.seq == before.seq
        # Another leader, with a lower sequence. Within one history a later epoch has the higher
        # sequences, so this is another history: if the known commit is surely of the earlier
        # epoch, or was known before this request was sent.
        known = mark is not None and mark.seq >= before.seq
        return self._is_of_epoch or known

    def is_foreign(self, answer: Answer) -> bool:
        """True if an answer is from a store other than the leader's."""
        before = self._position
        return (
            before is not None
            and None not in (before.store, answer.store)
            and (before.store != answer.store)
        )
