"""Parser of DEFINE, DROP and REBUILD INDEX, and EXPLAIN."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any, Final

from language import tree
from language.lexer import INT
from language.parsing.places import DEFINES, DROPS, PlaceParser
from language.printing.expressions import print_path

GRAMMAR: Final = """
define_index = DEFINE INDEX [exists] name ON name FIELDS paths [UNIQUE | fulltext] [comment]
    [built] | DEFINE INDEX [exists] name ON name FIELDS path vector [comment] [built]
fulltext = (FULLTEXT | SEARCH) ANALYZER name [scoring] [BOOST path factor {"," path factor}]
    [HIGHLIGHTS]
vector = VECTOR DIMENSION int any(DISTANCE (COSINE | EUCLIDEAN | DOT) | TYPE (F32 | I8)
    | RECALL factor)
scoring = BM25 ["(" factor "," factor ")"]
factor = int | float | decimal
drop_index = DROP INDEX name ON name [reason]
rebuild = REBUILD INDEX name ON name [MEASURE over] [built]
check_index = CHECK INDEX name ON name
measure = MEASURE INDEX name ON name over
over = any(QUERIES int | WITH expression | K int | PROBES int | WHERE expression)
built = WAIT [timeout]
explain = EXPLAIN [ANALYZE] (select | update | delete_records)
"""


class IndexParser(PlaceParser):
    """Parser of index statements."""

    def define_index(self, at: int) -> tree.Statement:
        exists = self._exists()
        name, table = self.index_on_table()
        self.expect_word("FIELDS")
        fields = self.paths()
        unique = self.take_word("UNIQUE")
        text = vector = None
        if not unique and (self.take_word("FULLTEXT") or self.take_word("SEARCH")):
            text = self._full_text()
        # One vector is compared: a second field has no meaning.
        elif not unique and len(fields) == 1 and self.take_word("VECTOR"):
            vector = self._vector()
        comment = self._comment()
        wait, timeout = self._built()
        return tree.DefineIndex(
            name, table, fields, unique, exists, comment, wait, timeout, text, vector, at
        )

    def _full_text(self) -> tree.FullText:
        self.expect_word("ANALYZER")
        analyzer = self.name("analyzer")
        saturation, length = 1.2, 0.75
        boosts: list[tuple[str, float]] = []
        if self.take_word("BM25") and self.take_mark("("):
            saturation = self._factor()
            self.expect_mark(",")
            length = self._factor()
            self.expect_mark(")")
        if self.take_word("BOOST"):
            boosts.append((print_path(self.path()), self._factor()))
            while self.separated():
                boosts.append((print_path(self.path()), self._factor()))
                self.at_most(boosts, "boosts")
        # Written by users of SurrealDB: highlights need nothing kept.
        self.take_word("HIGHLIGHTS")
        return tree.FullText(analyzer, saturation, length, tuple(boosts))

    def _vector(self) -> tree.VectorIndex:
        self.expect_word("DIMENSION")
        dimension = self._whole()
        given: dict[str, Any] = {}
        while (word := self.word()) in ("DISTANCE", "TYPE", "RECALL") and word.lower() not in given:
            self.i += 1
            if word == "RECALL":
                given["recall"] = self._factor()
            else:
                given[word.lower()] = self._option(_DISTANCES if word == "DISTANCE" else _TYPES)
        return tree.VectorIndex(dimension, **given)

    def _option(self, words: tuple[str, ...]) -> str:
        word = self.word()
        if word not in words:
            self.unexpected(" or ".join(words))
        self.i += 1
        return str(word)

    def _factor(self) -> float:
        """Parse a plain number."""
        token = self.i
        found = self.operand()
        value = found.value if isinstance(found, tree.Constant) else None
        if not isinstance(value, int | float | Decimal) or isinstance(value, bool):
            self.i = token
            self.unexpected("a number")
        return float(value)

    def drop_index(self, at: int) -> tree.Statement:
        name, table = self.index_on_table()
        return tree.DropIndex(name, table, self._reason(), at)

    def rebuild(self) -> tree.Statement:
        at = self._begin_statement("REBUILD")
        self.expect_word("INDEX")
        name, table = self.index_on_table()
        over = self._over() if self.take_word("MEASURE") else None
        return tree.RebuildIndex(name, table, over, *self._built(), at)

    def check_index(self) -> tree.Statement:
        at = self._begin_statement("CHECK")
        self.expect_word("INDEX")
        return tree.CheckIndex(*self.index_on_table(), at)

    def measure(self) -> tree.Statement:
        at = self._begin_statement("MEASURE")
        self.expect_word("INDEX")
        name, table = self.index_on_table()
        return tree.MeasureIndex(name, table, self._over(), at)

    def _over(self) -> tree.MeasureOver:
        given: dict[str, Any] = {}
        while (word := self.word()) in _MEASURED and _MEASURED[word] not in given:
            self.i += 1
            is_number = word not in ("WITH", "WHERE")
            given[_MEASURED[word]] = self._whole() if is_number else self.expression()
        return tree.MeasureOver(**given)

    def _whole(self) -> int:
        if self.kinds[self.i] != INT:
            self.unexpected("a number")
        with self.placed(self.i):
            value = self.number(negative=False).value
        assert isinstance(value, int)
        return value

    def _built(self) -> tuple[bool, timedelta | None]:
        """Parse WAIT and its TIMEOUT."""
        return (True, self._timeout()) if self.take_word("WAIT") else (False, None)

    def explain(self) -> tree.Statement:
        at = self._begin_statement("EXPLAIN")
        analyze = self.take_word("ANALYZE")
        word = self.word()
        if word not in _EXPLAINED:
            self.unexpected("SELECT, UPDATE or DELETE")
        return tree.Explain(_EXPLAINED[word](self), analyze, at)


_EXPLAINED: Final[dict[str, Any]] = {
    "SELECT": IndexParser.select,
    "UPDATE": IndexParser.update,
    "DELETE": IndexParser.delete,
}
_DISTANCES: Final = ("COSINE", "EUCLIDEAN", "DOT")
_MEASURED: Final = {
    "QUERIES": "queries", "WITH": "vectors", "K": "k", "PROBES": "probes", "WHERE": "where",
}  # fmt: skip
_TYPES: Final = ("F32", "I8")
DEFINES["INDEX"] = IndexParser.define_index
DROPS["INDEX"] = IndexParser.drop_index
