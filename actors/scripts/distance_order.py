"""ORDER BY a distance: all rows of a table in the order of the VECTOR index over a field.

Records with a fresh marker are compared exactly, beside the index. With many of them, or without a
small LIMIT, rows are sorted instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from actors.scripts.access import NearestAccess
from actors.scripts.arrays import load_arrays
from actors.scripts.execution import Execution
from language.nearest import ByDistance
from language.rows import Batch, Pairs
from language.select import SelectPlan
from storage.catalog.tables import Table
from storage.indexes.entries import FAILED, Index
from storage.indexes.vector_markers import unfit
from storage.records import records

_LIMIT: Final = 5
"""ORDER BY a distance reads the index if it needs at most one record of so many."""


def in_order(
    run: Execution, plan: SelectPlan, table: Table
) -> tuple[Index, NearestAccess, Iterator[Batch]] | None:
    """Return the index that has the order of ORDER BY a distance, and all rows of a table in this
    order; None: rows are sorted."""
    wanted = plan.by_distance
    if wanted is None:
        return None
    index = next((one for one in table.indexes if _serves(one, wanted)), None)
    if index is None or index.vector is None:
        return None
    most, count = plan.most(run), records.count(run.transaction, table)
    # Without LIMIT, or with a large one, most records are read anyway.
    if most is None or most * _LIMIT > count:
        return None
    value = run.evaluate(wanted.to)
    # A scan refuses it, if it comes to that.
    if unfit(value, index.vector) is not None:
        return None
    load_arrays(run.fiber)
    from actors.scripts.vector_index import VectorIndex

    search = VectorIndex(run, table, index, value)
    if index.state == FAILED or not search.has_few_fresh():
        return None
    # The functions refuse other values: a scan says so.
    if search.count != count:
        return None
    record_ids = records.record_id(table)
    way = NearestAccess("all", looked_at=count, fresh=search.fresh_count)
    return index, way, (Pairs(pairs, record_ids) for pairs in search.in_order())


def _serves(index: Index, wanted: ByDistance) -> bool:
    """True if an index has the order of a distance: bytes don't tell it."""
    options = index.vector
    return (
        options is not None
        and index.paths == (wanted.path,)
        and (options.distance, options.type) == (wanted.distance, "F32")
    )
