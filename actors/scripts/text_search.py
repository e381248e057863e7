"""FULLTEXT indexes in statements: `@@` on one record, the records that it leads to, and scores.

`@@` is a predicate of the record, the query and the analyzer of the index over its fields. The
index itself only makes it fast (`text_index.py`): records with a fresh marker are read, whatever
the segments have of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from actors.execution.fiber import Fiber
from actors.scripts.arrays import load_arrays
from language import tree
from language.env import Env
from language.fixed import is_fixed
from language.functions.search import query_tree, text_matches
from language.printing.expressions import print_path
from language.search.analysis import Analyzer
from language.search.compiled import analyzer_of
from language.search.fields import matched_paths
from language.search.terms import AllOf, AnyOf, Boost, Leaf, Phrase, Prefix, Query, Term
from protocol.errors import BadRequest
from protocol.paths import Path
from protocol.values import Value
from storage.catalog.tables import Table
from storage.formats.keys import Pair
from storage.indexes.entries import FAILED, Index
from storage.txn.transaction import Transaction

if TYPE_CHECKING:
    from actors.scripts.text_index import TextIndex


class TextScope:
    """Tables whose rows a statement reads, with the FULLTEXT indexes that it has used.

    :param fiber: fiber of the statement
    :param evaluate: returns the value of an expression outside any row
    :param find_table: returns a table that the caller may read
    :param scored: the `@@` that scores and highlights are about
    """

    def __init__(
        self,
        env: Env,
        tx: Transaction,
        fiber: Fiber,
        evaluate: Callable[[Any], Any],
        find_table: Callable[[str], Table],
        scored: tuple[tree.Binary, ...],
    ) -> None:
        self._env, self._tx, self._fiber = env, tx, fiber
        self._evaluate, self._find_table = evaluate, find_table
        self.scored = scored
        self._tables: list[str] = []
        self._known: dict[tuple[Path, ...], tuple[Index, Analyzer]] = {}
        self._searches: dict[tuple[str, int], TextIndex] = {}
        """Searches of scores, by their table and the identity of their `@@`."""

    def add(self, table: str) -> None:
        """Add a table that is met while rows are read."""
        if table not in self._tables:
            self._tables.append(table)
            self._known.clear()

    # --- expressions ------------------------------------------------------------------------------

    def match(self, paths: tuple[Path, ...], values: list[Any], query: Any) -> bool:
        """Evaluate `@@` for the values of a record's fields; see `Env.text_match`."""
        return text_matches(self._env, self._analyzer(paths), values, query)

    def score(self, table: Table, id: bytes, path: Path | None) -> float:
        """Return the score of a record; see `Env.text_score`. :param id: encoded"""
        found = 0.0
        for node in self.scored:
            if path is None or path in matched_paths(node.left):
                found += self._search_of(table, node).score(id, path)
        return found

    def queries(self, path: Path) -> list[tuple[Analyzer, Query]]:
        """Return the queries over a field; see `Env.text_queries`."""
        found: list[tuple[Analyzer, Query]] = []
        for node in self.scored:
            paths = matched_paths(node.left)
            if path in paths:
                analyzer = self._analyzer(paths)
                query = query_tree(self._env, analyzer, self._query(node))
                if query is not None:
                    found.append((analyzer, query))
        return found

    def _query(self, node: tree.Binary) -> Any:
        """Return the value of the query of an `@@`. :raises BadRequest: it depends on the row"""
        if not is_fixed(node.right):
            raise BadRequest("a query that depends on the row has no scores and highlights")
        return self._evaluate(node.right)

    def _analyzer(self, paths: tuple[Path, ...]) -> Analyzer:
        known = self._known.get(paths) or self._resolved(paths)
        return known[1]

    def _resolved(self, paths: tuple[Path, ...]) -> tuple[Index, Analyzer]:
        found: Index | None = None
        for name in self._tables:
            index = index_of(self._find_table(name), paths)
            if found is not None and found.text != index.text:
                raise BadRequest(
                    "the tables of this statement have other analyzers for these fields"
                )
            found = index
        if found is None:
            raise no_table()
        assert found.text is not None
        self._known[paths] = found, analyzer_of(found.text.definition)
        return self._known[paths]

    # --- searches ---------------------------------------------------------------------------------

    def search(self, table: Table, index: Index, value: Any) -> TextIndex:
        """Return a search of an index for a query."""
        load_arrays(self._fiber)
        from actors.scripts.text_index import TextIndex

        assert index.text is not None
        query = query_tree(self._env, analyzer_of(index.text.definition), value)
        return TextIndex(self._tx, self._env, table, index, query)

    def _search_of(self, table: Table, node: tree.Binary) -> TextIndex:
        """Return the search of an `@@` in a table. :raises BadRequest: the table has no index"""
        key = table.name, id(node)
        found = self._searches.get(key)
        if found is None:
            query = self._query(node)
            index = index_of(table, matched_paths(node.left))
            found = self._searches[key] = self.search(table, index, query)
        return found

    def access(self, table: Table, node: tree.Binary, value: Any) -> TextAccess | str:
        """Return the records that a condition `fields @@ query` leads to; or the reason why a scan
        has to find them.

        :param value: of the query
        :raises BadRequest: no FULLTEXT index is over these fields
        :raises Refusal: the value is no query
        """
        index = index_of(table, matched_paths(node.left))
        if not index.is_complete or index.state == FAILED:
            return f"its state is {index.state}"
        search = self.search(table, index, value)
        if not search.has_few_fresh():
            return "too many records have changed since its last fold"
        # A score of the same rows has the same search.
        if node in self.scored:
            self._searches[table.name, id(node)] = search
        return TextAccess(search, node)


def no_table() -> BadRequest:
    """Return the refusal of an `@@` outside the rows of a table."""
    return BadRequest("`@@` takes fields of a table: search::matches takes any text")


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
