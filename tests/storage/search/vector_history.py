"""Random histories of a table with a VECTOR index, and brute force beside it.

A history has commits, own writes, transactions that read an old state, folds and merges in slices
between all of these, other lists, large commits that reach the engine in parts, kills, roll backs
and rebuilds. After each step the index has to find what a look at every record finds. A follower
and a replay of the log have to find it too, with each vector in the same list.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np

import actors.scripts.vector_index
import storage.search.contents
import storage.search.folding
import storage.search.vectors
import storage.txn.ledger
from actors.indexes.segment_folds import content_of
from actors.scripts.vector_index import KNearest, VectorIndex
from language.functions.vectors import DistanceTo
from protocol.binary import unpack_object
from protocol.errors import Conflict
from protocol.values import unpaced
from storage.catalog.tables import Table
from storage.formats import keys
from storage.formats.keys import SEQUENCE_BYTES, Pair
from storage.indexes.entries import Index
from storage.indexes.vector_options import VectorOptions
from storage.records import index_builds, records
from storage.records.records import RecordChanges
from storage.search import centroids, segments
from storage.search.postings import live_records
from storage.search.segments import Segment
from storage.search.trainings import trainings
from storage.search.vector_checking import check_vectors
from storage.search.vectors import VectorSegment
from storage.txn import marked_records
from storage.txn.transaction import Transaction
from tests.storage.search.history import (
    IDS,
    TextBook,
    followed,
    headless,
    live_ids,
    reach_disk,
    replayed,
    run_of,
)

STEPS = 40
KINDS: tuple[VectorOptions, ...] = (
    VectorOptions(3), VectorOptions(3, "EUCLIDEAN"), VectorOptions(3, "DOT"),
    VectorOptions(3, "COSINE", "I8"), VectorOptions(3, "EUCLIDEAN", "I8"),
)  # fmt: skip


def some_vector(rng: Random) -> Any:
    """A vector; many are equal, and some are none."""
    if rng.random() < 0.15:
        return None
    scale = rng.choice([1, 1, 1, 1e-3, 1e6])
    return [rng.choice([-1, 0.5, 1, 2]) * scale for _ in range(3)]


class VectorBook(TextBook):
    """A book with a table that has a VECTOR index."""

    def __init__(self, options: VectorOptions) -> None:
        super().__init__()
        self.options = options

    def define_vector(self) -> None:
        """Declare the index."""
        with self.begin_transaction() as tx:
            index_builds.define_index(tx, self.table(tx), "emb", (("v",),), vector=self.options)
            self.commit(tx)


def rows_of(tx: Transaction, table: Table) -> dict[bytes, dict[str, Any]]:
    """All records by their ids."""
    return {
        key[keys.RECORD_PREFIX_BYTES :]: unpack_object(value[SEQUENCE_BYTES:])
        for pairs in tx.scan(*keys.within(table.prefix))
        for key, value in pairs
    }


def differing(tx: Transaction, table: Table, rng: Random) -> list[str]:
    """Queries that find other records by the index than by a look at each."""
    (index,) = table.indexes
    assert index.vector is not None
    rows, wrong = rows_of(tx, table), []
    for _ in range(2):
        to, k, odd = some_vector(rng) or [1, 1, 1], rng.choice([1, 3, 10]), rng.random() < 0.3
        run: Any = run_of(tx)
        exact = DistanceTo(run, index.vector.distance, to)
        shown = 1 if index.vector.distance == "COSINE" else 0
        wanted = sorted(
            (shown + exact(row["v"]), id)
            for id, row in rows.items()
            if row.get("v") is not None and (not odd or row["n"] % 2)
        )[:k]
        found = near(run, table, index, to, k, odd)
        if index.vector.type == "I8":
            # Bytes rank roughly: of so few records all are compared.
            if len(found) != len(wanted) or not {id for _, id in found} <= rows.keys():
                wrong.append(f"{k} nearest {to}: {len(found)} found, not {len(wanted)}")
        elif found != wanted:
            wrong.append(f"{k} nearest {to}: other records")
        # Of cosines that differ, 1 - cosine may be equal.
        elif not (odd or shown):
            ids = in_order(run_of(tx), table, index, to, k)
            if ids != [id for _, id in wanted]:
                wrong.append(f"{k} in the order of {to}: other records")
    return wrong + checked(tx, table, index)


def near(
    run: Any, table: Table, index: Index, to: list[Any], k: int, odd: bool
) -> list[tuple[float, bytes]]:
    """The nearest records by the index, with their distances."""

    def passing(pairs: list[Pair]) -> list[Pair]:
        return [one for one in pairs if unpack_object(one[1])["n"] % 2]

    search = VectorIndex(run, table, index, to)
    found = KNearest(search, k, passing if odd else None)
    found.take(search.candidates(0, search.list_count))
    return [(found.distance(one), one.id) for one in found.found]


def in_order(run: Any, table: Table, index: Index, to: list[Any], k: int) -> list[bytes]:
    """The first records in the order of their distances."""
    batches = VectorIndex(run, table, index, to).in_order()
    return [key[keys.RECORD_PREFIX_BYTES :] for pairs in batches for key, _ in pairs][:k]


def checked(tx: Transaction, table: Table, index: Index) -> list[str]:
    """Differences that CHECK INDEX finds."""
    if not index.is_complete:
        return []

    def quiet(*_: object) -> None:
        return

    found = check_vectors(tx, table.prefix, index, quiet, quiet)
    right = found.missing == found.surplus == 0
    return [] if right else [f"CHECK INDEX: {found}"]


def train(rng: Random, store: VectorBook) -> None:
    """Have the index get other lists."""
    rows = np.array([some_vector(rng) or [0, 0, 1] for _ in range(rng.randrange(1, 5))], np.float32)
    with store.begin_transaction() as tx:
        centroids.put(tx, store.table(tx).indexes[0], rows, 7)
        store.commit(tx)


def change(rng: Random, store: VectorBook, tx: Transaction) -> None:
    """Change a record, or several."""
    table = store.table(tx)
    changes = RecordChanges(tx, table)
    for id in rng.sample(range(IDS), rng.choice([1, 1, 1, 8])):
        stored = records.stored(tx, table, id)
        if stored is not None and rng.random() < 0.3:
            records.delete(tx, table, id, stored)
        else:
            changes.put(id, {"n": rng.randrange(9), "v": some_vector(rng)}, stored)
    changes.write(unpaced)


def step(rng: Random, store: VectorBook) -> list[str]:
    """A step of a history. Return what is wrong within it."""
    kind, wrong = rng.random(), []
    if kind < 0.4:
        store.fold(rng.randrange(1, 12))
        return []
    if kind < 0.42:
        train(rng, store)
    elif kind < 0.44:
        with store.begin_transaction() as tx:
            index_builds.rebuild_index(tx, store.table(tx), store.table(tx).indexes[0])
            store.commit(tx)
    elif kind < 0.5:
        store.build(slices=rng.randrange(1, 4))
    elif kind < 0.56 and len(store.olds) < 3:
        old = store.begin_transaction()
        old.pause()
        store.olds.append(old)
    else:
        with store.begin_transaction() as tx:
            change(rng, store, tx)
            if rng.random() < 0.2:
                tx.pause()
                with store.begin_transaction() as beside:
                    change(rng, store, beside)
                    store.commit(beside)
                store.fold(rng.randrange(12))
                change(rng, store, tx)
            wrong = differing(tx, store.table(tx), rng)
            if rng.random() < 0.85:
                with suppress(Conflict):
                    store.commit(tx)
    return wrong or reach_disk(rng, store)


def run_history(seed: int) -> list[str]:
    """Return the faults at some step of a random history."""
    rng = Random(seed)
    with (
        patch.object(storage.txn.ledger, "APPLY_KEYS", rng.choice([3, 4_096])),
        patch.object(storage.search.folding, "FOLD_RECORDS", rng.choice([3, 1_000])),
        patch.object(storage.search.folding, "FOLD_SIZE", rng.choice([20, 4_096])),
        patch.object(storage.search.folding, "MERGED", rng.choice([2, 4])),
        patch.object(storage.search.folding, "BATCH_BYTES", rng.choice([64, 4_096])),
        patch.object(storage.search.vectors, "PART_BYTES", rng.choice([30, 65_536])),
        patch.object(storage.search.vectors, "JOINED_BYTES", rng.choice([60, 65_536])),
        patch.object(marked_records, "LATE", rng.choice([2, 1_000])),
        patch.object(segments, "CHUNK", rng.choice([2, 256])),
        patch.object(actors.scripts.vector_index, "_FIRST", rng.choice([1, 64])),
        patch.object(actors.scripts.vector_index, "FEW", rng.choice([1, 64])),
    ):
        return _history(rng, VectorBook(rng.choice(KINDS)))


def _history(rng: Random, store: VectorBook) -> list[str]:
    store.define_vector()
    store.durable()
    for _ in range(STEPS):
        wrong = step(rng, store)
        with store.begin_transaction() as tx:
            wrong += differing(tx, store.table(tx), rng)
        for old in store.olds:
            wrong += [f"an old state: {one}" for one in differing(old, store.table(old), rng)]
        if wrong:
            return wrong
    store.stop_folds()
    wrong, lists = _settled(rng, store), _lists(store)
    follower = VectorBook(store.options)
    wrong += followed(rng, store, follower, differing, _settled)
    if _lists(follower) != lists:
        wrong.append("a follower has vectors in other lists")
    wrong += replayed(rng, store, differing, _settled)
    if _lists(store) != lists:
        wrong.append("a replay has vectors in other lists")
    return wrong


def _settled(rng: Random, store: VectorBook) -> list[str]:
    """Return the faults once all is folded: each record is in one segment, of the present lists."""
    store.settle()
    with store.begin_transaction() as tx:
        table = store.table(tx)
        wrong = differing(tx, table, rng)
        (index,) = table.indexes
        if next(segments.fresh_ids(tx.scan, index.entries), None) is not None:
            wrong.append("some are fresh after all folds")
        if {head.digest for head in segments.heads(tx.scan, index.entries)} - {_digest(tx, index)}:
            wrong.append("a segment has lists of before")
        live = live_ids(tx, index)
        wanted = [id for id, row in rows_of(tx, table).items() if row.get("v") is not None]
        if sorted(live) != wanted:
            wrong.append(f"segments hold {len(live)} records, not {len(wanted)}")
        return wrong + headless(tx, index)


def _digest(tx: Transaction, index: Index) -> bytes:
    """Digest of the segments that are made now."""
    return content_of(index, tx.get).digest


def _lists(store: VectorBook) -> tuple[list[Any], dict[bytes, int]]:
    """The trainings, and the list of each record."""
    found: dict[bytes, int] = {}
    with store.begin_transaction() as tx:
        (index,) = store.table(tx).indexes
        assert index.vector is not None
        for head in segments.heads(tx.scan, index.entries):
            segment, live = Segment(tx.get, tx.scan, index.entries, head), live_records(head)
            vectors = VectorSegment(segment, index.vector)
            for number in vectors.lists():
                for part in vectors.parts(number):
                    kept = part.numbers[live[part.numbers]].tolist()
                    found |= dict.fromkeys(segment.ids(kept), number)
        return list(trainings(tx.get, index)), found
