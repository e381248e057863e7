"""Measured recall: figures, and faults that leave the interval."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from actors.scripts.vector_index import KNearest, VectorIndex
from language.functions.vectors import DistanceTo
from protocol.binary import unpack_object
from protocol.values import unpaced
from storage.formats import keys
from storage.formats.keys import SEQUENCE_BYTES
from storage.indexes.vector_options import VectorOptions
from storage.records.records import RecordChanges
from storage.search import centroids, recall
from storage.search.centroids import Centroids
from storage.search.recall import (
    Measurement,
    Sample,
    curve,
    interval,
    ladder,
    setting,
    student,
)
from storage.search.training import TrainingRequest, answer_of, read_answer
from storage.search.vectors import VectorSegment, float_vector
from storage.txn.transaction import Transaction
from tests.storage.search.history import run_of
from tests.storage.search.vector_history import VectorBook

SIZE, LISTS, DIMENSION, K = 500, 24, 6, 5


def compared(rows: list[list[float]], options: VectorOptions) -> Any:
    """Vectors as they are compared."""
    return np.stack([float_vector(one, options) for one in rows])


def drawn(seed: int, count: int) -> list[list[float]]:
    """Vectors around some points."""
    random = np.random.default_rng(seed)
    points = np.random.default_rng(seed // 1_000).normal(size=(40, DIMENSION))
    rows = points[random.integers(0, 40, count)] + random.normal(size=(count, DIMENSION)) / 2
    return rows.tolist()  # type: ignore[no-any-return]


def made(options: VectorOptions, seed: int = 0) -> VectorBook:
    """A table with an index that has lists."""
    store = VectorBook(options)
    store.define_vector()
    rows = drawn(seed, SIZE)
    sample = [compared(rows, options)]
    found = read_answer(
        answer_of(b"".join(TrainingRequest(seed, LISTS, False, sample).pack())), DIMENSION
    )
    with store.begin_transaction() as tx:
        centroids.put(tx, store.table(tx).indexes[0], found, SIZE)
        changes = RecordChanges(tx, store.table(tx))
        for id, row in enumerate(rows):
            changes.put(id, {"n": id, "v": row}, None)
        changes.write(unpaced)
        store.commit(tx)
    store.settle()
    return store


def result(steps: Generator[None, None, Any]) -> Any:
    """The result of work in steps."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def unheld(size: int) -> None:
    """Memory that is not counted."""


def measured(tx: Transaction, store: VectorBook, sample: Sample | None = None) -> Any:
    """The curve of a sample; None: of stored records."""
    table = store.table(tx)
    found = Measurement(tx.value_over, tx.scan, table.prefix, table.indexes[0], K, unheld)
    result(found.open())
    if sample is None:
        sample = result(found.stored(60))
        assert len(sample.vectors) == 60
    steps = ladder(found.lists)
    return steps, result(found.hits(sample, steps))


def real(tx: Transaction, store: VectorBook, vectors: list[list[float]], probes: int) -> Any:
    """The share of true neighbours that searches find, for each vector."""
    table = store.table(tx)
    (index,) = table.indexes
    rows = {
        key[keys.RECORD_PREFIX_BYTES :]: unpack_object(value[SEQUENCE_BYTES:])["v"]
        for pairs in tx.scan(*keys.within(table.prefix))
        for key, value in pairs
    }
    shares = []
    for vector in vectors:
        run = run_of(tx)
        far = DistanceTo(run, store.options.distance, vector)
        nearest = sorted((far(row), id) for id, row in rows.items())[:K]
        search = VectorIndex(run, table, index, vector)
        found = KNearest(search, K, None)
        found.take(search.candidates(0, probes))
        shares.append(len({id for _, id in nearest} & {one.id for one in found.found}) / K)
    return np.array(shares)


OPTIONS = [
    VectorOptions(DIMENSION), VectorOptions(DIMENSION, "EUCLIDEAN"),
    VectorOptions(DIMENSION, "DOT"), VectorOptions(DIMENSION, "EUCLIDEAN", "I8"),
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=lambda one: f"{one.distance} {one.type}")
def test_the_curve_is_what_searches_find(options: VectorOptions) -> None:
    store, queries = made(options), drawn(77, 25)
    with store.begin_transaction() as tx:
        steps, hits = measured(tx, store, Sample("given", compared(queries, options)))
        assert steps[-1] == LISTS and hits[:, -1].mean() > 0.99
        for at in (0, 2, 5, len(steps) - 1):
            found = real(tx, store, queries, steps[at])
            assert abs(hits[:, at] - found).max() < 1e-9, steps[at]


def test_a_stored_record_is_left_out_of_its_own_answer() -> None:
    store = made(OPTIONS[1])
    with store.begin_transaction() as tx:
        _, hits = measured(tx, store)
        vectors = [row.tolist() for row in result_of_sample(tx, store)]
        others = measured(tx, store, Sample("given", compared(vectors, OPTIONS[1])))[1]
    # With itself, a query has one neighbour that is never missed.
    assert (hits[:, 0] <= others[:, 0] + 1 / K).all() and hits[:, 0].mean() < others[:, 0].mean()


def result_of_sample(tx: Transaction, store: VectorBook) -> Any:
    table = store.table(tx)
    found = Measurement(tx.value_over, tx.scan, table.prefix, table.indexes[0], K, unheld)
    result(found.open())
    return result(found.stored(60)).vectors


def test_fresh_records_are_never_missed() -> None:
    store = made(OPTIONS[1])
    with store.begin_transaction() as tx:
        changes = RecordChanges(tx, store.table(tx))
        for id in range(1_000, 1_010):
            changes.put(id, {"n": 0, "v": [50.0] * DIMENSION}, None)
        changes.write(unpaced)
        queries = Sample("given", compared([[50.0] * DIMENSION] * 10, OPTIONS[1]))
        assert (measured(tx, store, queries)[1] == 1).all()


def test_distances_by_bytes_are_counted_and_few() -> None:
    options, held, most = OPTIONS[3], 0, 0

    def hold(size: int) -> None:
        nonlocal held, most
        held += size
        most = max(most, held)

    store = made(options)
    with store.begin_transaction() as tx, patch.object(centroids, "load", lambda *_: []):
        table = store.table(tx)
        found = Measurement(tx.value_over, tx.scan, table.prefix, table.indexes[0], 1, hold)
        result(found.open())
        hits = result(found.hits(Sample("given", compared(drawn(77, 20), options)), [1]))
        parts = sum(1 for one, _, _ in found._segments for _ in one.lists())
    # Four are compared exactly, so the least five of each part are enough.
    assert held == 0 and 4 * SIZE > 5 * 4 * parts >= most > 0
    assert hits.mean() > 0.99


def test_a_step_of_a_measurement_is_bounded() -> None:
    """With the most queries and numbers of a vector, too."""
    options, sizes = VectorOptions(4_096, "EUCLIDEAN"), []

    def counted(options: VectorOptions, rows: Any, queries: Any) -> Any:
        sizes.append(len(rows) * queries.size)
        return DISTANCES(options, rows, queries)

    rows = np.random.default_rng(1).normal(size=(120, 4_096)).astype(np.float32)
    best = recall._Best(options, rows, 11)
    with patch.object(recall, "_distances", counted):
        for at in range(0, 120, 7):
            assert not list(best.add(rows[at : at + 7], np.arange(120)[at : at + 7]))
        steps = list(best.flush())
    assert len(steps) > len(sizes) > 5 and max(sizes) <= 10_000_000
    for query in range(120):
        labels, far = best.of(query, -1)
        assert labels[0] == query and (np.diff(far) >= 0).all() and len(labels) == 11


DISTANCES = recall._distances


def test_figures() -> None:
    assert round(student(9), 3) == 2.262 and round(student(199), 3) == 1.972
    assert interval(np.ones(60)) == (1.0, 0.95, 1.0)
    value, low, high = interval(np.array([1, 0.5] * 50))
    assert (value, round(low, 3), round(high, 3)) == (0.75, 0.7, 0.8)
    assert interval(np.array([0.0, 1.0]))[1:] == (0.0, 1.0)
    assert ladder(1) == [1] and ladder(4) == [1, 2, 3, 4] and ladder(12_000)[-1] == 12_000
    hits = np.array([[0.5, 0.9, 1.0]] * 20 + [[0.4, 0.8, 1.0]] * 20)
    points = curve([1, 2, 3], hits)
    assert setting(points, 0.8).probes == 2 and setting(points, 0.99).probes == 3


def _lists_lost(self: VectorSegment, number: int) -> Any:
    return iter(()) if number % 3 == 0 else PARTS(self, number)


def _foreign_order(self: Centroids, vector: Any, options: VectorOptions) -> Any:
    return (ORDER(self, vector, options) + 7) % LISTS


def _off_by_one(self: Centroids, rows: Any) -> Any:
    return ((some + 1) % LISTS for some in ASSIGN(self, rows))


PARTS, ORDER, ASSIGN = VectorSegment.parts, Centroids.order, Centroids.assign
FAULTS: dict[str, Callable[[], Any]] = {
    "lists lost": lambda: patch.object(VectorSegment, "parts", _lists_lost),
    "foreign centroids": lambda: patch.object(Centroids, "order", _foreign_order),
    "assignments off by one": lambda: patch.object(Centroids, "assign", _off_by_one),
}


@pytest.mark.parametrize("fault", ["none", *FAULTS])
def test_a_fault_leaves_the_interval(fault: str) -> None:
    options, queries = OPTIONS[1], drawn(78, 60)
    store = made(options)
    with store.begin_transaction() as tx:
        steps, hits = measured(tx, store, Sample("given", compared(queries, options)))
    point = setting(curve(steps, hits), 0.9)
    with FAULTS[fault]() if fault in FAULTS else patch.object(Centroids, "order", ORDER):
        if fault == "assignments off by one":
            store = made(options)
        with store.begin_transaction() as tx:
            found = real(tx, store, queries, point.probes).mean()
    assert (point.low <= found <= point.high) == (fault == "none")


@pytest.mark.hard
@pytest.mark.timeout(1_200)
def test_the_true_recall_is_in_its_interval() -> None:
    inside = 0
    for seed in range(100):
        store = made(OPTIONS[1], 1_000 * seed)
        with store.begin_transaction() as tx:
            steps, hits = measured(
                tx, store, Sample("given", compared(drawn(1_000 * seed + 1, 100), OPTIONS[1]))
            )
            point = next(one for one in curve(steps, hits) if one.value >= 0.9)
            every = Sample("given", compared(drawn(1_000 * seed + 2, 1_000), OPTIONS[1]))
            truth = measured(tx, store, every)[1][:, steps.index(point.probes)].mean()
        inside += point.low <= truth <= point.high
    assert inside >= 85
