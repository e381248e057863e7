"""Rows about vector search, beside faiss HNSW, usearch and sqlite-vec. Figures are processor time.

Each approximate figure has its recall beside it: the share of the true ten nearest of queries that
are not stored.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any, Final, Protocol

import numpy as np

from bench.embeddings import DIMENSION, source, vectors
from bench.figures import NODE, Measure, Measurement, in_turns
from bench.nodes import NodeProcess, define_place
from bench.settings import Settings

VECTORS: Final = 100_000
BATCH: Final = 1_000
QUERIES: Final = 100
"""Searches of one figure."""
K: Final = 10
PARTS: Final = 100
"""Records by their numbers modulo this: a filter passes one in so many."""
TIMEOUT: Final = 600.0
NAMES: Final = ("nearest", "nearest-filter", "nearest-exact", "nearest-build")
NEAR: Final = f"SELECT VALUE record::id(id) FROM word WHERE v NEAREST {K} TO $to"
EXACT: Final = (
    f"SELECT VALUE record::id(id) FROM word ORDER BY vector::cosine(v, $to) DESC LIMIT {K}"
)


class Peer(Protocol):
    """Another program with an index of vectors, in this process."""

    name: str

    def build(self, rows: Any) -> None:
        """Make the index."""

    def search(self, query: Any) -> list[int]:
        """Return the numbers of the nearest rows."""


class Faiss:
    """HNSW of faiss, with 32 links, one thread."""

    name = "faiss HNSW"

    def __init__(self) -> None:
        import faiss

        self._faiss = faiss
        faiss.omp_set_num_threads(1)

    def build(self, rows: Any) -> None:
        """Make the index."""
        self._index = self._faiss.IndexHNSWFlat(DIMENSION, 32, self._faiss.METRIC_INNER_PRODUCT)
        self._index.hnsw.efConstruction = 200
        self._index.hnsw.efSearch = 100
        self._index.add(rows)

    def search(self, query: Any) -> list[int]:
        """Return the numbers of the nearest rows."""
        return self._index.search(query[None, :], K)[1][0].tolist()  # type: ignore[no-any-return]


class Usearch:
    """HNSW of usearch, with float32, one thread."""

    name = "usearch"

    def build(self, rows: Any) -> None:
        """Make the index."""
        from usearch.index import Index

        self._index = Index(ndim=DIMENSION, metric="cos", dtype="f32", connectivity=32)
        self._index.add(np.arange(len(rows)), rows, threads=1)

    def search(self, query: Any) -> list[int]:
        """Return the numbers of the nearest rows."""
        return self._index.search(query, K, threads=1).keys.tolist()  # type: ignore[no-any-return]


class SqliteVec:
    """sqlite-vec in memory: it compares all vectors."""

    name = "sqlite-vec"

    def __init__(self) -> None:
        # Python's own sqlite3 may have been built without extensions.
        import apsw
        import sqlite_vec

        self._connection = apsw.Connection(":memory:")
        self._connection.enable_load_extension(True)
        self._connection.load_extension(sqlite_vec.loadable_path())

    def build(self, rows: Any) -> None:
        """Make the index."""
        run = self._connection.execute
        run("BEGIN")
        run(f"CREATE VIRTUAL TABLE word USING vec0(v float[{DIMENSION}] distance_metric=cosine)")
        self._connection.executemany(
            "INSERT INTO word (rowid, v) VALUES (?, ?)",
            ((number, row.tobytes()) for number, row in enumerate(rows)),
        )
        run("COMMIT")

    def search(self, query: Any) -> list[int]:
        """Return the numbers of the nearest rows."""
        found = self._connection.execute(
            f"SELECT rowid FROM word WHERE v MATCH ? AND k = {K} ORDER BY distance",
            (query.tobytes(),),
        )
        return [row for (row,) in found]


def rows(settings: Settings, wanted: Callable[[str], bool]) -> Iterator[Measurement]:
    """Measure the wanted rows, and yield each as soon as it is done."""
    if any(map(wanted, NAMES)):
        with ExitStack() as held:
            yield from _Neighbours(settings, held).rows(wanted)


class _Neighbours:
    """A node and the peers, each with the same vectors of length 1."""

    def __init__(self, settings: Settings, held: ExitStack) -> None:
        self._settings = settings
        every = vectors(settings.scaled(VECTORS) + QUERIES)
        every /= np.linalg.norm(every, axis=1)[:, None]
        # Spread over all words, which come by their frequency: none of them is stored.
        asked = np.linspace(0, len(every) - 1, QUERIES).astype(int)
        self._queries, self._rows = every[asked], np.delete(every, asked, axis=0)
        self._node = held.enter_context(NodeProcess(settings.directory / "neighbours"))
        self._client = held.enter_context(self._node.client())
        define_place(self._client, "word")
        self._insert()
        self._gaps: list[str] = []
        self._approximate: list[Peer] = []
        self._exact: list[Peer] = []
        for modules, make, peers in (
            (("faiss",), Faiss, self._approximate),
            (("usearch",), Usearch, self._approximate),
            (("sqlite_vec", "apsw"), SqliteVec, self._exact),
        ):
            missing = [one for one in modules if importlib.util.find_spec(one) is None]
            self._gaps += [f"{one}: not installed" for one in missing]
            if not missing:
                peers.append(make())

    def _insert(self) -> None:
        for start in range(0, len(self._rows), BATCH):
            part = [
                {"id": number, "part": number % PARTS, "v": row}
                for number, row in enumerate(self._rows[start : start + BATCH].tolist(), start)
            ]
            self._query("INSERT INTO word $rows RETURN NONE", {"rows": part})

    def _query(self, statement: str, params: dict[str, Any] | None = None) -> Any:
        return self._client.query(statement, params or {}, timeout=TIMEOUT)

    def rows(self, wanted: Callable[[str], bool]) -> Iterator[Measurement]:
        """Yield the wanted rows: the build is always made, searches need it."""
        build = self._build()
        if wanted("nearest-build"):
            yield build
        if wanted("nearest"):
            yield self._nearest()
        if wanted("nearest-filter"):
            yield self._filtered()
        if wanted("nearest-exact"):
            yield self._compared()

    def _build(self) -> Measurement:
        row = self._row(
            "nearest-build", "index of all vectors, with its lists", "s", "≤ 1/8, ≤ 1/15"
        )
        began = self._node.cpu_seconds()
        self._query(f"DEFINE INDEX near ON word FIELDS v VECTOR DIMENSION {DIMENSION}")
        self._folded()
        row.sides[NODE] = [self._node.cpu_seconds() - began]
        row.notes.append("without the process that trains the lists")
        for peer in (*self._approximate, *self._exact):
            start = time.process_time()
            peer.build(self._rows)
            row.sides[peer.name] = [time.process_time() - start]
        self._query(f"MEASURE INDEX near ON word WITH $queries K {K}", {"queries": self._asked})
        return row

    @property
    def _asked(self) -> list[list[float]]:
        return self._queries.tolist()  # type: ignore[no-any-return]

    def _folded(self) -> None:
        """Wait until all vectors are in lists."""
        while True:
            info = self._query("INFO FOR INDEX near ON word")
            few = len(self._rows) <= 10_000
            sorted_in = few or (info["lists"] > 1 and info["largest_list"] < len(self._rows) // 8)
            if info["state"] == "ready" and not info["fresh"] and sorted_in:
                return
            time.sleep(0.2)

    def _nearest(self) -> Measurement:
        row = self._row("nearest", "the ten nearest, approximate", "ms", "≤ 4× usearch")
        measures: dict[str, Measure] = {NODE: partial(self._ask_node, NEAR)}
        truth = [self._truth(query) for query in self._queries]
        row.notes.append(f"recall: {NODE} {self._recall(NEAR, truth):.3f}")
        for peer in self._approximate:
            measures[peer.name] = partial(self._ask_peer, peer)
            found = [set(peer.search(query)) for query in self._queries]
            row.notes.append(f"{peer.name} {_share(found, truth):.3f}")
        row.sides = in_turns(self._settings.rounds, measures)
        return row

    def _filtered(self) -> Measurement:
        row = self._row("nearest-filter", "the ten nearest, 1 % pass", "ms", "10 rows")
        statement = f"{NEAR} AND part = 7"
        truth = [self._truth(query, 7) for query in self._queries]
        row.notes.append(f"recall: {self._recall(statement, truth):.3f}")
        row.sides = in_turns(self._settings.rounds, {NODE: partial(self._ask_node, statement)})
        return row

    def _compared(self) -> Measurement:
        row = self._row("nearest-exact", "the ten nearest, exact", "ms", "≤ 4× sqlite-vec")
        measures: dict[str, Measure] = {NODE: partial(self._ask_node, EXACT)}
        for peer in self._exact:
            measures[peer.name] = partial(self._ask_peer, peer)
        row.sides = in_turns(self._settings.rounds, measures)
        return row

    def _truth(self, query: Any, part: int | None = None) -> set[int]:
        near = self._rows @ query
        if part is not None:
            near[np.arange(len(near)) % PARTS != part] = -2
        return set(np.argsort(-near)[:K].tolist())

    def _recall(self, statement: str, truth: list[set[int]]) -> float:
        found = [set(self._query(statement, {"to": query})) for query in self._asked]
        return _share(found, truth)

    def _ask_node(self, statement: str) -> float:
        began = self._node.cpu_seconds()
        for query in self._asked:
            self._query(statement, {"to": query})
        return (self._node.cpu_seconds() - began) * 1000 / QUERIES

    def _ask_peer(self, peer: Peer) -> float:
        start = time.process_time()
        for query in self._queries:
            peer.search(query)
        return (time.process_time() - start) * 1000 / QUERIES

    def _row(self, name: str, work: str, unit: str, goal: str) -> Measurement:
        work = f"{work}; {len(self._rows):,} × {DIMENSION}"
        notes = [f"processor time; vectors: {source()}"]
        return Measurement(name, work, unit, "less", goal, gaps=list(self._gaps), notes=notes)


def _share(found: list[set[int]], truth: list[set[int]]) -> float:
    hits = sum(len(some & wanted) for some, wanted in zip(found, truth, strict=True))
    return hits / sum(map(len, truth))
