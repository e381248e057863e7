"""Parser of DEFINE FIELD, ALTER and DROP FIELD, and ALTER TABLE."""

from __future__ import annotations

from typing import Final

from language import tree
from language.parsing.field_types import TypeParser
from language.parsing.places import ALTERS, DEFINES, DROPS, PlaceParser
from protocol import limits
from protocol.paths import Path

_CLAUSES: Final = ("DEFAULT", "VALUE", "ASSERT", "READONLY", "COMMENT", "UNCHECKED")


GRAMMAR: Final = """
define_field = DEFINE FIELD [exists] field ON name TYPE type
    any(DEFAULT expression | VALUE expression | ASSERT expression | READONLY | comment | UNCHECKED)
alter_field = ALTER FIELD field ON name SET (TYPE type | DEFAULT expression | VALUE expression
    | ASSERT expression | READONLY [NONE] | COMMENT (NONE | string))
drop_field = DROP FIELD field ON name
alter_table = ALTER TABLE name SET (SCHEMAFULL | SCHEMALESS | ON CHANGE NONE | on_change
    | COMMENT (NONE | string))
field = label {"." (label | "*") | "[" ("*" | string) "]"}
"""


class FieldParser(TypeParser, PlaceParser):
    """Parser of field statements."""

    def define_field(self, at: int) -> tree.Statement:
        exists = self._exists()
        path, table = self._field()
        self.expect_word("TYPE")
        kind = self.type()
        default = value = assertion = comment = None
        readonly = unchecked = False
        left = list(_CLAUSES)
        while (word := self.word()) in left:
            left.remove(word)
            self.i += 1
            if word == "DEFAULT":
                default = self.expression()
            elif word == "VALUE":
                value = self.expression()
            elif word == "ASSERT":
                assertion = self.expression()
            elif word == "READONLY":
                readonly = True
            elif word == "UNCHECKED":
                unchecked = True
            else:
                comment = self.string("COMMENT", limits.COMMENT_CHARACTERS)
        return tree.DefineField(
            path, table, kind, exists, default, value, assertion, readonly, comment, unchecked, at
        )

    def alter_field(self, at: int) -> tree.Statement:
        path, table = self._field()
        self.expect_word("SET")
        if self.take_word("TYPE"):
            return tree.AlterField(path, table, type=self.type(), at=at)
        if self.take_word("DEFAULT"):
            return tree.AlterField(path, table, default=self.expression(), at=at)
        if self.take_word("VALUE"):
            return tree.AlterField(path, table, value=self.expression(), at=at)
        if self.take_word("ASSERT"):
            return tree.AlterField(path, table, assertion=self.expression(), at=at)
        if self.take_word("READONLY"):
            return tree.AlterField(path, table, readonly=not self.take_word("NONE"), at=at)
        if self.take_word("COMMENT"):
            return tree.AlterField(path, table, comment=self._new_comment(), at=at)
        self.unexpected("TYPE, DEFAULT, VALUE, ASSERT, READONLY or COMMENT")

    def alter_table(self, at: int) -> tree.Statement:
        name = self.name("table")
        self.expect_word("SET")
        if self.take_word("SCHEMAFULL"):
            return tree.AlterTable(name, schemafull=True, at=at)
        if self.take_word("SCHEMALESS"):
            return tree.AlterTable(name, schemafull=False, at=at)
        if self.take_word("COMMENT"):
            return tree.AlterTable(name, comment=self._new_comment(), at=at)
        if self.take_word("ON", "CHANGE", "NONE"):
            return tree.AlterTable(name, on_change=tree.OnChange(None), at=at)
        if self.take_word("ON"):
            return tree.AlterTable(name, on_change=self.on_change(), at=at)
        self.unexpected("SCHEMAFULL, SCHEMALESS, ON CHANGE or COMMENT")

    def drop_field(self, at: int) -> tree.Statement:
        return tree.DropField(*self._field(), at)

    def _new_comment(self) -> str:
        if self.take_word("NONE"):
            return ""
        return self.string("COMMENT", limits.COMMENT_CHARACTERS)

    def _field(self) -> tuple[Path, str]:
        """Parse `path ON t`."""
        start = self.i
        path = self.path()
        if any(isinstance(step, int) for step in path):
            self.unexpected("a field's path: names, and `[*]` for every item", start)
        self.expect_word("ON")
        return path, self.name("table")


DEFINES["FIELD"] = FieldParser.define_field
ALTERS["FIELD"] = FieldParser.alter_field
ALTERS["TABLE"] = FieldParser.alter_table
DROPS["FIELD"] = FieldParser.drop_field
