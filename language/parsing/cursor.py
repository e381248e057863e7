"""Parser cursor: the position in the tokens, expectations, depth limits and syntax errors.

Every error carries line and column, and shows the line with a caret. An error in a text that deals
with passwords shows none of its strings, because errors are logged.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NoReturn

from language.lexer import (
    BAD,
    END,
    NAME,
    PARAM,
    PREFIXED,
    PUNCTUATION,
    QUOTED,
    STRING,
    Tokens,
    statement_past,
    token_past,
)
from language.parsing import foreign_idioms
from protocol import limits
from protocol.errors import NameRefused, Refusal, TooLarge, UnexpectedToken
from protocol.text import check_name, unescape

if TYPE_CHECKING:
    from collections.abc import Iterator

    from language.sizing import WorkingMemory

STATEMENT: Final = "a statement"
"""Expectation named in an error where a statement should start."""
_LOOKED_AT: Final = 1 << 18
"""Number of characters searched for secrets between two ticks."""
_FREED: Final = 1 << 14
"""Number of tokens freed between two ticks."""
_SHOWN: Final = 60
"""Maximum number of characters shown on each side of the caret."""
_SECRETIVE: Final = (
    "pass", "user", "token", "seal", "vault", "secret", "key", "reveal", "erase", "write",
    "failover",
)  # fmt: skip
_ODD: Final = re.compile(r"[^ -~\u00a1-\U0010ffff]")
_AHEAD: Final = 1024
"""Number of tokens read ahead, unless the text ends before.

More than any grammar rule consumes before it reaches an operand, a comma or a statement, where
`fill` is called.
"""

_COUNTED: Final = 16_384
"""Number of tokens after which those of the whole text are counted.

A text with an error before that is rejected for the error at once.
"""
_TOKEN_BYTES: Final = 100
"""Estimated memory of a token, in bytes. Its AST takes 25 to 60 bytes, and compiled code several
times that in very short statements."""
_FORGET: Final = 8192
"""Maximum number of retained tokens of finished statements."""
_BEFORE_SECRETS: Final = frozenset({"PASSWORD", "PASSHASH", "PASSPHRASE"})
"""Words followed by a secret, quoted or not."""


class TokenCursor:
    """A position in the tokens of one text.

    :param tick: called periodically while a long text is read; may yield or raise
    :param memory: counts the memory of the tokens' AST
    """

    def __init__(
        self,
        text: str,
        tick: Callable[[], None] | None = None,
        memory: WorkingMemory | None = None,
    ) -> None:
        self.tokens = Tokens(text)
        self.kinds = self.tokens.kinds
        self.texts = self.tokens.texts
        self.starts = self.tokens.starts
        self.i = 0
        self.depth = 0
        self.around = 0
        """Nesting levels of a literal that are not part of its value."""
        self._literals = 0
        """Number of array and object literals around the current token."""
        self._outermost = ""
        """Opening mark of the outermost literal."""
        self._rows = False
        """True if the outermost literal is an array of objects; see `protocol.values.is_rows`."""
        self._tick = tick
        self._memory = memory
        self._filled = 0
        self._counted = False
        self._secrets: bool | None = None
        self.fill()

    # --- looking ----------------------------------------------------------------------------------

    @property
    def at(self) -> int:
        """Offset of the current token."""
        return self.starts[self.i]

    def word(self, ahead: int = 0) -> str:
        """Return the current bare word in upper case; empty if the token is not a bare word."""
        i = self.i + ahead
        if i < len(self.kinds) and self.kinds[i] == NAME:
            return self.texts[i].upper()
        return ""

    def is_mark(self, mark: str, ahead: int = 0) -> bool:
        """True if the current token is this punctuation mark."""
        i = self.i + ahead
        return i < len(self.kinds) and self.kinds[i] == PUNCTUATION and self.texts[i] == mark

    def adjoins(self, ahead: int = 0) -> bool:
        """True if no white space precedes the token."""
        i = self.i + ahead
        if not 0 < i < len(self.kinds):
            return False
        return self.starts[i] == self.starts[i - 1] + len(self.texts[i - 1])

    # --- taking -----------------------------------------------------------------------------------

    def take_word(self, *words: str) -> bool:
        """Consume these words if they come next, in this order."""
        for ahead, wanted in enumerate(words):
            if self.word(ahead) != wanted:
                return False
        self.i += len(words)
        return True

    def take_mark(self, mark: str) -> bool:
        """Consume a punctuation mark if it comes next."""
        if self.kinds[self.i] == PUNCTUATION and self.texts[self.i] == mark:
            self.i += 1
            return True
        return False

    def expect_word(self, *words: str) -> None:
        """Consume these words. :raises UnexpectedToken: one is missing"""
        for wanted in words:
            if self.word() != wanted:
                self.unexpected(wanted)
            self.i += 1

    def expect_mark(self, mark: str, expected: str = "") -> None:
        """Consume a mark. :raises UnexpectedToken: it is missing"""
        if not self.take_mark(mark):
            self.unexpected(expected or f"`{mark}`")

    def name(self, what: str) -> str:
        """Consume the name of a catalog object.

        :raises UnexpectedToken: the current token is not a name
        :raises NameRefused: it does not match the pattern of names
        """
        with self.placed(self.i):
            return check_name(self.label(what), what)

    def label(self, what: str) -> str:
        """Consume a name: bare, or any text in back-quotes. A field's name may be empty."""
        kind, text = self.kinds[self.i], self.texts[self.i]
        if kind == NAME:
            self.i += 1
            return text
        if kind != QUOTED:
            self.unexpected(f"a {what}" if what[:1] not in "aeiou" else f"an {what}")
        with self.placed(self.i):
            name = unescape(text[1:-1])
            if not name and what not in ("field name", "alias"):
                called = what if what.endswith("name") else f"{what}'s name"
                raise NameRefused(f"the {called} is empty")
        self.i += 1
        return name

    def string(self, what: str, longest: int | None = None) -> str:
        """Consume a string literal. :raises TooLarge: longer than `longest` characters"""
        if self.kinds[self.i] != STRING:
            self.unexpected(f"a string: {what}")
        with self.placed(self.i):
            text = unescape(self.texts[self.i][1:-1])
            if longest is not None and len(text) > longest:
                raise TooLarge(f"{what} has at most {longest} characters", limit=longest)
        self.i += 1
        return text

    def separated(self) -> bool:
        """Consume a comma if it comes next. Return True if the list continues."""
        if self.i >= self._filled:
            self.fill()
        return self.take_mark(",")

    def at_most(self, found: list[Any], what: str) -> None:
        """Check the length of a list. :raises TooLarge: over `limits.COLUMNS`"""
        if len(found) > limits.COLUMNS:
            self.refuse(TooLarge, f"a statement has at most {limits.COLUMNS} {what}")

    def fill(self) -> None:
        """Read more tokens if too few are ahead."""
        if self.i < self._filled:
            return
        while not self.tokens.complete and len(self.kinds) - self.i <= _AHEAD:
            if self.tokens.read > _COUNTED and not self._counted:
                self._counted = True
                self._check_counts()
            before = self.tokens.read
            self.tokens.more()
            if self._memory is not None:
                self._memory.tree += (self.tokens.read - before) * _TOKEN_BYTES
            if self._tick is not None:
                self._tick()
        self._filled = len(self.kinds) - _AHEAD

    def _check_counts(self) -> None:
        """Reject an oversized text before millions of AST nodes are created from it.

        :raises TooLarge: it has too many tokens or statements
        """
        text, most = self.tokens.text, limits.TOKENS
        past = token_past(text, most, self._tick) if len(text) > most else None
        if past is not None:
            self._refuse_at(
                past,
                f"a script has at most {most} tokens: pass data as parameters",
            )
        most = limits.STATEMENTS
        past = statement_past(text, most, self._tick) if text.count(";") > most else None
        if past is not None:
            self._refuse_at(past, f"a script has at most {most} statements")

    def _refuse_at(self, offset: int, message: str) -> NoReturn:
        refusal = TooLarge(message)
        self._mark(refusal, offset)
        raise refusal

    def forget(self) -> None:
        """Free the tokens of finished statements, except the last one, which is still examined."""
        if self.i > _FORGET:
            gone = self.i - 1
            for column in (self.kinds, self.texts, self.starts):
                self._shorten(column, gone)
            self.i -= gone
            self._filled -= gone

    def _shorten(self, column: list[Any], gone: int) -> None:
        """Remove the first `gone` items in pieces: freeing millions at once blocks the loop."""
        kept = column[gone:]
        while len(column) > _FREED:
            del column[-_FREED:]
            if self._tick is not None:
                self._tick()
        column[:] = kept

    # --- depth ------------------------------------------------------------------------------------

    def enter(self) -> None:
        """Enter a nesting level. :raises TooLarge: deeper than `limits.DEPTH`"""
        self.depth += 1
        if self.depth > limits.DEPTH:
            self.refuse(TooLarge, f"a script nests at most {limits.DEPTH} deep")
        self._check_nesting()

    def leave(self) -> None:
        """Leave a nesting level."""
        self.depth -= 1

    def enter_literal(self, mark: str) -> None:
        """Enter an array or object literal. It is one level of its value.

        :param mark: its opening mark
        :raises TooLarge: the value is deeper than `limits.DEPTH`
        """
        self._literals += 1
        if self._literals == 1:
            self._outermost, self._rows = mark, False
        elif self._literals == 2:
            self._rows = self._outermost == "[" and mark == "{"
        if self._literals > limits.DEPTH + self._rows + self.around:
            self.refuse(TooLarge, f"values nest at most {limits.DEPTH} deep")
        self._check_nesting()

    def leave_literal(self) -> None:
        """Leave an array or object literal."""
        self._literals -= 1

    def _check_nesting(self) -> None:
        if self.depth + self._literals > limits.NESTING:
            self.refuse(
                TooLarge, f"a script with the values in it nests at most {limits.NESTING} deep"
            )

    # --- refusing ---------------------------------------------------------------------------------

    @contextmanager
    def placed(self, token: int) -> Iterator[None]:
        """Add the position of a token to an error raised inside."""
        try:
            yield
        except Refusal as refusal:
            if "line" not in refusal.detail:
                self._place(refusal, token)
            raise

    def refuse(self, error: type[Refusal], message: str, token: int | None = None) -> NoReturn:
        """Reject the text at a token, by default the current one."""
        refusal = error(message)
        self._place(refusal, self.i if token is None else token)
        raise refusal

    def unexpected(self, expected: str, token: int | None = None) -> NoReturn:
        """Reject the current (or another) token. `expected` names the valid alternatives."""
        where = self.i if token is None else token
        found = self._found(where)
        refusal = UnexpectedToken(f"found {found}, expected {expected}")
        refusal.detail.update(found=found, expected=expected)
        meant = foreign_idioms.meant(
            self.texts, where, starts_statement=expected.startswith(STATEMENT)
        )
        if meant is not None and not self._is_secret(where):
            refusal.message += f"; did you mean {meant}?"
        self._place(refusal, where)
        raise refusal

    def _place(self, refusal: Refusal, token: int) -> None:
        self._mark(refusal, self.starts[token])

    def _mark(self, refusal: Refusal, offset: int) -> None:
        line, column = self.tokens.place(offset)
        near = self._near(line, column)
        refusal.detail.update(line=line, column=column, near=near)
        refusal.message += f" (line {line}, column {column})\n{near}"
        refusal.args = (refusal.message,)

    def _secretive(self) -> bool:
        if self._secrets is None:
            self._secrets = any(map(self._secret_at, range(0, len(self.tokens.text), _LOOKED_AT)))
        return self._secrets

    def _secret_at(self, start: int) -> bool:
        if start and self._tick is not None:
            self._tick()
        # Overlaps the next piece: a word may cross the boundary.
        text = self.tokens.text[start : start + _LOOKED_AT + 16].lower()
        return any(word in text for word in _SECRETIVE)

    def _found(self, token: int) -> str:
        kind, text = self.kinds[token], self.texts[token]
        if kind == END:
            return "the end of the script"
        if kind == BAD:
            if text == "/*":
                return "an unterminated comment"
            if text[-1] in "'\"`":
                return "an unterminated string" if text[-1] != "`" else "an unterminated name"
        if text[-1] in "'\"" and self._secretive():
            return "a string"
        if self._is_secret(token):
            return "something that is not a string"
        return "`" + _ODD.sub("?", text if len(text) <= 40 else text[:37] + "...") + "`"

    def _is_secret(self, token: int) -> bool:
        """True if a token is in the position of a secret."""
        if token == 0 or self.kinds[token] in (END, PUNCTUATION, PARAM):
            return False
        return self.texts[token - 1].upper() in _BEFORE_SECRETS

    def _near(self, line: int, column: int) -> str:
        """Return the part of a line around the column, over a caret."""
        text = self.tokens.text
        start = self.tokens.line_start(line)
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        at = start + column - 1
        if self._secretive():
            before, after = self._hidden(start, at), self._hidden(at, end)
        else:
            before, after = text[max(start, at - 2 * _SHOWN) : at], text[at : min(end, at + _SHOWN)]
        before, after = _ODD.sub(" ", before).lstrip(), _ODD.sub(" ", after).rstrip()
        if len(before) > _SHOWN:
            before = "..." + before[3 - _SHOWN :]
        if len(after) >= _SHOWN:
            after = after[: _SHOWN - 3] + "..."
        return f"{before}{after}\n{' ' * len(before)}^"

    def _hidden(self, start: int, end: int) -> str:
        """Return the tokens that start in a range of the text, without strings and comments."""
        pieces: list[str] = []
        for i in range(bisect_left(self.starts, start), bisect_left(self.starts, end)):
            secret = self.kinds[i] in (STRING, PREFIXED, BAD) or self._is_secret(i)
            pieces.append("'...'" if secret else self.texts[i])
            if i + 1 < len(self.starts) and not self.adjoins(i + 1 - self.i):
                pieces.append(" ")
        return "".join(pieces)
