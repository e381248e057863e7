"""JSON parser that yields, so that 16 MiB of text do not block the event loop.

The C scanner of `json` parses a value in one call, and the length of that value is unknown before.
So it gets a window of the text: a value that is complete within the window was short. An array or
object that does not fit is parsed item by item. A string or number that does not fit is scanned in
the whole text, which is fast per byte.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from json.decoder import scanstring  # type: ignore[attr-defined]  # not in the stubs
from typing import Any, Final

from protocol import limits
from protocol.errors import TooLarge
from protocol.values import Tick

WINDOW_CHARACTERS: Final = 32 * 1024
"""Window size: about a millisecond for the scanner, whatever the text contains."""
WINDOW_CHARACTERS_MIN: Final = 256
"""Window size after a value that did not fit. Windows then grow again as the text is read, so that
nested values that do not fit are not scanned once per level."""
MARGIN: Final = 8
"""A value that ends this close to the end of its window may continue behind it: of `1.5` only the 1
may be visible."""

DEEPEST: Final = 4 * limits.DEPTH
"""Nesting depth of arrays and objects that is parsed: more than any value has with its tags.
Counted here, since in the compiled module only a stack overflow would end the recursion."""

_SPACE: Final = re.compile(r"[ \t\n\r]*+")


Scan = Callable[[str, int], tuple[Any, int]]
"""`JSONDecoder.scan_once`: returns the value that begins at a position of a text, and its end."""
Made = Callable[[list[tuple[str, Any]]], dict[str, Any]]


def load_in_steps(text: str, scan: Scan, made: Made, tick: Tick) -> Any:
    """Return the result of decoding a whole text.

    :param scan: the decoder's `scan_once`
    :param made: the decoder's hook for the pairs of an object
    :param tick: called between the steps
    :raises json.JSONDecodeError: like the decoder
    :raises TooLarge: nested deeper than any value
    """
    reader = _Reader(text, scan, made, tick)
    value = reader.value(reader.after_space(0))
    if reader.at != len(text):
        raise json.JSONDecodeError("Extra data", text, reader.at)
    return value


class _Reader:
    """A position in the text.

    :ivar at: the first unread character that is not white space
    """

    def __init__(self, text: str, scan: Scan, made: Made, tick: Tick) -> None:
        self.at = 0
        self._text = text
        self._scan = scan
        self._made = made
        self._tick = tick
        self._window = ""
        self._from = 0
        self._size = WINDOW_CHARACTERS_MIN
        self._safe = -1
        """A value that begins in the window and ends before this position is complete."""
        self._depth = 0
        """Number of arrays and objects that are open."""

    def after_space(self, at: int) -> int:
        """Return the position of the first character from `at` on that is not white space."""
        found = _SPACE.match(self._text, at)
        assert found is not None, "the pattern matches nothing as well"
        return found.end()

    def value(self, at: int) -> Any:
        """Parse the value that begins at a position; `self.at` is behind it afterwards."""
        if at >= self._safe:
            self._size = min(self._size * 2, WINDOW_CHARACTERS)
            self._open(at)
        found = self._glimpsed(at)
        if found is None and self._from != at:
            self._size = min(self._size * 2, WINDOW_CHARACTERS)
            self._open(at)
            found = self._glimpsed(at)
        if found is None:
            self._size = WINDOW_CHARACTERS_MIN
            self._safe = -1
            return self._long(at)
        value, end = found
        self.at = self.after_space(end)
        return value

    def _open(self, at: int) -> None:
        self._tick()
        self._from = at
        self._window = self._text[at : at + self._size]
        whole = at + len(self._window) >= len(self._text)
        self._safe = len(self._text) + 1 if whole else at + len(self._window) - MARGIN

    def _glimpsed(self, at: int) -> tuple[Any, int] | None:
        """Return a value and its end, if it is complete within the window."""
        try:
            value, end = self._scan(self._window, at - self._from)
        except (StopIteration, json.JSONDecodeError):
            return None
        end += self._from
        return (value, end) if end < self._safe else None

    def _long(self, at: int) -> Any:
        first = self._text[at : at + 1]
        if first == "[" or first == "{":
            self._depth += 1
            if self._depth > DEEPEST:
                raise TooLarge(f"values nest at most {limits.DEPTH} deep", limit=limits.DEPTH)
            entered = self._array(at) if first == "[" else self._object(at)
            self._depth -= 1
            return entered
        try:
            value, end = self._scan(self._text, at)
        except StopIteration as stopped:
            raise json.JSONDecodeError("Expecting value", self._text, stopped.value) from None
        self.at = self.after_space(end)
        return value

    def _array(self, at: int) -> list[Any]:
        items: list[Any] = []
        self.at = self.after_space(at + 1)
        if self._take("]"):
            return items
        while True:
            items.append(self.value(self.at))
            if self._take("]"):
                return items
            self._comma()

    def _object(self, at: int) -> dict[str, Any]:
        pairs: list[tuple[str, Any]] = []
        self.at = self.after_space(at + 1)
        if self._take("}"):
            return self._made(pairs)
        while True:
            if self._text[self.at : self.at + 1] != '"':
                raise json.JSONDecodeError(
                    "Expecting property name enclosed in double quotes", self._text, self.at
                )
            name, end = scanstring(self._text, self.at + 1, True)
            self.at = self.after_space(end)
            if not self._take(":"):
                raise json.JSONDecodeError("Expecting ':' delimiter", self._text, self.at)
            pairs.append((name, self.value(self.at)))
            if self._take("}"):
                return self._made(pairs)
            self._comma()

    def _take(self, mark: str) -> bool:
        if self._text[self.at : self.at + 1] != mark:
            return False
        self.at = self.after_space(self.at + 1)
        return True

    def _comma(self) -> None:
        if not self._take(","):
            raise json.JSONDecodeError("Expecting ',' delimiter", self._text, self.at)
