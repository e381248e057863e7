"""A barrier: what keeps others from changing what a transaction reads that has lost too often.

A long transaction beside short ones loses every race: something it has read is changed before it
commits, each time. While its barrier stands, a commit that would make it lose is not let through:
that transaction is `barred`, nothing of it has happened, and it is run again once the barrier has
gone. `actors/commits/barriers.py` says who may have one, and for how long.

- Only what the transaction reads is kept still: what it has read in the attempt that lost last, so
  that nothing slips in before it comes to read it again, and what it has read since.
- Reading is never held back, and neither is a commit that would change nothing of that.
- What takes somebody's rights away is never held back either, or else a user who is to be shut out
  could put that off with a statement of their own. So no change of a user counts, whoever has read
  it; what else its transaction changes counts as ever. `Transaction.passes` is for the few others
  that have nobody who could run them again.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Final

from storage import keys
from storage.read_set import ReadSet

if TYPE_CHECKING:
    from storage.transactions import Transaction

NOTHING: Final = ReadSet()


class Barrier:
    """The barrier of one transaction, through all of its attempts.

    :param before: what it read when it lost last
    """

    __slots__ = ("_before", "_holder", "held_back")

    def __init__(self, before: ReadSet) -> None:
        self._before = before
        self._holder: Transaction | None = None
        self.held_back = 0
        """Commits that were not let through."""

    def holds_for(self, holder: Transaction) -> None:
        """The transaction begins anew. What an attempt before it has read it may read again."""
        if self._holder is not None:
            self._before = self._holder.reads
        self._holder = holder

    def holds_back(self, tx: Transaction) -> bool:
        """Whether to commit `tx` now would make the holder lose."""
        if tx is self._holder or tx.passes:
            return False
        if not self._would_lose_to(tx):
            return False
        self.held_back += 1
        return True

    def _would_lose_to(self, tx: Transaction) -> bool:
        own, adds = tx.own, frozenset(tx.adds)
        writes: AbstractSet[bytes] = own.writes.keys()
        ordered, declared = own.ordered(), own.declared
        if own.catalog and (access := set(filter(keys.is_of_access, declared))):
            # That alone disturbs nobody; what it brings along does, as if it came by itself.
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
