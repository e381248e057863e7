"""Parser of the types of fields, and of the parameters of functions."""

from __future__ import annotations

from typing import Final, get_args

from language import tree
from language.lexer import DURATION, FLOAT, INT, NAME, PREFIXED, STRING
from language.parsing.expressions import ExpressionParser
from protocol import limits
from protocol.errors import NumberTooLarge
from protocol.values import Value

KINDS: Final = frozenset(get_args(tree.Kind))
_TYPE: Final = "a type"
_MEMBERS: Final = 1_000
"""Maximum number of members of a union: a list of all existing words is data, not a type."""
_CONSTANTS: Final = {"TRUE": True, "FALSE": False, "NULL": None}

GRAMMAR: Final = """
type = member {"|" member}
member = kind | "option" "<" type ">" | "array" ["<" type ["," int] ">"]
    | "record" ["<" name {"|" name} ">"] | ["-"] number | string | bytes | datetime | uuid
    | TRUE | FALSE | NULL
"""


class TypeParser(ExpressionParser):
    """Parser of types."""

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
