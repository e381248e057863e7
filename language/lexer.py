"""Lexer: text to tokens, with one compiled pattern.

Tokens are three parallel lists (kind, text, start) and not objects. A script may be 16 MiB, and a
few million small objects would cost more than the parse itself. No malformed text makes the matcher
backtrack far: repetitions are possessive, bounded, or unambiguous.

A possessive repetition contains nothing that can fail after its first character. Up to Python
3.11.4 (Debian 12 has 3.11.2) the matcher resumes after the text consumed by a failed attempt
instead of before it (gh-106052). Comments in /* … */ are therefore not part of the pattern: it
finds their start, and a search finds their end.
"""

import re
from bisect import bisect_right
from itertools import islice
from typing import Final

from protocol.limits import DURATION_PARTS
from protocol.values import Tick

END: Final = 0
INT: Final = 1
NAME: Final = 2
PUNCTUATION: Final = 3
STRING: Final = 4
PARAM: Final = 5
FLOAT: Final = 6
DURATION: Final = 7
PREFIXED: Final = 8
QUOTED: Final = 9
SIZE: Final = 10
FINGERPRINT: Final = 11
_COMMENT: Final = 12
BAD: Final = 13
_LAST: Final = frozenset({END, _COMMENT, BAD})
"""Kinds after which no token is read."""

_STRING = r"""'(?:[^'\\]++|\\.)*+'|"(?:[^"\\]++|\\.)*+\""""
_BLANK = r"(?:[\s\ufeff]++|--[^\n]*+|//[^\n]*+|\#[^\n]*+)*+"
"""White space, and comments up to the end of a line."""
_PAST_BLANK: Final = re.compile(_BLANK)

# The order of the groups is the order of the kinds above.
_PATTERN: Final = re.compile(
    rf"{_BLANK}(?:"
    r"([0-9]++(?!\.[0-9]|[A-Za-z0-9_]))"
    r"|((?![bdmu]['\"])[A-Za-z_][A-Za-z0-9_]*+)"
    r"|((?!/\*)(?:@@|\.\.=|\.\.|<=|>=|!=|\?\?|[-+*/%<>=~.,;:()\[\]{}|]))"
    rf"|({_STRING})"
    r"|(\$[A-Za-z_][A-Za-z0-9_]*+)"
    r"|([0-9]++(?:\.[0-9]++|(?!\.[0-9]))(?:[eE][-+]?+[0-9]++|(?![eE][-+]?+[0-9]))(?:dec)?+"
    r"(?![A-Za-z0-9_]))"
    rf"|((?:[0-9]++(?:us|ms|[wdhms])){{1,{DURATION_PARTS}}}(?![A-Za-z0-9_]))"
    rf"|([bdmu](?:{_STRING}))"
    r"|(`(?:[^`\\]++|\\.)*+`)"
    r"|([0-9]++[KMGT]i?+B(?![A-Za-z0-9_]))"
    # A fingerprint that starts like a name or number may match as one of these instead.
    r"|([0-9][0-9A-Fa-f]{63}(?![A-Za-z0-9_]))"
    # A comment. Matching resumes after its end.
    r"|(/\*).*+"
    # An invalid token consumes the rest of the text, which is rejected anyway. Resuming the search
    # after each of a million unclosed quotes would take quadratic time.
    r"|([0-9][A-Za-z0-9_]*+|\$|[bdmu]?['\"]|.).*+"
    r"|\Z)",
    re.DOTALL,
)

_SEPARATOR: Final = re.compile(
    rf"(?:[^;'\"`/\#-]++|{_STRING}|`(?:[^`\\]++|\\.)*+`|--[^\n]*+|//[^\n]*+|\#[^\n]*+"
    r"|-(?!-)|/(?![/*])){0,1024}"
    # As above: an unterminated string or comment consumes the rest of the text.
    r"(?:(;)[\s;]*+|(/\*).*+|['\"`].*+|)",
    re.DOTALL,
)
"""Matches up to and including the next semicolon (or several) outside strings and comments, or up
to as much as may be examined at once."""

CHUNK: Final = 2048
"""Number of tokens read at once.

The text is read as the parser advances: a text with an error at its start costs only its start,
regardless of its length.
"""


class _ChunkedMatches:
    """Matches of a pattern in a text, found in chunks.

    :param comment: number of the group that matches the start of a comment
    """

    __slots__ = ("_comment", "_matches", "_pattern", "_text")

    def __init__(self, pattern: re.Pattern[str], text: str, comment: int) -> None:
        self._pattern = pattern
        self._text = text
        self._comment = comment
        # Every character is matched, so each match starts where the previous one ended.
        self._matches = pattern.finditer(text)

    def more(self) -> list[re.Match[str]] | None:
        """Return the next matches, or None after the end of the text.

        Returns at most `CHUNK` matches, up to a comment (left out) or the end. An unterminated
        comment is returned as the match at its start.
        """
        found = list(islice(self._matches, CHUNK))
        if not found:
            return None
        # It takes the rest of the text, behind which there is the end at most.
        for at in range(max(len(found) - 2, 0), len(found)):
            if found[at].lastindex == self._comment:
                end = self._end_of(found[at].start(self._comment))
                if end is not None:
                    self._matches = self._pattern.finditer(self._text, end)
                    return found[:at]
        return found

    def _end_of(self, start: int) -> int | None:
        """Return the end of a comment or of the last of several in a row; None if unterminated."""
        at = start
        for _ in range(CHUNK):
            end = self._text.find("*/", at + 2)
            if end < 0:
                return None if at == start else at
            blank = _PAST_BLANK.match(self._text, end + 2)
            assert blank is not None, "the pattern matches nothing as well"
            at = blank.end()
            if not self._text.startswith("/*", at):
                break
        return at


def token_past(text: str, most: int, tick: Tick | None) -> int | None:
    """Return the offset of the first token after the first `most`; None if there are no more."""
    return _past(_ChunkedMatches(_PATTERN, text, _COMMENT), range(1, BAD + 1), most, tick)


def statement_past(text: str, most: int, tick: Tick | None) -> int | None:
    """Return the offset of the semicolon that ends the first statement or block after the first
    `most`.

    None if the text has no more of them.
    """
    return _past(_ChunkedMatches(_SEPARATOR, text, 2), range(1, 2), most, tick)


def _past(found: _ChunkedMatches, counted: range, most: int, tick: Tick | None) -> int | None:
    left = most
    while (matches := found.more()) is not None:
        told = [match for match in matches if (match.lastindex or 0) in counted]
        if len(told) > left:
            return told[left].start(told[left].lastindex or 0)
        left -= len(told)
        if tick is not None:
            tick()
    return None


class Tokens:
    """Tokens of one text. The last is always of kind END and empty.

    A BAD token is followed only by the end.
    """

    __slots__ = ("_found", "_line_starts", "kinds", "read", "starts", "text", "texts")

    def __init__(self, text: str) -> None:
        self.text = text
        self.kinds: list[int] = []
        self.texts: list[str] = []
        self.starts: list[int] = []
        self.read = 0
        """Number of tokens read, including those already discarded."""
        self._line_starts: list[int] | None = None
        self._found = _ChunkedMatches(_PATTERN, text, _COMMENT)
        self.more()

    @property
    def complete(self) -> bool:
        """True if the end of the text has been read."""
        return bool(self.kinds) and self.kinds[-1] == END

    def more(self) -> None:
        """Read up to `CHUNK` more tokens, up to a comment or the end. May add none."""
        found = self._found.more() or []
        self.read += len(found)
        groups = [match.lastindex or END for match in found]
        last = next((n for n, group in enumerate(groups) if group in _LAST), None)
        if last is not None:
            found, groups = found[: last + 1], groups[: last + 1]
        self.kinds += groups
        self.texts += [match[group] for match, group in zip(found, groups, strict=True)]
        self.starts += [match.start(group) for match, group in zip(found, groups, strict=True)]
        if last is not None:
            # The match of the end holds the white space before it, which is not a token.
            if groups[last] == END:
                del self.kinds[-1], self.texts[-1], self.starts[-1]
            else:
                self.kinds[-1] = BAD
            self.kinds.append(END)
            self.texts.append("")
            self.starts.append(len(self.text))

    def place(self, offset: int) -> tuple[int, int]:
        """Return line and column of an offset, both counted from 1."""
        if self._line_starts is None:
            self._line_starts = [0, *(found.end() for found in re.finditer("\n", self.text))]
        line = bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1] + 1

    def line_start(self, line: int) -> int:
        """Return the offset of the start of a line. Lines count from 1."""
        self.place(0)
        assert self._line_starts is not None
        return self._line_starts[line - 1]


def all_tokens(text: str) -> Tokens:
    """Return all tokens of a short text."""
    tokens = Tokens(text)
    while not tokens.complete:
        tokens.more()
    return tokens
