"""VECTOR indexes in INFO."""

from __future__ import annotations

from collections import Counter

from actors.scripts import measuring
from actors.scripts.arrays import load_arrays
from actors.scripts.execution import Execution
from protocol.values import Value
from storage.catalog.tables import Table
from storage.indexes.entries import Index
from storage.indexes.vector_options import VectorOptions
from storage.records import records
from storage.search import segments
from storage.search.segments import Segment
from storage.search.trainings import trainings


def described(options: VectorOptions) -> dict[str, Value]:
    """Return the options of an index."""
    return {
        "dimension": options.dimension,
        "distance": options.distance,
        "type": options.type,
        "target": options.recall,
    }


def info(run: Execution, table: Table, index: Index, options: VectorOptions) -> dict[str, Value]:
    """Return the counts of an index: vectors in segments and the backlog behind them."""
    load_arrays(run.fiber)
    from actors.scripts.recall_measuring import changed_share
    from storage.search import centroids
    from storage.search.vectors import VectorSegment

    tx = run.transaction
    lists: Counter[int] = Counter()
    heads = segments.heads_of(tx, index.entries)
    for head in heads:
        segment = Segment(tx.get, tx.scan, index.entries, head, keeps=True)
        lists.update(VectorSegment(segment, options).lists())
        run.tick()
    known = trainings(tx.get, index)
    trained = known[-1].lists if known else 1
    recall = measuring.current(run, index)
    fresh = segments.count_fresh(tx, index.entries, run.tick)
    held = sum(head.live for head in heads)
    return {
        "records": held,
        # A fresh record may be new, or in a segment, or have lost its vector.
        "without": max(records.count(tx, table) - held - fresh, 0),
        "segments": len(heads),
        "lists": trained,
        "probes": recall.probes
        if recall is not None
        else centroids.default_probes(trained, options.recall),
        "largest_list": max(lists.values(), default=0),
        "fresh": fresh,
        "recall": "unmeasured"
        if recall is None
        else measuring.described(recall, changed_share(run, table, index, recall.sequence)),
        "bytes": sum(head.size for head in heads),
    }
