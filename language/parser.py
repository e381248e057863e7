"""Recursive-descent parser: text to AST. Caching of plans is left to the callers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from language import tree
from language.keywords import STATEMENTS
from language.lexer import END, NAME
from language.parsing.analyzers import AnalyzerParser
from language.parsing.backups import BackupParser
from language.parsing.cluster import ClusterParser
from language.parsing.cursor import STATEMENT
from language.parsing.fields import FieldParser
from language.parsing.functions import FunctionParser
from language.parsing.indexes import IndexParser
from language.parsing.topics import TopicParser
from language.parsing.vaults import VaultParser
from language.sizing import WorkingMemory
from protocol import limits
from protocol.errors import TooLarge, TypeRefused


def parse(
    text: str,
    tick: Callable[[], None] | None = None,
    memory: WorkingMemory | None = None,
) -> tree.Script:
    """Parse a script to its AST.

    :param tick: called every few milliseconds of work on a long text
    :param memory: counts the memory of the AST as it grows
    :raises UnexpectedToken: a syntax error
    :raises Unknown, BadRequest: no such function, or a wrong number of arguments
    :raises NameRefused, NumberTooLarge, TypeRefused: a name or literal is out of bounds
    :raises TooLarge: longer than `limits.SCRIPT_BYTES`, more than `limits.TOKENS` tokens or
        `limits.STATEMENTS` statements, or nested deeper than `limits.DEPTH`

    Every error has `line`, `column` and `near` in its detail.
    """
    _check(text)
    parser = _Parser(text, tick, memory)
    return tree.Script(parser.script(), text, parser.current)


def parse_expression(text: str, around: int = 0) -> tree.Expression:
    """Parse one expression, such as a feed's filter or the body of a cache route.

    :param around: nesting levels of a literal that are not part of its value
    """
    _check(text)
    parser = _Parser(text)
    parser.around = around
    found = parser.expression()
    if parser.kinds[parser.i] != END:
        parser.unexpected("an operator or the end of the expression")
    return found


def parse_type(text: str) -> tree.FieldType:
    """Parse a field type."""
    parser = _Parser(text)
    found = parser.type()
    if parser.kinds[parser.i] != END:
        parser.unexpected("`|` or the end of the type")
    return found


def _check(text: str) -> None:
    if not text.isascii():
        try:
            size = len(text.encode())
        except UnicodeEncodeError as error:
            line = text.count("\n", 0, error.start) + 1
            column = error.start - text.rfind("\n", 0, error.start)
            raise TypeRefused(
                f"the script holds a lone surrogate, which is not Unicode (line {line},"
                f" column {column})",
                line=line,
                column=column,
            ) from None
    else:
        size = len(text)
    if size > limits.SCRIPT_BYTES:
        raise TooLarge(
            f"a script has at most {limits.SCRIPT_BYTES} bytes, this one has {size}",
            limit=limits.SCRIPT_BYTES,
            line=1,
            column=1,
        )


GRAMMAR: Final = """
script = [statement] {";" [statement]}
evaluate = expression
block = "{" [statement] {";" [statement]} "}"
if = IF expression block {ELSE IF expression block} [ELSE block]
for = FOR parameter IN expression block
let = LET parameter "=" value
return = RETURN value
value = answering | evaluate
throw = THROW expression
begin_transaction = BEGIN [TRANSACTION]
commit = COMMIT [TRANSACTION] | commit_reader
cancel = CANCEL [TRANSACTION]
"""
GRAMMAR_NOTE: Final = """
An expression that is a statement begins with no field: there is no row. There, and behind LET and
RETURN, IF is that of statements. Behind a block's brace the `;` may be left out.
"""


class _Parser(
    ClusterParser, BackupParser, FieldParser, FunctionParser, IndexParser, AnalyzerParser,
    VaultParser, TopicParser,
):  # fmt: skip
    """Parser of scripts: adds statements, blocks, IF, FOR, LET and transactions to the other
    parsers."""

    def script(self) -> tuple[tree.Statement, ...]:
        found: list[tree.Statement] = []
        while True:
            self.forget()
            while self.take_mark(";"):
                self.fill()
                self.forget()
            if self.kinds[self.i] == END:
                return tuple(found)
            found.append(self._statement())
            self._ended(END)

    def _ended(self, closing: int) -> None:
        """Check that a statement ends: with `;`, the end of its block or script, or a closing brace
        of its own."""
        self.fill()
        if self.take_mark(";") or self.kinds[self.i] == closing or self.is_mark("}"):
            return
        if self.texts[self.i - 1] == "}" and self._block_ended:
            return
        self.unexpected("`;` or the end of the statement")

    _block_ended = False

    _statements = 0

    def _statement(self) -> tree.Statement:
        self._statements += 1
        if self._statements > limits.STATEMENTS:
            self.refuse(TooLarge, f"a script has at most {limits.STATEMENTS} statements")
        self._block_ended = False
        word = self.word()
        handler = HANDLERS.get(word)
        if handler is not None and not self._is_call():
            return handler(self)  # type: ignore[no-any-return]
        at = self.at
        if self._bare_name():
            self.unexpected(STATEMENT)
        return tree.Evaluate(self.expression(), at)

    def _is_call(self) -> bool:
        """True if a colon follows the word directly: it then names a table or function, even if it
        is a keyword."""
        return self.is_mark(":", 1) and self.adjoins(1)

    def _bare_name(self) -> bool:
        """True if the next token is a name that cannot start an expression.

        Outside a row such a name denotes nothing, so it is reported as a misspelt statement.
        """
        if self.kinds[self.i] != NAME or self.is_mark("(", 1) or self._is_call():
            return False
        if self.begins_choice():
            return False
        return self.word() not in ("NONE", "NULL", "TRUE", "FALSE", "NOT")

    # --- blocks -----------------------------------------------------------------------------------

    def _block(self) -> tree.Block:
        self.expect_mark("{")
        self.enter()
        found: list[tree.Statement] = []
        while not self.take_mark("}"):
            if self.take_mark(";"):
                self.fill()
                continue
            if self.kinds[self.i] == END:
                self.unexpected(f"{STATEMENT} or `}}`")
            found.append(self._statement())
            self._ended(-1)
        self.leave()
        self._block_ended = True
        return tree.Block(tuple(found))

    def _if(self) -> tree.If:
        at = self._begin_statement("IF")
        branches = [(self.expression(), self._block())]
        otherwise: tree.Block | None = None
        while self.take_word("ELSE"):
            if not self.take_word("IF"):
                otherwise = self._block()
                break
            branches.append((self.expression(), self._block()))
        return tree.If(tuple(branches), otherwise, at)

    def _for(self) -> tree.For:
        at = self._begin_statement("FOR")
        variable = self.variable()
        self.expect_word("IN")
        return tree.For(variable, self.expression(), self._block(), at)

    def _let(self) -> tree.Let:
        at = self._begin_statement("LET")
        name = self.variable()
        self.expect_mark("=")
        return tree.Let(name, self._value(), at)

    def _value(self) -> tree.Expression | tree.Answering:
        """Parse an expression, or a statement whose answer is the value."""
        if self.word() in ANSWERING and not self._is_call():
            return ANSWERING[self.word()](self)  # type: ignore[no-any-return]
        found = self.expression()
        self._block_ended = False
        return found

    def _return(self) -> tree.ReturnStatement:
        at = self._begin_statement("RETURN")
        return tree.ReturnStatement(self._value(), at)

    def _throw(self) -> tree.Throw:
        at = self._begin_statement("THROW")
        return tree.Throw(self.expression(), at)

    def _begin_transaction(self) -> tree.Begin:
        return tree.Begin(self._transaction("BEGIN"))

    def _commit(self) -> tree.Commit | tree.CommitReader:
        if self.word(1) == "READER":
            return self.commit_reader()
        return tree.Commit(self._transaction("COMMIT"))

    def _cancel(self) -> tree.Cancel:
        return tree.Cancel(self._transaction("CANCEL"))

    def _transaction(self, word: str) -> int:
        at = self._begin_statement(word)
        self.take_word("TRANSACTION")
        return at


HANDLERS: Final[dict[str, Any]] = {
    "ACK": _Parser.ack,
    "ALTER": _Parser.alter,
    "BACKUP": _Parser.backup,
    "BEGIN": _Parser._begin_transaction,
    "CANCEL": _Parser._cancel,
    "CHECK": _Parser.check_index,
    "MEASURE": _Parser.measure,
    "COMMIT": _Parser._commit,
    "CREATE": _Parser.create_statement,
    "DEFINE": _Parser.define,
    "DELETE": _Parser.delete,
    "DROP": _Parser.drop,
    "ERASE": _Parser.erase_secret,
    "EXPIRE": _Parser.expire_key,
    "EXPLAIN": _Parser.explain,
    "EXTEND": _Parser.extend,
    "FOR": _Parser._for,
    "GET": _Parser.get_key,
    "GIVE": _Parser.give_up,
    "GRANT": _Parser.grant,
    "IF": _Parser._if,
    "INCR": _Parser.incr_key,
    "INFO": _Parser.info,
    "INSERT": _Parser.insert,
    "KEYS": _Parser.list_keys,
    "KILL": _Parser.kill,
    "LET": _Parser._let,
    "LIST": _Parser.list_secrets,
    "LOCK": _Parser.lock_key,
    "NACK": _Parser.nack,
    "PERSIST": _Parser.persist_key,
    "PUBLISH": _Parser.publish,
    "READ": _Parser.read_topic,
    "REBUILD": _Parser.rebuild,
    "REDRIVE": _Parser.redrive,
    "RESTORE": _Parser.restore_script,
    "RETURN": _Parser._return,
    "REVEAL": _Parser.reveal_secret,
    "REVOKE": _Parser.revoke_statement,
    "ROTATE": _Parser.rotate_vault,
    "SELECT": _Parser.select,
    "SET": _Parser.set_key,
    "SWAP": _Parser.swap_key,
    "TAKE": _Parser.take,
    "THROW": _Parser._throw,
    "TRIM": _Parser.trim_topic,
    "UNLOCK": _Parser.unlock_key,
    "UPDATE": _Parser.update,
    "UPSERT": _Parser.upsert,
    "USE": _Parser.use,
    "WRITE": _Parser.write_secret,
}
assert set(HANDLERS) == STATEMENTS

_ANSWERING: Final = (
    *("INSERT", "UPSERT", "UPDATE", "DELETE", "SELECT", "IF"),
    *("GET", "SET", "SWAP", "INCR", "EXPIRE", "PERSIST", "LOCK", "UNLOCK", "KEYS"),
    *("PUBLISH", "READ", "TAKE", "ACK", "NACK", "EXTEND", "GIVE", "TRIM", "REDRIVE"),
)
ANSWERING: Final[dict[str, Any]] = {
    "CREATE": _Parser.create,  # of records only: a join token must not be stored in a variable
    **{word: HANDLERS[word] for word in _ANSWERING},
}
"""Parsers of the statements whose answer LET and RETURN accept, by first word."""
