"""The tree of a query: terms, and how they have to occur.

A tree is made by an analyzer, so its terms compare with those of a text. None stands for a part of
which no term is left, such as a stop word: it asks for nothing. `AllOf.without` is the only place
of a negation; a query that has no other term matches nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Term:
    """A term alone."""

    term: str


@dataclass(frozen=True, slots=True)
class Prefix:
    """All terms that begin with a text."""

    start: str


@dataclass(frozen=True, slots=True)
class Fuzzy:
    """All terms with the same first character and at most so many edits.

    An edit inserts, deletes or replaces a character, or swaps two neighbours.
    """

    term: str
    edits: int


@dataclass(frozen=True, slots=True)
class Phrase:
    """Terms at their distances from the first, in one field.

    :ivar parts: distance and term, in order
    :ivar slop: most further words between them, together
    """

    parts: tuple[tuple[int, str], ...]
    slop: int


@dataclass(frozen=True, slots=True)
class AnyOf:
    """At least one of some parts."""

    parts: tuple[Query, ...]


@dataclass(frozen=True, slots=True)
class AllOf:
    """All of `parts`, none of `without`; at least one part."""

    parts: tuple[Query, ...]
    without: tuple[Query, ...] = ()


@dataclass(frozen=True, slots=True)
class Boost:
    """A part whose share of the score is multiplied."""

    of: Query
    by: float


Leaf = Term | Prefix | Fuzzy | Phrase
Query = Leaf | AnyOf | AllOf | Boost


def phrase(parts: Sequence[tuple[int, str]], slop: int) -> Query | None:
    """Return the phrase of some terms; a single one is a term."""
    if len(parts) < 2:
        return Term(parts[0][1]) if parts else None
    first = parts[0][0]
    return Phrase(tuple((at - first, term) for at, term in parts), slop)


def any_of(parts: Iterable[Query | None]) -> Query | None:
    """Return the tree that any of the parts fulfils; parts that ask for nothing are left out."""
    kept = tuple(dict.fromkeys(one for one in parts if one is not None))
    return AnyOf(kept) if len(kept) > 1 else kept[0] if kept else None


def all_of(parts: Iterable[Query | None], without: Iterable[Query | None] = ()) -> Query | None:
    """Return the tree that needs all of the parts, and none of `without`. None: without a part that
    asks for something, nothing matches."""
    kept = tuple(dict.fromkeys(one for one in parts if one is not None))
    gone = tuple(dict.fromkeys(one for one in without if one is not None))
    if not kept or (len(kept) == 1 and not gone):
        return kept[0] if kept else None
    return AllOf(kept, gone)


def leaves(query: Query, by: float = 1.0) -> Iterator[tuple[Leaf, float]]:
    """Yield the leaves that a match may have, each with its boost: not those of a negation."""
    if isinstance(query, AnyOf | AllOf):
        for part in query.parts:
            yield from leaves(part, by)
    elif isinstance(query, Boost):
        yield from leaves(query.of, by * query.by)
    else:
        yield query, by


def words_in(query: Query) -> int:
    """Return the number of words of a query, negated ones included."""
    if isinstance(query, Phrase):
        return len(query.parts)
    if isinstance(query, AnyOf):
        return sum(map(words_in, query.parts))
    if isinstance(query, AllOf):
        return sum(map(words_in, (*query.parts, *query.without)))
    if isinstance(query, Boost):
        return words_in(query.of)
    return 1
