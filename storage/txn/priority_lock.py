"""Priority locks: protect transactions that keep failing validation from further conflicts.

A long transaction beside short ones fails validation every time: some commit changes its read set
before it commits. While it holds a priority lock, a commit that would invalidate it is refused.
That transaction is `blocked_by_lock`; nothing of it has been applied, and it is retried once the
lock is released. `actors/commits/priority_locks.py` decides which transactions get a lock, and for
how long.

- A lock protects only the read set: that of the last failed attempt, so nothing slips in before the
  holder reads it again, and that of the current attempt.
- Reads are never blocked, nor are commits that do not touch the read set.
- Revoking rights is never blocked; otherwise a user could postpone losing access with a statement
  of their own. So changes of users are ignored here, even if the holder has read them; the other
  changes of the same transaction count. `Transaction.ignores_locks` exempts the few others that no
  caller could retry.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Final

from storage.formats import keys
from storage.txn.read_set import ReadSet
from storage.txn.tickets import RollBacks

if TYPE_CHECKING:
    from storage.txn.transaction import Transaction

NOTHING: Final = ReadSet(0, RollBacks())


class PriorityLock:
    """Priority lock of one transaction across all its attempts.

    :param before: read set of its last failed attempt
    """

    __slots__ = ("_before", "_holder", "held_back")

    def __init__(self, before: ReadSet) -> None:
        self._before = before
        self._holder: Transaction | None = None
        self.held_back = 0
        """Number of commits refused because of it."""

    def protect_attempt(self, holder: Transaction) -> None:
        """Start protecting a new attempt, and keep the read set of the previous one."""
        if self._holder is not None:
            # Until the new attempt has read the same again, the former read set protects it.
            self._before = self._holder.reads
        self._holder = holder

    def blocks_commit(self, tx: Transaction) -> bool:
        """Return True, and count it, if committing `tx` would make the holder fail validation."""
        if tx is self._holder or tx.ignores_locks:
            return False
        if not self._conflicts_with(tx):
            return False
        self.held_back += 1
        return True

    def _conflicts_with(self, tx: Transaction) -> bool:
        # Increments enter `own.writes` only in the commit itself.
        own, adds = tx.own, frozenset(tx.adds)
        writes: AbstractSet[bytes] = own.writes.keys()
        ordered, declared = own.ordered(), own.declared
        if own.catalog and (access := set(filter(keys.is_of_access, declared))):
            # A change of rights alone never counts; the other changes of the transaction do.
            writes, declared = writes - access, declared - access
            ordered = [key for key in ordered if key not in access]
        for reads in (self._before, self._holder.reads if self._holder else NOTHING):
            if reads.touch(writes, ordered) or reads.touch(adds, sorted(adds)):
                return True
            if own.catalog and reads.rest_on(declared, own.ranges):
                return True
            if any(reads.touch_range(start, end) for start, end in own.ranges):
                return True
        return False
