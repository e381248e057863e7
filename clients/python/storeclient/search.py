"""Queries of full-text search as values, for parameters of `@@` and `search::matches`.

    from storeclient import search

    found = db.query(
        "SELECT VALUE id FROM article WHERE body @@ $query",
        {"query": search.any("tin", search.phrase("copper ore", 2))},
    )

A query is a string, a list of literal words, or the result of a function here. The node checks it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any as _Any

Query = str | Sequence[str] | Mapping[str, _Any]


def any(*queries: Query) -> dict[str, _Any]:
    """Return a query that any of some queries fulfils."""
    return {"any": list(queries)}


def all(*queries: Query) -> dict[str, _Any]:
    """Return a query that needs all of some queries; those of `not_` exclude."""
    return {"all": list(queries)}


def not_(query: Query) -> dict[str, _Any]:
    """Return a query whose matches `all` excludes."""
    return {"not": query}


def phrase(text: str, slop: int = 0) -> dict[str, _Any]:
    """Return a query for words in this order, with at most `slop` other words between them."""
    return {"phrase": [text, slop]}


def prefix(text: str) -> dict[str, _Any]:
    """Return a query for words that begin so; of several words the last one is a beginning."""
    return {"prefix": text}


def fuzzy(text: str, edits: int = 1) -> dict[str, _Any]:
    """Return a query for words with at most so many edits, 0 to 2."""
    return {"fuzzy": [text, edits]}


def boost(query: Query, by: float) -> dict[str, _Any]:
    """Return a query whose share of a score is multiplied."""
    return {"boost": [query, by]}
