"""Rows of measured recall: of each VECTOR index its figures, and what is measured again.

A commit keeps them, so that followers have them too, and the next leader goes on. They are in no
snapshot and no hash. A log has them, so a row names its store: an index of a restored store is
unmeasured. Figures count only for the lists that they were measured with. Keys, after the prefix of
the index's recall:

| then | value |
|---|---|
| nothing | msgpack: `Recall` |
| 1 | msgpack: `RecallRequest` |
| 2 | vectors that were given, as floats |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any, Final, NamedTuple

from protocol import binary
from protocol.values import Value
from storage.indexes.entries import Index
from storage.txn.transaction import Transaction

LEAST: Final = 10
"""Fewest queries of a measurement: an interval of fewer says nothing."""
STALE: Final = 0.1
"""Share of changed records above which a measurement is stale."""
FRESH_PART: Final = 10
"""Figures count if at most this part of the records is fresh: those are never missed."""
FILTERS: Final = 8
"""Most filters of an index that are measured: those that were named last."""
VARIABLES_BYTES: Final = 64 * 1024
"""Most bytes of the variables of a filter."""
VECTORS_BYTES: Final = 4 * 1024 * 1024
"""Most bytes of the given vectors that are kept."""
_REQUEST: Final = b"\1"
_VECTORS: Final = b"\2"
Get = Callable[[bytes], bytes | None]


class FilteredRecall(NamedTuple):
    """Measured recall of queries with a filter. :ivar filter: its text"""

    filter: str
    of: str
    queries: int
    k: int
    probes: int
    value: float
    low: float
    high: float


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
    filtered: tuple[FilteredRecall, ...] = ()

    def with_filters(self, before: Recall | None) -> Recall:
        """Return it with further filters of an earlier measurement of the same lists, as many as
        are kept."""
        if before is None:
            return self
        own = {one.filter for one in self.filtered}
        kept = [one for one in before.filtered if one.filter not in own]
        return replace(self, filtered=(*kept, *self.filtered)[-FILTERS:])


class MeasuredFilter(NamedTuple):
    """Filter whose queries are measured, with the values of its variables."""

    text: str
    variables: dict[str, Value]


@dataclass(frozen=True, slots=True)
class RecallRequest:
    """Measurement of an index, as it was asked for."""

    queries: int
    k: int
    probes: int | None
    filters: tuple[MeasuredFilter, ...] = ()

    def with_filters(self, others: tuple[MeasuredFilter, ...]) -> RecallRequest:
        """Return it with further filters of an earlier request, as many as are kept."""
        own = {one.text for one in self.filters}
        kept = [one for one in others if one.text not in own]
        filters = (*kept, *self.filters)[-FILTERS:]
        return RecallRequest(self.queries, self.k, self.probes, filters)


def put(tx: Transaction, index: Index, recall: Recall) -> None:
    """Write the measured recall of an index."""
    row: dict[str, Any] = {one.name: getattr(recall, one.name) for one in fields(recall)}
    for name in _LISTS:
        row[name] = [list(one) for one in row[name]]
    tx.put(index.recall, binary.pack({**row, "store": tx.store}))


_LISTS: Final = ("curve", "others", "filtered")


def find(tx: Transaction, index: Index, lists: bytes) -> Recall | None:
    """Return the measured recall of an index; None: it is unmeasured.

    :param lists: digest of the lists that the index has now
    """
    row = _row(tx.get, index.recall, tx.store)
    if row is None or row["lists"] != lists:
        return None
    for name in _LISTS:
        row[name] = tuple(map(tuple, row[name]))
    row["filtered"] = tuple(FilteredRecall(*one) for one in row["filtered"])
    return Recall(**row)


def put_request(
    tx: Transaction, index: Index, request: RecallRequest, vectors: bytes | None = None
) -> None:
    """Have an index measured, now or when its figures are stale.

    :param vectors: the first of the given ones, as floats; None: they stay as they are
    """
    row = {"queries": request.queries, "k": request.k, "probes": request.probes}
    filters = [list(one) for one in request.filters]
    tx.put(index.recall + _REQUEST, binary.pack({**row, "filters": filters, "store": tx.store}))
    if vectors:
        tx.put(index.recall + _VECTORS, vectors)
    elif vectors is not None:
        tx.delete(index.recall + _VECTORS)


def find_request(get: Get, index: Index, store: Any) -> RecallRequest | None:
    """Return the measurement that an index is to have again; None: it was never asked for."""
    row = _row(get, index.recall + _REQUEST, store)
    if row is None:
        return None
    return RecallRequest(
        **{**row, "filters": tuple(MeasuredFilter(*one) for one in row["filters"])}
    )


def given_vectors(tx: Transaction, index: Index) -> bytes:
    """Return the vectors that were given, as floats."""
    return tx.get(index.recall + _VECTORS) or b""


def _row(get: Get, key: bytes, store: Any) -> dict[str, Any] | None:
    value = get(key)
    if value is None:
        return None
    row: Any = binary.unpack_object(value)
    return row if row.pop("store", None) == store else None
