"""Measurement of the recall of a VECTOR index, for MEASURE and for the leader that repeats it.

The truth is exact, in one pass over all vectors. What lists find follows from the same pass, see
`storage/search/recall.py`. With a filter that depends on how many rows pass: there the search
itself runs for each query. Nothing is written here. Imports numpy.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final

from actors.scripts import text_search
from actors.scripts.comparing import check_against
from actors.scripts.schema import declared_schema
from actors.scripts.search_reading import Reading
from actors.scripts.vector_index import KNearest, VectorIndex
from language.filters import Filter
from protocol.errors import BadRequest
from storage.catalog.tables import Table
from storage.formats.keys import SEQUENCE_BYTES, Pair
from storage.indexes.entries import Index
from storage.indexes.vector_options import VectorOptions
from storage.records import records
from storage.search import segments
from storage.search.postings import live_numbers
from storage.search.recall import (
    LEAST_LIVE,
    Measurement,
    Point,
    Sample,
    curve,
    interval,
    ladder,
    setting,
)
from storage.search.recall_rows import (
    LEAST,
    FilteredRecall,
    MeasuredFilter,
    Recall,
    RecallRequest,
)
from storage.search.segments import Segment
from storage.search.trainings import lists_of
from storage.search.vectors import (
    Floats,
    finite_numbers,
    float_vector,
    read_vectors,
    stacked,
)

WHERE: Final = "WHERE of MEASURE"
NO_FIGURES: Final = b""
"""In the place of the digest of lists: these figures count for no lists."""
_QUERY_BYTES: Final = 16_384
"""Memory of one query beside its vector and its neighbours, about."""


class Measuring:
    """Measurement of one index, at the snapshot of a reading.

    :param live: query vectors that the node was asked
    :param given: query vectors of the statement, as they are compared
    """

    def __init__(
        self,
        reading: Reading,
        table: Table,
        index: Index,
        live: Sequence[Sequence[float]],
        given: Floats | None,
    ) -> None:
        assert index.vector is not None
        self._reading, self._table, self._index = reading, table, index
        self._options, self._live, self._given = index.vector, live, given

    def has_enough(self) -> bool:
        """True if the index has as many vectors as a measurement takes."""
        known = segments.heads_of(self._reading.transaction, self._index.entries)
        return sum(head.live for head in known) >= LEAST

    def recall(self, request: RecallRequest, now: datetime) -> Recall:
        """Measure. :raises BadRequest: there are too few vectors"""
        tx, options, k = self._reading.transaction, self._options, request.k
        memory = self._reading.memory
        held = memory.held
        measurement = Measurement(
            tx.value_over, tx.scan, self._table.prefix, self._index, k, self._reading.hold
        )
        self._run(measurement.open())
        samples = self._samples(measurement, request.queries)
        if not samples:
            raise BadRequest(
                f"index {self._index.name} has too few vectors: at least {LEAST} are measured"
            )
        memory.held += sum(_memory(one, k) for one in samples)
        first, *others = [(one, self._points(measurement, one, request.probes)) for one in samples]
        chosen = _chosen(first[1], options, request.probes)
        filtered = [
            self._filtered(measurement, first[0], one, chosen.probes) for one in request.filters
        ]
        memory.held = held
        lists = lists_of(tx.value_over, self._index)
        return Recall(
            # Of other lists, or of records in no list yet, the figures are no figures of these.
            lists if measurement.has_lists(lists) else NO_FIGURES,
            k, chosen.value, chosen.low, chosen.high, len(first[0].vectors), first[0].of,
            chosen.probes, options.recall, now, tx.sequence,
            tuple((one.probes, one.value, one.low, one.high) for one in first[1]),
            tuple(_other(one, points, chosen.probes) for one, points in others),
            tuple(filtered),
        )  # fmt: skip

    def _run(self, steps: Generator[None, None, Any]) -> Any:
        """Return the result of work in steps."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value
            self._reading.tick()

    # --- samples ----------------------------------------------------------------------------------

    def _samples(self, measurement: Measurement, count: int) -> list[Sample]:
        """Return the samples that there are, the best first."""
        found = []
        if self._given is not None:
            found.append(Sample("given", self._given))
        if len(self._live) >= LEAST_LIVE:
            found.append(Sample("live", as_compared(self._live, self._options, self._reading)))
        found.append(self._run(measurement.stored(count)))
        return [one for one in found if len(one.vectors) >= LEAST]

    def _points(self, measurement: Measurement, sample: Sample, probes: int | None) -> list[Point]:
        """Return the curve of a sample."""
        steps = ladder(measurement.lists)
        if probes is not None:
            steps = sorted({*steps, min(probes, measurement.lists)})
        return curve(steps, self._run(measurement.hits(sample, steps)))

    # --- filters ----------------------------------------------------------------------------------

    def _filtered(
        self, measurement: Measurement, sample: Sample, named: MeasuredFilter, probes: int
    ) -> FilteredRecall:
        """Return the recall of queries with a filter."""
        condition = filter_of(self._reading, self._table, named)
        record_ids, tick = records.record_id(self._table), self._reading.tick
        prefix, memory = self._table.prefix, self._reading.memory

        def passes(key: bytes, packed: bytes) -> bool:
            return condition.passes(key, packed, record_ids, tick)

        some = self._run(measurement.restricted(passes))
        truth = self._run(some.nearest(sample))
        shares: list[float] = []
        for query, (ids, most) in enumerate(truth):
            own = prefix + sample.ids[query] if sample.ids else b""

            def passing(pairs: list[Pair], own: bytes = own) -> list[Pair]:
                return [one for one in pairs if one[0] != own and passes(*one)]

            held = memory.held
            vector = finite_numbers(sample.vectors[query])
            search = VectorIndex(self._reading, self._table, self._index, vector)
            found = KNearest(search, measurement.k, passing)
            found.search(probes)
            hits = len(ids.intersection(one.id for one in found.found))
            shares.append(min(hits, most) / most if most else 1.0)
            memory.held = held
            tick()
        value, low, high = interval(shares)
        return FilteredRecall(
            named.text, sample.of, len(shares), measurement.k, probes, value, low, high
        )


def filter_of(reading: Reading, table: Table, named: MeasuredFilter) -> Filter:
    """Return a filter of queries.

    :raises UnexpectedToken, Unknown, BadRequest, TooLarge: as `Filter`
    :raises TypeRefused: it is the same for every record of the table
    """
    schema = declared_schema(reading.transaction, table, reading.tick)
    analyzer = partial(text_search.analyzer_for, table)
    found = Filter(named.text, schema.types, analyzer, named.variables, WHERE)
    check_against(schema, found.comparisons, table, found.evaluate, reading.tick)
    return found


def as_compared(rows: Sequence[Any], options: VectorOptions, reading: Reading) -> Floats:
    """Return vectors as they are compared."""
    found = []
    for one in rows:
        found.append(float_vector(one, options))
        reading.tick()
    return stacked(found)


def kept_vectors(raw: bytes, options: VectorOptions) -> Floats | None:
    """Return given vectors from their bytes; None: there are none."""
    return read_vectors(raw, options) if raw else None


def _memory(sample: Sample, k: int) -> int:
    return sample.vectors.nbytes + len(sample.vectors) * (_QUERY_BYTES + 64 * k)


def _chosen(points: Sequence[Point], options: VectorOptions, probes: int | None) -> Point:
    if probes is None:
        return setting(points, options.recall)
    return next(one for one in points if one.probes >= min(probes, points[-1].probes))


def _other(
    sample: Sample, points: Sequence[Point], probes: int
) -> tuple[str, int, float, float, float]:
    one = next(one for one in points if one.probes >= probes)
    return sample.of, len(sample.vectors), one.value, one.low, one.high


# --- changes since --------------------------------------------------------------------------------

_SAMPLED: Final = 512
"""Records that are looked at for the share of changed ones: all of a small table."""
ID_BYTES: Final = 128
"""Memory of the id of a fresh record, about."""
_PACE: Final = 64


def changed_share(reading: Reading, table: Table, index: Index, sequence: int) -> float:
    """Return the share of the records in an index that were written after a commit, by a sample of
    them. A deleted record is no record, whether it was deleted before or after."""
    tx, tick, memory = reading.transaction, reading.tick, reading.memory
    ids: list[bytes] = []
    known = segments.heads_of(tx, index.entries)
    fresh: list[bytes] = []
    for some in segments.marked_ids(tx, index.entries):
        fresh += some
        tick()
    held = memory.held
    memory.held += len(fresh) * ID_BYTES
    # A record that is fresh counts once.
    marked = set(fresh)
    step = max((sum(head.live for head in known) + len(fresh)) // _SAMPLED, 1)
    for head in known:
        segment = Segment(tx.get, tx.scan, index.entries, head, keeps=True)
        ids += [id for id in segment.ids(live_numbers(head, step)) if id not in marked]
        tick()
    ids += fresh[::step]
    memory.held = held
    seen = changed = 0
    for number, id in enumerate(ids):
        if number % _PACE == _PACE - 1:
            tick()
        stamp = tx.value_over(table.prefix + id)
        if stamp is not None:
            seen += 1
            changed += int.from_bytes(stamp[:SEQUENCE_BYTES], "big") > sequence
    return changed / seen if seen else 0.0
