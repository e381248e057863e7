"""Scores of matches: BM25 over all fields, from integers of one snapshot.

A score is the sum of a share for each leaf of the query and each field, in this order. Segments
(`retrieval.py`) and single records take the same steps in float64, so they give equal scores.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import log

from language.search.analysis import Postings
from language.search.terms import Leaf, Phrase, Query, Term, leaves

Field = tuple[Postings, int]
"""Terms of a field of a record, and its number of words with terms."""


@dataclass(frozen=True, slots=True)
class Scoring:
    """Parameters of the scores of an index.

    :ivar saturation: k1: how soon further occurrences count no more
    :ivar length: b: how much a long text counts less
    :ivar boosts: factor of each field
    """

    saturation: float
    length: float
    boosts: tuple[float, ...]


@dataclass(slots=True)
class Statistics:
    """Counts over all records of one snapshot that an index covers.

    :ivar records: records with a term, by field
    :ivar words: their words, by field
    :ivar having: records that have a leaf, by leaf and field
    """

    records: list[int]
    words: list[int]
    having: dict[tuple[Leaf, int], int] = field(default_factory=dict)

    def add(self, field: int, words: int) -> None:
        """Count a record with a number of words in a field."""
        if words:
            self.records[field] += 1
            self.words[field] += words


def counted_leaves(query: Query) -> list[Leaf]:
    """Return the leaves whose records are counted for scores: of a phrase its words."""
    found: dict[Leaf, None] = {}
    for leaf, _ in leaves(query):
        found.update(dict.fromkeys(words_of(leaf)))
    return list(found)


def words_of(leaf: Leaf) -> Iterable[Leaf]:
    """Return the leaves whose rarity is that of a leaf."""
    return [Term(term) for _, term in leaf.parts] if isinstance(leaf, Phrase) else [leaf]


@dataclass(frozen=True, slots=True)
class Share:
    """Share of a leaf and a field in scores.

    :ivar at: number of the pair, by leaf and then by field
    :ivar factor: the share of infinitely many occurrences
    :ivar average: words of the field in a record that has some
    """

    at: int
    leaf: Leaf
    field: int
    factor: float
    average: float


class Scorer:
    """Scores of one query at one snapshot."""

    def __init__(self, query: Query, scoring: Scoring, known: Statistics) -> None:
        self.saturation, self.length = scoring.saturation, scoring.length
        self.shares = [
            Share(at * len(scoring.boosts) + field, leaf, field, factor, average)
            for at, (leaf, by) in enumerate(leaves(query))
            for field, boost in enumerate(scoring.boosts)
            if known.records[field]
            for factor in (boost * by * _rarity(leaf, field, known) * (scoring.saturation + 1),)
            for average in (known.words[field] / known.records[field],)
        ]

    def score_counts(self, counts: Sequence[int], words: Sequence[int]) -> float:
        """Return the score of a record. :param counts: occurrences by `Share.at`"""
        found = 0.0
        for share in self.shares:
            if counts[share.at]:
                found += self.share(share, counts[share.at], words[share.field])
        return found

    def share(self, share: Share, times: int, words: int) -> float:
        """Return the share of some occurrences in a text of some words."""
        norm = self.saturation * (1 - self.length + self.length * (words / share.average))
        return share.factor * (times / (times + norm))


def _rarity(leaf: Leaf, field: int, known: Statistics) -> float:
    """Return the idf of a leaf; of a phrase, the sum of its words'."""
    every = known.records[field]
    having = [known.having.get((one, field), 0) for one in words_of(leaf)]
    return sum(log(1 + (every - some + 0.5) / (some + 0.5)) for some in having)
