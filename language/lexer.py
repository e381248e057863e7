"""Text to tokens, with one compiled pattern.

Tokens are three parallel lists (kind, text, start) and not objects: a script may be 16 MiB, and
a few million small objects would cost more than the parse itself. Every repetition in the
pattern is possessive, so no text, however broken, makes the matcher backtrack.
"""

import re
from bisect import bisect_right
from itertools import islice
from typing import Final

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
BAD: Final = 12

_STRING = r"""'(?:[^'\\]++|\\.)*+'|"(?:[^"\\]++|\\.)*+\""""

# The order of the groups is the order of the kinds above.
_PATTERN: Final = re.compile(
    r"(?:\s++|\ufeff|--[^\n]*+|//[^\n]*+|\#[^\n]*+|/\*(?:[^*]++|\*(?!/))*+\*/)*+(?:"
    r"([0-9]++(?!\.[0-9]|[A-Za-z0-9_]))"
    r"|((?![bdmu]['\"])[A-Za-z_][A-Za-z0-9_]*+)"
    r"|((?!/\*)(?:\.\.=|\.\.|<=|>=|!=|\?\?|[-+*/%<>=~.,;:()\[\]{}|]))"
    rf"|({_STRING})"
    r"|(\$[A-Za-z_][A-Za-z0-9_]*+)"
    r"|([0-9]++(?:\.[0-9]++)?+(?:[eE][-+]?+[0-9]++)?+(?:dec)?+(?![A-Za-z0-9_]))"
    r"|((?:[0-9]++(?:us|ms|[wdhms]))++(?![A-Za-z0-9_]))"
    rf"|([bdmu](?:{_STRING}))"
    r"|(`(?:[^`\\]++|\\.)*+`)"
    r"|([0-9]++[KMGT]i?+B(?![A-Za-z0-9_]))"
    # A fingerprint may begin as a name or number does, and may be one of these.
    r"|([0-9][0-9A-Fa-f]{63}(?![A-Za-z0-9_]))"
    # What is no token takes the rest of the text with it: it is refused anyway, and looking on from
    # every one of a million unclosed quotes would take time that grows with the square of the text.
    r"|([0-9][A-Za-z0-9_]*+|\$|/\*|[bdmu]?['\"]|.).*+"
    r"|\Z)",
    re.DOTALL,
)

_SEPARATOR: Final = re.compile(
    r"(?:[^;'\"`/\#-]++"
    rf"|{_STRING}|`(?:[^`\\]++|\\.)*+`|--[^\n]*+|//[^\n]*+|\#[^\n]*+"
    r"|/\*(?:[^*]++|\*(?!/))*+\*/"
    # As above: what is not closed takes the rest of the text with it.
    r"|(?:['\"`]|/\*).*+|[-/]){0,1024}+(?:(;)[\s;]*+|)",
    re.DOTALL,
)
"""Up to and with the next semicolon, or several of them, that is in no string and no comment; or
as much as may be looked at in one go."""

CHUNK: Final = 2048
"""Tokens read in one go. A text is read as the parser comes to it: one that is wrong at its head,
however long it is, costs no more than its head."""


def token_past(text: str, most: int, tick: Tick | None) -> int | None:
    """Where in a text the first token after so many begins; None when it has no more."""
    return _past(_PATTERN, text, most, tick)


def statement_past(text: str, most: int, tick: Tick | None) -> int | None:
    """Where the semicolon is that ends the first statement, or block, after so many; None when the
    text has no more of them."""
    return _past(_SEPARATOR, text, most, tick)


def _past(pattern: re.Pattern[str], text: str, most: int, tick: Tick | None) -> int | None:
    matches, left = pattern.finditer(text), most
    while True:
        found = list(islice(matches, CHUNK))
        groups = [match.lastindex for match in found]
        count = len(groups) - groups.count(None)
        if count > left:
            told = [match for match, group in zip(found, groups, strict=True) if group is not None]
            return told[left].start(told[left].lastindex or 0)
        if len(found) < CHUNK:
            return None
        left -= count
        if tick is not None:
            tick()


class Tokens:
    """The tokens of one text; the last one is always of kind END and empty.

    Nothing stands after a BAD token but the end.
    """

    __slots__ = ("_line_starts", "_matches", "kinds", "read", "starts", "text", "texts")

    def __init__(self, text: str) -> None:
        self.text = text
        self.kinds: list[int] = []
        self.texts: list[str] = []
        self.starts: list[int] = []
        self.read = 0
        """How many have been read, those among them that were forgotten since."""
        self._line_starts: list[int] | None = None
        # Every character is matched by something, so one match begins where the last one ended.
        self._matches = _PATTERN.finditer(text)
        self.more()

    @property
    def complete(self) -> bool:
        """Whether the end has been read."""
        return self.kinds[-1] == END

    def more(self) -> None:
        """Read the next `CHUNK` tokens, or up to the end."""
        found = list(islice(self._matches, CHUNK))
        self.read += len(found)
        groups = [match.lastindex or END for match in found]
        last = next((n for n, group in enumerate(groups) if group in (BAD, END)), None)
        if last is not None:
            found, groups = found[: last + 1], groups[: last + 1]
        self.kinds += groups
        self.texts += [match[group] for match, group in zip(found, groups, strict=True)]
        self.starts += [match.start(group) for match, group in zip(found, groups, strict=True)]
        if last is not None:
            # The match of the end holds what stands before it, which is no token.
            if groups[last] == END:
                del self.kinds[-1], self.texts[-1], self.starts[-1]
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
