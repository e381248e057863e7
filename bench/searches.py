"""Rows about full-text search, beside SQLite FTS5 and tantivy. Figures are processor time."""

from __future__ import annotations

import importlib.util
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from bench.articles import articles, source
from bench.figures import NODE, Measure, Measurement, in_turns
from bench.nodes import NodeProcess, define_place
from bench.settings import Settings

ARTICLES: Final = 126_240
BATCH: Final = 1_000
QUERIES: Final = 50
"""Searches of one figure."""
TIMEOUT: Final = 600.0
SEARCHES: Final = {
    "search-rare": ("zymology", "≤ 20× tantivy, ≤ 8× FTS5"),
    "search-common": ("see", "≤ 2× tantivy, ≤ 1/20 FTS5"),
    "search-all": ("copper tin", "≤ 8× tantivy, ≤ 2× FTS5"),
    "search-any": ("copper OR tin OR zinc", "≤ 15× tantivy, ≤ 2/3 FTS5"),
    "search-phrase": ('"one of the"', "≤ 12× tantivy, ≤ 0.8 FTS5"),
}
NAMES: Final = (*SEARCHES, "search-insert", "search-build")
TOP: Final = (
    "SELECT id, search::score() AS score FROM article WHERE body @@ $query"
    " ORDER BY score DESC LIMIT 10"
)


class Peer(Protocol):
    """Another program with a full-text index, in this process."""

    name: str

    def build(self, rows: list[tuple[str, str]]) -> None:
        """Make the index."""

    def search(self, query: str) -> int:
        """Return the number of the best ten matches."""

    def insert(self, text: str) -> None:
        """Add an article, and make it searchable."""


class Fts5:
    """SQLite, unsynced, with the stemmer of its own."""

    name = "SQLite FTS5"

    def __init__(self, directory: Path) -> None:
        self._connection = sqlite3.connect(directory / "fts5", isolation_level=None)
        self._connection.execute("PRAGMA synchronous = OFF")

    def build(self, rows: list[tuple[str, str]]) -> None:
        """Make the index."""
        run = self._connection.execute
        run("DROP TABLE IF EXISTS article")
        run("CREATE VIRTUAL TABLE article USING fts5(body, tokenize = 'porter unicode61')")
        run("BEGIN")
        self._connection.executemany(
            "INSERT INTO article (body) VALUES (?)", ((text,) for _, text in rows)
        )
        run("COMMIT")

    def search(self, query: str) -> int:
        """Return the number of the best ten matches."""
        found = self._connection.execute(
            "SELECT rowid, rank FROM article WHERE article MATCH ? ORDER BY rank LIMIT 10", (query,)
        )
        return len(found.fetchall())

    def insert(self, text: str) -> None:
        """Add an article."""
        self._connection.execute("INSERT INTO article (body) VALUES (?)", (text,))


class Tantivy:
    """tantivy on disk, with one thread."""

    name = "tantivy"

    def __init__(self, directory: Path) -> None:
        import tantivy

        (directory / "tantivy").mkdir()
        schema = tantivy.SchemaBuilder()
        schema.add_text_field("body", stored=False, tokenizer_name="en_stem")
        self._document = tantivy.Document
        self._index = tantivy.Index(schema.build(), str(directory / "tantivy"))
        self._writer = self._index.writer(64_000_000, 1)

    def build(self, rows: list[tuple[str, str]]) -> None:
        """Make the index."""
        self._writer.delete_all_documents()
        for _, text in rows:
            self._writer.add_document(self._document(body=text))
        self._writer.commit()
        self._index.reload()

    def search(self, query: str) -> int:
        """Return the number of the best ten matches."""
        joined = query if "OR" in query or '"' in query else query.replace(" ", " AND ")
        parsed = self._index.parse_query(joined, ["body"])
        return len(self._index.searcher().search(parsed, 10).hits)

    def insert(self, text: str) -> None:
        """Add an article, commit and load it."""
        self._writer.add_document(self._document(body=text))
        self._writer.commit()
        self._index.reload()


def rows(settings: Settings, wanted: Callable[[str], bool]) -> Iterator[Measurement]:
    """Measure the wanted rows, and yield each as soon as it is done."""
    if any(map(wanted, NAMES)):
        with ExitStack() as held:
            yield from _Searches(settings, held).rows(wanted)


class _Searches:
    """A node and the peers, each with the same articles."""

    def __init__(self, settings: Settings, held: ExitStack) -> None:
        self._settings = settings
        self._articles = articles(settings.scaled(ARTICLES))
        self._node = held.enter_context(NodeProcess(settings.directory / "searches"))
        self._client = held.enter_context(self._node.client())
        define_place(self._client, "article")
        self._query(
            "DEFINE ANALYZER en TOKENIZERS class FILTERS lowercase, snowball(english);"
            "DEFINE INDEX text ON article FIELDS body FULLTEXT ANALYZER en"
        )
        for start in range(0, len(self._articles), BATCH):
            part = [
                {"id": start + number, "word": word, "body": text}
                for number, (word, text) in enumerate(self._articles[start : start + BATCH])
            ]
            self._query("INSERT INTO article $rows RETURN NONE", {"rows": part})
        directory = settings.directory / "search-peers"
        directory.mkdir()
        self._peers: list[Peer] = [Fts5(directory)]
        self._gaps: list[str] = []
        if importlib.util.find_spec("tantivy") is None:
            self._gaps.append("tantivy: not installed (pip install tantivy)")
        else:
            self._peers.append(Tantivy(directory))

    def _query(self, statement: str, params: dict[str, Any] | None = None) -> Any:
        return self._client.query(statement, params or {}, timeout=TIMEOUT)

    def rows(self, wanted: Callable[[str], bool]) -> Iterator[Measurement]:
        """Yield the wanted rows: the build is always made, searches need it."""
        build = self._build()
        if wanted("search-build"):
            yield build
        for name, (query, goal) in SEARCHES.items():
            if wanted(name):
                yield self._search(name, query, goal)
        if wanted("search-insert"):
            yield self._insert()

    def _build(self) -> Measurement:
        row = self._row("search-build", "index of all articles", "s", "≤ 2×")
        began = self._node.cpu_seconds()
        self._query("REBUILD INDEX text ON article")
        self._folded()
        row.sides[NODE] = [self._node.cpu_seconds() - began]
        for peer in self._peers:
            start = time.process_time()
            peer.build(self._articles)
            row.sides[peer.name] = [time.process_time() - start]
        return row

    def _folded(self) -> None:
        while True:
            info = self._query("INFO FOR INDEX text ON article")
            if info["state"] == "ready" and not info["fresh"]["records"]:
                return
            time.sleep(0.2)

    def _search(self, name: str, query: str, goal: str) -> Measurement:
        row = self._row(name, f"the ten best for {query}", "ms", goal)
        measures: dict[str, Measure] = {NODE: partial(self._ask_node, query)}
        for peer in self._peers:
            measures[peer.name] = partial(_ask_peer, peer, query)
        row.sides = in_turns(self._settings.rounds, measures)
        return row

    def _ask_node(self, query: str) -> float:
        began = self._node.cpu_seconds()
        for _ in range(QUERIES):
            self._query(TOP, {"query": query})
        return (self._node.cpu_seconds() - began) * 1000 / QUERIES

    def _insert(self) -> Measurement:
        row = self._row(
            "search-insert", "an article, found at once", "ms", "≤ 1/50 tantivy; 1.2× no index"
        )
        text = self._articles[0][1]

        def node() -> float:
            began = self._node.cpu_seconds()
            for _ in range(QUERIES):
                self._query("CREATE article SET body = $text RETURN NONE", {"text": text})
            return (self._node.cpu_seconds() - began) * 1000 / QUERIES

        def other(peer: Peer) -> float:
            start = time.process_time()
            for _ in range(QUERIES):
                peer.insert(text)
            return (time.process_time() - start) * 1000 / QUERIES

        row.sides = in_turns(
            self._settings.rounds,
            {NODE: node, **{peer.name: partial(other, peer) for peer in self._peers}},
        )
        return row

    def _row(self, name: str, work: str, unit: str, goal: str) -> Measurement:
        work = f"{work}; {len(self._articles):,} articles"
        notes = [f"processor time; articles: {source()}"]
        return Measurement(name, work, unit, "less", goal, gaps=list(self._gaps), notes=notes)


def _ask_peer(peer: Peer, query: str) -> float:
    start = time.process_time()
    for _ in range(QUERIES):
        peer.search(query)
    return (time.process_time() - start) * 1000 / QUERIES
