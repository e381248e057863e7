"""Bulk load of a snapshot's pairs into an empty state, with index entries.

Pairs arrive in key order. The catalog precedes the records, so index entries are made while records
are put. The progress of index builds follows the records in the stream. It is known beforehand
nevertheless (`Proven.reached`), because a snapshot is read through before a store is built from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby

from storage.engine.engine import Engine
from storage.formats import keys
from storage.formats.keys import Pair
from storage.formats.positions import LogPosition
from storage.indexes import derived
from storage.indexes.derived import MaintainedIndexes
from storage.txn.applied_position import Lineage
from storage.txn.ledger import Ledger
from storage.txn.transaction import Transaction


def fill(
    ledger: Ledger,
    lists: Iterator[list[Pair]],
    reached: Mapping[bytes, bytes],
    store_id: bytes,
    at: LogPosition,
) -> None:
    """Load all pairs into an empty state, with their index entries. Durable on return.

    :param ledger: ledger on that state
    :param reached: progress keys of index builds, each with the id of the last indexed record
    :param at: log position of the loaded state
    :raises EngineFailed: the engine fails to write
    """
    filling = _Filling(ledger, reached)
    for pairs in lists:
        filling.add(pairs)
    engine = ledger.state.engine
    batch = engine.batch()
    Lineage(store_id, at.sequence, at.digest).note(batch)
    engine.write(batch, at.sequence)
    engine.flush()


class _Filling:
    def __init__(self, ledger: Ledger, reached: Mapping[bytes, bytes]) -> None:
        self._ledger = ledger
        self._engine: Engine = ledger.state.engine
        self._reached = reached
        self._tables: dict[bytes, MaintainedIndexes | None] = {}
        self._catalog: Transaction | None = None
        """Transaction that reads the catalog; begun at the first record, when the catalog is
        complete."""

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

    def _kept(self, prefix: bytes) -> MaintainedIndexes | None:
        if prefix not in self._tables:
            if self._catalog is None:
                self._catalog = self._ledger.begin()
            self._tables[prefix] = derived.kept(self._catalog, prefix)
        return self._tables[prefix]
