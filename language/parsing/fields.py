"""Parser of field types, DEFINE FIELD, ALTER and DROP FIELD, and ALTER TABLE."""

from __future__ import annotations

from typing import Final, get_args

from language import tree
from language.lexer import DURATION, FLOAT, INT, NAME, PREFIXED, STRING
from language.parsing.places import ALTERS, DEFINES, DROPS, PlaceParser
from protocol import limits
from protocol.errors import NumberTooLarge
from protocol.paths import Path
from protocol.values import Value

KINDS: Final = frozenset(get_args(tree.Kind))
_TYPE: Final = "a type"
_MEMBERS: Final = 1_000
"""Maximum number of members of a union: a list of all existing words is data, not a type."""
_CONSTANTS: Final = {"TRUE": True, "FALSE": False, "NULL": None}
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
type = member {"|" member}
member = kind | "option" "<" type ">" | "array" ["<" type ["," int] ">"]
    | "record" ["<" name {"|" name} ">"] | ["-"] number | string | bytes | datetime | uuid
    | TRUE | FALSE | NULL
"""


class FieldParser(PlaceParser):
    """Parser of field statements."""

    # --- types ------------------------------------------------------------------------------------

    def type(self) -> tree.FieldType:
        """Parse a type with its alternatives."""
        members = [self._member()]
        while self.take_mark("|"):
            members.append(self._member())
            self.fill()
            if len(members) > _MEMBERS:
                self.unexpected(f"at most {_MEMBERS} alternatives")
        return members[0] if len(members) == 1 else tree.UnionType(tuple(members))

    def _member(self) -> tree.FieldType:
        kind, text, word = self.kinds[self.i], self.texts[self.i], self.word()
        if kind in (STRING, INT, FLOAT, DURATION, PREFIXED) or text == "-":
            return tree.LiteralType(self._literal())
        if kind != NAME:
            self.unexpected(_TYPE)
        self.i += 1
        if word in _CONSTANTS:
            return tree.LiteralType(_CONSTANTS[word])
        if word == "OPTION":
            return tree.OptionType(self._inner())
        if word == "ARRAY":
            return self._array_type()
        if word == "RECORD":
            return self._record_type()
        if word.lower() not in KINDS:
            self.unexpected(f"{_TYPE}: {', '.join(sorted(KINDS))}, option, array or record",
                            self.i - 1)  # fmt: skip
        return tree.PlainType(word.lower())  # type: ignore[arg-type]

    def _literal(self) -> Value:
        negative = self.take_mark("-")
        kind = self.kinds[self.i]
        if kind in (INT, FLOAT, DURATION):
            return self.number(negative).value
        if negative or kind not in (STRING, PREFIXED) or self.texts[self.i][0] == "m":
            self.unexpected(_TYPE)
        found = self._primary()
        assert isinstance(found, tree.Constant)
        return found.value

    def _inner(self) -> tree.FieldType:
        self.expect_mark("<")
        self.enter()
        found = self.type()
        self.leave()
        self.expect_mark(">", "`|` or `>`")
        return found

    def _array_type(self) -> tree.FieldType:
        if not self.take_mark("<"):
            return tree.ArrayType(tree.PlainType("any"))
        self.enter()
        of, most = self.type(), None
        if self.take_mark(","):
            if self.kinds[self.i] != INT:
                self.unexpected("the maximum number of items")
            with self.placed(self.i):
                number = self.number(negative=False).value
                assert isinstance(number, int)
                most = number
                if most > limits.ELEMENTS:
                    raise NumberTooLarge(f"an array has at most {limits.ELEMENTS} items")
        self.leave()
        self.expect_mark(">", "`,`, `|` or `>`")
        return tree.ArrayType(of, most)

    def _record_type(self) -> tree.FieldType:
        if not self.take_mark("<"):
            return tree.RecordType()
        tables = [self.table()]
        while self.take_mark("|"):
            tables.append(self.table())
            self.fill()
        self.expect_mark(">", "`|` or `>`")
        return tree.RecordType(tuple(tables))

    # --- statements -------------------------------------------------------------------------------

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
