"""`search::…` functions: analysis and matches of any text, and values of search queries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any, Final, NoReturn

from language.env import Env
from language.functions.table import check_array, check_string, function
from language.operators import hashable
from language.pieces import cost_of
from language.search.analysis import Analyzer, Postings
from language.search.fields import TextOf
from language.search.matching import matches as matched
from language.search.passages import MarkedText, Marks
from language.search.query import parse_query
from language.search.terms import Query
from protocol import limits, order
from protocol.errors import BadRequest, TooLarge, TypeRefused
from protocol.text import strings_of
from protocol.values import FEW, NONE, Value, paced, type_name


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


# --- rows that `@@` has found: compiled by `language.compile` -------------------------------------


@function("search::score", "any", result="number", env=True, fixed=False)
def score(env: Env, field: Any = None) -> NoReturn:
    """Score (BM25) of the row by all `@@` of WHERE, or by those over one field."""
    raise BadRequest("search::score is about the rows of a SELECT with `@@` in WHERE")


@function("search::highlight", "any", "object", result="any", env=True, fixed=False)
def highlight(env: Env, field: Any, options: dict[str, Any] | None = None) -> Any:
    """Text of a field as HTML, matches in `<b>…</b>`; options: `before`, `after`, `escape`."""
    marks = _marks("search::highlight", options or {}, ())

    with _analysed(env, field) as texts:
        found, size = [], 0
        for text in texts:
            spans = text.offsets()
            check_string(size + len(text.text) + len(spans) * len(marks.before + marks.after))
            found.append(text.highlight(spans, marks))
            size += len(found[-1])
            check_string(size)
    value = field.value
    if type(value) is not list:
        return found[0] if found else value
    shown = iter(found)
    return [next(shown) if type(one) is str else one for one in value]


@function("search::snippet", "any", "object", result="any", env=True, fixed=False)
def snippet(env: Env, field: Any, options: dict[str, Any] | None = None) -> Any:
    """Passage of a field with most different matches, marked; options: also `words`, 30."""
    given = options or {}
    marks = _marks("search::snippet", given, ("words",))
    words = given.get("words", 30)
    if type(words) is not int or not 1 <= words <= SNIPPET_WORDS:
        raise BadRequest(f"a snippet has 1 to {SNIPPET_WORDS} words")
    best: tuple[int, str] | None = None
    with _analysed(env, field) as texts:
        for text in texts:
            if best is None or text.worth > best[0]:
                best = text.worth, text.snippet(words, marks)
    return NONE if best is None else best[1]


@function("search::offsets", "any", result="array", env=True, fixed=False)
def offsets(env: Env, field: Any) -> list[Value]:
    """Places of the matches in a field: `start`, `end` in characters; in an array, also `item`."""
    found: list[Value] = []
    several = type(field.value) is list
    with _analysed(env, field) as texts:
        for number, text in enumerate(texts):
            for start, end in text.offsets():
                place: dict[str, Value] = {"start": start, "end": end}
                found.append({"item": number, **place} if several else place)
            check_array(len(found))
    return found


SNIPPET_WORDS: Final = 1_000
"""Most words of a snippet."""
_MARK: Final = 1_024
"""Most characters of a mark."""


@contextmanager
def _analysed(env: Env, field: TextOf) -> Iterator[Iterator[MarkedText]]:
    """Analyse the texts of a field, of which the memory is held meanwhile."""
    queries = env.text_queries(field.path)
    texts = strings_of(field.value)
    size = min(sum(map(len, texts)), limits.SEARCH_TEXT_CHARACTERS)
    env.tick(ANALYSIS * cost_of(size))
    env.memory.held += size * MARKED_BYTES
    try:
        yield (MarkedText(queries, text, env.tick) for text in texts)
    finally:
        env.memory.held -= size * MARKED_BYTES


def _marks(name: str, options: dict[str, Any], others: tuple[str, ...]) -> Marks:
    known = {"before": str, "after": str, "escape": bool, **dict.fromkeys(others, int)}
    for option, value in options.items():
        if option not in known:
            raise BadRequest(f"{name} has no option {option}: it has {', '.join(known)}")
        if type(value) is not known[option]:
            raise TypeRefused(
                f"{option} of {name} is of type {_NAMES[known[option]]}, not {type_name(value)}",
                found=type_name(value),
            )
    for mark in ("before", "after"):
        if len(options.get(mark, "")) > _MARK:
            raise TooLarge(f"a mark has at most {_MARK} characters", limit=_MARK)
    return Marks(
        options.get("before", "<b>"), options.get("after", "</b>"), options.get("escape", True)
    )


_NAMES: Final[dict[Any, str]] = {str: "string", bool: "bool", int: "int"}


# --- fusion ---------------------------------------------------------------------------------------


@function("search::rrf", "array", "object", result="array", env=True)
def rrf(env: Env, lists: list[Any], options: dict[str, Any] | None = None) -> list[Value]:
    """Rows of several lists by `score`, the sum of 1 / (k + rank); options: k, limit, weights."""
    k, limit, weights = _fusion(options or {}, len(lists))
    scores: dict[Any, float] = {}
    rows: dict[Any, dict[str, Any]] = {}
    for rank_of, weight in zip(lists, weights, strict=True):
        if type(rank_of) is not list:
            raise TypeRefused(
                f"search::rrf takes arrays of rows, not {type_name(rank_of)}",
                found=type_name(rank_of),
            )
        met: set[Any] = set()
        for rank, row in enumerate(paced(rank_of, env.tick), 1):
            if type(row) is not dict or "id" not in row:
                raise TypeRefused(
                    "search::rrf takes rows with an id: SELECT id, …", found=type_name(row)
                )
            key = hashable(row["id"], env.tick)
            if key not in met:
                met.add(key)
                rows.setdefault(key, row)
                scores[key] = scores.get(key, 0.0) + weight / (k + rank)
    check_array(len(scores))
    return _fused(env, rows, scores, limit)


def _fused(
    env: Env, rows: dict[Any, dict[str, Any]], scores: dict[Any, float], limit: int | None
) -> list[Value]:
    """Return rows by their scores, then by their ids."""
    env.tick(cost_of(16 * len(rows)))
    order_of = {key: (-scores[key], order.encode(rows[key]["id"])) for key in paced(rows, env.tick)}
    ranked = sorted(rows, key=order_of.__getitem__)
    return [{**rows[key], "score": scores[key]} for key in paced(ranked[:limit], env.tick)]


def _fusion(options: dict[str, Any], lists: int) -> tuple[float, int | None, list[float]]:
    for name in options:
        if name not in ("k", "limit", "weights"):
            raise BadRequest(f"search::rrf has no option {name}: it has k, limit, weights")
    k, limit = options.get("k", 60), options.get("limit")
    weights = options.get("weights", [1] * lists)
    if not _is_number(k) or not 0 < k <= limits.BOOST:
        raise BadRequest(f"k of search::rrf is a number above 0, at most {limits.BOOST}")
    if limit is not None and (type(limit) is not int or limit < 0):
        raise BadRequest("limit of search::rrf is an int of 0 or more")
    fits = type(weights) is list and len(weights) == lists
    if not fits or not all(_is_number(one) and 0 <= one <= limits.BOOST for one in weights):
        raise BadRequest(
            f"weights of search::rrf are numbers from 0 to {limits.BOOST}, one for each list"
        )
    return float(k), limit, list(map(float, weights))


def _is_number(value: Any) -> bool:
    return type(value) in (int, float, Decimal) and value == value


ANALYSIS: Final = 16
"""Cost of analysing 16 characters, as `Env.tick` takes it."""
MARKED_BYTES: Final = 192
"""Memory of the words of a text that is marked, for each of its characters, at most about."""
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


@function("search::boost", "any", "number", result="object")
def boost(query: Value, by: Any) -> dict[str, Value]:
    """Query whose share of a score is multiplied."""
    return {"boost": [query, by]}
