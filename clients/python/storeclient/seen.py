"""What a client has seen of a store, so that it is not shown anything older by another node."""

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
    """Whether a script begins like one that only reads. One that then writes is refused by a node
    that takes no changes, so nothing but a detour comes of it."""
    found = _FIRST_WORD.match(script)
    return found is not None and found["word"].upper() in _READING


class Mark(NamedTuple):
    """What is known when something is asked for."""

    untold: int
    """Changes whose sequence was not told."""
    seq: int
    """The newest commit; 0: none."""


class Seen:
    """The newest commit that is known of, and whether one is missing in that: what is done to seals
    is answered without a sequence, by nodes before minor 8 what is done to keys and messages too,
    and what broke off is answered with nothing."""

    def __init__(self) -> None:
        self._position: Position | None = None
        self._is_of_epoch = True
        """Whether the epoch of that is the one that its commit is of; else that may be a later one:
        what is done to keys and messages is answered with a sequence alone."""
        self._untold = 0
        """Changes so far whose sequence was not told."""
        self._covered = 0
        """So many of them are not newer than the position."""

    @property
    def after(self) -> int | None:
        """The sequence that a read has to show; None: any will do."""
        return None if self._position is None else self._position.seq

    @property
    def is_whole(self) -> bool:
        """Whether `after` stands for all that this client has done."""
        return self._covered == self._untold

    def untold(self) -> None:
        """There may be a change of this client's whose sequence it does not know."""
        self._untold += 1

    def mark(self) -> Mark:
        """What an answer covers that is asked for now of the node that takes changes."""
        return Mark(self._untold, self.after or 0)

    def told(self, position: Position, mark: Mark | None = None) -> None:
        """An answer has come.

        :param mark: of when it was asked for, of the node that takes changes: see `mark`
        """
        if self._is_newer(position, mark):
            self._position, self._is_of_epoch = position, True
        if mark is not None:
            self._covered = max(self._covered, mark.untold)

    def reached(self, seq: int, epoch: int | None = None) -> None:
        """A commit of the same history is known of. :param epoch: None: not told"""
        before = self._position
        if before is None:
            self._position, self._is_of_epoch = Position(seq, None, epoch), epoch is not None
        elif seq > before.seq:
            self._position = Position(seq, before.store, epoch or before.epoch)
            self._is_of_epoch = epoch is not None

    def _is_newer(self, position: Position, mark: Mark | None) -> bool:
        """A number of a later history counts, however low: what was higher is no more."""
        before = self._position
        if before is None or position.store != before.store or position.seq > before.seq:
            return True
        if position.epoch is None or before.epoch is None or position.epoch < before.epoch:
            return False
        if position.seq == before.seq or position.epoch == before.epoch:
            return position.seq == before.seq
        # The lead has moved. In one history a later epoch has the higher sequences: this is another
        # one if what is known is of the earlier epoch, or was known of when this was asked for.
        known = mark is not None and mark.seq >= before.seq
        return self._is_of_epoch or known

    def is_foreign(self, answer: Answer) -> bool:
        """Whether an answer is of another store than the node's that takes changes."""
        before = self._position
        return (
            before is not None
            and None not in (before.store, answer.store)
            and (before.store != answer.store)
        )
