"""Conflicts: what was committed beside transactions that paused, compared with what they read.

While any transaction is paused, each commit of another is remembered with the keys that it changed.
A paused transaction that changes something is compared with all that came after its state: in
steps before its commit (`compare`), and in the commit itself with what came since the last of them
(`validate`). `ReadSet.compared` says how far that has come.

Bounded: `limits.REMEMBERED_KEYS`, the oldest are forgotten first. Who is older than what was
forgotten has lost.

Invariant: `_newest` has, of each key that a remembered commit changed, the newest of those commits;
but for large commits, which stay by themselves: to put 600 000 keys in there holds the loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from protocol import limits
from protocol.errors import Conflict
from storage.keys import Range
from storage.layers import Layer

if TYPE_CHECKING:
    from storage.read_set import ReadSet
    from storage.transactions import Transaction

COMPARE_LOOKS: Final = 1_024
"""Looks at a key or a range in one step of `compare`: about half a millisecond of the loop."""
COMPARE_KEYS: Final = 2_048
"""Keys that are put in order in one step."""
LARGE: Final = 4_096
"""Keys of a commit that is looked at by itself."""


@dataclass(slots=True)
class _Change:
    """Which keys a commit changed."""

    sequence: int
    keys: frozenset[bytes]
    ordered: list[bytes]
    ranges: list[Range]
    catalog: bool
    """Whether a declaration is among them."""
    declared: Collection[bytes]


class Conflicts:
    """What transactions that pause are compared with."""

    def __init__(self) -> None:
        self._changes: dict[int, _Change] = {}
        """By their sequences, the oldest first."""
        self._first = 1
        """No older one is remembered."""
        self._last = 0
        """The newest that is, or was."""
        self._forgotten = 0
        """The newest that was forgotten though somebody might ask for it."""
        self._newest: dict[bytes, int] = {}
        self._large: dict[int, frozenset[bytes]] = {}
        self._ranged: deque[int] = deque()
        """Those that have deleted ranges."""
        self._declaring: deque[int] = deque()
        """Those that have changed declarations."""
        self.keys = 0
        """Changed by all of them, each commit's counted by itself."""

    def __len__(self) -> int:
        return len(self._changes)

    # --- what is remembered ---------------------------------------------------------------------

    def remember(self, layer: Layer) -> None:
        """A commit was made beside somebody who has paused."""
        sequence, writes = layer.sequence, layer.writes
        if not self._changes:
            self._first = sequence
        self._last = sequence
        change = self._changes[sequence] = _Change(
            sequence,
            frozenset(writes),
            layer.ordered(),
            layer.ranges,
            layer.catalog,
            layer.declared,
        )
        self.keys += len(writes)
        if len(writes) > LARGE:
            self._large[sequence] = change.keys
        else:
            self._newest.update(dict.fromkeys(writes, sequence))
        if layer.ranges:
            self._ranged.append(sequence)
        if layer.catalog:
            self._declaring.append(sequence)
        while self.keys > limits.REMEMBERED_KEYS:
            self._forgotten = self._first
            self.forget(self._first)

    def forget(self, upto: int) -> None:
        """Nobody asks any more for commits up to this one."""
        if upto >= self._last:
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

    def _let_go(self, change: _Change) -> None:
        sequence, newest = change.sequence, self._newest
        self.keys -= len(change.keys)
        if self._large.pop(sequence, None) is None:
            for key in change.ordered:
                if newest.get(key) == sequence:
                    del newest[key]

    def withdraw(self, upto: int) -> None:
        """Commits after this one never happened."""
        gone: set[bytes] = set()
        while self._last > upto and self._changes:
            change = self._changes.pop(self._last, None)
            if change is not None:
                self._let_go(change)
                gone |= change.keys
            self._last -= 1
        self._last = min(self._last, upto)
        self._forgotten = min(self._forgotten, upto)
        for sequences in (self._ranged, self._declaring):
            while sequences and sequences[-1] > upto:
                sequences.pop()
        if gone:
            for sequence, change in self._changes.items():
                if sequence not in self._large:
                    self._newest.update(dict.fromkeys(change.keys & gone, sequence))

    # --- who has lost ---------------------------------------------------------------------------

    def compare(self, tx: Transaction) -> Iterator[None]:
        """Compare what a transaction has read with what was committed since it paused, in steps of
        about half a millisecond. Between them control may be given away.

        :raises Conflict: it has lost; in one of the steps
        """
        reads, looks = tx.reads, 0
        if self._ranged and self._ranged[-1] > _compared(tx):
            yield from reads.put_in_order(COMPARE_KEYS)
        while not (tx.ended or tx.withdrawn) and (at := _compared(tx)) < self._last:
            at = min(max(at + 1, self._first), self._last)
            change = self._changes.get(at)
            if change is not None:
                _require_unread(reads, change)
                looks += 1 + reads.looks(change.ordered) + len(change.ranges) * reads.ranges
            reads.compared = at
            if looks >= COMPARE_LOOKS:
                looks = 0
                yield

    def validate(self, tx: Transaction) -> None:
        """:raises Conflict: a transaction that paused can't be committed"""
        if tx.withdrawn:
            raise Conflict("a commit that this transaction had seen was taken back")
        if tx.sequence < self._forgotten:
            raise Conflict("the transaction ran for too long beside others that write")
        reads, changes = tx.reads, self._changes
        for sequence in reversed(self._declaring):
            if sequence <= tx.sequence:
                break
            change = changes[sequence]
            if reads.rest_on(change.declared, change.ranges):
                raise Conflict("a declaration changed that the transaction had looked up")
        for sequence in range(max(_compared(tx) + 1, self._first), self._last + 1):
            found = changes.get(sequence)
            if found is not None:
                _require_unread(reads, found)

    def is_untouched(self, tx: Transaction, wanted: Collection[bytes]) -> bool:
        """Whether it is sure that no commit has changed any of some keys since `tx` paused."""
        since = tx.sequence
        if tx.withdrawn or since < self._forgotten:
            return False
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


def _compared(tx: Transaction) -> int:
    """All that a transaction has read was left alone by the commits up to this one."""
    return max(tx.sequence, tx.reads.compared)


def _require_unread(reads: ReadSet, change: _Change) -> None:
    """:raises Conflict: what a commit has changed was read"""
    if reads.touch(change.keys, change.ordered) or any(
        reads.touch_range(start, end) for start, end in change.ranges
    ):
        raise Conflict("another commit changed what this transaction had read")
