"""Recall of a VECTOR index, measured: the share of the nearest records that it finds.

The true neighbours of a sample of vectors are found in one pass over all vectors, at one snapshot.
An index finds a neighbour if it reads its list. So the same pass tells the recall for every number
of lists, and the fewest with the wanted recall become the setting. With I8 a neighbour has to be
among those that bytes rank first, too.

A row as near as the k-th is a hit. The interval is Student's, over the queries. A measurement
belongs to one training of the lists, and to one node's snapshot of the records. It is kept as a row
of the state, see `storage/search/recall_rows.py`. Imports numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from copy import copy
from dataclasses import dataclass
from hashlib import blake2b
from math import isqrt, sqrt
from operator import itemgetter
from typing import Any, Final

import numpy as np

from storage.formats.keys import SEQUENCE_BYTES
from storage.indexes.entries import Index
from storage.indexes.vector_options import VectorOptions
from storage.search import centroids
from storage.search.contents import VectorReader
from storage.search.postings import live_records
from storage.search.recall_rows import FRESH_PART
from storage.search.segments import Get, Scan, Segment, fresh_ids, heads
from storage.search.vectors import (
    RERANKED,
    Floats,
    Numbers,
    VectorSegment,
    float_vector,
    form_digest,
)

LEAST_LIVE: Final = 50
"""Fewest live queries that are measured."""
_ROWS: Final = 256
"""Vectors that are compared with some queries in one step."""
_PRODUCTS: Final = 10_000_000
"""Most products of numbers in one step."""
_SELECTED: Final = 250_000
"""Most distances of which the least are selected in one step."""
_LADDER: Final = 1.06
"""Ratio of two numbers of lists of the curve."""
_FRESH: Final = 0xFFFF
"""Segment of the label of a fresh record."""
Steps = Generator[None, None, Any]
Passes = Callable[[bytes, bytes], bool]
"""True if a record passes a filter, by its key and packed fields."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Query vectors of one origin: `stored`, `given` or `live`.

    :ivar ids: of stored ones the records, each of which is left out of its own answer
    """

    of: str
    vectors: Floats
    ids: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Point:
    """Recall for one number of lists."""

    probes: int
    value: float
    low: float
    high: float


class Measurement:
    """Measurement of one index at one snapshot. Its functions are generators, that pause after
    about a millisecond of work.

    :param hold: counts bytes that are held; less than 0: that are held no more
    """

    def __init__(
        self,
        get: Get,
        scan: Scan,
        table_prefix: bytes,
        index: Index,
        k: int,
        hold: Callable[[int], None],
    ) -> None:
        assert index.vector is not None
        self._get, self._scan, self._prefix = get, scan, table_prefix
        self._hold = hold
        self.index, self.options, self.k = index, index.vector, k
        self._read = VectorReader(index)
        self._form = form_digest(index.vector)
        self._known = {one.training.digest: one for one in centroids.load(get, index)}
        self.lists = max((len(one.rows) for one in self._known.values()), default=1)
        self._fresh: list[bytes] = []
        self._segments: list[tuple[VectorSegment, Any, bytes]] = []
        """Segments with their live records that are not fresh, and the digest of their lists."""

    def open(self) -> Steps:
        """Read the heads of the segments, and the fresh records."""
        fresh: list[bytes] = []
        for ids in fresh_ids(self._scan, self.index.entries):
            fresh += ids
            yield
        for head in heads(self._scan, self.index.entries):
            segment = Segment(self._get, self._scan, self.index.entries, head, keeps=True)
            if head.digest[: len(self._form)] != self._form:
                fresh += segment.live_ids()
                continue
            live = live_records(head)
            for at in range(0, len(fresh), _ROWS):
                live[list(segment.numbers(fresh[at : at + _ROWS]))] = False
                yield
            vectors = VectorSegment(segment, self.options)
            self._segments.append((vectors, live, head.digest[len(self._form) :]))
        self._fresh = sorted(set(fresh))

    def has_lists(self, digest: bytes) -> bool:
        """True if the records are in some lists; of many only a few are in none yet."""
        held = sum(int(live.sum()) for _, live, _ in self._segments)
        few = self.lists == 1 or len(self._fresh) * FRESH_PART <= held
        return few and all(known == digest for _, _, known in self._segments)

    def restricted(self, passes: Passes) -> Steps:
        """Return the measurement of those records alone that pass a filter."""
        found = copy(self)
        found._segments, found._fresh = [], []
        for segment, live, digest in self._segments:
            passing = live.copy()
            numbers = live.nonzero()[0].tolist()
            for number, id in zip(numbers, segment.segment.ids(numbers), strict=True):
                passing[number] = self._passes(id, passes)
                if number % 16 == 0:
                    yield
            found._segments.append((segment, passing, digest))
        for id in self._fresh:
            if self._passes(id, passes):
                found._fresh.append(id)
            yield
        return found

    def _passes(self, id: bytes, passes: Passes) -> bool:
        raw = self._get(self._prefix + id)
        return raw is not None and passes(self._prefix + id, raw[SEQUENCE_BYTES:])

    def vector(self, id: bytes) -> Floats | None:
        """Return the vector of a record, as it is compared."""
        raw = self._get(self._prefix + id)
        value = None if raw is None else self._read(raw[SEQUENCE_BYTES:])
        return None if value is None else float_vector(value, self.options)

    def stored(self, count: int) -> Steps:
        """Return a sample of records: those with the least hashes of their ids."""
        ranked: list[tuple[bytes, bytes]] = []
        for segment, live, _ in self._segments:
            for id in segment.segment.ids(live.nonzero()[0].tolist()):
                ranked.append((blake2b(id, digest_size=8).digest(), id))
                if len(ranked) > _RANKED:
                    ranked = sorted(ranked)[:count]
                    yield
        ranked += [(blake2b(id, digest_size=8).digest(), id) for id in self._fresh]
        ids, rows = [], []
        for _, id in sorted(ranked):
            row = self.vector(id)
            if row is not None:
                ids.append(id)
                rows.append(row)
            if len(ids) == count:
                break
            if len(ids) % 16 == 0:
                yield
        empty: Floats = np.zeros((0, self.options.dimension), np.float32)
        return Sample("stored", np.stack(rows) if rows else empty, tuple(ids))

    # --- the truth --------------------------------------------------------------------------------

    def neighbours(self, sample: Sample) -> Steps:
        """Return the nearest of all records for each query, see `_Best`."""
        best = _Best(self.options, sample.vectors, 2 * self.k + 1)
        for number, (segment, live, _) in enumerate(self._segments):
            exact = self.options.type == "F32"
            for list_number in segment.lists():
                for part in segment.parts(list_number):
                    kept = live[part.numbers]
                    numbers = part.numbers[kept]
                    if not len(numbers):
                        continue
                    rows = part.floats[kept]
                    if not exact:
                        rows = yield from self._of_records(segment, numbers)
                    label = (number << 32) + (list_number << 16) + numbers
                    for at in range(0, len(numbers), _ROWS):
                        yield from best.add(rows[at : at + _ROWS], label[at : at + _ROWS])
        for at in range(0, len(self._fresh), _ROWS):
            found = [
                (one, self.vector(id)) for one, id in enumerate(self._fresh[at : at + _ROWS], at)
            ]
            held = [(one, row) for one, row in found if row is not None]
            if held:
                label = (_FRESH << 32) + np.array([one for one, _ in held], np.int64)
                yield from best.add(np.stack([row for _, row in held]), label)
            yield
        yield from best.flush()
        return best

    def _of_records(self, segment: VectorSegment, numbers: Numbers) -> Steps:
        rows = []
        for number, id in enumerate(segment.segment.ids(numbers.tolist())):
            row = self.vector(id)
            rows.append(np.full(self.options.dimension, np.nan, np.float32) if row is None else row)
            if number % 64 == 63:
                yield
        return np.stack(rows)

    def nearest(self, sample: Sample) -> Steps:
        """Return for each query the ids of its k nearest records, with those as near as the k-th,
        and how many of them are to be found."""
        best: _Best = yield from self.neighbours(sample)
        own = self._own(sample)
        found: list[tuple[set[bytes], int]] = []
        for query in range(len(sample.vectors)):
            labels, distances = best.of(query, own[query])
            most = min(self.k, len(labels))
            near = labels[distances <= distances[most - 1]].tolist() if most else []
            found.append((set(map(self._id, near)), most))
            yield
        return found

    def _id(self, label: int) -> bytes:
        segment = label >> 32
        if segment == _FRESH:
            return self._fresh[label & 0xFFFFFFFF]
        return next(self._segments[segment][0].segment.ids([label & 0xFFFF]))

    # --- hits -------------------------------------------------------------------------------------

    def hits(self, sample: Sample, ladder: Sequence[int]) -> Steps:
        """Return for each query and number of lists the share of the neighbours that is found."""
        best: _Best = yield from self.neighbours(sample)
        own = self._own(sample)
        found = np.ones((len(sample.vectors), len(ladder)))
        steps = np.array(ladder)
        for query, vector in enumerate(sample.vectors):
            labels, distances = best.of(query, own[query])
            if len(labels):
                near = distances <= distances[min(self.k, len(distances)) - 1]
                ranks = self._ranks(vector, labels[near])
                at = np.sort(ranks)
                hits = np.searchsorted(at, steps, side="left").astype(np.float64)
                if self.options.type == "I8":
                    hits = yield from self._rough_hits(vector, labels[near], ranks, steps)
                most = min(self.k, len(labels))
                found[query] = np.minimum(hits, most) / most
            yield
        return found

    def _own(self, sample: Sample) -> list[int]:
        """Return the labels of the records of a sample; -1: it has none."""
        found = [-1] * len(sample.vectors)
        places = {id: number for number, id in enumerate(sample.ids)}
        for number, id in enumerate(self._fresh):
            if id in places:
                found[places[id]] = (_FRESH << 32) + number
        ids = sorted(sample.ids)
        for number, (segment, live, _) in enumerate(self._segments):
            for id in ids:
                for record in segment.segment.numbers([id]):
                    if live[record]:
                        found[places[id]] = (number << 32) + record
        return found

    def _ranks(self, vector: Floats, labels: Numbers) -> Numbers:
        """Return how many lists are nearer to a vector than the list of each record."""
        found = np.zeros(len(labels), np.int64)
        ranks: dict[bytes, Numbers] = {}
        for digest, one in self._known.items():
            order = one.order(vector, self.options)
            ranks[digest] = np.empty(len(order), np.int64)
            ranks[digest][order] = np.arange(len(order))
        for at, label in enumerate(labels.tolist()):
            segment = label >> 32
            # Fresh records, and those of segments without lists, are always read.
            if segment != _FRESH:
                known = ranks.get(self._segments[segment][2])
                found[at] = 0 if known is None else known[label >> 16 & 0xFFFF]
        return found

    def _rough_hits(self, vector: Floats, labels: Numbers, ranks: Numbers, steps: Numbers) -> Steps:
        """Return the neighbours that are among those that bytes rank first, by number of lists."""
        wanted, of = self.k * RERANKED, dict.fromkeys(labels.tolist(), -np.inf)
        parts: list[tuple[int, Any]] = yield from self._rough(vector, of, wanted + 1)
        held = sum(far.nbytes for _, far in parts)
        found = np.zeros(len(steps))
        read, border, at = np.zeros(0, np.float32), np.inf, 0
        for number, step in enumerate(steps.tolist()):
            before = at
            while at < len(parts) and parts[at][0] < step:
                at += 1
            read = np.concatenate([read, *(far for _, far in parts[before:at])])
            if len(read) > wanted:
                read = np.partition(read, wanted - 1)[:wanted]
                border = read[-1]
            found[number] = sum(
                rank < step and of[label] <= border
                for label, rank in zip(labels.tolist(), ranks.tolist(), strict=True)
            )
            yield
        self._hold(-held)
        return found

    def _rough(self, vector: Floats, of: dict[int, float], most: int) -> Steps:
        """Return the distances of vectors by their bytes in parts, each with the rank of its list,
        the nearest first.

        :param of: labels of records, whose distances are entered
        :param most: least distances of each part, which are enough
        """
        parts = []
        for number, (segment, live, digest) in enumerate(self._segments):
            known = self._known.get(digest)
            order = [] if known is None else known.order(vector, self.options).tolist()
            rank = {one: at for at, one in enumerate(order)}
            for list_number in segment.lists():
                for part in segment.parts(list_number):
                    kept = live[part.numbers]
                    far = _distances(self.options, part.floats[kept], vector[None, :])[0]
                    label = (number << 32) + (list_number << 16) + part.numbers[kept]
                    for one in of.keys() & label.tolist():
                        of[one] = float(far[label == one][0])
                    if len(far) > most:
                        # A copy: the others are not kept with it.
                        far = np.partition(far, most - 1)[:most].copy()
                    self._hold(far.nbytes)
                    parts.append((rank.get(list_number, 0), far))
                    yield
        return sorted(parts, key=itemgetter(0))


_RANKED: Final = 4_096


class _Best:
    """The nearest vectors of each query, collected."""

    def __init__(self, options: VectorOptions, queries: Floats, most: int) -> None:
        self._options, self._queries, self._most = options, queries, most
        self._far: Any = np.full((len(queries), most), np.inf, np.float32)
        self._labels: Numbers = np.full((len(queries), most), -1, np.int64)
        self._waiting: list[tuple[Floats, Numbers]] = []
        # A product of square blocks is the fastest.
        block = isqrt(_PRODUCTS // options.dimension)
        self._block = min(block, max(_SELECTED // (_ROWS + most), 1))
        """Vectors that are compared with as many queries in one step."""

    def add(self, rows: Floats, labels: Numbers) -> Steps:
        """Add vectors, at most `_ROWS`."""
        if sum(len(some) for _, some in self._waiting) + len(rows) > _ROWS:
            yield from self.flush()
        self._waiting.append((rows, labels))

    def flush(self) -> Steps:
        """Compare those that wait."""
        if not self._waiting:
            return
        rows = np.concatenate([some for some, _ in self._waiting])
        labels = np.concatenate([some for _, some in self._waiting])
        self._waiting.clear()
        for at in range(0, len(self._queries), self._block):
            block = slice(at, at + self._block)
            parts = [self._far[block]]
            for start in range(0, len(rows), self._block):
                some = rows[start : start + self._block]
                parts.append(_distances(self._options, some, self._queries[block]))
                yield
            far = np.concatenate(parts, axis=1)
            every = np.broadcast_to(labels, (len(far), len(labels)))
            every = np.concatenate([self._labels[block], every], axis=1)
            kept = np.argpartition(far, self._most - 1, axis=1)[:, : self._most]
            self._far[block] = np.take_along_axis(far, kept, 1)
            self._labels[block] = np.take_along_axis(every, kept, 1)
            yield

    def of(self, query: int, own: int) -> tuple[Numbers, Any]:
        """Return labels and distances of the vectors nearest to a query, but for its own."""
        labels, far = self._labels[query], self._far[query]
        # The label of a stored query's record is known but for its list.
        kept = np.isfinite(far) & ((labels & ~(0xFFFF << 16)) != own)
        if own >> 32 == _FRESH:
            kept = np.isfinite(far) & (labels != own)
        order = np.argsort(far[kept], kind="stable")
        return labels[kept][order], far[kept][order]


def _distances(options: VectorOptions, rows: Floats, queries: Floats) -> Any:
    """Return the distances of all vectors from all queries; not a number is as far as can be."""
    with np.errstate(all="ignore"):
        found = -(queries @ rows.T)
        if options.distance == "EUCLIDEAN":
            found = found * 2 + np.einsum("ij,ij->i", rows, rows)
        return np.where(np.isnan(found), np.inf, found)


# --- figures --------------------------------------------------------------------------------------


def ladder(lists: int) -> list[int]:
    """Return the numbers of lists of a curve."""
    found, at = [], 1
    while at < lists:
        found.append(at)
        at = max(at + 1, round(at * _LADDER))
    return [*found, lists]


def curve(steps: Sequence[int], hits: Any) -> list[Point]:
    """Return the recall for numbers of lists, with its interval of 95 %."""
    return [Point(one, *interval(hits[:, at])) for at, one in enumerate(steps)]


def interval(shares: Any) -> tuple[float, float, float]:
    """Return the mean of some shares, and Student's interval of 95 % around it."""
    shares = np.asarray(shares, np.float64)
    count = len(shares)
    mean = float(shares.mean())
    if (shares == 1).all():
        # Nothing was missed: the rule of three.
        return 1.0, max(1 - 3 / count, 0.0), 1.0
    around = student(count - 1) * float(shares.std(ddof=1)) / sqrt(count)
    return mean, max(mean - around, 0.0), min(mean + around, 1.0)


def student(freedom: int) -> float:
    """Return the quantile 0.975 of Student's distribution (Abramowitz and Stegun 26.7.5)."""
    z = 1.959963984540054
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92_160,
    )
    found: float = z + sum(term / freedom**power for power, term in enumerate(terms, 1))
    return found


def setting(points: Sequence[Point], target: float) -> Point:
    """Return the fewest lists that have the wanted recall for certain.

    With too few queries not even all lists have it: then the fewest that are as certain as all.
    """
    wanted = min(target, points[-1].low)
    return next(one for one in points if one.low >= wanted)
