"""Parser of DEFINE FUNCTION and DROP FUNCTION."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from language import tree
from language.keywords import STATEMENTS
from language.lexer import PARAM
from language.parsing.field_types import TypeParser
from language.parsing.places import DEFINES, DROPS, PlaceParser
from protocol import limits
from protocol.errors import NameRefused, TooLarge

_BODY: Final = "an operator or `}`: a function's body is one expression"
_ONE: Final = "one expression: a function's body holds no statements"
_OBJECT: Final = "an expression: an object stands in braces of its own, `{ { a: 1 } }`"
_STATEMENTS: Final = STATEMENTS - {"IF"}
"""Words that cannot start a function's expression: without a row there are no fields of that name.
"""


GRAMMAR: Final = """
define_function = DEFINE FUNCTION [exists] word "(" [typed {"," typed}] ")" ["->" type]
    "{" expression "}" [comment]
typed = parameter ":" type
drop_function = DROP FUNCTION word [reason]
"""


class FunctionParser(TypeParser, PlaceParser):
    """Parser of user-defined functions."""

    def define_function(self, at: int) -> tree.Statement:
        exists = self._exists()
        name = self._function_name()
        parameters = self._parameters()
        returns: tree.FieldType | None = None
        if self.is_mark("-") and self.is_mark(">", 1) and self.adjoins(1):
            self.i += 2
            returns = self.type()
        self.expect_mark("{", "`{` and an expression" if returns else "`->` or `{`")
        body = self._body()
        return tree.DefineFunction(name, parameters, body, returns, exists, self._comment(), at)

    def _body(self) -> tree.Expression:
        colon = self.is_mark(":", 1) and not self.is_mark(":", 2)
        if colon and not (self.adjoins(1) and self.adjoins(2)):
            self.unexpected(_OBJECT)
        if not colon and self.word() in _STATEMENTS and not self.is_mark("(", 1):
            self.unexpected(_ONE)
        self.enter()
        found = self.expression()
        self.leave()
        self.expect_mark("}", _BODY)
        return found

    def drop_function(self, at: int) -> tree.Statement:
        return tree.DropFunction(self.name("function"), self._reason(), at)

    def _function_name(self) -> str:
        token = self.i
        if self.word() == "FN" and self.is_mark(":", 1) and self.is_mark(":", 2):
            self.unexpected("the name without `fn::`, which belongs to calls")
        name = self.name("function")
        if "-" in name:
            self.refuse(NameRefused, "a function's name has no `-`: fn::name calls it", token)
        return name

    def _parameters(self) -> tuple[tree.FunctionParameter, ...]:
        """Parse `($a: type, …)`."""
        self.expect_mark("(")
        found: list[tree.FunctionParameter] = []
        while not self.take_mark(")"):
            if len(found) >= limits.FUNCTION_PARAMETERS:
                most = limits.FUNCTION_PARAMETERS
                self.refuse(TooLarge, f"a function has at most {most} parameters")
            found.append(self._parameter([one.name for one in found]))
            if not self.separated():
                self.expect_mark(")", "`,` or `)`")
                break
        return tuple(found)

    def _parameter(self, before: Sequence[str]) -> tree.FunctionParameter:
        if self.kinds[self.i] != PARAM:
            self.unexpected("a parameter and its type, `$name: type`, or `)`")
        name = self.parameter_name(before)
        self.expect_mark(":", "`:` and a type")
        return tree.FunctionParameter(name, self.type())


DEFINES["FUNCTION"] = FunctionParser.define_function
DROPS["FUNCTION"] = FunctionParser.drop_function
