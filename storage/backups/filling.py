"""The state of a store that is restored, made of the pairs of a snapshot.

Pairs come in key order: the catalog before the records, so what indexes hold of a record is made
when the record is put. How far an index had been built stands behind them. It is known all the same
(`Checked.reached`), for a snapshot is read through before anything is made of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby

from storage import derived, keys
from storage.derived import Kept
from storage.engine import Engine, Pair
from storage.histories import Standing
from storage.ledger import Ledger
from storage.lineage import Lineage
from storage.transactions import Transaction


def fill(
    ledger: Ledger,
    lists: Iterator[list[Pair]],
    reached: Mapping[bytes, bytes],
    store_id: bytes,
    at: Standing,
) -> None:
    """Put all pairs into an empty state, with what indexes hold; durable on return.

    :param ledger: one on that state
    :param reached: where builds of indexes note how far they are, and the id of the last record
    :param at: the commit that the state stands at then
    :raises EngineFailed: the state does not take it
    """
    filling = _Filling(ledger, reached)
    for pairs in lists:
        filling.add(pairs)
    engine = ledger.engine
    batch = engine.batch()
    Lineage(store_id, at.sequence, at.digest).note(batch)
    engine.write(batch, at.sequence)
    engine.flush()


class _Filling:
    def __init__(self, ledger: Ledger, reached: Mapping[bytes, bytes]) -> None:
        self._ledger = ledger
        self._engine: Engine = ledger.engine
        self._reached = reached
        self._tables: dict[bytes, Kept | None] = {}
        self._catalog: Transaction | None = None
        """Reads the catalog, once all of it is there."""

    def add(self, pairs: list[Pair]) -> None:
        for is_record, some in groupby(pairs, lambda pair: keys.is_record(pair[0])):
            batch = self._engine.batch()
            found = list(some)
            for key, value in found:
                batch.put(key, value)
            if is_record:
                for entry, holder in self._entries(found):
                    batch.put(entry, holder)
            self._engine.write(batch, 0)

    def _entries(self, records: list[Pair]) -> Iterator[Pair]:
        prefix_of = keys.RECORD_PREFIX_BYTES
        for prefix, some in groupby(records, lambda pair: pair[0][:prefix_of]):
            kept = self._kept(prefix)
            if kept is not None:
                yield from kept.of_loaded(list(some), self._reached).items()

    def _kept(self, prefix: bytes) -> Kept | None:
        if prefix not in self._tables:
            if self._catalog is None:
                self._catalog = self._ledger.begin()
            self._tables[prefix] = derived.kept(self._catalog, prefix)
        return self._tables[prefix]
