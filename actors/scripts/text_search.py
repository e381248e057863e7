"""FULLTEXT indexes in statements: `@@` on one record, the records that it leads to, and scores.

`@@` is a predicate of the record, the query and the analyzer of the index over its fields. The
index itself only makes it fast (`text_index.py`): records with a fresh marker are read, whatever
the segments have of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from actors.scripts.arrays import load_arrays
from language import tree
from language.functions.search import query_tree, text_matches
from language.planner import is_fixed
from language.printing import print_path
from language.search.analysis import Analyzer
from language.search.compiled import analyzer_of
from language.search.fields import matched_paths
from language.search.terms import AllOf, AnyOf, Boost, Leaf, Phrase, Prefix, Query, Term
from protocol import order
from protocol.errors import BadRequest
from protocol.paths import Path
from protocol.rights import READ
from protocol.values import RecordId, Value
from storage.catalog.tables import Table
from storage.formats.keys import Pair
from storage.indexes.entries import FAILED, Index
from storage.records import records

if TYPE_CHECKING:
    from actors.scripts.execution import Execution
    from actors.scripts.text_index import TextIndex

FRESH_MOST: Final = 20_000
"""Most marked records that are read beside an index; with more, a scan reads the table."""
_FRESH_PART: Final = 2
"""A scan is as good if more than this part of the table is marked."""


@dataclass(slots=True)
class TextScope:
    """Tables whose rows a statement reads, with the FULLTEXT indexes that it has used.

    :ivar scored: the `@@` that scores and highlights are about
    """

    tables: list[str]
    scored: tuple[tree.Binary, ...] = ()
    known: dict[tuple[Path, ...], tuple[Index, Analyzer]] = field(default_factory=dict)
    searches: dict[tuple[str, int], TextIndex] = field(default_factory=dict)
    """Searches of scores, by their table and the identity of their `@@`."""

    def add(self, table: str) -> None:
        """Add a table that is met while rows are read."""
        if table not in self.tables:
            self.tables.append(table)
            self.known.clear()

    def search(self, run: Execution, table: Table, node: tree.Binary) -> TextIndex:
        """Return the search of an `@@` in a table. :raises BadRequest: the table has no index"""
        key = table.name, id(node)
        found = self.searches.get(key)
        if found is None:
            if not is_fixed(node.right):
                raise BadRequest("a query that depends on the row has no scores and highlights")
            index = index_of(table, matched_paths(node.left))
            found = self.searches[key] = _search(run, table, index, run.evaluate(node.right))
        return found


def _search(run: Execution, table: Table, index: Index, value: Any) -> TextIndex:
    load_arrays(run)
    from actors.scripts.text_index import TextIndex

    assert index.text is not None
    query = query_tree(run, analyzer_of(index.text.definition), value)
    return TextIndex(run, table, index, query)


def match(
    run: Execution, scope: TextScope | None, paths: tuple[Path, ...], values: list[Any], query: Any
) -> bool:
    """Evaluate `@@` for the values of a record's fields; see `Env.text_match`."""
    return text_matches(run, _known(run, scope, paths)[1], values, query)


def score(run: Execution, scope: TextScope | None, record: Any, path: Path | None) -> float:
    """Return the score of a row; see `Env.text_score`."""
    if scope is None or type(record) is not RecordId:
        raise BadRequest("search::score is about records that `@@` has found, and this is none")
    table = run.table(record.table, READ)
    id, found = order.encode(record.id), 0.0
    for node in scope.scored:
        if path is None or path in matched_paths(node.left):
            found += scope.search(run, table, node).score(id, path)
    return found


def queries(run: Execution, scope: TextScope | None, path: Path) -> list[tuple[Analyzer, Query]]:
    """Return the queries over a field; see `Env.text_queries`."""
    found: list[tuple[Analyzer, Query]] = []
    for node in scope.scored if scope is not None else ():
        paths = matched_paths(node.left)
        if path in paths:
            if not is_fixed(node.right):
                raise BadRequest("a query that depends on the row has no scores and highlights")
            analyzer = _known(run, scope, paths)[1]
            query = query_tree(run, analyzer, run.evaluate(node.right))
            if query is not None:
                found.append((analyzer, query))
    return found


def _known(
    run: Execution, scope: TextScope | None, paths: tuple[Path, ...]
) -> tuple[Index, Analyzer]:
    known = None if scope is None else scope.known.get(paths)
    return _resolved(run, scope, paths) if known is None else known


def _resolved(
    run: Execution, scope: TextScope | None, paths: tuple[Path, ...]
) -> tuple[Index, Analyzer]:
    found: Index | None = None
    for name in scope.tables if scope is not None else ():
        index = index_of(run.table(name, READ), paths)
        if found is not None and found.text != index.text:
            raise BadRequest("the tables of this statement have other analyzers for these fields")
        found = index
    if found is None or scope is None:
        raise BadRequest("`@@` takes fields of a table: search::matches takes any text")
    assert found.text is not None
    scope.known[paths] = found, analyzer_of(found.text.definition)
    return scope.known[paths]


def index_of(table: Table, paths: tuple[Path, ...]) -> Index:
    """Return the FULLTEXT index over some fields. :raises BadRequest: there is none"""
    for index in table.indexes:
        if index.text is not None and set(index.paths) == set(paths):
            return index
    fields = ", ".join(map(print_path, paths))
    raise BadRequest(
        f"`@@` takes the fields of a FULLTEXT index of {table.name}, and there is none over"
        f" {fields}: DEFINE INDEX … ON {table.name} FIELDS {fields} FULLTEXT ANALYZER …"
    )


def analyzer_for(table: Table, paths: tuple[Path, ...]) -> Analyzer:
    """Return the analyzer of the FULLTEXT index over some fields. :raises BadRequest: none is"""
    text = index_of(table, paths).text
    assert text is not None
    return analyzer_of(text.definition)


# --- the access path ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TextAccess:
    """Records that a FULLTEXT index leads to, for one condition."""

    search: TextIndex
    node: tree.Binary

    @property
    def index(self) -> Index:
        """Index that is read."""
        return self.search.index

    def matching(self, pairs: list[Pair]) -> list[Pair]:
        """Return the records that match. :param pairs: records that the index leads to"""
        return self.search.matching(pairs)

    def described(self) -> dict[str, Value]:
        """Describe it for EXPLAIN."""
        query = self.search.query
        return {
            "terms": [] if query is None else list(self._terms(query, gone=False)),
            "segments": self.search.segment_count,
            "fresh": self.search.fresh_count,
        }

    def _terms(self, query: Query, *, gone: bool) -> Iterator[Value]:
        if isinstance(query, AllOf | AnyOf):
            for part in query.parts:
                yield from self._terms(part, gone=gone)
            for part in query.without if isinstance(query, AllOf) else ():
                yield from self._terms(part, gone=True)
        elif isinstance(query, Boost):
            yield from self._terms(query.of, gone=gone)
        else:
            told: dict[str, Value] = {
                "term": _shown(query),
                "records": self.search.segment_records(query),
            }
            yield {**told, "not": True} if gone else told


def _shown(leaf: Leaf) -> str:
    if isinstance(leaf, Phrase):
        return " ".join(term for _, term in leaf.parts)
    if isinstance(leaf, Term):
        return leaf.term
    return f"{leaf.start}*" if isinstance(leaf, Prefix) else f"{leaf.term}~{leaf.edits}"


def text_access(run: Execution, table: Table, node: tree.Binary, value: Any) -> TextAccess | str:
    """Return the records that a condition `fields @@ query` leads to; or the reason why a scan has
    to find them.

    :param value: of the query
    :raises BadRequest: no FULLTEXT index is over these fields
    :raises Refusal: the value is no query
    """
    index = index_of(table, matched_paths(node.left))
    if not index.is_complete or index.state == FAILED:
        return f"its state is {index.state}"
    most = max(records.about(run.transaction, table) // _FRESH_PART, 64)
    search = _search(run, table, index, value)
    if not search.has_few_fresh(min(most, FRESH_MOST)):
        return "too many records have changed since its last fold"
    found = TextAccess(search, node)
    # A score of the same rows has the same search.
    if run.texts is not None and node in run.texts.scored:
        run.texts.searches[table.name, id(node)] = found.search
    return found
