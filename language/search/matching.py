"""Matches of a query in the fields of one record.

A word may match in any field, a phrase within one. The terms of a field come from
`Analyzer.postings`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence

from language.search.analysis import Postings
from language.search.terms import AllOf, AnyOf, Boost, Fuzzy, Leaf, Phrase, Prefix, Query, Term
from protocol.values import Tick


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
        return bool(phrase_starts(leaf, field))
    tick()
    return next(iter(expand(leaf, field)), None) is not None


def expand(leaf: Prefix | Fuzzy, known: Iterable[str]) -> Iterable[str]:
    """Return the terms that a prefix or a fuzzy word stands for."""
    return filter(accepts(leaf), known)


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


def phrase_starts(phrase: Phrase, field: Postings) -> list[int]:
    """Return the positions at which a phrase begins in a field."""
    return [positions[0] for positions in phrase_places(phrase, field)]


def phrase_places(phrase: Phrase, field: Postings) -> list[list[int]]:
    """Return the positions of the terms of each occurrence of a phrase."""
    lists = [field.get(term) for _, term in phrase.parts]
    if None in lists:
        return []
    found: list[list[int]] = []
    sets = [frozenset(one or ()) for one in lists]
    for start in lists[0] or ():
        if not phrase.slop:
            places = [start + at for at, _ in phrase.parts]
            if all(at in known for at, known in zip(places, sets, strict=True)):
                found.append(places)
            continue
        closest = _closest(phrase, start, lists)
        if closest is not None:
            found.append(closest)
    return found


def _closest(phrase: Phrase, start: int, lists: Sequence[list[int] | None]) -> list[int] | None:
    """Return the nearest places of a phrase's terms in their order; None: too far apart."""
    places = [start]
    before = 0
    for (at, _), positions in zip(phrase.parts[1:], lists[1:], strict=True):
        least = places[-1] + at - before
        # The nearest of each leaves most room for those behind it.
        number = bisect_left(positions or (), least)
        if positions is None or number == len(positions):
            return None
        if positions[number] - start - at > phrase.slop:
            return None
        places.append(positions[number])
        before = at
    return places
