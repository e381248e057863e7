"""Text to tokens, with one compiled pattern.

Tokens are three parallel lists (kind, text, start) and not objects: a script may be 16 MiB, and
a few million small objects would cost more than the parse itself. No text, however broken, makes
the matcher go back far: what is repeated is possessive, or bounded, or can be read in one way only.

Possessive is nothing that can fail behind its first character: up to Python 3.11.4 (Debian 12 has
3.11.2) the matcher goes on behind what it has then read, and not before it (gh-106052). So comments
in /* … */ are no part of the pattern: it finds where one begins, and a search where it ends.
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
"""Nothing is read behind these."""

_STRING = r"""'(?:[^'\\]++|\\.)*+'|"(?:[^"\\]++|\\.)*+\""""
_BLANK = r"(?:[\s\ufeff]++|--[^\n]*+|//[^\n]*+|\#[^\n]*+)*+"
"""Space, and comments to the end of a line."""
_PAST_BLANK: Final = re.compile(_BLANK)

# The order of the groups is the order of the kinds above.
_PATTERN: Final = re.compile(
    rf"{_BLANK}(?:"
    r"([0-9]++(?!\.[0-9]|[A-Za-z0-9_]))"
    r"|((?![bdmu]['\"])[A-Za-z_][A-Za-z0-9_]*+)"
    r"|((?!/\*)(?:\.\.=|\.\.|<=|>=|!=|\?\?|[-+*/%<>=~.,;:()\[\]{}|]))"
    rf"|({_STRING})"
    r"|(\$[A-Za-z_][A-Za-z0-9_]*+)"
    r"|([0-9]++(?:\.[0-9]++|(?!\.[0-9]))(?:[eE][-+]?+[0-9]++|(?![eE][-+]?+[0-9]))(?:dec)?+"
    r"(?![A-Za-z0-9_]))"
    rf"|((?:[0-9]++(?:us|ms|[wdhms])){{1,{DURATION_PARTS}}}(?![A-Za-z0-9_]))"
    rf"|([bdmu](?:{_STRING}))"
    r"|(`(?:[^`\\]++|\\.)*+`)"
    r"|([0-9]++[KMGT]i?+B(?![A-Za-z0-9_]))"
    # A fingerprint may begin as a name or number does, and may be one of these.
    r"|([0-9][0-9A-Fa-f]{63}(?![A-Za-z0-9_]))"
    # It is gone on from behind its end.
    r"|(/\*).*+"
    # What is no token takes the rest of the text with it: it is refused anyway, and looking on from
    # every one of a million unclosed quotes would take time that grows with the square of the text.
    r"|([0-9][A-Za-z0-9_]*+|\$|[bdmu]?['\"]|.).*+"
    r"|\Z)",
    re.DOTALL,
)

_SEPARATOR: Final = re.compile(
    rf"(?:[^;'\"`/\#-]++|{_STRING}|`(?:[^`\\]++|\\.)*+`|--[^\n]*+|//[^\n]*+|\#[^\n]*+"
    r"|-(?!-)|/(?![/*])){0,1024}"
    # As above: what is not closed takes the rest of the text with it.
    r"(?:(;)[\s;]*+|(/\*).*+|['\"`].*+|)",
    re.DOTALL,
)
"""Up to and with the next semicolon, or several of them, that is in no string and no comment; or
as much as may be looked at in one go."""

CHUNK: Final = 2048
"""Tokens read in one go. A text is read as the parser comes to it: one that is wrong at its head,
however long it is, costs no more than its head."""


class _Found:
    """What a pattern finds in a text, in parts.

    :param comment: the group that begins where a comment does
    """

    __slots__ = ("_comment", "_matches", "_pattern", "_text")

    def __init__(self, pattern: re.Pattern[str], text: str, comment: int) -> None:
        self._pattern = pattern
        self._text = text
        self._comment = comment
        # Every character is matched by something, so one match begins where the last one ended.
        self._matches = pattern.finditer(text)

    def more(self) -> list[re.Match[str]] | None:
        """The next `CHUNK` matches, or up to a comment, which is left out, or to the end; None
        behind that. A comment that never ends is found as it begins."""
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
        """Where a comment ends, or the last of several in a row; None: it does not."""
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
    """Where in a text the first token after so many begins; None when it has no more."""
    return _past(_Found(_PATTERN, text, _COMMENT), range(1, BAD + 1), most, tick)


def statement_past(text: str, most: int, tick: Tick | None) -> int | None:
    """Where the semicolon is that ends the first statement, or block, after so many; None when the
    text has no more of them."""
    return _past(_Found(_SEPARATOR, text, 2), range(1, 2), most, tick)


def _past(found: _Found, counted: range, most: int, tick: Tick | None) -> int | None:
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
    """The tokens of one text; the last one is always of kind END and empty.

    Nothing stands after a BAD token but the end.
    """

    __slots__ = ("_found", "_line_starts", "kinds", "read", "starts", "text", "texts")

    def __init__(self, text: str) -> None:
        self.text = text
        self.kinds: list[int] = []
        self.texts: list[str] = []
        self.starts: list[int] = []
        self.read = 0
        """How many have been read, those among them that were forgotten since."""
        self._line_starts: list[int] | None = None
        self._found = _Found(_PATTERN, text, _COMMENT)
        self.more()

    @property
    def complete(self) -> bool:
        """Whether the end has been read."""
        return bool(self.kinds) and self.kinds[-1] == END

    def more(self) -> None:
        """Read the next `CHUNK` tokens, or up to a comment or to the end: there may be none."""
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
            # The match of the end holds what stands before it, which is no token.
            if groups[last] == END:
                del self.kinds[-1], self.texts[-1], self.starts[-1]
            else:
                self.kinds[-1] = BAD
            self.kinds.append(END)
            self.texts.append("")
            self.starts.append(len(self.text))

    def place(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset in the text, both counted from 1."""
        if self._line_starts is None:
            self._line_starts = [0, *(found.end() for found in re.finditer("\n", self.text))]
        line = bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1] + 1

    def line_start(self, line: int) -> int:
        """The offset where a line begins, lines counted from 1."""
        self.place(0)
        assert self._line_starts is not None
        return self._line_starts[line - 1]


def all_tokens(text: str) -> Tokens:
    """Those of a text that is short."""
    tokens = Tokens(text)
    while not tokens.complete:
        tokens.more()
    return tokens
