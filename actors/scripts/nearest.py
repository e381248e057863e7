"""NEAREST: the nearest rows of a table by the VECTOR index over a field.

The k nearest of the rows that the rest of WHERE passes are found here, so the statement gets them
as its only rows. If another index leads to few records, these are compared exactly. Else the lists
of the index whose centroids are nearest are read, and more of them if few rows pass.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from actors.scripts import measuring
from actors.scripts.access import AccessPath, NearestAccess
from actors.scripts.arrays import load_arrays
from actors.scripts.execution import Execution
from language import tree
from language.nearest import Nearest
from language.printing import print_expression
from language.rows import Pairs
from language.select import SelectPlan
from protocol.errors import BadRequest, TooLarge, TypeRefused
from protocol.paths import Path, path_text
from protocol.values import Value, type_name
from storage.catalog.tables import Table
from storage.formats import keys
from storage.formats.keys import Pair
from storage.indexes.entries import FAILED, Index
from storage.indexes.vector_markers import unfit, wanted_of
from storage.records import records
from storage.search.recall_rows import Recall

if TYPE_CHECKING:
    from actors.scripts.vector_index import KNearest, VectorIndex

K: Final = 10_000
"""Most rows of NEAREST."""
CANDIDATES: Final = 2_000
"""Most records of another index that are compared exactly."""
_SCANNED: Final = frozenset({"scan", "range"})
PART: Final = "a part of the table"
Condition = tree.Expression | str | None
"""Condition of rows beside NEAREST: of a text, PART, or none."""


def index_of(table: Table, path: Path) -> Index:
    """Return the VECTOR index over a field. :raises BadRequest: there is none, or it has failed"""
    for index in table.indexes:
        if index.vector is not None and index.paths == (path,):
            if index.state == FAILED:
                raise BadRequest(
                    f"index {index.name} of {table.name} has failed: REBUILD or DROP it"
                )
            return index
    shown = path_text(path)
    raise BadRequest(
        f"NEAREST takes the field of a VECTOR index of {table.name}, and there is none over"
        f" {shown}: DEFINE INDEX … ON {table.name} FIELDS {shown} VECTOR DIMENSION …"
    )


def nearest_path(
    run: Execution,
    plan: SelectPlan,
    nearest: Nearest,
    table: Table,
    source: keys.Range,
    other: AccessPath,
) -> AccessPath:
    """Return the access path of the k nearest rows.

    :param source: range of keys in which they are
    :param other: access path of the rest of WHERE
    """
    load_arrays(run.fiber)
    from actors.scripts.vector_index import KNearest, VectorIndex

    index = index_of(table, nearest.path)
    k, vector = _count(run, nearest.node), _vector(run, nearest.node, index)
    run.services.indexes.queries.add(index.entries, vector)
    search = VectorIndex(run, table, index, vector)
    record_ids = records.record_id(table)

    def passing(pairs: list[Pair]) -> list[Pair]:
        start, end = source
        pairs = [one for one in pairs if start <= one[0] < end]
        kept = plan.passing(Pairs(pairs, record_ids), run) if pairs else []
        return [pairs[number] for number in kept]

    filters = plan.conditional or source != keys.within(table.prefix)
    found = KNearest(search, k, passing if filters else None)
    few = other.access not in _SCANNED and other.entries is not None
    if few and (other.entries or 0) <= CANDIDATES:
        access = _compared(run, plan, search, k, found, other)
    elif other.access == "range" or not search.has_few_fresh():
        access = _compared(run, plan, search, k, found, other)
        access.way = "all"
    else:
        probes = (
            None if nearest.node.probes is None else _positive(run, nearest.node.probes, "PROBES")
        )
        recall = measuring.current(run, index)
        if probes is None and recall is not None:
            probes = recall.probes
        read, widened = found.search(search.probes if probes is None else probes)
        way = "all" if read >= search.list_count else "lists"
        access = NearestAccess(way, read, widened, fresh=search.fresh_count)
        # A part of a table has a condition that is in no text.
        condition = plan.where if source == keys.within(table.prefix) else PART
        access.recall = partial(_figure, recall, read, condition)
    access.looked_at = search.looked_at
    distances = run.distances
    assert distances is not None, "the statement has opened them"
    for one in found.found:
        distances[table.name, one.id] = found.distance(one)
    pairs = [one.pair for one in found.found]
    return replace(
        other,
        access="nearest",
        batches=iter([Pairs(pairs, record_ids)] if pairs else []),
        ordered=False,
        reverse=False,
        indexes=(index.name,),
        answered=plan.question.conditions,
        used=other.used if access.way == "candidates" else (),
        entries=None,
        texts=(),
        nearest=access,
        columns=None,
        by_row=None,
    )


def _compared(
    run: Execution,
    plan: SelectPlan,
    search: VectorIndex,
    k: int,
    found: KNearest,
    other: AccessPath,
) -> NearestAccess:
    """Compare all records of another access path exactly."""
    from actors.scripts.vector_index import ScannedNearest

    nearest = ScannedNearest(search, k)
    for batch in other.batches:
        assert isinstance(batch, Pairs)
        run.count_read(len(batch.pairs))
        kept = plan.passing(batch, run)
        for at in range(0, len(kept), _STEP):
            nearest.add([batch.pairs[number] for number in kept[at : at + _STEP]])
            run.tick()
    # They pass: their conditions were evaluated.
    found.passing = None
    found.take(nearest)
    by: dict[str, Value] = {}
    if other.indexes:
        by["by"] = list(other.indexes)
    return NearestAccess("candidates", by=by)


_STEP: Final = 64


def _figure(recall: Recall | None, probes: int, condition: Condition) -> Value:
    """Return the measured recall for a number of lists, of the curve the next smaller one."""
    points = () if recall is None else [one for one in recall.curve if one[0] <= probes]
    if recall is None or not points:
        return "unmeasured"
    _, value, low, _ = points[-1]
    found: dict[str, Value] = {"k": recall.k, "value": value, "low": low, "of": recall.of}
    if condition is None:
        return found
    return {**found, "filtered": _filtered(recall, probes, condition)}


def _filtered(recall: Recall, probes: int, condition: tree.Expression | str) -> Value:
    if isinstance(condition, str):
        return "unmeasured"
    text = print_expression(condition)
    for one in recall.filtered:
        if one.filter == text and one.probes <= probes:
            return {"k": one.k, "value": one.value, "low": one.low, "of": one.of}
    return "unmeasured"


# --- operands -------------------------------------------------------------------------------------


def _count(run: Execution, node: tree.Nearest) -> int:
    k = _positive(run, node.count, "NEAREST")
    if k > K:
        raise TooLarge(f"NEAREST finds at most {K} rows", limit=K)
    return k


def _positive(run: Execution, node: tree.Expression, what: str) -> int:
    value = run.evaluate(node)
    if type(value) is not int:
        raise TypeRefused(f"{what} takes an int, not {type_name(value)}", found=type_name(value))
    if value < 1:
        raise BadRequest(f"{what} takes an int of 1 or more")
    return value


def _vector(run: Execution, node: tree.Nearest, index: Index) -> list[Any]:
    assert index.vector is not None
    value = run.evaluate(node.to)
    found = unfit(value, index.vector)
    if found is not None:
        wanted = wanted_of(index.vector)
        raise TypeRefused(
            f"NEAREST takes an {wanted}, by index {index.name}, not {found}",
            wanted=wanted, found=found,
        )  # fmt: skip
    return value  # type: ignore[no-any-return]
