"""Comparison of an index by values with all records, at one snapshot: CHECK INDEX.

It holds no more than a batch of records, whatever the size of the table.
"""

from __future__ import annotations

from collections.abc import Iterator

from protocol.values import Tick
from storage.catalog.tables import Table
from storage.formats import keys
from storage.formats.keys import SEQUENCE_BYTES
from storage.indexes import entries
from storage.indexes.check import IndexCheck
from storage.indexes.entries import Index, IndexedFields, IndexEntries
from storage.txn.transaction import Transaction


def check_entries(tx: Transaction, table: Table, index: Index, tick: Tick) -> IndexCheck:
    """Compare an index by values with the records of its table."""
    found = IndexCheck()
    span = keys.within(index.entries)
    # The range joins the read set, so that its keys may be read one by one below.
    for pairs in entries.entries(tx, index, *span):
        found.entries += len(pairs)
        tick()
    rows = IndexedFields((index,))
    wanted = IndexEntries(index, rows.heads)
    present = 0
    for id, value in _records(tx, table, tick):
        found.records += 1
        expected = wanted.of(rows.of_packed(value[SEQUENCE_BYTES:]), id)
        held = sum(tx.value_over(key) == kept for key, kept in expected.items())
        present += held
        if held < len(expected):
            found.lacks(id, len(expected) - held)
    found.surplus = found.entries - present
    if found.surplus and found.first is None:
        found.first = _first_surplus(tx, table, wanted, rows, tick)
    return found


def _records(tx: Transaction, table: Table, tick: Tick) -> Iterator[tuple[bytes, bytes]]:
    for pairs in tx.scan(*keys.within(table.prefix)):
        tick()
        for number, (key, value) in enumerate(pairs):
            if number % _PACE == _PACE - 1:
                tick()
            yield key[keys.RECORD_PREFIX_BYTES :], value


_PACE = 64
"""Records compared without a tick."""


def _first_surplus(
    tx: Transaction, table: Table, wanted: IndexEntries, rows: IndexedFields, tick: Tick
) -> bytes | None:
    """Return the id of the first entry that its record should not have."""
    for pairs in entries.entries(tx, wanted.index, *keys.within(wanted.index.entries)):
        for number, pair in enumerate(pairs):
            if number % _PACE == _PACE - 1:
                tick()
            id = entries.entry_id(pair)
            value = tx.value_over(table.prefix + id)
            if value is None:
                return id
            if pair[0] not in wanted.of(rows.of_packed(value[SEQUENCE_BYTES:]), id):
                return id
    return None
