"""Lists of VECTOR indexes: their training, and what is kept of it."""

from __future__ import annotations

import numpy as np
import pytest

from storage.formats import keys
from storage.indexes.vector_options import VectorOptions
from storage.records import index_builds
from storage.search import centroids, recall_rows, training
from storage.search.training import (
    ANSWER,
    Floats,
    TrainingRequest,
    answer_of,
    read_answer,
    read_request,
)
from storage.search.trainings import trainings
from tests.storage.search.vector_history import VectorBook


def sample(count: int = 300) -> Floats:
    """Vectors around four points."""
    random = np.random.default_rng(3)
    points = np.array([[9, 0], [0, 9], [-9, 0], [0, -9]])
    return (points[np.arange(count) % 4] + random.normal(size=(count, 2))).astype(np.float32)


def test_equal_requests_have_equal_answers() -> None:
    rows = sample()
    raw = b"".join(TrainingRequest(5, 4, False, [rows[:100], rows[100:]]).pack())
    assert (read_request(raw).sample[0] == rows).all()
    found = read_answer(b"..." + answer_of(raw), 2)
    assert found.shape == (4, 2) and answer_of(raw) == answer_of(raw)
    # Each point has its centroid.
    assert sorted(np.round(np.arctan2(found[:, 1], found[:, 0]) / np.pi * 2).tolist()) == [
        -1, 0, 1, 2,
    ]  # fmt: skip
    other = read_answer(answer_of(b"".join(TrainingRequest(6, 4, True, [rows]).pack())), 2)
    assert np.allclose(np.linalg.norm(other, axis=1), 1)


def test_a_sample_with_equal_vectors_and_fewer_than_lists() -> None:
    rows = np.ones((3, 2), np.float32)
    rows[2] = np.inf
    found = read_answer(answer_of(b"".join(TrainingRequest(1, 9, False, [rows]).pack())), 2)
    assert found.tolist() == [[1, 1], [1, 1]]
    far = np.full((3, 2), np.inf, np.float32)
    found = read_answer(answer_of(b"".join(TrainingRequest(1, 9, False, [far]).pack())), 2)
    assert found.tolist() == [[0, 0]]
    assert ANSWER not in training.ALIVE


def test_two_trainings_are_kept() -> None:
    store = VectorBook(VectorOptions(2))
    store.define_vector()
    for number in range(1, 5):
        with store.begin_transaction() as tx:
            index = store.table(tx).indexes[0]
            centroids.put(tx, index, sample(4 * number), 10 * number)
            store.commit(tx)
        with store.begin_transaction() as tx:
            known = centroids.load(tx.get, index)
            assert [one.training.generation for one in known] == [*range(1, number + 1)][-2:]
            assert (known[-1].rows == sample(4 * number)).all()
            held = [
                key
                for pairs in tx.scan(index.centroids, index.centroids + b"\xff")
                for key, _ in pairs
            ]
            assert len(held) == 1 + len(known)
            assert centroids.wants_training(tx.get, index, 40 * number)
            assert not centroids.wants_training(tx.get, index, 40 * number - 1)


@pytest.mark.parametrize(
    ("recall", "lists", "probes"),
    [(0.9, 400, 20), (0.95, 400, 40), (0.98, 400, 100), (1, 400, 400), (0.45, 400, 10),
     (0.965, 400, 70), (0.99, 400, 250), (0.95, 1, 1), (0.01, 400, 1)],
)  # fmt: skip
def test_probes_of_a_recall_that_was_never_measured(recall: float, lists: int, probes: int) -> None:
    assert centroids.default_probes(lists, recall) == probes


def test_lists_are_bounded() -> None:
    assert centroids.lists_for(1_000_000, VectorOptions(100)) == 4_000
    assert centroids.lists_for(1_000_000, VectorOptions(4_096)) == 1_024


def test_lists_are_in_snapshots_and_recall_is_not() -> None:
    store = VectorBook(VectorOptions(2))
    store.define_vector()
    with store.begin_transaction() as tx:
        index = store.table(tx).indexes[0]
        centroids.put(tx, index, sample(4), 10)
        digest = trainings(tx.get, index)[-1].digest
        found = recall_rows.Recall(
            digest, 10, 0.9, 0.8, 1.0, 99, "given", 3, 0.95, tx.now, 7, ((3, 0.9, 0.8, 1.0),)
        )
        recall_rows.put(tx, index, found)
        store.commit(tx)
    store.durable()
    with store.begin_transaction() as tx:
        assert recall_rows.find(tx, index, digest) == found
        assert recall_rows.find(tx, index, b"other") is None
    held = [
        key
        for start, end in keys.LOGGED
        for pairs in store.engine.scan(start, end)
        for key, _ in pairs
    ]
    assert index.centroids in held and index.recall not in held and held == sorted(held)
    with store.begin_transaction() as tx:
        index_builds.drop_index(tx, index)
        store.commit(tx)
    store.durable()
    left = [key for pairs in store.engine.scan(*keys.EVERYTHING) for key, _ in pairs]
    assert not any(key.startswith((index.centroids, index.recall, index.entries)) for key in left)
