"""Query over a FULLTEXT index at the snapshot of a statement: its records and their scores.

It takes all records of the table, see `index_snapshot.py`. So the counts of a score, and the score,
depend on the snapshot alone. Imports numpy.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from functools import cached_property, lru_cache
from hashlib import blake2b
from heapq import merge
from itertools import islice
from math import inf
from typing import Final, NamedTuple

from actors.scripts.index_snapshot import ID_BYTES, IndexSnapshot
from language.env import Env
from language.functions.search import ANALYSIS, POSTINGS_BYTES
from language.pieces import cost_of
from language.search.analysis import Analyzer
from language.search.compiled import analyzer_of, digest_of
from language.search.matching import count, matches
from language.search.retrieval import (
    Mask,
    Numbers,
    Scored,
    SegmentSearch,
    bound,
    numbers,
    size,
    values,
)
from language.search.scoring import Field, Scorer, Scoring, Statistics, counted_leaves
from language.search.terms import Leaf, Phrase, Query, leaves
from protocol import limits
from protocol.bounded_cache import BoundedCache
from protocol.paths import Path
from protocol.values import FEW, paced
from storage.catalog.tables import Table
from storage.formats import keys
from storage.formats.keys import Pair
from storage.indexes.entries import READY, Index, IndexedFields
from storage.indexes.text_markers import TextMarkers
from storage.records import records
from storage.search.caches import search_cache
from storage.search.postings import SegmentArrays
from storage.search.segments import Head, TextSegment
from storage.txn.transaction import Transaction

_HIT_BYTES: Final = 24
_FIRST: Final = 256
"""Fewest records that are put in the order of their scores at once."""
KNOWN_BYTES: Final = 8 * 1024 * 1024
"""Memory of the terms of fresh records that are kept for further queries."""


@lru_cache(64)
def _rows(paths: tuple[Path, ...]) -> IndexedFields:
    """Return the reader of some fields, whose decoder takes half a millisecond to make."""
    return IndexedFields((Index(0, "", "", paths, False, None, READY),))


class _Fresh(NamedTuple):
    """A fresh record that matches, with its occurrences of each leaf in each field."""

    id: bytes
    counts: tuple[int, ...]
    words: tuple[int, ...]


class _Segment(NamedTuple):
    arrays: SegmentArrays
    search: SegmentSearch
    live: Mask
    """Records that are neither deleted nor fresh."""


class TextIndex(IndexSnapshot):
    """A query over an index, in one table. :param query: None: it matches nothing"""

    def __init__(
        self, tx: Transaction, env: Env, table: Table, index: Index, query: Query | None
    ) -> None:
        super().__init__(tx, env.memory, env.tick, table, index)
        self.query = query
        text = index.text
        assert text is not None
        self.analyzer: Analyzer = analyzer_of(text.definition)
        self._digest = digest_of(text.definition)
        self._kind = blake2b(self._digest + repr(index.paths).encode(), digest_size=16).digest()
        boosts = text.boosts or (1.0,) * len(index.paths)
        self._scoring = Scoring(text.saturation, text.length, boosts)
        self._by_path: dict[Path | None, dict[bytes, float]] = {}
        """Scores of the records that match, by the field that they are about."""
        self._ranked: dict[bytes, float] = {}
        """Scores of the records that were yielded in their order."""

    # --- the snapshot -----------------------------------------------------------------------------

    def is_current(self, head: Head) -> bool:
        """True if the terms of a segment are those of this analyzer."""
        return head.digest == self._digest

    @cached_property
    def _segments(self) -> list[_Segment]:
        found = []
        tick = self.tick
        for head in self.current():
            segment = TextSegment(self.tx.get, self.tx.scan, self.index.entries, head, keeps=True)
            arrays = SegmentArrays(segment)
            live = self.live(segment)
            recount = _Recount(self, segment)
            search = SegmentSearch(arrays, len(self.index.paths), recount, tick)
            found.append(_Segment(arrays, search, live))
        return found

    def segment_records(self, leaf: Leaf) -> int:
        """Return the number of records in segments that have a leaf."""
        return sum(size(one.search.matched(leaf) & one.live) for one in self._segments)

    # --- records that match -----------------------------------------------------------------------

    @cached_property
    def _matched(self) -> list[tuple[_Segment, Numbers]]:
        """The segments, each with the numbers of its records that match."""
        found: list[tuple[_Segment, Numbers]] = []
        if self.query is None:
            return found
        for one in self._segments:
            some = numbers(one.search.matched(self.query) & one.live)
            self.memory.held += some.nbytes
            self.tick()
            found.append((one, some))
        return found

    @property
    def entries(self) -> int:
        """Number of the ids that `ids` yields."""
        fresh = 0 if self.query is None else len(self.fresh)
        return fresh + sum(len(some) for _, some in self._matched)

    def ids(self) -> Iterator[bytes]:
        """Yield the ids of the records of segments that match, and of all fresh ones, in order."""
        if self.query is None:
            return iter(())
        # A record is in one of them.
        parts = [self._ids(one, some) for one, some in self._matched]
        return merge(paced(self.fresh, self.tick), *parts)

    def matching(self, pairs: list[Pair]) -> list[Pair]:
        """Return the records that match. :param pairs: records of `ids`"""
        if not self.fresh or self.query is None:
            return pairs
        kept = []
        for pair in pairs:
            if self._is_fresh(pair[0][keys.RECORD_PREFIX_BYTES :]):
                held = self.memory.held
                fits = matches(self.query, [one for one, _ in self._analysed(pair[1])], self.tick)
                self.memory.held = held
                if not fits:
                    continue
            kept.append(pair)
        return kept

    def _is_fresh(self, id: bytes) -> bool:
        at = bisect_left(self.fresh, id)
        return at < len(self.fresh) and self.fresh[at] == id

    def _analysed(self, raw: bytes) -> list[Field]:
        """Return the terms of the fields of a record. :param raw: its packed fields"""
        name = blake2b(raw, digest_size=16, key=self._kind).digest()
        known = _recent.get(name)
        if known is not None:
            return known
        found: list[Field] = []
        rows = _rows(self.index.paths)
        for text in TextMarkers(self.index, rows.heads).content(rows.of_packed(raw)):
            size = min(sum(map(len, text)), limits.SEARCH_TEXT_CHARACTERS)
            if size > FEW:
                self.tick(ANALYSIS * cost_of(size))
                self.memory.held += size * POSTINGS_BYTES
            found.append(self.analyzer.postings(text, self.tick))
        size = sum(100 * len(postings) + 8 * words for postings, words in found) + 200
        _recent.keep(name, found, size)
        return found

    # --- scores -----------------------------------------------------------------------------------

    @cached_property
    def _counted(self) -> tuple[Statistics, list[_Fresh]]:
        """Counts of the snapshot, and the fresh records that match."""
        assert self.query is not None
        fields = len(self.index.paths)
        known = Statistics([0] * fields, [0] * fields)
        rare = counted_leaves(self.query)
        for one in self._segments:
            one.search.count(one.live, rare, known)
        every = [leaf for leaf, _ in leaves(self.query)]
        found: list[_Fresh] = []
        at = 0
        while at < len(self.fresh):
            held, before = self.memory.held, len(found)
            pairs, at = records.fetch(self.tx, self.table, self.fresh, at, FEW)
            for key, raw in pairs:
                self.tick(FEW)
                fields_of = self._analysed(raw)
                self._count_one(fields_of, rare, known)
                if matches(self.query, [one for one, _ in fields_of], self.tick):
                    counts = tuple(
                        count(leaf, one, self.tick) for leaf in every for one, _ in fields_of
                    )
                    words = tuple(number for _, number in fields_of)
                    found.append(_Fresh(key[keys.RECORD_PREFIX_BYTES :], counts, words))
            self.memory.held = held + (len(found) - before) * (
                ID_BYTES + 8 * fields * (len(every) + 1)
            )
        return known, found

    def _count_one(self, fields: list[Field], rare: list[Leaf], known: Statistics) -> None:
        """Count a fresh record."""
        for number, (postings, words) in enumerate(fields):
            known.add(number, words)
            for leaf in rare if words else ():
                if count(leaf, postings, self.tick):
                    key = leaf, number
                    known.having[key] = known.having.get(key, 0) + 1

    def _scores(self, path: Path | None) -> Iterator[tuple[_Segment | None, Scored]]:
        """Yield the scores of the records that match, by segment. Those of fresh records come last,
        without a segment.

        :param path: the field that scores are about; None: all
        """
        assert self.query is not None
        known, fresh = self._counted
        scorer = Scorer(self.query, self._scoring, known)
        if path is not None:
            field = self.index.paths.index(path)
            scorer.shares = [one for one in scorer.shares if one.field == field]
        for one, some in self._matched:
            self.memory.held += len(some) * _HIT_BYTES
            self.tick()
            yield one, Scored(some, one.search.scores(scorer)[some])
        found = [scorer.score_counts(one.counts, one.words) for one in paced(fresh, self.tick)]
        yield None, Scored(range(len(fresh)), found)

    def score(self, id: bytes, path: Path | None) -> float:
        """Return the score of a record; 0 if it does not match."""
        if path is None and id in self._ranked:
            return self._ranked[id]
        found = self._by_path.get(path)
        if found is None:
            found = self._by_path[path] = {}
            for segment, part in self._scores(path) if self.query is not None else ():
                self.memory.held += len(part) * ID_BYTES
                ids, scores = self._ids(segment, part.numbers), part.scores.tolist()
                found.update(zip(ids, scores, strict=True))
        return found.get(id, 0.0)

    def _ids(self, segment: _Segment | None, at: Numbers) -> Iterator[bytes]:
        """Yield the ids of some records. :param segment: None: they are fresh ones that match"""
        wanted = values(at, self.tick)
        if segment is not None:
            return segment.arrays.segment.ids(wanted)
        fresh = self._counted[1]
        return (fresh[one].id for one in wanted)

    def ranked(self, most: int) -> tuple[int, Iterator[list[bytes]]]:
        """Return the number of the records that match, and an iterator of their ids by score, then
        by id. :param most: number that is probably taken"""
        if self.query is None:
            return 0, iter(())
        parts = list(self._scores(None))
        return sum(len(part) for _, part in parts), self._in_order(parts, most)

    def _in_order(
        self, parts: list[tuple[_Segment | None, Scored]], most: int
    ) -> Iterator[list[bytes]]:
        """Yield ids in lists, the first of which has as many as are probably taken. A million
        records may have one score, so runs of the segments are merged, and nothing is sorted at
        once."""
        before, tick = inf, self.tick
        step, most = max(min(most, FEW), 1), max(most, _FIRST)
        left = sum(len(part) for _, part in parts)
        while left:
            low = bound([part for _, part in parts], before, most, tick)
            runs = []
            for segment, part in parts:
                at, scores = part.best(low, before)
                left -= len(at)
                runs.append(zip(values(-scores, tick), self._ids(segment, at), strict=True))
            merged = merge(*runs)
            while some := list(islice(merged, step)):
                step = FEW
                self._ranked.update((id, -score) for score, id in some)
                self.memory.held += len(some) * ID_BYTES
                tick()
                yield [id for _, id in some]
            before, most = low, most * 4


class _Recount:
    """Counts a phrase in a record whose positions a segment does not hold: `retrieval.Recount`."""

    def __init__(self, search: TextIndex, segment: TextSegment) -> None:
        self._search, self._segment = search, segment

    def __call__(self, number: int, field: int, phrase: Phrase) -> int:
        search = self._search
        (id,) = self._segment.ids([number])
        pairs, _ = records.fetch(search.tx, search.table, [id], 0, 1)
        # A fresh record may be gone: the segment's copy of it is not read.
        if not pairs:
            return 0
        postings, _ = search._analysed(pairs[0][1])[field]
        return count(phrase, postings, search.tick)


_recent: Final[BoundedCache[list[Field]]] = search_cache(KNOWN_BYTES)
"""Terms of the fields of recent fresh records, by a digest of all that they depend on."""
