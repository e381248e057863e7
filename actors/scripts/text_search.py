"""FULLTEXT indexes in statements: `@@` on one record, and the records that an index leads to.

`@@` is a predicate of the record, the query and the analyzer of the index over its fields. The
index itself only makes it fast: it leads to all records that match, and perhaps to more, which the
predicate sorts out. Records with a fresh marker are read, whatever the segments have of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from language import tree
from language.functions.search import query_tree, text_matches, tree_matches
from language.printing import print_path
from language.search.analysis import Analyzer
from language.search.candidates import candidates, has_phrase
from language.search.compiled import analyzer_of, digest_of
from language.search.fields import matched_paths
from language.search.terms import AllOf, AnyOf, Leaf, Phrase, Prefix, Query, Term
from protocol.errors import BadRequest
from protocol.paths import Path
from protocol.rights import READ
from protocol.values import Value
from storage.catalog.tables import Table
from storage.formats import keys
from storage.formats.keys import Pair
from storage.indexes.entries import FAILED, Index, IndexedFields
from storage.indexes.text_markers import TextMarkers
from storage.records import records
from storage.search import segments

if TYPE_CHECKING:
    from actors.scripts.execution import Execution

FRESH_MOST: Final = 20_000
"""Most marked records that are read beside an index; with more, a scan reads the table."""
_FRESH_PART: Final = 2
"""A scan is as good if more than this part of the table is marked."""


@dataclass(slots=True)
class TextScope:
    """Tables whose rows a statement reads, with the FULLTEXT indexes that it has used."""

    tables: list[str]
    known: dict[tuple[Path, ...], tuple[Index, Analyzer]] = field(default_factory=dict)

    def add(self, table: str) -> None:
        """Add a table that is met while rows are read."""
        if table not in self.tables:
            self.tables.append(table)
            self.known.clear()


def match(
    run: Execution, scope: TextScope | None, paths: tuple[Path, ...], values: list[Any], query: Any
) -> bool:
    """Evaluate `@@` for the values of a record's fields; see `Env.text_match`."""
    known = None if scope is None else scope.known.get(paths)
    if known is None:
        known = _resolved(run, scope, paths)
    return text_matches(run, known[1], values, query)


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

    index: Index
    query: Query | None
    ids: list[bytes]
    unsure: frozenset[bytes]
    """Those among them that may not match: their records decide."""
    segments: tuple[segments.Segment, ...]
    fresh: int

    def matching(self, run: Execution, pairs: list[Pair]) -> list[Pair]:
        """Return the records that match. :param pairs: records of `ids`"""
        if not self.unsure or self.query is None:
            return pairs
        assert self.index.text is not None
        analyzer = analyzer_of(self.index.text.definition)
        fields = IndexedFields((self.index,))
        markers, kept = TextMarkers(self.index, fields.heads), []
        for key, raw in pairs:
            if key[keys.RECORD_PREFIX_BYTES :] in self.unsure:
                values: list[Any] = list(markers.texts(fields.of_packed(raw)))
                if not tree_matches(run, analyzer, values, self.query):
                    run.count_read(1)
                    continue
            kept.append((key, raw))
        return kept

    def described(self, run: Execution) -> dict[str, Value]:
        """Describe it for EXPLAIN."""
        terms = [] if self.query is None else list(self._terms(run, self.query, gone=False))
        return {
            "index": self.index.name,
            "terms": terms,
            "segments": len(self.segments),
            "fresh": self.fresh,
        }

    def _terms(self, run: Execution, query: Query, *, gone: bool) -> Iterator[Value]:
        if isinstance(query, AllOf | AnyOf):
            for part in query.parts:
                yield from self._terms(run, part, gone=gone)
            for part in query.without if isinstance(query, AllOf) else ():
                yield from self._terms(run, part, gone=True)
        else:
            count = sum(
                _live(one, candidates(query, one, len(self.index.paths), run.tick))
                for one in self.segments
            )
            told: dict[str, Value] = {"term": _shown(query), "records": count}
            yield {**told, "not": True} if gone else told


def _live(segment: segments.Segment, numbers: frozenset[int]) -> int:
    deleted = segment.head.deleted
    return sum(not deleted >> number & 1 for number in numbers)


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
    assert index.text is not None
    tx, prefix = run.transaction, index.entries
    query = query_tree(run, analyzer_of(index.text.definition), value)
    if query is None:
        return TextAccess(index, None, [], frozenset(), (), 0)
    fresh: set[bytes] = set()
    most = max(records.about(tx, table) // _FRESH_PART, 64)
    for ids in segments.fresh_ids(tx.scan, prefix):
        fresh.update(ids)
        if len(fresh) > FRESH_MOST or len(fresh) > most:
            return "too many records have changed since its last fold"
        run.tick()
    digest = digest_of(index.text.definition)
    known = tuple(segments.of_index(tx, prefix))
    found, exact = list(fresh), not has_phrase(query)
    unsure = set(fresh)
    for segment in known:
        run.tick()
        # Terms of another analyzer say nothing: each of its records is looked at.
        numbers: frozenset[int] | range = range(segment.records)
        is_sure = exact and segment.head.digest == digest
        if segment.head.digest == digest:
            numbers = candidates(query, segment, len(index.paths), run.tick)
        for number, id in enumerate(segment.live_ids(numbers)):
            if id not in fresh:
                found.append(id)
                if not is_sure:
                    unsure.add(id)
            if number % 1024 == 1023:
                run.tick()
    return TextAccess(index, query, found, frozenset(unsure), known, len(fresh))
