"""Matches of a query in the fields of one record.

A word may match in any field, a phrase within one. The terms of a field come from
`Analyzer.postings`. A text may have hundreds of thousands of them, so all walks are ticked.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

from language.search.analysis import Postings
from language.search.terms import AllOf, AnyOf, Fuzzy, Leaf, Phrase, Prefix, Query, Term
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
    parts: list[_Places] = []
    for at, term in phrase.parts:
        positions = field.get(term)
        if positions is None:
            return False
        parts.append((at, positions))
    if not phrase.slop:
        # The rarest term first: then few places are tried. A term may stand at any of 500 000, so
        # nothing is made of the positions.
        parts.sort(key=_count)
    first, starts = parts[0]
    every = max(PACE // len(parts), 1)
    if phrase.slop:
        return any(_is_near(start, parts, phrase.slop) for start in paced(starts, tick, every))
    return any(
        all(_holds(positions, start - first + at) for at, positions in parts[1:])
        for start in paced(starts, tick, every)
    )


def _count(places: _Places) -> int:
    return len(places[1])


def _holds(positions: list[int], wanted: int) -> bool:
    number = bisect_left(positions, wanted)
    return number < len(positions) and positions[number] == wanted


def _is_near(start: int, parts: Sequence[_Places], slop: int) -> bool:
    """True if terms follow a place of the first one in their order, near enough."""
    place = start
    before = 0
    for at, positions in parts[1:]:
        # The nearest of each leaves most room for those behind it.
        number = bisect_left(positions, place + at - before)
        if number == len(positions) or positions[number] - start - at > slop:
            return False
        place, before = positions[number], at
    return True
