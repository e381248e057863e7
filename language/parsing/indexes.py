"""Parser of DEFINE, DROP and REBUILD INDEX, and EXPLAIN."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from language import tree
from language.parsing.places import DEFINES, DROPS, PlaceParser

GRAMMAR: Final = """
define_index = DEFINE INDEX [exists] name ON name FIELDS paths [UNIQUE] [comment] [built]
drop_index = DROP INDEX name ON name [reason]
rebuild = REBUILD INDEX name ON name [built]
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
        comment = self._comment()
        return tree.DefineIndex(name, table, fields, unique, exists, comment, *self._built(), at)

    def drop_index(self, at: int) -> tree.Statement:
        name, table = self.index_on_table()
        return tree.DropIndex(name, table, self._reason(), at)

    def rebuild(self) -> tree.Statement:
        at = self._begin_statement("REBUILD")
        self.expect_word("INDEX")
        return tree.RebuildIndex(*self.index_on_table(), *self._built(), at)

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
DEFINES["INDEX"] = IndexParser.define_index
DROPS["INDEX"] = IndexParser.drop_index
