"""Parser of SELECT, CREATE, INSERT, UPSERT, UPDATE and DELETE."""

from __future__ import annotations

from datetime import timedelta
from typing import Final, Literal

from language import tree
from language.lexer import DURATION, END, NAME, PARAM, PUNCTUATION, QUOTED
from language.parsing.expressions import ExpressionParser
from protocol.text import parse_duration
from protocol.values import MICROSECOND

_AFTER_NAME = frozenset({",", "=", "<", ">", "<=", ">=", "!=", "~", "??", "*", "/", "%", "."})
"""Marks after VALUE or DISTINCT that make it a column's name."""
_ADDING: Final[tuple[tuple[str, Literal["+=", "-="]], ...]] = (("+", "+="), ("-", "-="))
_AFTER_SOURCES = frozenset(
    {"WHERE", "SPLIT", "GROUP", "HAVING", "ORDER", "LIMIT", "START", "FETCH", "TIMEOUT"}
)
"""Words after ONLY that make it a table's name."""


GRAMMAR: Final = """
select = SELECT [DISTINCT] (VALUE column | ("*" | column) {"," ("*" | column)}) [OMIT paths]
    FROM [ONLY] target {"," target} [WHERE expression] [SPLIT path]
    [GROUP (ALL | BY expression {"," expression})] [HAVING expression]
    [ORDER BY order {"," order}] any(LIMIT expression | START expression) [FETCH paths]
    [CURRENT] [timeout]
column = expression [AS label]
order = expression [ASC | DESC]
create = CREATE single [CONTENT expression | set] [returning] [timeout]
insert = INSERT INTO name (expression | COLUMNS (object | parameter))
    [IGNORE | ON DUPLICATE UPDATE set] [returning] [timeout]
upsert = UPSERT addressed (CONTENT expression | MERGE expression | set) [returning] [timeout]
update = UPDATE target (set | MERGE expression | CONTENT expression | UNSET paths)
    [WHERE expression] [LIMIT expression] [returning] [timeout]
delete_records = DELETE target [WHERE expression] [LIMIT expression] [returning] [timeout]
target = range | single
single = name | addressed
addressed = operand
range = name ^ ":" ^ ([id ^] ".." [^ id] | [id ^] "..=" ^ id)
set = SET assignment {"," assignment}
assignment = path ("=" | "+=" | "-=") expression
returning = RETURN (NONE | BEFORE | AFTER | DIFF | column {"," column})
timeout = TIMEOUT duration
"""
GRAMMAR_NOTE: Final = """
What is addressed begins with no plain word but that of a call or record: a word alone is a table's
name.
"""


class RecordParser(ExpressionParser):
    """Parser of record statements."""

    current = False
    """True if any SELECT so far is CURRENT."""

    # --- targets ----------------------------------------------------------------------------------

    def target(self) -> tree.Target:
        """Parse the target of a statement: a table, a range of its records, or an expression."""
        kind = self.kinds[self.i]
        if kind in (NAME, QUOTED):
            if self.is_mark(":", 1) and self.adjoins(1) and not self.is_mark(":", 2):
                return self._addressed()
            called = kind == NAME and (self.is_mark("(", 1) or self.is_mark(":", 1))
            if not called:
                at = self.at
                return tree.TableTarget(self.table(), at)
        return tree.ExpressionTarget(self.operand())

    def _addressed(self) -> tree.Target:
        """Parse `t:id`, or `t:a..b` with optional bounds."""
        at, start = self.at, self.i
        if self._range_mark(2):
            table, low = self.table(), None
            self.i += 1
        else:
            literal = self.record()
            if not self._range_mark(0):
                self.i = start
                return tree.ExpressionTarget(self.operand())
            table, low = literal.table, literal.id
        inclusive = self.texts[self.i] == "..="
        self.i += 1
        high = self.identity() if self._bound() else None
        if inclusive and high is None:
            self.unexpected("the id that the range ends with")
        return tree.RecordRange(table, low, high, inclusive, at)

    def _range_mark(self, ahead: int) -> bool:
        return (self.is_mark("..", ahead) or self.is_mark("..=", ahead)) and self.adjoins(ahead)

    def _bound(self) -> bool:
        """True if a record id directly follows the dots. After a space it belongs to the next
        clause."""
        if not self.adjoins() or self.kinds[self.i] == END:
            return False
        return self.kinds[self.i] != PUNCTUATION or self.texts[self.i] in ("[", "-")

    def single(self) -> tree.TableTarget | tree.ExpressionTarget:
        """Parse a target that is not a range."""
        start = self.i
        found = self.target()
        if isinstance(found, tree.RecordRange):
            self.unexpected("a table or one record, not a range", start)
        return found

    # --- SELECT -----------------------------------------------------------------------------------

    def select(self) -> tree.Select:
        """Parse SELECT with its clauses in order; LIMIT and START in either order."""
        at = self.at
        self.expect_word("SELECT")
        distinct = self._says("DISTINCT")
        value = self._says("VALUE")
        everything, columns = self._columns(value)
        omit = self.paths() if self.take_word("OMIT") else ()
        self.expect_word("FROM")
        only = self._says_only() and self._taken()
        sources = [self.target()]
        while self.separated():
            sources.append(self.target())
            self.at_most(sources, "sources")
        where = self.expression() if self.take_word("WHERE") else None
        split = self.path() if self.take_word("SPLIT") else None
        group = self._group()
        having = self.expression() if self.take_word("HAVING") else None
        order = self._order() if self.take_word("ORDER") else ()
        limit = start = None
        while True:
            if limit is None and self.take_word("LIMIT"):
                limit = self.expression()
            elif start is None and self.take_word("START"):
                start = self.expression()
            else:
                break
        fetch = self.paths() if self.take_word("FETCH") else ()
        current = self.take_word("CURRENT")
        self.current = self.current or current
        timeout = self._timeout()
        self.height = 1
        return tree.Select(
            value=value, everything=everything, columns=columns, omit=omit, sources=tuple(sources),
            where=where, split=split, group=group, having=having, order=order, limit=limit,
            start=start, fetch=fetch, timeout=timeout, only=only, distinct=distinct,
            current=current, at=at,
        )  # fmt: skip

    def _says(self, word: str) -> bool:
        """Consume DISTINCT or VALUE after SELECT, unless it is a column's name."""
        if self.word() != word or self.word(1) in ("FROM", "AS", "OMIT"):
            return False
        following = self.i + 1
        if (self.is_mark("+", 1) or self.is_mark("-", 1)) and not self.adjoins(2):
            # `value - 1` subtracts from a column, `VALUE -1` is a number.
            return False
        if self.begins_link_back(1) and not self.adjoins(1) and self.is_mark(".", 4):
            return self._taken()
        if self.kinds[following] == PUNCTUATION and self.texts[following] in _AFTER_NAME:
            # `VALUE *` is a product, unless nothing follows that could be multiplied.
            bare = self.word(2) in ("FROM", "OMIT") or self.is_mark(",", 2)
            return self.is_mark("*", 1) and bare and self._taken()
        return self._taken()

    def _says_only(self) -> bool:
        """True if the current word is the keyword ONLY, and not a table's name."""
        if self.word() != "ONLY":
            return False
        following = self.kinds[self.i + 1]
        if following == PUNCTUATION:
            return self.texts[self.i + 1] in ("(", "[", "{") or self.begins_link_back(1)
        return following != END and self.word(1) not in _AFTER_SOURCES

    def _taken(self) -> bool:
        self.i += 1
        return True

    def _columns(self, value: bool) -> tuple[bool, tuple[tree.Column, ...]]:
        if value:
            if self.is_mark("*"):
                self.unexpected("one expression after SELECT VALUE")
            columns = (self._column(),)
            if self.is_mark(","):
                self.unexpected("FROM: SELECT VALUE has one column")
            return False, columns
        everything = False
        found: list[tree.Column] = []
        while True:
            if self.take_mark("*"):
                everything = True
            else:
                found.append(self._column())
            self.at_most(found, "columns")
            if not self.separated():
                return everything, tuple(found)

    def _column(self) -> tree.Column:
        expression = self.expression()
        return tree.Column(expression, self.label("alias") if self.take_word("AS") else None)

    def _group(self) -> tuple[tree.Expression, ...] | None:
        if not self.take_word("GROUP"):
            return None
        if self.take_word("ALL"):
            return ()
        if self.word() != "BY":
            self.unexpected("BY or ALL")
        self.i += 1
        found = [self.expression()]
        while self.separated():
            found.append(self.expression())
            self.at_most(found, "keys of GROUP BY")
        return tuple(found)

    def _order(self) -> tuple[tree.Order, ...]:
        self.expect_word("BY")
        found: list[tree.Order] = []
        while True:
            expression = self.expression()
            descending = self.take_word("DESC")
            if not descending:
                self.take_word("ASC")
            found.append(tree.Order(expression, descending))
            self.at_most(found, "keys of ORDER BY")
            if not self.separated():
                return tuple(found)

    # --- writing ----------------------------------------------------------------------------------

    def create(self) -> tree.Create:
        at = self._begin_statement("CREATE")
        target = self.single()
        data: tree.Data | None = None
        if self.word() in ("CONTENT", "SET"):
            data = self._data("CONTENT", "SET")
        return tree.Create(target, data, self._returning(), self._timeout(), at)

    def insert(self) -> tree.Insert:
        at = self._begin_statement("INSERT")
        self.expect_word("INTO")
        table = self.table()
        # Alone it is an expression: a field may have this name.
        columns = self.word() == "COLUMNS" and (
            self.is_mark("{", 1) or self.kinds[self.i + 1] == PARAM
        )
        self.i += columns
        rows = self._primary() if columns else self.expression()
        ignore, on_duplicate = self.take_word("IGNORE"), None
        if not ignore and self.take_word("ON"):
            self.expect_word("DUPLICATE", "UPDATE")
            on_duplicate = self._set()
        return tree.Insert(
            table, rows, ignore, on_duplicate, self._returning(), self._timeout(), at, columns
        )

    def upsert(self) -> tree.Upsert:
        at, start = self._begin_statement("UPSERT"), self.i
        target = self.single()
        if isinstance(target, tree.TableTarget):
            self.unexpected("a record: UPSERT takes table:id", start)
        data = self._data("CONTENT", "MERGE", "SET")
        return tree.Upsert(target, data, self._returning(), self._timeout(), at)

    def update(self) -> tree.Update:
        at = self._begin_statement("UPDATE")
        target = self.target()
        data = self._data("SET", "MERGE", "CONTENT", "UNSET")
        where, limit = self._where(), self._limit()
        return tree.Update(target, data, where, self._returning(), self._timeout(), at, limit)

    def delete(self) -> tree.Delete:
        at = self._begin_statement("DELETE")
        target = self.target()
        where, limit = self._where(), self._limit()
        return tree.Delete(target, where, self._returning(), self._timeout(), at, limit)

    def _begin_statement(self, word: str) -> int:
        at = self.at
        self.expect_word(word)
        return at

    def _where(self) -> tree.Expression | None:
        return self.expression() if self.take_word("WHERE") else None

    def _data(self, *allowed: str) -> tree.Data:
        word = self.word()
        if word not in allowed:
            self.unexpected(" or ".join((", ".join(allowed[:-1]), allowed[-1])))
        if word == "SET":
            return self._set()
        self.i += 1
        if word == "UNSET":
            return tree.Unset(self.paths())
        value = self.expression()
        return tree.Content(value) if word == "CONTENT" else tree.Merge(value)

    def _set(self) -> tree.Set:
        self.expect_word("SET")
        found: list[tree.Assignment] = []
        while True:
            path, at = self.path(), self.at
            operator = self._assigning()
            found.append(tree.Assignment(path, self.expression(), operator, at))
            self.at_most(found, "assignments: CONTENT and MERGE take any number of fields")
            if not self.separated():
                return tree.Set(tuple(found))

    def _assigning(self) -> Literal["=", "+=", "-="]:
        for sign, operator in _ADDING:
            if self.is_mark(sign) and self.is_mark("=", 1) and self.adjoins(1):
                self.i += 2
                return operator
        self.expect_mark("=", "`=`, `+=` or `-=`")
        return "="

    def _limit(self) -> tree.Expression | None:
        return self.expression() if self.take_word("LIMIT") else None

    def _returning(self) -> tree.Return | None:
        if not self.take_word("RETURN"):
            return None
        for kind in ("NONE", "BEFORE", "AFTER", "DIFF"):
            if self.take_word(kind):
                return tree.Return(kind)
        columns = [self._column()]
        while self.separated():
            columns.append(self._column())
            self.at_most(columns, "columns")
        return tree.Return("FIELDS", tuple(columns))

    def _timeout(self) -> timedelta | None:
        if not self.take_word("TIMEOUT"):
            return None
        if self.kinds[self.i] != DURATION:
            self.unexpected("a duration such as 5s")
        with self.placed(self.i):
            value = parse_duration(self.texts[self.i])
        if value < MICROSECOND:
            self.unexpected("a duration above zero")
        self.i += 1
        return value
