"""Splits a script that is too long to be held into statements, as its text arrives in parts.

A statement ends at a `;` outside strings and comments. Blocks are not recognized: a statement with
a block is cut inside it, and does not parse.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from protocol import limits
from protocol.errors import TooLarge

_STRING: Final = r"""'(?:[^'\\]++|\\.)*+'|"(?:[^"\\]++|\\.)*+\"|`(?:[^`\\]++|\\.)*+`"""
_PARTS: Final = re.compile(
    rf"(?:[^;'\"`/\#-]++|{_STRING}|-(?=[^-])|/(?=[^/*])){{0,4096}}", re.DOTALL
)
"""Matches complete text up to a semicolon, a comment, or the start of an unfinished token."""
_SPACE: Final = re.compile(r"[\s\ufeff]*+")
_COMMENTS: Final = {"--": "\n", "//": "\n", "#": "\n", "/*": "*/"}
"""Start and end markers of comments."""

_QUOTED: Final = {
    quote: re.compile(rf"(?:[^{quote}\\]++|\\.)*+", re.DOTALL) for quote in ("'", '"', "`")
}
"""Matches the content of a string up to its closing quote or the end of the text."""


class Piece(NamedTuple):
    """A statement of a script."""

    text: str
    """Text of the statement, with preceding space and comments and its semicolon."""
    line: int
    """Line in the script where the text starts, from 1."""


class Splitter:
    """Incremental splitter: takes text in parts and yields statements."""

    def __init__(self) -> None:
        self._text = ""
        self._at = 0
        """Offset up to which no statement ends."""
        self._line = 1
        self._quote = ""
        """Opening quote of an unfinished string, which continues at `_at`."""
        self._end = ""
        """End marker of an unfinished comment, which continues at `_at`."""

    def feed(self, more: str) -> Iterator[Piece]:
        """Yield the statements that end in the next part of the text. :raises TooLarge: one is too
        long"""
        text = self._text + more if self._text else more
        start, at, line = 0, self._at, self._line
        while True:
            if self._quote:
                inside = _QUOTED[self._quote].match(text, at)
                assert inside is not None, "the pattern matches nothing as well"
                at = inside.end()
                if text[at : at + 1] != self._quote:
                    break
                self._quote, at = "", at + 1
            if self._end:
                closed = text.find(self._end, at)
                if closed < 0:
                    at = max(at, len(text) - len(self._end) + 1)  # half of the end may be there
                    break
                self._end, at = "", closed + len(self._end)
            found = _PARTS.match(text, at)
            assert found is not None, "the pattern matches nothing as well"
            end = found.end()
            if text[end : end + 1] == ";":
                piece = text[start : end + 1]
                if not _is_blank(piece):
                    yield Piece(piece, line)
                line += piece.count("\n")
                start = at = end + 1
            elif text[end : end + 1] in _QUOTED:
                # One that may be megabytes is looked through once, however it comes.
                self._quote, at = text[end], end + 1
            elif opened := _comment_at(text, end):
                self._end, at = _COMMENTS[opened], end + len(opened)
            elif end == at:
                break
            else:
                at = end
        self._text, self._at, self._line = text[start:], at - start, line
        if len(self._text) > limits.SCRIPT_BYTES:
            raise TooLarge(
                f"a statement of a script has at most {limits.SCRIPT_BYTES} bytes",
                limit=limits.SCRIPT_BYTES,
                line=line,
                column=1,
            )

    def remainder(self) -> Piece | None:
        """Return the text after the last semicolon, unless it is only space and comments."""
        rest = Piece(self._text, self._line)
        return None if _is_blank(f"{self._text}\n;") else rest


def _comment_at(text: str, at: int) -> str:
    """Return the marker of a comment that starts at an offset, or an empty string."""
    return next((opened for opened in _COMMENTS if text.startswith(opened, at)), "")


def _is_blank(text: str) -> bool:
    """True if a text is only space and comments before a final semicolon."""
    at = 0
    while True:
        space = _SPACE.match(text, at)
        assert space is not None, "the pattern matches nothing as well"
        at = space.end()
        opened = _comment_at(text, at)
        if not opened:
            return at == len(text) - 1 and text[at] == ";"
        closed = text.find(_COMMENTS[opened], at + len(opened))
        if closed < 0:
            return False
        at = closed + len(_COMMENTS[opened])
