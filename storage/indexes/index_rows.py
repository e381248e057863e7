"""Rows of indexes in the catalog, encoded and decoded.

index_builds.py checks and declares indexes; catalog/tables.py attaches them to their table.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from protocol import binary
from protocol.paths import read_path, stored_path
from protocol.values import Tick
from storage.formats import keys
from storage.indexes import text_options, vector_options
from storage.indexes.entries import BUILDING, Index

if TYPE_CHECKING:
    from storage.txn.transaction import Transaction


def each(tx: Transaction, namespace: int, database: int, table: int) -> tuple[Index, ...]:
    """Return the indexes of a table by its ids, ordered by name; () if there is no such table."""
    # A range in the read set: an index that another commit declares meanwhile is a conflict.
    scan = tx.scan(*keys.indexes(namespace, database, table))
    return tuple(read(key, value) for pairs in scan for key, value in pairs)


def load(tx: Transaction, start: bytes, end: bytes, tick: Tick) -> dict[int, tuple[Index, ...]]:
    """Return the indexes in a key range by table id, those of a table ordered by name.

    :param tick: called for each
    """
    found: dict[int, list[Index]] = {}
    for key, value in tx.rows(start, end, tick):
        # The name follows the table in the key, so each list is in order of names.
        found.setdefault(keys.third(key), []).append(read(key, value))
    return {table: tuple(indexes) for table, indexes in found.items()}


def find(tx: Transaction, key: bytes) -> Index | None:
    """Return the index declared at a key, or None."""
    value = tx.get(key)
    return None if value is None else read(key, value)


def put(tx: Transaction, index: Index) -> None:
    """Write the declaration of an index."""
    row = {
        "id": index.id,
        "comment": index.comment,
        "table": index.table,
        "paths": list(map(stored_path, index.paths)),
        "unique": index.unique,
        "state": index.state,
        "problem": index.problem,
        "anew": index.anew,
        **({} if index.text is None else {"text": text_options.pack_options(index.text)}),
        **({} if index.vector is None else {"vector": vector_options.pack_options(index.vector)}),
    }
    tx.put(index.key, binary.pack(row))


def placed(key: bytes, index: Index) -> Index:
    """Return an index with the keys derived from the key of its declaration."""
    # Prefixes are kept with the index, since each write of a record needs them.
    numbers = (*keys.index_table(key), index.id)
    return replace(
        index,
        key=key,
        entries=keys.of_index(keys.INDEX_ENTRY, *numbers),
        build=keys.of_index(keys.INDEX_BUILD, *numbers),
        centroids=keys.of_index(keys.CENTROIDS, *numbers),
        recall=keys.of_index(keys.RECALL, *numbers),
    )


def successor(index: Index) -> Index | None:
    """Return the index under construction that will replace this one; None if it is not being
    rebuilt."""
    if index.anew is None:
        return None
    # Both have one row in the catalog until the successor replaces the index.
    coming = replace(index, id=index.anew, state=BUILDING, anew=None)
    return placed(index.key, coming)


def read(key: bytes, value: bytes) -> Index:
    """Return the index of a declaration, by its key and value."""
    row = binary.unpack(value)
    assert isinstance(row, dict)
    made = Index(
        row["id"],
        keys.index_name(key),
        row["table"],
        tuple(map(read_path, row["paths"])),
        unique=row["unique"],
        comment=row["comment"],
        state=row["state"],
        problem=row["problem"],
        anew=row.get("anew"),
        text=text_options.read_options(row.get("text")),
        vector=vector_options.read_options(row.get("vector")),
    )
    return placed(key, made)
