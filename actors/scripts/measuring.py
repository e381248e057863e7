"""MEASURE INDEX, and MEASURE of REBUILD INDEX: the recall of a VECTOR index.

MEASURE keeps the figures, and the request: the leader repeats it when they are stale, see
`actors/indexes/recall_renewal.py`. REBUILD keeps the request alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from actors.scripts.arrays import load_arrays
from actors.scripts.execution import Execution
from actors.scripts.handlers import RequiredWhen, Requires, handles
from actors.scripts.search_reading import SeparateReading
from language import tree
from language.confined import unknown_variable
from language.printing import print_expression
from protocol import binary
from protocol.errors import BadRequest, TooLarge, TypeRefused
from protocol.rights import DEFINE, READ, SecurableKind
from protocol.values import Value, type_name
from storage.catalog import tables
from storage.catalog.tables import Table
from storage.indexes.entries import FAILED, Index
from storage.indexes.vector_markers import unfit, wanted_of
from storage.indexes.vector_options import VectorOptions
from storage.search import recall_rows
from storage.search.recall_rows import LEAST, STALE, MeasuredFilter, Recall, RecallRequest
from storage.search.trainings import lists_of
from storage.txn.transaction import Transaction

if TYPE_CHECKING:
    from storage.search.vectors import Floats

MOST: Final = 2_000
"""Most queries of a measurement."""
K: Final = 1_000
"""Most rows of a query that is measured."""
FILTER_READS: Final = Requires(READ, SecurableKind.TABLE, ("table",), RequiredWhen.MEASURES_FILTER)


@handles(
    tree.MeasureIndex,
    "info",
    writes=True,
    needs=[Requires(DEFINE, SecurableKind.TABLE, ("table",)), FILTER_READS],
    audited=True,
)
def measure_index(run: Execution, statement: tree.MeasureIndex, table: Table) -> Value:
    """Measure the recall of a VECTOR index, and have it read as many lists as its target needs.

    :raises BadRequest: it is another index, or not built; or there are too few queries
    """
    index = tables.index(table, statement.name)
    request, given = asked(run, table, index, statement.over)
    if not index.is_complete or index.state == FAILED:
        raise BadRequest(f"index {index.name} can't be measured: its state is {index.state}")
    from actors.scripts.recall_measuring import Measuring

    live = run.services.indexes.queries.of(index.entries)
    with _snapshot(run) as tx:
        reading = SeparateReading(tx, run.memory, run.tick)
        found = Measuring(reading, table, index, live, given).recall(request, run.now)
    found = found.with_filters(current(run, index))
    recall_rows.put(run.transaction, index, found)
    keep_request(run, index, request, given)
    # A record that was written meanwhile is no part of its snapshot.
    return described(found, 0.0)


@contextmanager
def _snapshot(run: Execution) -> Iterator[Transaction]:
    """Open the transaction that a measurement reads in."""
    # Inside a block the index may be one that only this transaction knows.
    if not run.may_run_again:
        yield run.transaction
        return
    # A measurement takes seconds: in a transaction of its own it meets no conflict.
    with run.reading_beside() as tx:
        tx.pause()
        yield tx


def asked(
    run: Execution, table: Table, index: Index, over: tree.MeasureOver
) -> tuple[RecallRequest, Floats | None]:
    """Return a measurement as it is asked for, and the vectors that are given.

    :raises BadRequest: it is another index, or there are too few queries
    """
    if index.vector is None:
        raise BadRequest(f"index {index.name} has no recall: it is no VECTOR index")
    load_arrays(run.fiber)
    from actors.scripts.recall_measuring import as_compared, filter_of

    if not LEAST <= over.queries <= MOST:
        raise BadRequest(f"QUERIES takes {LEAST} to {MOST}")
    if not 1 <= over.k <= K:
        raise TooLarge(f"K takes 1 to {K}", limit=K)
    filters: tuple[MeasuredFilter, ...] = ()
    if over.where is not None:
        filters = (_filter(run, over.where),)
        # Refused here, and not when the leader measures.
        filter_of(run, table, filters[0])
    given = None
    if over.vectors is not None:
        rows = _given(run, run.evaluate(over.vectors), index.vector)
        given = as_compared(rows, index.vector, run)
    return RecallRequest(over.queries, over.k, over.probes, filters), given


def keep_request(
    run: Execution, index: Index, request: RecallRequest, given: Floats | None
) -> None:
    """Have the leader repeat a measurement, with the filters of those before."""
    tx = run.transaction
    before = recall_rows.find_request(tx.get, index, tx.store)
    if before is not None:
        request = request.with_filters(before.filters)
    vectors = b""
    if given is not None:
        size = given[:1].nbytes
        vectors = given[: recall_rows.VECTORS_BYTES // size].astype("<f4").tobytes()
    recall_rows.put_request(tx, index, request, vectors)


def _filter(run: Execution, where: tree.Expression) -> MeasuredFilter:
    """Return a condition with the values of its variables."""
    variables: dict[str, Value] = {}
    while (one := unknown_variable(where, frozenset({"this", "parent", *variables}))) is not None:
        variables[one.name] = run.evaluate(one)
    size = len(binary.pack(variables))
    if size > recall_rows.VARIABLES_BYTES:
        limit = recall_rows.VARIABLES_BYTES
        raise TooLarge(
            f"the variables of WHERE have at most {limit} bytes, not {size}", limit=limit
        )
    return MeasuredFilter(print_expression(where), variables)


def _given(run: Execution, value: Any, options: VectorOptions) -> list[list[Any]]:
    if type(value) is not list:
        raise TypeRefused(
            f"WITH takes an array of vectors, not {type_name(value)}", found=type_name(value)
        )
    if not LEAST <= len(value) <= MOST:
        raise BadRequest(f"WITH takes {LEAST} to {MOST} vectors")
    for one in value:
        run.tick()
        found = unfit(one, options)
        if found is not None:
            wanted = wanted_of(options)
            raise TypeRefused(
                f"WITH takes vectors, each an {wanted}, not {found}", wanted=wanted, found=found
            )
    return value


# --- how it is shown ------------------------------------------------------------------------------


def current(run: Execution, index: Index) -> Recall | None:
    """Return the recall that was measured with the present lists; None: it is unmeasured."""
    return recall_rows.find(run.transaction, index, lists_of(run.transaction.value_over, index))


def described(recall: Recall, changed: float) -> dict[str, Value]:
    """Return a measured recall for INFO. :param changed: share of records changed since"""
    return {
        "state": "stale" if changed > STALE else "measured",
        "k": recall.k,
        "value": recall.value,
        "low": recall.low,
        "high": recall.high,
        "queries": recall.queries,
        "of": recall.of,
        "probes": recall.probes,
        "target": recall.target,
        "at": recall.at,
        "seq": recall.sequence,
        "changed": changed,
        "curve": [
            {"probes": probes, "value": value, "low": low, "high": high}
            for probes, value, low, high in recall.curve
        ],
        "others": [
            {"of": of, "queries": queries, "value": value, "low": low, "high": high}
            for of, queries, value, low, high in recall.others
        ]
        + [one._asdict() for one in recall.filtered],
    }
