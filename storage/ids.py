"""Ids of declarations: a node gives each of them once for as long as it runs.

The counter of an id is a part of the commit that declares something, and is rolled back with it.
What the node keeps in memory by the id of a declaration may outlive that roll back, so the id is
not given to the next declaration: `next_id` counts on from what was rolled back as well.

Invariant: of two declarations that this node has committed since its start, rolled back or not, no
two of one kind share an id. Another leader may give an id that was rolled back here; what only a
leader keeps by ids is dropped when it leads no more (`Committer.on_following`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Final

from storage import keys
from storage.keys import RECORD_PREFIX_BYTES, TAG_AT

if TYPE_CHECKING:
    from storage.layers import Layer
    from storage.transactions import Transaction

COUNTERS: Final = (
    keys.NAMESPACE_IDS, keys.DATABASE_IDS, keys.TABLE_IDS, keys.SPACE_IDS, keys.INDEX_IDS,
    keys.TOPIC_IDS, keys.VAULT_IDS,
)  # fmt: skip
"""Counters of the whole store. Groups are counted in their topics."""


class RolledBackIds:
    """The highest ids that commits gave and that were rolled back with them."""

    def __init__(self) -> None:
        self._last: dict[bytes, int] = {}

    def add(self, layer: Layer) -> None:
        """Keep the ids of a commit that is rolled back."""
        if not layer.catalog:
            return
        for counter in (*COUNTERS, *_of_groups(layer.declared)):
            value = layer.writes.get(counter)
            if value is not None:
                self._last[counter] = max(self.last(counter), keys.unpack_counter(value))

    def last(self, counter: bytes) -> int:
        """The highest id of a counter that was rolled back; 0: none was."""
        return self._last.get(counter, 0)


def next_id(tx: Transaction, counter: bytes, after: int = 0) -> int:
    """Give an id that nothing has had. :param after: the last that was counted elsewhere"""
    last = max(keys.unpack_counter(tx.get(counter)), tx.rolled_back_ids.last(counter), after)
    tx.put(counter, keys.pack_counter(last + 1))
    return last + 1


def _of_groups(declared: Collection[bytes]) -> Iterator[bytes]:
    """Counters of the topics of which groups were declared."""
    for each in declared:
        if each[TAG_AT] == keys.GROUP and len(each) == RECORD_PREFIX_BYTES:
            yield each[:TAG_AT] + bytes((keys.GROUP_IDS,)) + each[TAG_AT + 1 :]
