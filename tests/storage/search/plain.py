"""Plain scores beside the real ones: BM25 by a look at every term of every record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log

from language.search.analysis import Postings
from language.search.terms import AllOf, AnyOf, Boost, Leaf, Phrase, Prefix, Query, Term
from storage.indexes.text_options import TextOptions
from tests.language.search.model import edits

Record = Sequence[tuple[Postings, int]]
"""Terms and words of each field."""


def scores(
    query: Query, records: Mapping[bytes, Record], options: TextOptions
) -> dict[bytes, float]:
    """The score of each record that matches."""
    found: dict[bytes, float] = {}
    for id, record in records.items():
        if matches(query, record):
            found[id] = sum(
                by * boost * share(leaf, number, record, records, options)
                for leaf, by in weighed(query)
                for number, boost in enumerate(options.boosts or [1.0] * len(record))
            )
    return found


def weighed(query: Query, by: float = 1.0) -> list[tuple[Leaf, float]]:
    """The leaves that count, each with its boost."""
    if isinstance(query, AllOf | AnyOf):
        return [pair for part in query.parts for pair in weighed(part, by)]
    return weighed(query.of, by * query.by) if isinstance(query, Boost) else [(query, by)]


def matches(query: Query, record: Record) -> bool:
    if isinstance(query, AllOf):
        gone = any(matches(part, record) for part in query.without)
        return all(matches(part, record) for part in query.parts) and not gone
    if isinstance(query, AnyOf):
        return any(matches(part, record) for part in query.parts)
    if isinstance(query, Boost):
        return matches(query.of, record)
    return any(times(query, field) for field, _ in record)


def times(leaf: Leaf, field: Postings) -> int:
    if isinstance(leaf, Phrase):
        first = leaf.parts[0][1]
        return sum(_follows(start, start, 0, leaf, 1, field) for start in field.get(first, []))
    if isinstance(leaf, Term):
        return len(field.get(leaf.term, []))
    if isinstance(leaf, Prefix):
        return sum(len(at) for term, at in field.items() if term.startswith(leaf.start))
    return sum(
        len(at)
        for term, at in field.items()
        if term[0] == leaf.term[0] and edits(term, leaf.term) <= leaf.edits
    )


def _follows(
    start: int, place: int, before: int, phrase: Phrase, part: int, field: Postings
) -> bool:
    if part == len(phrase.parts):
        return True
    at, term = phrase.parts[part]
    return any(
        _follows(start, one, at, phrase, part + 1, field)
        for one in field.get(term, [])
        if one >= place + at - before and one - start - at <= phrase.slop
    )


def share(
    leaf: Leaf, number: int, record: Record, records: Mapping[bytes, Record], options: TextOptions
) -> float:
    """The share of a leaf in a field in the score of a record."""
    postings, words = record[number]
    occurrences = times(leaf, postings)
    if not occurrences:
        return 0.0
    lengths = [one[number][1] for one in records.values() if one[number][1]]
    rarity = 0.0
    for word in [Term(term) for _, term in leaf.parts] if isinstance(leaf, Phrase) else [leaf]:
        having = sum(1 for one in records.values() if times(word, one[number][0]))
        rarity += log(1 + (len(lengths) - having + 0.5) / (having + 0.5))
    k1, b = options.saturation, options.length
    relative = words / (sum(lengths) / len(lengths))
    return rarity * (k1 + 1) * occurrences / (occurrences + k1 * (1 - b + b * relative))
