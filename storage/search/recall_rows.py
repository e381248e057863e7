"""Rows of measured recall: one for each VECTOR index that was measured.

A commit keeps it, so that followers have it too. It is in no snapshot and no hash. A log has it, so
a row names its store: an index of a restored store is unmeasured. A row counts only for the lists
that it was measured with.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from protocol import binary
from storage.indexes.entries import Index
from storage.txn.transaction import Transaction


@dataclass(frozen=True, slots=True)
class Recall:
    """Measured recall of an index.

    :ivar lists: digest of its lists
    :ivar of: origin of the queries: `given`, `live` or `stored`
    :ivar at: time of the measurement
    :ivar curve: number of lists, recall, and the ends of its interval
    :ivar others: of other origins: origin, queries, recall, and the ends of its interval
    """

    lists: bytes
    k: int
    value: float
    low: float
    high: float
    queries: int
    of: str
    probes: int
    target: float
    at: datetime
    sequence: int
    curve: tuple[tuple[int, float, float, float], ...]
    others: tuple[tuple[str, int, float, float, float], ...] = ()


def put(tx: Transaction, index: Index, recall: Recall) -> None:
    """Write the row of an index."""
    row: dict[str, Any] = {name: getattr(recall, name) for name in Recall.__slots__}
    row["store"] = tx.store
    row["curve"] = [list(one) for one in recall.curve]
    row["others"] = [list(one) for one in recall.others]
    tx.put(index.recall, binary.pack(row))


def find(tx: Transaction, index: Index, lists: bytes) -> Recall | None:
    """Return the measured recall of an index; None: it is unmeasured.

    :param lists: digest of the lists that the index has now
    """
    value = tx.get(index.recall)
    if value is None:
        return None
    row: Any = binary.unpack_object(value)
    if row.pop("store", None) != tx.store:
        return None
    row["curve"] = tuple(map(tuple, row["curve"]))
    row["others"] = tuple(map(tuple, row["others"]))
    found = Recall(**row)
    return found if found.lists == lists else None
