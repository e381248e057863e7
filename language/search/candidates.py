"""Records of a segment that may match a query, by the terms that the segment has.

The result contains each record that matches. It has others only where a phrase stands: that reads
the record itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from language.search.matching import accepts
from language.search.terms import (
    AllOf,
    AnyOf,
    Fuzzy,
    Leaf,
    Phrase,
    Prefix,
    Query,
    Term,
)
from protocol.values import Tick

Numbers = frozenset[int]
_PACE: Final = 256
"""Terms looked at between two ticks."""


class Postings(Protocol):
    """Terms of one segment."""

    @property
    def records(self) -> int:
        """Number of its records, which count from 0."""

    def numbers(self, field: int, term: str) -> Numbers:
        """Return the records that have a term in a field."""

    def terms(self, field: int, start: str) -> Iterator[str]:
        """Yield the terms of a field that begin with a text."""


def candidates(query: Query, segment: Postings, fields: int, tick: Tick) -> Numbers:
    """Return the numbers of all records that match a query, and perhaps more.

    :param fields: number of fields of the index
    """
    if isinstance(query, AllOf):
        found: Numbers | None = None
        for part in query.parts:
            some = candidates(part, segment, fields, tick)
            found = some if found is None else found & some
            if not found:
                return found
        assert found is not None
        for part in query.without:
            # The records of a phrase's words may not have the phrase: they are not excluded here.
            if not has_phrase(part):
                found -= candidates(part, segment, fields, tick)
        return found
    if isinstance(query, AnyOf):
        return frozenset().union(*(candidates(part, segment, fields, tick) for part in query.parts))
    return frozenset().union(*(_of_leaf(query, segment, field, tick) for field in range(fields)))


def has_phrase(query: Query) -> bool:
    """True if a phrase is in a query: then its candidates may not match it."""
    if isinstance(query, AllOf):
        return any(map(has_phrase, (*query.parts, *query.without)))
    if isinstance(query, AnyOf):
        return any(map(has_phrase, query.parts))
    return isinstance(query, Phrase)


def _of_leaf(leaf: Leaf, segment: Postings, field: int, tick: Tick) -> Numbers:
    tick()
    if isinstance(leaf, Term):
        return segment.numbers(field, leaf.term)
    if isinstance(leaf, Phrase):
        found = segment.numbers(field, leaf.parts[0][1])
        for _, term in leaf.parts[1:]:
            if not found:
                break
            found &= segment.numbers(field, term)
        return found
    every: set[int] = set()
    for term in expansion(leaf, segment, field, tick):
        every |= segment.numbers(field, term)
        if len(every) == segment.records:
            break
    return frozenset(every)


def expansion(leaf: Prefix | Fuzzy, segment: Postings, field: int, tick: Tick) -> Iterator[str]:
    """Yield the terms of a field that a prefix or a fuzzy word stands for."""
    fits = accepts(leaf)
    start = leaf.start if isinstance(leaf, Prefix) else leaf.term[0]
    for number, term in enumerate(segment.terms(field, start)):
        if number % _PACE == _PACE - 1:
            tick()
        if fits(term):
            yield term
