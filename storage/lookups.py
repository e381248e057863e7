"""Look-ups of declarations, remembered for as long as what they rest on stays as it is.

Finding a table costs a dictionary, not a read, and whoever finds it there rests on its declaration
as much as whoever read it: that is what a transaction is compared with when it commits.

What a look-up rests on is a set of *declared* keys, `keys.declared`: a table rests on its own row,
on its fields as one, and on its indexes as one. A commit that changes one of them makes exactly the
look-ups that rest on it forgotten, and loses the race only for transactions that made one of those.

Invariant: what is remembered since commit n is what a look-up would find in every state from n to
the newest. So a transaction that reads an older state takes only what is remembered since then or
before; what it has to look up itself it keeps to itself, as one does that has declared something.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Any

from storage import keys
from storage.keys import Range


class Lookup:
    """One look-up; two are the same only if they are one."""

    __slots__ = ("rests_on", "since", "value")

    def __init__(self, value: Any, rests_on: tuple[bytes, ...], since: int) -> None:
        self.value = value
        self.rests_on = rests_on
        """Declared keys, see the head of the file."""
        self.since = since
        """It is right in every state from this commit on, as long as it is remembered."""


class Lookups:
    """What is remembered for all transactions.

    :param since: the newest commit that may have changed a declaration
    """

    def __init__(self, since: int) -> None:
        self.since = since
        """The newest commit that changed a declaration."""
        self.users_since = since
        """The newest that changed who may do what."""
        self._found: dict[Hashable, Lookup] = {}
        self.get = self._found.get
        """What is remembered under a name; None: nothing is."""
        self._resting: dict[bytes, set[Hashable]] = {}
        """Which look-ups rest on a declared key: those that are remembered, and no others."""

    def __len__(self) -> int:
        return len(self._found)

    def add(self, at: Hashable, value: Any, rests_on: tuple[bytes, ...]) -> Lookup:
        """Remember what was found in a state that has no older declarations than the newest."""
        made = self._found[at] = Lookup(value, rests_on, self.since)
        for declared in rests_on:
            self._resting.setdefault(declared, set()).add(at)
        return made

    def changed(self, sequence: int, declared: Collection[bytes], ranges: list[Range]) -> None:
        """A commit has changed declarations.

        :param declared: `keys.declared` of what it wrote or deleted
        :param ranges: all that it deleted
        """
        self.since = sequence
        users = any(keys.touches_access(*each) for each in ranges)
        if users or any(map(keys.is_of_access, declared)):
            self.users_since = sequence
        if any(keys.touches_catalog(*each) for each in ranges):
            # A whole table, topic or place. It happens rarely, and to look again is cheap.
            self._found.clear()
            self._resting.clear()
            return
        for each in declared:
            for at in self._resting.pop(each, ()):
                self._forget(at)

    def withdraw(self, upto: int) -> None:
        """Commits after one never happened: what was found in a state with any of them is not."""
        if self.since <= upto:
            return
        # What they made forgotten stays so, and what was remembered before them they left alone.
        for at in [at for at, found in self._found.items() if found.since > upto]:
            self._forget(at)
        self.since = upto
        self.users_since = min(self.users_since, upto)

    def _forget(self, at: Hashable) -> None:
        """Nothing keeps its name: much of what it rested on may stay as it is for ever."""
        found = self._found.pop(at, None)
        if found is None:
            return
        for declared in found.rests_on:
            names = self._resting.get(declared)
            if names is not None:
                names.discard(at)
                if not names:
                    del self._resting[declared]


def rest_on(looked: Collection[Lookup], declared: Collection[bytes], ranges: list[Range]) -> bool:
    """Whether any of some look-ups rests on declarations that were changed, or deleted."""
    deleted = [each for each in ranges if keys.touches_catalog(*each)]
    if not declared and not deleted:
        return False
    for each in looked:
        for one in each.rests_on:
            if one in declared or any(keys.holds_declared(*where, one) for where in deleted):
                return True
    return False
