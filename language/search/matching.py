"""Matches of a query in the fields of one record.

A word may match in any field, a phrase within one. The terms of a field come from
`Analyzer.postings`. A text may have hundreds of thousands of them, so all walks are ticked.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final

from language.search.analysis import Postings
from language.search.terms import AllOf, AnyOf, Boost, Fuzzy, Leaf, Phrase, Prefix, Query, Term
from protocol.values import PACE, Tick, paced

_TERMS_AT_ONCE: Final = 512
"""Terms that are compared with a prefix or a fuzzy word without a tick."""


def matches(query: Query, fields: Sequence[Postings], tick: Tick) -> bool:
    """True if the fields of a record fulfil a query."""
    if isinstance(query, AllOf):
        return all(matches(part, fields, tick) for part in query.parts) and not any(
            matches(part, fields, tick) for part in query.without
        )
    if isinstance(query, AnyOf):
        return any(matches(part, fields, tick) for part in query.parts)
    if isinstance(query, Boost):
        return matches(query.of, fields, tick)
    return any(occurs(query, field, tick) for field in fields)


def occurs(leaf: Leaf, field: Postings, tick: Tick) -> bool:
    """True if a leaf of a query occurs in a field."""
    if isinstance(leaf, Term):
        return leaf.term in field
    if isinstance(leaf, Phrase):
        return has_phrase(leaf, field, tick)
    accepted, known = accepts(leaf), iter(field)
    while terms := list(islice(known, _TERMS_AT_ONCE)):
        tick()
        if any(map(accepted, terms)):
            return True
    return False


def accepts(leaf: Prefix | Fuzzy) -> Callable[[str], bool]:
    """Return the predicate of the terms that a prefix or a fuzzy word stands for."""
    if isinstance(leaf, Prefix):
        start = leaf.start
        return lambda term: term.startswith(start)
    from rapidfuzz.distance import OSA  # six megabytes, only for stores with fuzzy queries

    term, edits, first, distance = leaf.term, leaf.edits, leaf.term[0], OSA.distance
    low, high = len(term) - edits, len(term) + edits
    return lambda other: (
        other[0] == first
        and low <= len(other) <= high
        and distance(term, other, score_cutoff=edits) <= edits
    )


_Places = tuple[int, list[int]]
"""Distance of a term from the first one of its phrase, and its positions in a field."""


def has_phrase(phrase: Phrase, field: Postings, tick: Tick) -> bool:
    """True if a phrase occurs in a field."""
    return next(phrase_starts(phrase, field, tick), None) is not None


def phrase_places(phrase: Phrase, field: Postings, tick: Tick) -> Iterator[list[int]]:
    """Yield the positions of the words of a phrase for each of its occurrences."""
    for start in phrase_starts(phrase, field, tick):
        if phrase.slop:
            parts = [(at, field[term]) for at, term in phrase.parts]
            yield places_near(start, parts, phrase.slop) or []
        else:
            yield [start + at for at, _ in phrase.parts]


def phrase_starts(phrase: Phrase, field: Postings, tick: Tick) -> Iterator[int]:
    """Yield the positions of a field at which a phrase begins, in order."""
    parts: list[_Places] = []
    for at, term in phrase.parts:
        positions = field.get(term)
        if positions is None:
            return
        parts.append((at, positions))
    if not phrase.slop:
        # The rarest term first: then few places are tried. A term may stand at any of 500 000, so
        # nothing is made of the positions.
        parts.sort(key=_count)
    first, starts = parts[0]
    every = max(PACE // len(parts), 1)
    for start in paced(starts, tick, every):
        if phrase.slop:
            if places_near(start, parts, phrase.slop) is not None:
                yield start
        elif all(_holds(positions, start - first + at) for at, positions in parts[1:]):
            yield start - first


def count(leaf: Leaf, field: Postings, tick: Tick) -> int:
    """Return the number of occurrences of a leaf of a query in a field."""
    if isinstance(leaf, Term):
        return len(field.get(leaf.term, ()))
    if isinstance(leaf, Phrase):
        return sum(1 for _ in phrase_starts(leaf, field, tick))
    return sum(len(field[term]) for term in expanded(leaf, field, tick))


def expanded(leaf: Prefix | Fuzzy, field: Postings, tick: Tick) -> list[str]:
    """Return the terms of a field that a prefix or a fuzzy word stands for."""
    accepted, known = accepts(leaf), iter(field)
    found: list[str] = []
    while terms := list(islice(known, _TERMS_AT_ONCE)):
        tick()
        found += filter(accepted, terms)
    return found


def _count(places: _Places) -> int:
    return len(places[1])


def _holds(positions: list[int], wanted: int) -> bool:
    number = bisect_left(positions, wanted)
    return number < len(positions) and positions[number] == wanted


def places_near(start: int, parts: Sequence[_Places], slop: int) -> list[int] | None:
    """Return the places of terms that follow a place of the first one in their order, near enough.

    None: they do not.
    """
    found = [start]
    before = 0
    for at, positions in parts[1:]:
        # The nearest of each leaves most room for those behind it.
        number = bisect_left(positions, found[-1] + at - before)
        if number == len(positions) or positions[number] - start - at > slop:
            return None
        found.append(positions[number])
        before = at
    return found
