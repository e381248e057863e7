"""Validation of a transaction at its commit: optimistic concurrency control.

The read set of a transaction that paused is compared with the write sets of later commits, which
prevents lost updates. One that never paused was overtaken by no commit, and needs no validation.

While any transaction is paused, the write set of every other commit is remembered. A paused
transaction that writes is validated against all commits after its snapshot. Most of that happens in
steps before its commit (`compare`); the commit itself checks only the commits since (`validate`).
`ReadSet.compared` records the progress.

Memory is bounded by `limits.REMEMBERED_KEYS`; the oldest commits are forgotten first. A transaction
whose snapshot is older than a forgotten commit fails validation.

Invariant: `_newest` maps each key of a remembered commit to the newest commit that changed it.
Large commits are excluded and checked separately: adding 600 000 keys would block the loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from protocol import limits
from protocol.errors import Conflict
from storage.formats.keys import Range
from storage.txn.read_set import ReadSet
from storage.txn.write_set import WriteSet

COMPARE_LOOKS: Final = 1_024
"""Key and range look-ups in one step of `compare`: about half a millisecond of the event loop."""
COMPARE_KEYS: Final = 2_048
"""Keys that one step sorts."""
LARGE: Final = 4_096
"""Number of keys above which a commit is checked separately."""


@dataclass(slots=True)
class _CommittedWrites:
    """Write set of one commit."""

    sequence: int
    keys: frozenset[bytes]
    ordered: list[bytes]
    ranges: list[Range]
    catalog: bool
    """True if it changes the catalog."""
    declared: Collection[bytes]


class CommitValidator:
    """Write sets of recent commits, to validate paused transactions against."""

    def __init__(self) -> None:
        self._changes: dict[int, _CommittedWrites] = {}
        """Keyed by sequence, oldest first."""
        self._first = 1
        """Oldest sequence that may be remembered."""
        self._last = 0
        """Newest sequence remembered so far."""
        self._forgotten = 0
        """Newest sequence evicted while a transaction might still need it."""
        self._newest: dict[bytes, int] = {}
        self._large: dict[int, frozenset[bytes]] = {}
        self._ranged: deque[int] = deque()
        """Commits that deleted ranges."""
        self._declaring: deque[int] = deque()
        """Commits that changed the catalog."""
        self.keys = 0
        """Total number of keys in all write sets; duplicates count."""

    def __len__(self) -> int:
        return len(self._changes)

    # --- remembered commits ---------------------------------------------------------------------

    def remember(self, write_set: WriteSet) -> None:
        """Remember the write set of a commit while some transaction is paused."""
        sequence, writes = write_set.sequence, write_set.writes
        if not self._changes:
            self._first = sequence
        self._last = sequence
        change = self._changes[sequence] = _CommittedWrites(
            sequence,
            frozenset(writes),
            write_set.ordered(),
            write_set.ranges,
            write_set.catalog,
            write_set.declared,
        )
        self.keys += len(writes)
        if len(writes) > LARGE:
            self._large[sequence] = change.keys
        else:
            self._newest.update(dict.fromkeys(writes, sequence))
        if write_set.ranges:
            self._ranged.append(sequence)
        if write_set.catalog:
            self._declaring.append(sequence)
        while self.keys > limits.REMEMBERED_KEYS:
            # Needed or not: memory stays bounded, and older transactions fail validation.
            self._forgotten = self._first
            self.forget(self._first)

    def forget(self, upto: int) -> None:
        """Forget commits up to `upto`; no transaction needs them any more."""
        if upto >= self._last:  # the usual case, in constant time
            self._changes = {}
            self._newest = {}
            self._large = {}
            self.keys = 0
            self._first = self._last + 1
        while self._first <= upto and self._changes:
            change = self._changes.pop(self._first, None)
            if change is not None:
                self._let_go(change)
            self._first += 1
        for sequences in (self._ranged, self._declaring):
            while sequences and sequences[0] < self._first:
                sequences.popleft()

    def _let_go(self, change: _CommittedWrites) -> None:
        sequence, newest = change.sequence, self._newest
        self.keys -= len(change.keys)
        if self._large.pop(sequence, None) is None:
            for key in change.ordered:
                # A later commit that changed the key too keeps its entry.
                if newest.get(key) == sequence:
                    del newest[key]

    def roll_back(self, upto: int) -> None:
        """Remove the commits after `upto`, which were rolled back."""
        gone: set[bytes] = set()
        while self._last > upto and self._changes:
            change = self._changes.pop(self._last, None)
            if change is not None:
                self._let_go(change)
                gone |= change.keys
            self._last -= 1
        self._last = min(self._last, upto)
        # Sequences behind `upto` are assigned again, to other commits.
        self._forgotten = min(self._forgotten, upto)
        for sequences in (self._ranged, self._declaring):
            while sequences and sequences[-1] > upto:
                sequences.pop()
        if gone:
            # `_newest` lost these keys; older remembered commits may have changed them too.
            for sequence, change in self._changes.items():
                if sequence not in self._large:
                    self._newest.update(dict.fromkeys(change.keys & gone, sequence))

    # --- validation -----------------------------------------------------------------------------

    def compare(self, reads: ReadSet) -> Iterator[None]:
        """Validate a read set against the commits since its snapshot, in steps of about half a
        millisecond. The caller may yield to other tasks between the steps.

        :raises Conflict: from any step; validation failed
        """
        looks = 0
        if self._ranged and self._ranged[-1] > _compared(reads):
            # A deleted range is searched in the sorted read keys; sort them in steps first.
            yield from reads.put_in_order(COMPARE_KEYS)
        # During a yield the transaction may end, or its state be rolled back.
        while not (reads.ended or reads.rolled_back) and (at := _compared(reads)) < self._last:
            # Commits before the oldest remembered one are judged by `validate`.
            at = min(max(at + 1, self._first), self._last)
            change = self._changes.get(at)
            if change is not None:
                _require_unread(reads, change)
                looks += 1 + reads.looks(change.ordered) + len(change.ranges) * reads.ranges
            reads.compared = at
            if looks >= COMPARE_LOOKS:
                looks = 0
                yield

    def validate(self, reads: ReadSet) -> None:
        """Complete the validation of a paused transaction at its commit.

        :raises Conflict: validation failed
        """
        if reads.rolled_back:
            raise Conflict("a commit that this transaction had read was rolled back")
        if reads.since < self._forgotten:
            raise Conflict("the transaction ran too long beside concurrent writes: make it shorter")
        changes = self._changes
        # `compare` covers keys and ranges only, so check look-ups against every catalog change.
        for sequence in reversed(self._declaring):
            if sequence <= reads.since:
                break
            change = changes[sequence]
            if reads.rest_on(change.declared, change.ranges):
                raise Conflict("another commit changed a definition that this transaction had read")
        for sequence in range(max(_compared(reads) + 1, self._first), self._last + 1):
            found = changes.get(sequence)
            if found is not None:
                _require_unread(reads, found)

    def is_untouched(self, reads: ReadSet, wanted: Collection[bytes]) -> bool:
        """Return True if certainly no commit changed any of `wanted` since a snapshot.

        :param reads: read set of a transaction on that snapshot
        """
        since = reads.since
        if reads.rolled_back or since < self._forgotten:
            return False
        # A deleted range may hold any of the keys; it is not searched here.
        if self._ranged and self._ranged[-1] > since:
            return False
        newest = self._newest
        for key in wanted:
            if newest.get(key, 0) > since:
                return False
        for sequence, changed in self._large.items():
            if sequence > since and not changed.isdisjoint(wanted):
                return False
        return True


def _compared(reads: ReadSet) -> int:
    """Return the newest commit that a read set is valid for."""
    return max(reads.since, reads.compared)


def _require_unread(reads: ReadSet, change: _CommittedWrites) -> None:
    """Check that a commit did not change the read set. :raises Conflict: it did"""
    if reads.touch(change.keys, change.ordered) or any(
        reads.touch_range(start, end) for start, end in change.ranges
    ):
        raise Conflict("another commit changed what this transaction had read")
