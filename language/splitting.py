"""A script in statements, of a text that comes in parts: one that is too long to be held.

A statement ends at a `;` that stands in no string and no comment. Blocks are not known here: a
statement that holds others is cut inside, and does not parse.
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
"""What surely is whole, up to a semicolon, a comment, or to what the text ends inside of."""
_SPACE: Final = re.compile(r"[\s\ufeff]*+")
_COMMENTS: Final = {"--": "\n", "//": "\n", "#": "\n", "/*": "*/"}
"""What a comment begins with, and what it ends with."""

_QUOTED: Final = {
    quote: re.compile(rf"(?:[^{quote}\\]++|\\.)*+", re.DOTALL) for quote in ("'", '"', "`")
}
"""What stands between two quotes, or from one to where the text ends."""


class Piece(NamedTuple):
    """One statement of a script."""

    text: str
    """With what stands before it, and its semicolon."""
    line: int
    """Where in the script it begins, from 1."""


class Splitter:
    """Takes a text in parts, and gives its statements."""

    def __init__(self) -> None:
        self._text = ""
        self._at = 0
        """Up to here there is no end."""
        self._line = 1
        self._quote = ""
        """What opened the string that the text ends inside of; it goes on at `_at`."""
        self._end = ""
        """What ends the comment that the text ends inside of; it goes on at `_at`."""

    def feed(self, more: str) -> Iterator[Piece]:
        """The statements that end in the next part. :raises TooLarge: one is too long"""
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

    def rest(self) -> Piece | None:
        """What stands behind the last semicolon, if it is more than space and comments."""
        rest = Piece(self._text, self._line)
        return None if _is_blank(f"{self._text}\n;") else rest


def _comment_at(text: str, at: int) -> str:
    """What a comment begins with at a place; empty: none does."""
    return next((opened for opened in _COMMENTS if text.startswith(opened, at)), "")


def _is_blank(text: str) -> bool:
    """Whether there is nothing but space and comments before a semicolon at the end."""
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
