"""Ids of declarations: allocated from counters, and never reused while the node runs.

The counter of an id is written by the commit of the declaration, and rolled back with it. Data that
the node keeps in memory under the id may outlive that rollback. So `next_id` also counts past ids
that were rolled back.

Invariant: no two declarations of one kind that this node has committed since its start share an id,
rolled back or not. Another leader may allocate an id that was rolled back here. Data that only a
leader keeps by id is therefore dropped when it stops leading (`Committer.on_lead_lost`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final, Protocol

from storage.formats import keys
from storage.formats.keys import RECORD_PREFIX_BYTES, TAG_AT
from storage.txn.write_set import WriteSet

COUNTERS: Final = (
    keys.NAMESPACE_IDS, keys.DATABASE_IDS, keys.TABLE_IDS, keys.SPACE_IDS, keys.INDEX_IDS,
    keys.TOPIC_IDS, keys.VAULT_IDS,
)  # fmt: skip
"""Counters of store-wide ids. Group ids are allocated per topic."""


class RolledBackIds:
    """Highest allocated id of each counter among the commits that were rolled back."""

    def __init__(self) -> None:
        self._last: dict[bytes, int] = {}

    def add(self, write_set: WriteSet) -> None:
        """Record the ids that a rolled back commit had allocated."""
        # Each id is allocated in the commit of its declaration, which is a catalog change.
        if not write_set.catalog:
            return
        for counter in (*COUNTERS, *_of_groups(write_set.declared)):
            value = write_set.writes.get(counter)
            if value is not None:
                self._last[counter] = max(self.last(counter), keys.unpack_counter(value))

    def last(self, counter: bytes) -> int:
        """Return the highest rolled back id of a counter; 0: none."""
        return self._last.get(counter, 0)


class Counters(Protocol):
    """Part of a transaction that allocates ids."""

    @property
    def rolled_back_ids(self) -> RolledBackIds:
        """Declaration ids that must not be assigned again."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, and add the key to the read set."""

    def put(self, key: bytes, value: bytes) -> None:
        """Set a key."""


def next_id(tx: Counters, counter: bytes, after: int = 0) -> int:
    """Allocate an unused id. :param after: lower bound from another counter"""
    # The read makes concurrent declarations conflict: both would get the same id.
    last = max(keys.unpack_counter(tx.get(counter)), tx.rolled_back_ids.last(counter), after)
    tx.put(counter, keys.pack_counter(last + 1))
    return last + 1


def _of_groups(declared: Collection[bytes]) -> Iterator[bytes]:
    """Yield the id counters of the topics in which groups were declared."""
    for each in declared:
        # The prefix that all groups of a topic share: it is in `declared` beside their keys.
        if each[TAG_AT] == keys.GROUP and len(each) == RECORD_PREFIX_BYTES:
            yield each[:TAG_AT] + bytes((keys.GROUP_IDS,)) + each[TAG_AT + 1 :]
