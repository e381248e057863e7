"""Backlog: entries of the statement log and the audit trail that this node could not commit.

They are held in memory until this node or the leader commits them.

- Each entry has a number. It is sent again until it is known to be committed, and its commit
  records the number with it (`storage/audit/forwarded.py`). So delivery is at-least-once, and the
  commit idempotent: the entry is stored once.
- Capacity is bounded, in all and per user: a user whose statements are often refused displaces no
  other user's entries. An entry that finds no room is counted; the next one that is kept reports
  the count.
- The backlog ends with the process: the store's disk may be sealed, full, or written by another
  leader only.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, NamedTuple

from actors.commits.committer import Committer, NamedAuthor
from protocol import limits
from protocol.environment import Clock, Rng
from storage.audit import forwarded
from storage.audit.trail import bounded, cut, elsewhere, of_store
from storage.formats.entries import AUDIT, Entry
from storage.txn.tickets import CommitTicket

MISSED: Final = "entries not kept"
"""Action of the entry that reports how many entries were dropped."""


@dataclass(frozen=True, slots=True)
class PendingEntry:
    """An entry that waits for its commit."""

    user: str
    """User of the entry; empty: no known user."""
    surface: str
    statement: str | None
    reason: str | None
    entry: Entry
    at_us: int
    """Wall-clock time of the event, in µs."""


class EntryBatch(NamedTuple):
    """Consecutive entries of one node."""

    life: bytes
    """Id of the node's process run: numbers start from 1 in each."""
    first: int
    """Number of the first entry."""
    noted: tuple[PendingEntry, ...]

    @property
    def last(self) -> int:
        """Number of the last entry."""
        return self.first + len(self.noted) - 1


class Backlog:
    """Entries of this process that wait for a commit. On the loop only."""

    def __init__(self, clock: Clock, rng: Rng) -> None:
        self._clock = clock
        life = clock.wall_us().to_bytes(8, "big", signed=True)
        self._life = life + rng.bytes(forwarded.LIFE_BYTES - len(life))
        self._noted: deque[PendingEntry] = deque()
        self._first = 1
        """Number of the oldest entry."""
        self._of: Counter[str] = Counter()
        """Waiting entries by user."""
        self._missed = 0
        """Entries dropped since the last one that reported a count."""
        self.kept = 0
        """Entries committed, since the start."""
        self.missed = 0
        """Entries dropped for lack of room, since the start."""
        self.on_more: Callable[[], None] | None = None
        """Called when an entry is added; set by the component that forwards them to the leader."""

    @property
    def is_carried(self) -> bool:
        """True if a component forwards the entries to the leader."""
        return self.on_more is not None

    def __len__(self) -> int:
        return len(self._noted)

    def add(self, noted: PendingEntry) -> bool:
        """Hold an entry. Return False if there is no room for it."""
        mine = self._of[noted.user]
        if mine >= limits.ENTRIES_WAITING_EACH or len(self) >= limits.ENTRIES_WAITING:
            self._missed += 1
            self.missed += 1
            return False
        self._append(_bounded(noted))
        return True

    def _append(self, noted: PendingEntry) -> None:
        self._noted.append(noted)
        self._of[noted.user] += 1
        if self.on_more is not None:
            self.on_more()

    def oldest(self) -> EntryBatch | None:
        """Return the next batch to commit, or None if the backlog is empty."""
        if not self._noted:
            return None
        some = tuple(islice(self._noted, limits.ENTRIES_CARRIED))
        return EntryBatch(self._life, self._first, some)

    def done(self, upto: int) -> None:
        """Remove the entries up to a number: they are committed and released."""
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
            self._append(PendingEntry("", "node", None, None, entry, self._clock.wall_us()))

    def distrust_places(self) -> None:
        """Attribute all waiting entries to the store, after pending commits were rolled back.

        A namespace or database that an entry names may have been declared by a rolled-back commit,
        and its id may be given to another. So only the owner of the store may see these entries.
        """
        self._noted = deque(map(distrusted, self._noted))


def commit(committer: Committer, node: str, batch: EntryBatch) -> CommitTicket:
    """Commit the entries that are not committed yet, each in a commit of its own, in order.

    :param node: id of the node where they happened
    :returns: ticket of the last commit; once it is released, all of them are
    :raises Refusal: the node takes no commits at the moment; some entries may have been committed,
        and a retry skips these
    """
    for number, one in enumerate(batch.noted, batch.first):
        with committer.begin_transaction() as tx:
            entry = one.entry if forwarded.note(tx, node, batch.life, number) else None
            by = NamedAuthor(one.user, elsewhere(one.surface, node, one.at_us))
            ticket = committer.commit(tx, by, one.statement, one.reason, entry)
    return ticket


def distrusted(noted: PendingEntry) -> PendingEntry:
    """Return a copy of an entry that is attributed to the store itself."""
    return replace(noted, entry=of_store(noted.entry))


def _bounded(noted: PendingEntry) -> PendingEntry:
    """Return a copy of an entry that is cut to the size that another node accepts."""
    most = limits.ENTRY_NAME_CHARACTERS
    return replace(
        noted,
        user=noted.user[:most],
        statement=cut(noted.statement, limits.ENTRY_TEXT_CHARACTERS),
        reason=cut(noted.reason, most),
        entry=bounded(noted.entry),
    )
