"""What a client has seen of a store, so that it is not shown anything older by another node."""

from __future__ import annotations

import re
from typing import Final

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


class Seen:
    """The newest commit that is known of, and whether one is missing in that: what is done to seals
    is answered without a sequence, by nodes before minor 8 what is done to keys and messages too,
    and what broke off is answered with nothing."""

    def __init__(self) -> None:
        self._position: Position | None = None
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

    def mark(self) -> int:
        """What an answer covers that is asked for now of the node that takes changes."""
        return self._untold

    def told(self, position: Position, mark: int | None = None) -> None:
        """An answer has come of home. :param mark: of when it was asked for, see `mark`"""
        before = self._position
        if before is None or _is_newer(position, before):
            self._position = position
        if mark is not None:
            self._covered = max(self._covered, mark)

    def reached(self, seq: int) -> None:
        """A commit of the same history is known of."""
        before = self._position
        if before is None:
            self._position = Position(seq)
        elif seq > before.seq:
            self._position = Position(seq, before.store, before.epoch)

    def is_foreign(self, answer: Answer) -> bool:
        """Whether an answer is of another store than the node's that takes changes."""
        before = self._position
        return (
            before is not None
            and None not in (before.store, answer.store)
            and (before.store != answer.store)
        )


def _is_newer(position: Position, before: Position) -> bool:
    """A number of a later history counts, however low: what was higher is no more."""
    if position.store != before.store:
        return True
    if position.epoch is not None and before.epoch is not None and position.epoch > before.epoch:
        return True
    return position.seq > before.seq
