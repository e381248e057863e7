"""`search::…` functions: analysis and matches of any text, and values of search queries."""

from __future__ import annotations

from typing import Any, Final

from language.env import Env
from language.functions.table import check_array, function
from language.operators import hashable
from language.pieces import cost_of
from language.search.analysis import Analyzer, Postings
from language.search.matching import matches as matched
from language.search.query import parse_query
from language.search.terms import Query
from protocol import limits
from protocol.text import strings_of
from protocol.values import FEW, Value


@function("search::analyze", "string", "string", result="array", env=True, fixed=False)
def analyze(env: Env, analyzer: str, text: str) -> list[Value]:
    """Terms of a text: of each `term`, `position`, and `start` and `end` in characters."""
    found: list[Value] = []
    for token in env.analyzer(analyzer).tokens(text, env.tick):
        found.append(dict(token._asdict()))
        check_array(len(found))
    return found


@function("search::matches", "any", "any", "string", result="bool", env=True, fixed=False)
def matches(env: Env, text: Any, query: Any, analyzer: str) -> bool:
    """True if a string, or an array of strings, matches a query; other values match none."""
    return text_matches(env, env.analyzer(analyzer), [text], query)


def text_matches(env: Env, analyzer: Analyzer, values: list[Any], query: Any) -> bool:
    """Return True if the values of some fields match a query value."""
    tree = query_tree(env, analyzer, query)
    return tree is not None and tree_matches(env, analyzer, values, tree)


def tree_matches(env: Env, analyzer: Analyzer, values: list[Any], tree: Query) -> bool:
    """Return True if the values of some fields match the tree of a query."""
    fields: list[Postings] = []
    held = env.memory.held
    try:
        for value in values:
            texts = strings_of(value)
            size = min(sum(map(len, texts)), limits.SEARCH_TEXT_CHARACTERS)
            if size > FEW:
                env.tick(ANALYSIS * cost_of(size))
                env.memory.held += size * POSTINGS_BYTES
            fields.append(analyzer.postings(texts, env.tick)[0])
        return any(fields) and matched(tree, fields, env.tick)
    finally:
        env.memory.held = held


ANALYSIS: Final = 16
"""Cost of analysing 16 characters, as `Env.tick` takes it."""
POSTINGS_BYTES: Final = 64
"""Memory of the terms of a text for each of its characters, at most about."""


def query_tree(env: Env, analyzer: Analyzer, query: Any) -> Query | None:
    """Return the tree of a query, which rows of one statement share."""
    key = query if type(query) is str else hashable(query, env.tick)
    known = analyzer.queries
    if key not in known:
        found = parse_query(query, analyzer)
        if len(known) >= QUERIES:
            known.clear()
        known[key] = found
    return known[key]


QUERIES: Final = 16
"""Query trees that an analyzer keeps."""


@function("search::any", "array", result="object")
def any_of(queries: list[Value]) -> dict[str, Value]:
    """Query that any query of an array fulfils."""
    return {"any": queries}


@function("search::all", "array", result="object")
def all_of(queries: list[Value]) -> dict[str, Value]:
    """Query that needs all queries of an array; those of `search::not` exclude."""
    return {"all": queries}


@function("search::not", "any", result="object")
def negated(query: Value) -> dict[str, Value]:
    """Query whose matches `search::all` excludes."""
    return {"not": query}


@function("search::phrase", "string", "int", result="object")
def phrase(text: str, slop: int = 0) -> dict[str, Value]:
    """Query for words in this order, with at most `slop` other words between them."""
    return {"phrase": [text, slop]}


@function("search::prefix", "string", result="object")
def prefix(text: str) -> dict[str, Value]:
    """Query for words that begin with a text; of several words the last one is a beginning."""
    return {"prefix": text}


@function("search::fuzzy", "string", "int", result="object")
def fuzzy(text: str, edits: int = 1) -> dict[str, Value]:
    """Query for words with at most 0 to 2 edits, the first character as it is."""
    return {"fuzzy": [text, edits]}
