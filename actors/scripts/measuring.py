"""MEASURE INDEX: the recall of a VECTOR index, and the number of lists that it needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from actors.scripts.arrays import load_arrays
from actors.scripts.execution import Execution
from actors.scripts.handlers import Requires, handles
from language import tree
from protocol.errors import BadRequest, TooLarge, TypeRefused
from protocol.rights import DEFINE, SecurableKind
from protocol.values import Value, type_name
from storage.catalog import tables
from storage.catalog.tables import Table
from storage.formats.keys import SEQUENCE_BYTES
from storage.indexes.entries import FAILED, Index
from storage.indexes.vector_markers import unfit, wanted_of
from storage.indexes.vector_options import VectorOptions
from storage.search import recall_rows, segments
from storage.search.recall_rows import Recall
from storage.search.segments import Segment

if TYPE_CHECKING:
    from collections.abc import Generator

    from storage.search.recall import Measurement, Point, Sample

LEAST: Final = 10
"""Fewest queries of a measurement: an interval of fewer says nothing."""
MOST: Final = 2_000
"""Most queries of a measurement."""
K: Final = 1_000
"""Most rows of a query that is measured."""


@handles(
    tree.MeasureIndex,
    "info",
    writes=True,
    needs=[Requires(DEFINE, SecurableKind.TABLE, ("table",))],
    audited=True,
)
def measure_index(run: Execution, statement: tree.MeasureIndex, table: Table) -> Value:
    """Measure the recall of a VECTOR index, and have it read as many lists as its target needs.

    :raises BadRequest: it is another index, or not built; or there are too few queries
    """
    index = tables.index(table, statement.name)
    if index.vector is None:
        raise BadRequest(f"index {index.name} has no recall: it is no VECTOR index")
    if not index.is_complete or index.state == FAILED:
        raise BadRequest(f"index {index.name} can't be measured: its state is {index.state}")
    found = measured(run, table, index, index.vector, statement.over)
    recall_rows.put(run.transaction, index, found)
    return described(run, table, index, found)


def measured(
    run: Execution, table: Table, index: Index, options: VectorOptions, over: tree.MeasureOver
) -> Recall:
    """Return the recall of an index at the snapshot of a statement."""
    load_arrays(run.fiber)
    from storage.search import centroids
    from storage.search.recall import LEAST_LIVE, Measurement

    count, k = over.queries, over.k
    if not LEAST <= count <= MOST:
        raise BadRequest(f"QUERIES takes {LEAST} to {MOST}")
    if not 1 <= k <= K:
        raise TooLarge(f"K takes 1 to {K}", limit=K)
    tx, held = run.transaction, run.memory.held
    measurement = Measurement(tx.value_over, tx.scan, table.prefix, index, k, run.hold)
    _run(run, measurement.open())
    samples: list[Sample] = []
    if over.vectors is not None:
        rows = _given(run, run.evaluate(over.vectors), options)
        samples.append(_sample(run, "given", rows, options))
    live = run.services.indexes.queries.of(index.entries)
    if len(live) >= LEAST_LIVE:
        samples.append(_sample(run, "live", live, options))
    samples.append(_run(run, measurement.stored(count)))
    samples = [one for one in samples if len(one.vectors) >= LEAST]
    if not samples:
        raise BadRequest(f"index {index.name} has too few vectors: at least {LEAST} are measured")
    run.memory.held += sum(_memory(one, k) for one in samples)
    known = centroids.trainings(tx.value_over, index)
    lists = known[-1].digest if known else centroids.NO_LISTS
    first, *others = [(one, _points(run, measurement, one, over.probes)) for one in samples]
    chosen = _setting(first[1], options.recall, over.probes)
    run.memory.held = held
    return Recall(
        lists, k, chosen.value, chosen.low, chosen.high, len(first[0].vectors), first[0].of,
        chosen.probes, options.recall, run.now, tx.sequence,
        tuple((one.probes, one.value, one.low, one.high) for one in first[1]),
        tuple(_other(one, points, chosen.probes) for one, points in others),
    )  # fmt: skip


def _memory(sample: Sample, k: int) -> int:
    return sample.vectors.nbytes + len(sample.vectors) * (_QUERY_BYTES + 64 * k)


_QUERY_BYTES: Final = 16_384
"""Memory of one query beside its vector and its neighbours, about."""


def _run(run: Execution, steps: Generator[None, None, Any]) -> Any:
    """Return the result of work in steps."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
        run.tick()


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


def _sample(run: Execution, of: str, rows: Sequence[Any], options: VectorOptions) -> Sample:
    from storage.search.recall import Sample
    from storage.search.vectors import float_vector, stacked

    vectors = []
    for one in rows:
        vectors.append(float_vector(one, options))
        run.tick()
    return Sample(of, stacked(vectors))


def _points(
    run: Execution, measurement: Measurement, sample: Sample, probes: int | None
) -> list[Point]:
    """Return the curve of a sample."""
    from storage.search.recall import curve, ladder

    steps = ladder(measurement.lists)
    if probes is not None:
        steps = sorted({*steps, min(probes, measurement.lists)})
    return curve(steps, _run(run, measurement.hits(sample, steps)))


def _setting(points: Sequence[Point], target: float, probes: int | None) -> Point:
    from storage.search.recall import setting

    if probes is None:
        return setting(points, target)
    return next(one for one in points if one.probes >= min(probes, points[-1].probes))


def _other(
    sample: Sample, points: Sequence[Point], probes: int
) -> tuple[str, int, float, float, float]:
    one = next(one for one in points if one.probes >= probes)
    return sample.of, len(sample.vectors), one.value, one.low, one.high


# --- how it is shown ------------------------------------------------------------------------------


def current(run: Execution, index: Index) -> Recall | None:
    """Return the recall that was measured with the present lists; None: it is unmeasured."""
    get = run.transaction.get
    if get(index.recall) is None:
        return None
    from storage.search import centroids

    known = centroids.trainings(get, index)
    return recall_rows.find(
        run.transaction, index, known[-1].digest if known else centroids.NO_LISTS
    )


def described(run: Execution, table: Table, index: Index, recall: Recall) -> dict[str, Value]:
    """Return a measured recall for INFO."""
    changed = changed_share(run, table, index, recall.sequence)
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
        ],
    }


STALE: Final = 0.1
"""Share of changed records above which a measurement is stale."""
_SAMPLED: Final = 512
"""Records that are looked at for the share of changed ones: all of a small table."""


def changed_share(run: Execution, table: Table, index: Index, sequence: int) -> float:
    """Return the share of the records in an index that were written after a commit, by a sample of
    them."""
    tx = run.transaction
    ids: list[bytes] = []
    known = segments.heads_of(tx, index.entries)
    fresh: list[bytes] = []
    for some in segments.marked_ids(tx, index.entries):
        fresh += some
        run.tick()
    held = run.memory.held
    run.memory.held += len(fresh) * ID_BYTES
    # A record that is fresh counts once.
    marked = set(fresh)
    step = max((sum(head.live for head in known) + len(fresh)) // _SAMPLED, 1)
    for head in known:
        segment = Segment(tx.get, tx.scan, index.entries, head, keeps=True)
        ids += [id for id in segment.ids(range(0, head.records, step)) if id not in marked]
        run.tick()
    ids += fresh[::step]
    run.memory.held = held
    seen = changed = 0
    for number, id in enumerate(ids):
        if number % _PACE == _PACE - 1:
            run.tick()
        stamp = tx.value_over(table.prefix + id)
        # A deleted record has changed, too.
        seen += 1
        changed += stamp is None or int.from_bytes(stamp[:SEQUENCE_BYTES], "big") > sequence
    return changed / seen if seen else 0.0


ID_BYTES: Final = 128
"""Memory of the id of a fresh record, about."""
_PACE: Final = 64
