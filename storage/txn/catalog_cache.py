"""Catalog cache: look-ups of declarations, cached until a declaration that they depend on changes.

Finding a cached table costs a dictionary access instead of a read. The transaction depends on its
declaration all the same: the look-up joins the read set, and the commit validates it.

A look-up depends on a set of *declared* keys, `keys.declared`. A table depends on its own row, on
its fields as one key, and on its indexes as one key. A commit that changes one of them invalidates
exactly the look-ups that depend on it. It conflicts only with transactions that made one of those.

Invariant: a result cached since commit n equals a look-up in every state from n to the newest. So a
transaction on an older state uses only results cached since that state or before. It keeps its
other look-ups to itself, as does one that has changed a declaration.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Any

from storage.formats import keys
from storage.formats.keys import Range


class CachedLookup:
    """Cached result of one catalog look-up. Compared by identity."""

    __slots__ = ("rests_on", "since", "value")

    def __init__(self, value: Any, rests_on: tuple[bytes, ...], since: int) -> None:
        self.value = value
        self.rests_on = rests_on
        """Declared keys that it depends on, see the module head."""
        self.since = since
        """First commit from which the result is valid in every state, as long as it is cached."""


class CatalogCache:
    """Catalog cache shared by all transactions.

    :param since: the newest commit that may have changed a declaration
    """

    def __init__(self, since: int) -> None:
        self.since = since
        """Sequence of the newest commit that changed a declaration."""
        self.users_since = since
        """Sequence of the newest commit that changed users or grants."""
        self._found: dict[Hashable, CachedLookup] = {}
        self.get = self._found.get
        """Cached look-up by name; None: not cached."""
        self._resting: dict[bytes, set[Hashable]] = {}
        """Names of the cached look-ups that depend on a declared key."""

    def __len__(self) -> int:
        return len(self._found)

    def add(self, at: Hashable, value: Any, rests_on: tuple[bytes, ...]) -> CachedLookup:
        """Cache a result that was found in a state with the newest declarations."""
        # Since the newest change of any declaration, every state gives this result.
        made = self._found[at] = CachedLookup(value, rests_on, self.since)
        for declared in rests_on:
            self._resting.setdefault(declared, set()).add(at)
        return made

    def changed(self, sequence: int, declared: Collection[bytes], ranges: list[Range]) -> None:
        """Invalidate the look-ups that depend on declarations changed by a commit.

        :param declared: `keys.declared` of the keys that it wrote or deleted
        :param ranges: all ranges that it deleted
        """
        self.since = sequence
        users = any(keys.touches_access(*each) for each in ranges)
        if users or any(map(keys.is_of_access, declared)):
            self.users_since = sequence
        if any(keys.touches_catalog(*each) for each in ranges):
            # A whole table, topic, namespace or database was dropped. That is rare, and refilling
            # is cheap.
            self._found.clear()
            self._resting.clear()
            return
        for each in declared:
            for at in self._resting.pop(each, ()):
                self._forget(at)

    def roll_back(self, upto: int) -> None:
        """Roll back commits after `upto`: drop the look-ups found in a state with any of them."""
        if self.since <= upto:
            return
        # Entries that they invalidated stay dropped; older ones did not depend on their changes.
        for at in [at for at, found in self._found.items() if found.since > upto]:
            self._forget(at)
        # An upper bound: the newest change that stays may be older, which only costs look-ups.
        self.since = upto
        self.users_since = min(self.users_since, upto)

    def _forget(self, at: Hashable) -> None:
        """Drop a look-up and its name from the dependency index, which would otherwise keep it for
        ever."""
        found = self._found.pop(at, None)
        if found is None:
            return
        for declared in found.rests_on:
            names = self._resting.get(declared)
            if names is not None:
                names.discard(at)
                if not names:
                    del self._resting[declared]


def rest_on(
    looked: Collection[CachedLookup], declared: Collection[bytes], ranges: list[Range]
) -> bool:
    """True if any of the look-ups depends on declarations that were changed or range-deleted."""
    deleted = [each for each in ranges if keys.touches_catalog(*each)]
    if not declared and not deleted:
        return False
    for each in looked:
        for one in each.rests_on:
            if one in declared or any(keys.holds_declared(*where, one) for where in deleted):
                return True
    return False
