"""Matches and scores of a query in one segment of an index, computed with arrays.

The results are those of `matching.py` and `scoring.py` for each record of the segment. Imports
numpy, so it is imported where an index is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from language.search.matching import accepts, phrase_starts
from language.search.scoring import Scorer, Statistics
from language.search.terms import AllOf, AnyOf, Boost, Fuzzy, Leaf, Phrase, Prefix, Query, Term
from protocol.values import Tick

Mask = npt.NDArray[np.bool_]
"""True for each record of a segment that is in a set."""
Numbers = npt.NDArray[np.int64]
Hits = tuple[Numbers, Numbers]
"""Numbers of the records that have a leaf in a field, in order, and its occurrences in each."""
FAR: Final = 65_535
"""Position in the place of all that are as far or farther."""
_PACE: Final = 256
_NONE: Final[Hits] = (np.empty(0, np.int64), np.empty(0, np.int64))


class Source(Protocol):
    """Arrays of one segment."""

    @property
    def records(self) -> int:
        """Number of its records, which count from 0."""

    def hits(self, field: int, term: str) -> Hits | None:
        """Return the records that have a term in a field."""

    def positions(self, field: int, term: str) -> Numbers:
        """Return all positions of a term, by record, in order."""

    def terms(self, field: int, start: str) -> Iterator[tuple[str, Callable[[], Hits]]]:
        """Yield the terms of a field that begin with a text, each with its records."""

    def lengths(self, field: int) -> Numbers:
        """Return the number of words of each record in a field."""

    def totals(self, field: int) -> tuple[int, int]:
        """Return the number of all records with words in a field, and of all their words."""


Recount = Callable[[int, int, Phrase], int]
"""Returns the occurrences of a phrase in a record, by its number and a field, from its text."""


class SegmentSearch:
    """Queries of one statement in one segment.

    :param fields: number of fields of the index
    """

    def __init__(self, source: Source, fields: int, recount: Recount, tick: Tick) -> None:
        self.source = source
        self._fields, self._recount, self._tick = fields, recount, tick
        self._known: dict[tuple[Leaf, int], Hits] = {}

    def matched(self, query: Query) -> Mask:
        """Return the records that match a query."""
        if isinstance(query, AllOf):
            found = self.matched(query.parts[0])
            for part in query.parts[1:]:
                if not found.any():
                    return found
                found &= self.matched(part)
            for part in query.without:
                if found.any():
                    found &= ~self.matched(part)
            return found
        if isinstance(query, Boost):
            return self.matched(query.of)
        found = np.zeros(self.source.records, np.bool_)
        if isinstance(query, AnyOf):
            for part in query.parts:
                found |= self.matched(part)
            return found
        for field in range(self._fields):
            found[self.hits(query, field)[0]] = True
        return found

    def hits(self, leaf: Leaf, field: int) -> Hits:
        """Return the records that have a leaf in a field."""
        known = self._known.get((leaf, field))
        if known is None:
            self._tick()
            if isinstance(leaf, Term):
                known = self.source.hits(field, leaf.term) or _NONE
            elif isinstance(leaf, Phrase):
                known = self._phrase(leaf, field)
            else:
                known = self._expanded(leaf, field)
            self._known[leaf, field] = known
        return known

    def _expanded(self, leaf: Prefix | Fuzzy, field: int) -> Hits:
        fits = accepts(leaf)
        start = leaf.start if isinstance(leaf, Prefix) else leaf.term[0]
        counts = np.zeros(self.source.records, np.int64)
        for number, (term, hits) in enumerate(self.source.terms(field, start)):
            if number % _PACE == _PACE - 1:
                self._tick()
            if fits(term):
                numbers, times = hits()
                counts[numbers] += times
        (numbers,) = counts.nonzero()
        return numbers, counts[numbers]

    # --- phrases ----------------------------------------------------------------------------------

    def _phrase(self, phrase: Phrase, field: int) -> Hits:
        terms = [term for _, term in phrase.parts]
        both: Numbers | None = None
        for term in dict.fromkeys(terms):
            numbers = self.hits(Term(term), field)[0]
            both = numbers if both is None else both[_held(numbers, both)]
            if not len(both):
                return _NONE
        assert both is not None
        places = {term: self._places(term, field, both) for term in terms}
        far = np.unique(
            np.concatenate([of[at >= FAR] for of, at in places.values()])
        )  # their positions are not known
        near = self._near(phrase, both, places) if phrase.slop else self._exact(phrase, places)
        if not len(far):
            return near
        numbers, counts = (one[~_held(far, near[0])] for one in near)
        again = [self._recount(int(number), field, phrase) for number in far]
        counts = np.concatenate([counts, np.array(again, np.int64)])
        numbers = np.concatenate([numbers, far])
        order = np.argsort(numbers)
        order = order[counts[order] > 0]
        return numbers[order], counts[order]

    def _places(self, term: str, field: int, wanted: Numbers) -> Hits:
        """Return the record and the position of each occurrence of a term in some records."""
        numbers, counts = self.hits(Term(term), field)
        # Looked up by record: a frequent term has many more occurrences.
        is_wanted = np.zeros(self.source.records, np.bool_)
        is_wanted[wanted] = True
        kept = is_wanted[numbers]
        at = self.source.positions(field, term)[np.repeat(kept, counts)]
        self._tick()
        return np.repeat(numbers[kept], counts[kept]), at

    def _exact(self, phrase: Phrase, places: dict[str, Hits]) -> Hits:
        found: Numbers | None = None
        for at, term in sorted(phrase.parts, key=lambda part: len(places[part[1]][0])):
            of, positions = places[term]
            starts = (of << 32) + positions - at
            found = starts if found is None else found[_held(starts, found)]
            self._tick()
            if not len(found):
                return _NONE
        assert found is not None
        numbers, counts = np.unique(found >> 32, return_counts=True)
        return numbers, counts

    def _near(self, phrase: Phrase, both: Numbers, places: dict[str, Hits]) -> Hits:
        terms = list(places)
        bounds = [(np.searchsorted(places[t][0], both), places[t][1].tolist()) for t in terms]
        counts = np.zeros(len(both), np.int64)
        for number in range(len(both)):
            field = {
                term: at[starts[number] : starts[number + 1] if number + 1 < len(both) else None]
                for term, (starts, at) in zip(terms, bounds, strict=True)
            }
            counts[number] = sum(1 for _ in phrase_starts(phrase, field, self._tick))
            if number % _PACE == _PACE - 1:
                self._tick()
        kept = counts > 0
        return both[kept], counts[kept]

    # --- scores -----------------------------------------------------------------------------------

    def count(self, live: Mask, leaves: Sequence[Leaf], known: Statistics) -> None:
        """Count the live records, and those among them that have some leaves."""
        whole = bool(live.all())
        for field in range(self._fields):
            if whole:
                records, words = self.source.totals(field)
            else:
                lengths = self.source.lengths(field)[live]
                records, words = int(np.count_nonzero(lengths)), int(lengths.sum())
            known.records[field] += records
            known.words[field] += words
            for leaf in leaves:
                numbers = self.hits(leaf, field)[0]
                some = len(numbers) if whole else int(np.count_nonzero(live[numbers]))
                known.having[leaf, field] = known.having.get((leaf, field), 0) + some

    def scores(self, scorer: Scorer) -> npt.NDArray[np.float64]:
        """Return the score of each record, 0 if it has no leaf."""
        found = np.zeros(self.source.records)
        k1, b = scorer.saturation, scorer.length
        for share in scorer.shares:
            numbers, counts = self.hits(share.leaf, share.field)
            if len(numbers):
                self._tick()
                # The steps of `Scorer.share`, so that no sum differs in its last bit.
                lengths = self.source.lengths(share.field)[numbers]
                norm = k1 * (1 - b + b * (lengths / share.average))
                found[numbers] += share.factor * (counts / (counts + norm))
        return found


def numbers(mask: Mask) -> Numbers:
    """Return the numbers of the records in a set, in order."""
    (found,) = mask.nonzero()
    return found


def size(mask: Mask) -> int:
    """Return the number of records in a set."""
    return int(np.count_nonzero(mask))


class Scored:
    """Scores of the records of a segment that match, or of others.

    :ivar numbers: of the records in the segment; of others, their places in a list
    """

    def __init__(self, numbers: Numbers | range, scores: Any) -> None:
        self.numbers = np.asarray(numbers, np.int64)
        self.scores = np.asarray(scores, np.float64)

    def __len__(self) -> int:
        return len(self.numbers)

    def best(self, low: float, high: float) -> tuple[Numbers, npt.NDArray[np.float64]]:
        """Return the numbers and the scores from one score on, below another: the best first, and
        equal ones by their numbers."""
        (kept,) = ((self.scores >= low) & (self.scores < high)).nonzero()
        kept = kept[np.argsort(-self.scores[kept], kind="stable")]
        return self.numbers[kept], self.scores[kept]


def values(array: npt.NDArray[Any], tick: Tick) -> Iterator[Any]:
    """Yield the values of an array as Python objects, made as they are wanted."""
    for at in range(0, len(array), _PACE):
        tick()
        yield from array[at : at + _PACE].tolist()


def bound(parts: Sequence[Scored], below: float, most: int, tick: Tick) -> float:
    """Return the score of the last of so many records with the best scores below another."""
    best = []
    for part in parts:
        some = part.scores[part.scores < below]
        # Of each segment first: a million scores would take too long at once.
        if len(some) > most:
            some = np.partition(some, len(some) - most)[-most:]
        best.append(some)
        tick()
    every = np.concatenate(best)
    return float(every.min() if len(every) <= most else np.partition(every, -most)[-most])


def _held(within: Any, values: Any) -> Any:
    """Return for each value if a sorted array has it."""
    if not len(within):
        return np.zeros(len(values), np.bool_)
    at = np.searchsorted(within, values)
    at[at == len(within)] = 0
    return within[at] == values
