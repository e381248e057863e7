"""Text to tokens, with one compiled pattern.

Tokens are three parallel lists (kind, text, start) and not objects: a script may be 16 MiB, and
a few million small objects would cost more than the parse itself. Every repetition in the
pattern is possessive, so no text, however broken, makes the matcher backtrack.
"""

import re
from bisect import bisect_right
from collections.abc import Callable
from typing import Final

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
BAD: Final = 10

_STRING = r"""'(?:[^'\\]++|\\.)*+'|"(?:[^"\\]++|\\.)*+\""""

# The order of the groups is the order of the kinds above.
_PATTERN: Final = re.compile(
    r"(?:\s++|\ufeff|--[^\n]*+|//[^\n]*+|\#[^\n]*+|/\*(?:[^*]++|\*(?!/))*+\*/)*+(?:"
    r"([0-9]++(?!\.[0-9]|[A-Za-z0-9_]))"
    r"|((?![bdu]['\"])[A-Za-z_][A-Za-z0-9_]*+)"
    r"|((?!/\*)(?:\.\.=|\.\.|<=|>=|!=|\?\?|[-+*/%<>=~.,;:()\[\]{}|]))"
    rf"|({_STRING})"
    r"|(\$[A-Za-z_][A-Za-z0-9_]*+)"
    r"|([0-9]++(?:\.[0-9]++)?+(?:[eE][-+]?+[0-9]++)?+(?:dec)?+(?![A-Za-z0-9_]))"
    r"|((?:[0-9]++(?:us|ms|[wdhms]))++(?![A-Za-z0-9_]))"
    rf"|([bdu](?:{_STRING}))"
    r"|(`(?:[^`\\]++|\\.)*+`)"
    r"|([0-9][A-Za-z0-9_]*+|\$|/\*|[bdu]?['\"]|.)"
    r"|\Z)",
    re.DOTALL,
)

_TICK_EVERY: Final = 4096


class Tokens:
    """The tokens of one text; the last one is always of kind END and empty.

    Nothing after a BAD token is read: it is refused anyway, and looking on from every one of a
    million unclosed quotes would take time that grows with the square of the text.
    """

    __slots__ = ("_line_starts", "kinds", "starts", "text", "texts")

    def __init__(self, text: str, tick: Callable[[], None] | None = None) -> None:
        self.text = text
        self.kinds: list[int] = []
        self.texts: list[str] = []
        self.starts: list[int] = []
        self._line_starts: list[int] | None = None
        kind, word, start = self.kinds.append, self.texts.append, self.starts.append
        match = _PATTERN.match
        at, until_tick = 0, _TICK_EVERY
        while True:
            found = match(text, at)
            assert found is not None, "the last alternatives take any character and the end"
            group = found.lastindex
            if group is None:
                break
            kind(group)
            word(found[group])
            start(found.start(group))
            if group == BAD:
                break
            at = found.end()
            until_tick -= 1
            if not until_tick:
                until_tick = _TICK_EVERY
                if tick is not None:
                    tick()
        kind(END)
        word("")
        start(len(text))

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
