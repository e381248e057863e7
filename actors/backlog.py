"""What the statement log and the audit trail are to keep, and this node could not commit: held in
memory until somebody has, this node or who leads.

- Each entry has a number. It is brought again until it is known to be committed, and whoever
  commits it notes the number with it (`storage/forwarded.py`): so it is there once.
- There is room for so many, and for a part of them under one name: who is refused much pushes out
  nobody else's. What finds no room is counted, and the next that does says how many there were.
- It ends with the process. A store's own disk may be sealed, full, or another's to write.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, NamedTuple

from actors.commits import By, Committer
from protocol import limits
from protocol.doors import Clock, Rng
from storage import forwarded
from storage.entries import Entry
from storage.statements import AUDIT, bounded, cut, elsewhere, of_store
from storage.tickets import CommitTicket

MISSED: Final = "entries not kept"
"""The action of the entry that says how many there are none of."""


@dataclass(frozen=True, slots=True)
class Noted:
    """An entry that waits for its commit."""

    user: str
    """Whose it is; empty: nobody's that is known."""
    surface: str
    statement: str | None
    reason: str | None
    entry: Entry
    at_us: int
    """When it happened, by the wall clock."""


class Batch(NamedTuple):
    """Entries of one node that follow each other."""

    life: bytes
    """Of its process: numbers begin anew in each."""
    first: int
    """The number of the first."""
    noted: tuple[Noted, ...]

    @property
    def last(self) -> int:
        """The number of the last."""
        return self.first + len(self.noted) - 1


class Backlog:
    """Those of this process. On the loop only."""

    def __init__(self, clock: Clock, rng: Rng) -> None:
        self._clock = clock
        life = clock.wall_us().to_bytes(8, "big", signed=True)
        self._life = life + rng.bytes(forwarded.LIFE_BYTES - len(life))
        self._noted: deque[Noted] = deque()
        self._first = 1
        """The number of the oldest."""
        self._of: Counter[str] = Counter()
        """How many there are under each name."""
        self._missed = 0
        """That found no room since an entry said how many."""
        self.kept = 0
        """That are committed, since the start."""
        self.missed = 0
        """That found no room, since the start."""
        self.on_more: Callable[[], None] | None = None
        """Called when there are some, or more: by whoever brings them elsewhere."""

    @property
    def is_carried(self) -> bool:
        """Whether there is somebody who brings them elsewhere."""
        return self.on_more is not None

    def __len__(self) -> int:
        return len(self._noted)

    def add(self, noted: Noted) -> bool:
        """Hold one. False: there is no room for it."""
        mine = self._of[noted.user]
        if mine >= limits.ENTRIES_WAITING_EACH or len(self) >= limits.ENTRIES_WAITING:
            self._missed += 1
            self.missed += 1
            return False
        self._append(_bounded(noted))
        return True

    def _append(self, noted: Noted) -> None:
        self._noted.append(noted)
        self._of[noted.user] += 1
        if self.on_more is not None:
            self.on_more()

    def oldest(self) -> Batch | None:
        """The next to be committed; None: there are none."""
        if not self._noted:
            return None
        some = tuple(islice(self._noted, limits.ENTRIES_CARRIED))
        return Batch(self._life, self._first, some)

    def done(self, upto: int) -> None:
        """All up to that number are committed, and may be shown."""
        before = self._first
        while self._noted and self._first <= upto:
            gone = self._noted.popleft()
            self._first += 1
            self.kept += 1
            self._of[gone.user] -= 1
            if not self._of[gone.user]:
                del self._of[gone.user]
        if self._missed and self._first > before:
            missed, self._missed = self._missed, 0
            entry = Entry(AUDIT, "", "local", None, None, ((),), MISSED, more=missed)
            self._append(Noted("", "node", None, None, entry, self._clock.wall_us()))

    def distrust_places(self) -> None:
        """What was in flight was taken back: what some of these have touched may have been a part
        of that, and the same ids something else by and by. They are the store's owner's to see."""
        self._noted = deque(map(distrusted, self._noted))


def commit(committer: Committer, node: str, batch: Batch) -> CommitTicket:
    """Make those of some entries commits that are none yet, each one of its own, in their order.

    :param node: where they happened
    :returns: when all of them may be shown
    :raises Refusal: the node commits nothing at the moment; some may have been committed, and will
        not be again
    """
    for number, one in enumerate(batch.noted, batch.first):
        with committer.begin() as tx:
            entry = one.entry if forwarded.note(tx, node, batch.life, number) else None
            by = By(one.user, elsewhere(one.surface, node, one.at_us))
            ticket = committer.commit(tx, by, one.statement, one.reason, entry)
    return ticket


def distrusted(noted: Noted) -> Noted:
    """The same, as of what touched the store itself."""
    return replace(noted, entry=of_store(noted.entry))


def _bounded(noted: Noted) -> Noted:
    """The same, no longer than a node takes it from another."""
    most = limits.ENTRY_NAME_CHARACTERS
    return replace(
        noted,
        user=noted.user[:most],
        statement=cut(noted.statement, limits.ENTRY_TEXT_CHARACTERS),
        reason=cut(noted.reason, most),
        entry=bounded(noted.entry),
    )
