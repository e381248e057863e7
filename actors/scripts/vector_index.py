"""Distances of the records of a VECTOR index from one vector, at the snapshot of a statement.

Segments hold vectors as float32 or bytes, so their distances only rank records. The records
themselves decide: each candidate is read, and compared in float64. A candidate whose distance could
be smaller, by the error of float32, is always read first. So what is found depends on no library of
matrix products. Imports numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from hashlib import blake2b
from heapq import heappop, heappush
from itertools import islice
from math import ceil, inf
from typing import Any, Final, NamedTuple, cast

from actors.scripts.index_snapshot import ID_BYTES, IndexSnapshot
from actors.scripts.search_reading import Reading
from language.functions.vectors import DistanceTo
from language.search.retrieval import Scored, bound, size, values
from protocol.bounded_cache import BoundedCache
from protocol.values import FEW
from storage.catalog.tables import Table
from storage.formats import keys
from storage.formats.keys import Pair
from storage.indexes.entries import Index
from storage.records import records
from storage.search import centroids
from storage.search.caches import search_cache
from storage.search.contents import VectorReader
from storage.search.segments import Head
from storage.search.vectors import (
    RERANKED,
    Bounds,
    Compared,
    Exact,
    Floats,
    VectorSegment,
    float_vector,
    form_digest,
    joined,
    stacked,
)

Passing = Callable[[list[Pair]], list[Pair]]
"""Returns the records that satisfy the other conditions of a statement."""
_FIRST: Final = 32
"""Fewest records that are put in the order of their distances at once."""
_MORE: Final = 4
"""Records that are read at first beyond the number that is wanted."""
_HIT_BYTES: Final = 16
WIDENING: Final = 0.6
"""Exponent by which the number of lists grows where fewer rows pass."""
KNOWN_BYTES: Final = 8 * 1024 * 1024
"""Memory of the vectors of fresh records that are kept for further queries."""


class _Live(NamedTuple):
    vectors: VectorSegment
    live: Any
    """Records that are neither deleted nor fresh."""
    whole: bool
    """True if all of them are."""
    order: tuple[int, ...] | None
    """Its lists, those with the nearest centroids first; None: all are read."""


class Found(NamedTuple):
    """A record that was compared exactly."""

    distance: float
    id: bytes
    pair: Pair


class VectorIndex(IndexSnapshot):
    """Distances in one table from one vector, which fits the index."""

    def __init__(self, run: Reading, table: Table, index: Index, vector: list[Any]) -> None:
        super().__init__(run.transaction, run.memory, run.tick, table, index)
        self.run = run
        assert index.vector is not None
        self.options = index.vector
        self._form = form_digest(self.options)
        self.compared = Compared(self.options, vector)
        self._exact = DistanceTo(cast("Any", run), self.options.distance, vector)
        self._read = VectorReader(index)
        self.looked_at = 0
        """Vectors that were compared."""

    def is_current(self, head: Head) -> bool:
        """True if the vectors of a segment have the form of this index."""
        return head.digest[: len(self._form)] == self._form

    @cached_property
    def _orders(self) -> dict[bytes, tuple[int, ...]]:
        """Lists of the trainings that are kept, by their digests, the nearest first."""
        found: dict[bytes, tuple[int, ...]] = {}
        for one in centroids.load(self.tx.value_over, self.index):
            order = one.order(self.compared.vector, self.options)
            found[one.training.digest] = tuple(values(order, self.tick))
            self.tick()
        return found

    @cached_property
    def _segments(self) -> list[_Live]:
        found = []
        for head in self.current():
            segment = self._segment(head)
            live = self.live(segment)
            vectors = VectorSegment(segment, self.options)
            # Of a training that is kept no more the centroids are not known.
            order = self._orders.get(head.digest[len(self._form) :])
            found.append(_Live(vectors, live, size(live) == head.records, order))
            self.tick()
        return found

    @cached_property
    def list_count(self) -> int:
        """Number of lists, of which some are read; 1: all vectors are."""
        return max((len(one.order) for one in self._segments if one.order is not None), default=1)

    @cached_property
    def _fresh(self) -> list[tuple[bytes, Floats]]:
        """The fresh records that have a vector."""
        found: list[tuple[bytes, Floats]] = []
        at = 0
        self.memory.held += len(self.fresh) * 4 * self.options.dimension
        while at < len(self.fresh):
            pairs, at = records.fetch(self.tx, self.table, self.fresh, at, FEW)
            for key, raw in pairs:
                vector = self._float_vector(raw)
                if vector is not None:
                    found.append((key[keys.RECORD_PREFIX_BYTES :], vector))
            self.tick()
        return found

    def _float_vector(self, raw: bytes) -> Floats | None:
        """Return the vector of a fresh record, as it is compared. :param raw: its packed fields"""
        name = blake2b(raw, digest_size=16, key=self._form + self.index.entries).digest()
        known = _recent.get(name)
        if known is None:
            vector = self._read(raw)
            if vector is None:
                return None
            known = float_vector(vector, self.options)
            _recent.keep(name, known, known.nbytes + ID_BYTES)
        return known

    @property
    def probes(self) -> int:
        """Number of lists to read for the recall of the index."""
        return centroids.default_probes(self.list_count, self.options.recall)

    @property
    def count(self) -> int:
        """Number of the records that have a vector."""
        return sum(size(one.live) for one in self._segments) + len(self._fresh)

    # --- candidates -------------------------------------------------------------------------------

    def candidates(self, start: int, stop: int) -> Candidates:
        """Return the records of some of the nearest lists. The first lists come with all records
        that are in none.

        :param start: number of the first list, in their order
        :param stop: number of the first that is not read
        """
        found = Candidates(self)
        for one in self._segments:
            held = one.vectors.lists()
            if one.order is None:
                wanted = list(held) if start == 0 else []
            else:
                wanted = [number for number in one.order[start:stop] if number in held]
            numbers, least = [], []
            for part in (part for number in wanted for part in one.vectors.parts(number)):
                self.tick()
                distances = self.least(part.floats)
                some = part.numbers
                if not one.whole:
                    kept = one.live[some]
                    some, distances = some[kept], distances[kept]
                numbers.append(some)
                least.append(distances)
            if numbers:
                found.add(one, joined(numbers), joined(least))
        if start == 0:
            least = []
            for at in range(0, len(self._fresh), FEW):
                rows = [row for _, row in self._fresh[at : at + FEW]]
                least.append(self.least(stacked(rows)))
                self.tick()
            if least:
                found.add(None, range(len(self._fresh)), joined(least))
        self.looked_at += len(found)
        return found

    def least(self, rows: Floats) -> Exact:
        """Return the distances that vectors have at least; with I8, as far as bytes tell."""
        distances, error = self.compared.distances(rows)
        found: Exact = distances if self.options.type == "I8" else distances - error
        return found

    def ids(self, source: _Live | None, at: Any) -> Iterator[bytes]:
        """Yield the ids of some records. :param source: None: they are fresh ones"""
        wanted = values(at, self.tick)
        if source is not None:
            return source.vectors.segment.ids(wanted)
        return (self._fresh[one][0] for one in wanted)

    # --- exact distances --------------------------------------------------------------------------

    def compare(self, ids: Sequence[bytes], passing: Passing | None) -> list[Found]:
        """Return those of some records that pass, with their exact distances."""
        found: list[Found] = []
        at = 0
        while at < len(ids):
            pairs, at = records.fetch(self.tx, self.table, ids, at, FEW)
            self.run.count_read(len(pairs))
            for key, raw in passing(pairs) if passing is not None else pairs:
                vector = self._read(raw)
                if vector is not None:
                    self.tick()
                    id = key[keys.RECORD_PREFIX_BYTES :]
                    found.append(Found(self._exact(vector), id, (key, raw)))
        return found

    def in_order(self) -> Iterator[list[Pair]]:
        """Yield all records that have a vector, the nearest first, then by id. Of F32."""
        memory = self.memory
        heap: list[Found] = []
        every = self.candidates(0, self.list_count)
        for ids, least in every.in_order(_FIRST):
            for one in self.compare(ids, None):
                heappush(heap, one)
                memory.held += len(one.pair[1])
            ready = []
            # One that was not read yet may be as near, and have a smaller id.
            while heap and heap[0].distance < least:
                ready.append(heappop(heap).pair)
                memory.held -= len(ready[-1][1])
            if ready:
                yield ready
        while heap:
            yield [heappop(heap).pair]


class Candidates:
    """Records with the distances that they have at least."""

    def __init__(self, index: VectorIndex) -> None:
        self._index = index
        self.rough = index.options.type == "I8"
        """True if their distances are those of bytes."""
        self._parts: list[tuple[_Live | None, Scored]] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, source: _Live | None, numbers: Any, least: Exact) -> None:
        """Add records. :param source: None: they are fresh"""
        self._parts.append((source, Scored(numbers, -least)))
        self._size += len(least)
        self._index.memory.held += len(least) * _HIT_BYTES

    def in_order(self, most: int) -> Iterator[tuple[list[bytes], float]]:
        """Yield ids in lists, those with the least distance first, each with the least distance of
        all that follow. :param most: number that is probably taken"""
        # Nothing is sorted at once: there may be a million.
        before, tick = inf, self._index.tick
        left, size = self._size, max(2 * most, _FIRST)
        # Hardly more are read than are wanted.
        step = most + _MORE
        while left:
            low = bound([part for _, part in self._parts], before, size, tick)
            taken: list[tuple[float, bytes]] = []
            for source, part in self._parts:
                numbers, scores = part.best(low, before)
                left -= len(numbers)
                taken += zip(values(-scores, tick), self._index.ids(source, numbers), strict=True)
            taken.sort()
            tick()
            at = 0
            while at < len(taken):
                end = min(at + step, len(taken))
                # Those of the next round are behind the bound.
                least = taken[end][0] if end < len(taken) else -low if left else inf
                yield [id for _, id in taken[at:end]], least
                at, step = end, min(step, FEW)
            before, size = low, size * 4


class KNearest:
    """The k nearest records among those that pass the other conditions."""

    def __init__(self, index: VectorIndex, k: int, passing: Passing | None) -> None:
        self._index, self.k, self.passing = index, k, passing
        self.found: list[Found] = []
        self.seen = 0
        """Records that were read."""
        self.passed = 0

    def wanted_lists(self, probes: int) -> int:
        """Return the number of lists to read if so many are enough without other conditions.

        Of the rows nearest to a vector few pass, so those that do are farther away.
        """
        if self.passing is None or not self.seen:
            return probes
        share = max(self.passed, 1) / self.seen
        more: float = share**-WIDENING
        return ceil(probes * more)

    def search(self, probes: int) -> tuple[int, int]:
        """Find them by lists. Return the number of lists that were read, and how often more were
        added because too few rows pass.

        :param probes: lists that are enough without other conditions
        """
        lists = self._index.list_count
        stop = probes = min(probes, lists)
        start, widened = 0, 0
        while True:
            self.take(self._index.candidates(start, stop))
            wanted, are_enough = self.wanted_lists(probes), len(self.found) == self.k
            if stop >= lists or (are_enough and wanted <= stop):
                return stop, widened
            # At least as many lists again, if there are fewer rows than wanted.
            start, stop = stop, min(max(wanted, stop if are_enough else 2 * stop), lists)
            widened += 1

    def take(self, candidates: Candidates | ScannedNearest) -> None:
        """Read candidates until no other can be nearer than the k-th."""
        rough = candidates.rough
        wanted, before = self.k * (RERANKED if rough else 1), self.passed
        for ids, least in candidates.in_order(wanted):
            some = self._index.compare(ids, self.passing)
            self.seen += len(ids)
            self.passed += len(some)
            self._keep(some)
            if rough and self.passed - before >= wanted:
                return
            if not rough and len(self.found) == self.k and self._last < self._shown(least):
                return

    def _keep(self, some: list[Found]) -> None:
        memory = self._index.memory
        memory.held -= sum(len(one.pair[1]) for one in self.found)
        # A cosine that differs in its last bit may give the same distance: ids decide then.
        self.found = sorted([*self.found, *some], key=self._order)[: self.k]
        memory.held += sum(len(one.pair[1]) for one in self.found)

    def _order(self, one: Found) -> tuple[float, bytes]:
        return self.distance(one), one.id

    @property
    def _last(self) -> float:
        return self.distance(self.found[-1])

    def distance(self, one: Found) -> float:
        """Return the distance of a record: with COSINE, 1 - cosine."""
        return self._shown(one.distance)

    def _shown(self, distance: float) -> float:
        return 1 + distance if self._index.options.distance == "COSINE" else distance


class ScannedNearest:
    """The nearest of many records that are read one after the other."""

    rough = False

    def __init__(self, index: VectorIndex, k: int) -> None:
        self._index = index
        self._bounds = Bounds(k)

    def add(self, pairs: list[Pair]) -> None:
        """Add records that pass."""
        index = self._index
        rows, ids = [], []
        for key, raw in pairs:
            vector = index._read(raw)
            if vector is not None:
                rows.append(float_vector(vector, index.options))
                ids.append(key[keys.RECORD_PREFIX_BYTES :])
        if not rows:
            return
        index.looked_at += len(rows)
        before = len(self._bounds)
        self._bounds.add(ids, *index.compared.distances(stacked(rows)))
        index.memory.held += (len(self._bounds) - before) * ID_BYTES

    def in_order(self, most: int) -> Iterator[tuple[list[bytes], float]]:
        """Yield as `Candidates.in_order`."""
        taken = iter(sorted(self._bounds.candidates()))
        some = list(islice(taken, FEW))
        while some:
            following = list(islice(taken, FEW))
            yield [id for _, id in some], following[0][0] if following else inf
            some = following


_recent: Final[BoundedCache[Floats]] = search_cache(KNOWN_BYTES)
"""Vectors of recent fresh records, by a digest of all that they depend on."""
