"""Parser of expressions, by operator precedence.

Precedences are defined in `operators.py`.

The height of every AST is bounded as it is built, so that traversals may recurse. Nesting is
bounded by the cursor's depth, chains of operators and steps by `height`. Chains of AND and OR,
which programs make long, are built as balanced trees and may have any length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NoReturn

from language import tree
from language.keywords import RESERVED
from language.lexer import (
    DURATION,
    END,
    FLOAT,
    INT,
    NAME,
    PARAM,
    PREFIXED,
    PUNCTUATION,
    QUOTED,
    STRING,
)
from language.parsing.calls import wrong_call
from language.parsing.links import LinkParser
from language.parsing.operators import (
    AND,
    COMPARISON,
    LEVELS,
    ONE_VALUE,
    OR,
    RANGE,
    chain,
    operands_of,
    takes_no_rows,
)
from protocol import limits
from protocol.errors import BadRequest, TooLarge, TypeRefused
from protocol.text import check_name, unescape
from protocol.values import NONE, check_record_id

HEIGHT: Final = 2 * limits.DEPTH
"""Maximum number of nodes from the root of an expression to its deepest leaf."""

_MARKS: Final = {mark: level for mark, level in LEVELS.items() if not mark[0].isalpha()} | {
    "..": RANGE, "..=": RANGE,
}  # fmt: skip
_WORDS: Final = {
    "OR": OR,
    "AND": AND,
    "IN": COMPARISON,
    "CONTAINS": COMPARISON,
    "NOT": COMPARISON,
    "NEAREST": COMPARISON,
}
_CONSTANTS: Final = {
    "NONE": tree.Constant(NONE),
    "NULL": tree.Constant(None),
    "TRUE": tree.Constant(True),
    "FALSE": tree.Constant(False),
}
_CHOICES: Final = frozenset({"IF", "CASE"})
_BEHIND: Final = frozenset({
    "AND", "AS", "ASC", "CONTAINS", "DESC", "ELSE", "END", "FETCH", "FROM", "HAVING", "IGNORE",
    "IN", "LIMIT", "NEAREST", "OMIT", "ON", "OR", "RETURN", "SPLIT", "START", "THEN", "TIMEOUT",
    "WHEN", "WHERE",
})  # fmt: skip
"""Words that may follow a field at the end of an expression."""
_MARKS_OF_FIELDS: Final = ("=", "!=", "<", "<=", ">", ">=", "~", "??", ".", ":")
_SHORT: Final = 19
"""Number of digits below which an int literal fits 64 bits for certain."""
_GIVEN: Final = frozenset({"this", "parent", "value", "input"})
"""Variables that the node binds."""
_CLOSING: Final = frozenset({",", "]", "}", ")", ";"})
_NAME_CHARACTERS: Final = 200
"""Maximum length of a function's full name, in characters."""


GRAMMAR: Final = """
nearest = NEAREST operand TO operand [PROBES operand]
operand = primary { "." ("*" | label) | "[" ("*" | expression) "]" }
primary = constant | number | string | bytes | datetime | uuid | packed | parameter | label | record
    | call | case | choice | subquery | link_back | "(" expression ")" | array | object
constant = NONE | NULL | TRUE | FALSE
number = int | float | decimal | duration
array = "[" [expression {"," expression}] "]"
object = "{" [entry {"," entry}] "}"
entry = (word | string | quoted) ":" expression
record = name ^ ":" ^ id
id = word | quoted | ["-" ^] int | uuid | parameter | array
call = "count" "(" DISTINCT expression ")" | function "(" [argument {"," argument}] ")"
argument = expression | closure
closure = "|" parameter {"," parameter} "|" expression
subquery = "(" select ")"
case = CASE [head] WHEN expression THEN expression {WHEN expression THEN expression}
    [ELSE expression] END
choice = IF head "{" expression "}" {ELSE IF expression "{" expression "}"}
    [ELSE "{" expression "}"]
head = expression
"""
GRAMMAR_NOTE: Final = """
A head that begins with a sign, a brace or `<-` stands in parentheses. A closure holds no subquery,
and is an argument only where the function takes one. Beside an operator that takes one value no
plain subquery stands, one of FROM ONLY does; `<-` is one as well.
"""


class ExpressionParser(LinkParser):
    """Parser of expressions."""

    def select(self) -> tree.Select:
        """Parse a SELECT from its first word on; implemented by `language.parsing.records`."""
        raise NotImplementedError

    def expression(self) -> tree.Expression:
        """Parse the longest expression at the cursor."""
        if self.i >= self._filled:
            self.fill()
        kind = self.kinds[self.i]
        if (kind == STRING or kind == INT) and self._stands_alone(self.i + 1):  # noqa: SIM109
            text = self.texts[self.i]
            if kind == INT and len(text) < _SHORT:
                self.i, self.height = self.i + 1, 1
                return tree.Constant(int(text))
            if kind == STRING and "\\" not in text:
                self.i, self.height = self.i + 1, 1
                return tree.Constant(text[1:-1])
        return self._binary(OR)

    def _stands_alone(self, following: int) -> bool:
        """True if a token ends the expression before it.

        Fast path: scripts that carry data consist of single literals.
        """
        return self.kinds[following] == PUNCTUATION and self.texts[following] in _CLOSING

    def _taller(self, height: int) -> None:
        if height > HEIGHT:
            self.refuse(TooLarge, f"an expression nests at most {HEIGHT} deep")
        self.height = height

    # --- operators --------------------------------------------------------------------------------

    def _operator(self) -> int:
        """Return the precedence of the current operator; 0 if there is none."""
        kind = self.kinds[self.i]
        if kind == PUNCTUATION:
            return _MARKS.get(self.texts[self.i], 0)
        if kind == NAME:
            word = self.texts[self.i].upper()
            level = _WORDS.get(word, 0)
            return 0 if word == "NOT" and self.word(1) != "IN" else level
        return 0

    def _binary(self, least: int) -> tree.Expression:
        left = self._unary()
        level = self._operator()
        while level >= least:
            if level <= AND:
                left = self._chain(left, level)
            elif level == RANGE:
                left = self._range(left)
            else:
                left = self._pair(left, level)
                if level == COMPARISON:
                    following = self._operator()
                    if following == COMPARISON:
                        self.unexpected("AND, OR or parentheses: comparisons do not chain")
                    level = following
                    continue
            level = self._operator()
        return left

    def _pair(self, left: tree.Expression, level: int) -> tree.Expression:
        height, at, token = self.height, self.at, self.i
        operator = self.texts[token].upper()
        self.i += 1
        if operator == "NEAREST":
            return self._nearest(left, height, at)
        if operator == "NOT":
            self.i += 1
            operator = "NOT IN"
        right = self._binary(level + 1)
        self._taller(max(height, self.height) + 1)
        if takes_no_rows(operator, left, right):
            self.refuse(TypeRefused, ONE_VALUE.format(operator), token)
        return tree.Binary(operator, left, right, at)  # type: ignore[arg-type]

    def _nearest(self, left: tree.Expression, height: int, at: int) -> tree.Expression:
        count = self.operand()
        highest = max(height, self.height)
        self.expect_word("TO")
        to = self.operand()
        highest, probes = max(highest, self.height), None
        if self.take_word("PROBES"):
            probes = self.operand()
            highest = max(highest, self.height)
        self._taller(highest + 1)
        return tree.Nearest(left, count, to, probes, at)

    def _chain(self, left: tree.Expression, level: int) -> tree.Expression:
        operator = "OR" if level == OR else "AND"
        operands = operands_of(left, operator)
        highest = self.height
        while self.take_word(operator):
            operands += operands_of(self._binary(level + 1), operator)
            if len(operands) > limits.OPERANDS:
                self.refuse(TooLarge, f"{operator} joins at most {limits.OPERANDS} conditions")
            highest = max(highest, self.height)
        self._taller(highest + len(operands).bit_length())
        return chain(operator, operands)

    def _range(self, low: tree.Expression) -> tree.Expression:
        height, at = self.height, self.at
        inclusive = self.texts[self.i] == "..="
        self.i += 1
        high = self._binary(RANGE + 1)
        self._taller(max(height, self.height) + 1)
        if self._operator() == RANGE:
            self.unexpected("an operator or the end of the expression: ranges do not chain")
        return tree.Range(low, high, inclusive, at)

    def _unary(self) -> tree.Expression:
        if self.i >= self._filled:
            self.fill()
        kind, at = self.kinds[self.i], self.i
        if kind == PUNCTUATION and self.texts[at] in "+-":
            sign = self.texts[at]
            self.i += 1
            following = self.kinds[self.i]
            if sign == "-" and following in (INT, FLOAT, DURATION):
                return self._steps(self.number(negative=True))
            return self._prefixed("-" if sign == "-" else "+", self.starts[at])
        if kind == NAME and self.texts[at].upper() == "NOT" and not self._is_record():
            self.i += 1
            return self._prefixed("NOT", self.starts[at])
        return self._steps(self._primary())

    def _prefixed(self, operator: tree.UnaryOperator, at: int) -> tree.Expression:
        self.enter()
        operand = self._binary(COMPARISON) if operator == "NOT" else self._unary()
        self.leave()
        self._taller(self.height + 1)
        return tree.Unary(operator, operand, at)

    # --- paths ------------------------------------------------------------------------------------

    def operand(self) -> tree.Expression:
        """Parse a primary with its path steps, as after FROM or UPDATE."""
        return self._steps(self._primary())

    def _steps(self, node: tree.Expression) -> tree.Expression:
        while self.kinds[self.i] == PUNCTUATION:
            mark = self.texts[self.i]
            if mark == ".":
                self.i += 1
                if self.take_mark("*"):
                    node = tree.Each(node)
                else:
                    node = tree.Attribute(node, self.label("field name"))
                self._taller(self.height + 1)
            elif mark == "[":
                height = self.height
                self.i += 1
                if self.is_mark("*") and self.is_mark("]", 1):
                    self.i += 2
                    node = tree.Each(node)
                    self._taller(height + 1)
                    continue
                self.enter()
                node = tree.Index(node, self.expression())
                self.leave()
                self.expect_mark("]")
                self._taller(max(height, self.height) + 1)
            else:
                break
        return node

    # --- primaries --------------------------------------------------------------------------------

    def _primary(self) -> tree.Expression:
        kind, text = self.kinds[self.i], self.texts[self.i]
        if kind == STRING:
            self.height = 1
            if "\\" in text:
                with self.placed(self.i):
                    text = "." + unescape(text[1:-1]) + "."
            self.i += 1
            return tree.Constant(text[1:-1])
        if kind in (INT, FLOAT, DURATION):
            return self.number(negative=False)
        if kind in (NAME, QUOTED):
            return self._named()
        if kind == PARAM:
            self.height = 1
            self.i += 1
            return tree.Parameter(text[1:], self.starts[self.i - 1])
        if kind == PREFIXED:
            self.height = 1
            return self.prefixed_string(text)
        if text == "(":
            return self._parenthesis()
        if text == "[":
            return self._array()
        if text == "{":
            return self._object()
        if text == "<" and self.begins_link_back():
            return self.link_back()
        self.unexpected("an expression")

    def _is_record(self) -> bool:
        """True if the current name is the table of a record literal: a colon follows directly."""
        return self.is_mark(":", 1) and self.adjoins(1) and not self.is_mark(":", 2)

    def _named(self) -> tree.Expression:
        self.height = 1
        at = self.i
        if self.is_mark(":", 1) and self.adjoins(1):
            return self._call() if self.is_mark(":", 2) else self.record()
        if self.kinds[at] == NAME:
            word = self.texts[at].upper()
            if word in _CONSTANTS:
                self.i += 1
                return _CONSTANTS[word]
            if word in _CHOICES and self.begins_choice():
                return self._if_value() if word == "IF" else self._case_value()
            if self.is_mark("(", 1):
                return self._call()
            if word in RESERVED:
                self.unexpected("an expression")
        return tree.Name(self.label("field name"), self.starts[at])

    # --- choices ----------------------------------------------------------------------------------

    def begins_choice(self) -> bool:
        """True if the current word is the keyword IF or CASE, and not a field of that name.

        The next token then cannot continue an expression after a field.
        """
        kind, text, following = self.kinds[self.i + 1], self.texts[self.i + 1], self.word(1)
        if self.word() not in _CHOICES or kind == END:
            return False
        if kind == PUNCTUATION:
            signed = text in "+-" and self.adjoins(2) and not self.adjoins(1)
            return text == "(" or signed or (text == "[" and not self.adjoins(1))
        if following == "WHEN":
            return self.word() == "CASE"
        if following == "NOT":
            return self.word(2) != "IN"
        if following in ("ORDER", "GROUP"):
            return self.word(2) not in ("BY", "ALL")
        # Before an operator, one of these words is a field's name.
        return following not in _BEHIND or any(self.is_mark(mark, 2) for mark in _MARKS_OF_FIELDS)

    def _if_value(self) -> tree.Choice:
        """Parse `IF c { e } ELSE IF c { e } ELSE { e }` as a value."""
        at, height = self._enter_choice(), 0
        branches: list[tuple[tree.Expression, tree.Expression]] = []
        otherwise: tree.Expression | None = None
        while True:
            condition = self.expression()
            height = max(height, self.height)
            branches.append((condition, self._braced()))
            height = max(height, self.height)
            self.at_most(branches, "branches")
            if not self.take_word("ELSE"):
                break
            if not self.take_word("IF"):
                otherwise = self._braced()
                height = max(height, self.height)
                break
        return self._choice(None, branches, otherwise, height, at)

    def _braced(self) -> tree.Expression:
        self.expect_mark("{", "an operator or `{`")
        found = self.expression()
        self.expect_mark("}", "an operator or `}`: inside an expression IF has one value in braces")
        return found

    def _case_value(self) -> tree.Choice:
        """Parse `CASE [e] WHEN c THEN e … [ELSE e] END`."""
        at, height = self._enter_choice(), 0
        subject: tree.Expression | None = None
        branches: list[tuple[tree.Expression, tree.Expression]] = []
        otherwise: tree.Expression | None = None
        if self.word() != "WHEN":
            subject = self.expression()
            height = self.height
        while not branches or self.word() == "WHEN":
            self.expect_word("WHEN")
            condition = self.expression()
            height = max(height, self.height)
            self.expect_word("THEN")
            branches.append((condition, self.expression()))
            height = max(height, self.height)
            self.at_most(branches, "branches")
        if self.take_word("ELSE"):
            otherwise = self.expression()
            height = max(height, self.height)
        self.expect_word("END")
        return self._choice(subject, branches, otherwise, height, at)

    def _enter_choice(self) -> int:
        at = self.at
        self.enter()
        self.i += 1
        return at

    def _choice(
        self,
        subject: tree.Expression | None,
        branches: list[tuple[tree.Expression, tree.Expression]],
        otherwise: tree.Expression | None,
        height: int,
        at: int,
    ) -> tree.Choice:
        self.leave()
        self._taller(height + 1)
        return tree.Choice(subject, tuple(branches), otherwise, at)

    def _call(self) -> tree.Expression:
        at = self.i
        if self.kinds[at] != NAME:
            self.unexpected("a function")
        name = self.texts[at]
        self.i += 1
        while self.is_mark(":") and self.is_mark(":", 1) and len(name) < _NAME_CHARACTERS:
            self.i += 2
            if self.kinds[self.i] != NAME:
                self.unexpected("the rest of a function's name")
            name += "::" + self.texts[self.i]
            self.i += 1
        self.expect_mark("(")
        if name == "count" and self._says_distinct():
            name, self.i = "count_distinct", self.i + 1
        self.enter()
        arguments, height = self._items(")", self._argument)
        self.leave()
        wrong = wrong_call(name, arguments)
        if wrong is not None:
            self.refuse(*wrong, at)
        self._taller(height + 1)
        return tree.Call(name, arguments, self.starts[at])

    def _says_distinct(self) -> bool:
        """True if the current word is the keyword DISTINCT, and not a field of that name."""
        if self.word() != "DISTINCT" or self.kinds[self.i + 1] == END:
            return False
        mark = self.kinds[self.i + 1] == PUNCTUATION
        return not mark or self.texts[self.i + 1] in ("(", "[", "{")

    def _argument(self) -> tree.Expression:
        return self._closure() if self.is_mark("|") else self.expression()

    def _closure(self) -> tree.Closure:
        """Parse `|$x, $y| body`."""
        at = self.at
        self.i += 1
        names = [self.parameter_name(())]
        while self.take_mark(","):
            names.append(self.parameter_name(names))
        self.expect_mark("|")
        self.enter()
        self.closures += 1
        body = self.expression()
        self.closures -= 1
        self.leave()
        self._taller(self.height + 1)
        return tree.Closure(tuple(names), body, at)

    def parameter_name(self, before: Sequence[str]) -> str:
        """Parse the name of a parameter in a definition; it must differ from those before it."""
        token = self.i
        name = self.variable()
        if name in _GIVEN:
            self.refuse(BadRequest, f"${name} is reserved: choose another name", token)
        if name in before:
            self.refuse(BadRequest, f"${name} is declared twice", token)
        return name

    def record(self) -> tree.RecordLiteral:
        """Parse `table:id`."""
        at = self.at
        table = self.name("table")
        self.i += 1
        return tree.RecordLiteral(table, self.identity(), at)

    def identity(self) -> tree.Expression:
        """Parse the id of a record, which must directly follow the previous token."""
        kind, text, at = self.kinds[self.i], self.texts[self.i], self.i
        self.height = 1
        if not self.adjoins() or kind == END:
            self._no_identity()
        node: tree.Expression
        if kind == NAME:
            self.i += 1
            node = tree.Constant(text)
        elif kind == QUOTED:
            with self.placed(at):
                node = tree.Constant(unescape(text[1:-1]))
            self.i += 1
        elif kind == INT:
            node = self.number(negative=False)
        elif text == "-" and self.kinds[at + 1] == INT:
            self.i += 1
            node = self.number(negative=True)
        elif kind == PARAM:
            self.i += 1
            return tree.Parameter(text[1:], self.starts[at])
        elif kind == PREFIXED and text[0] == "u":
            node = self.prefixed_string(text)
        elif text == "[":
            self.enter()
            array = self._array()
            self.leave()
            return array
        else:
            self._no_identity()
        with self.placed(at):
            check_record_id(node.value)
        return node

    def _no_identity(self) -> NoReturn:
        self.unexpected("a record's id right after the colon: a word, int, uuid, array or `text`")

    def _parenthesis(self) -> tree.Expression:
        self.enter()
        self.i += 1
        node: tree.Expression
        if self.word() == "SELECT" and not self.is_mark(":", 1):
            self.check_no_closure()
            node = tree.Subquery(self.select())
            self._taller(self.height + 1)
        else:
            node = self._binary(OR)
        self.expect_mark(")", "an operator or `)`")
        self.leave()
        if tree.collects(node) and (
            self.is_mark("[") or (self.is_mark(".") and self.is_mark("*", 1))
        ):
            self._taller(self.height + 1)
            return tree.Collected(node)
        return node

    def _array(self) -> tree.Expression:
        self.enter_literal("[")
        self.i += 1
        items, height = self._items("]")
        self.leave_literal()
        self._taller(height + 1)
        return tree.Array(items)

    def _items(
        self, closing: str, item: Callable[[], tree.Expression] | None = None
    ) -> tuple[tuple[tree.Expression, ...], int]:
        """Parse expressions up to a closing mark. Return them and the height of the highest."""
        item = item or self.expression
        items: list[tree.Expression] = []
        highest = 0
        while not self.take_mark(closing):
            items.append(item())
            if self.height > highest:
                highest = self.height
            if not self.separated():
                self.expect_mark(closing, f"an operator, `,` or `{closing}`")
                break
        return tuple(items), highest

    def _object(self) -> tree.Expression:
        self.enter_literal("{")
        self.i += 1
        fields: list[tuple[str, tree.Expression]] = []
        highest = 0
        while not self.take_mark("}"):
            name = self._key()
            self.expect_mark(":")
            fields.append((name, self.expression()))
            if self.height > highest:
                highest = self.height
            if not self.separated():
                self.expect_mark("}", "an operator, `,` or `}`")
                break
        self.leave_literal()
        self._taller(highest + 1)
        return tree.Object(tuple(fields))

    def _key(self) -> str:
        kind = self.kinds[self.i]
        if kind == NAME:
            self.i += 1
            return self.texts[self.i - 1]
        if kind == STRING:
            return self.string("a field name")
        if kind == QUOTED:
            return self.label("field name")
        self.unexpected("a field name or `}`")

    def table(self) -> str:
        """Parse the name of a table."""
        with self.placed(self.i):
            return check_name(self.label("table"), "table")
