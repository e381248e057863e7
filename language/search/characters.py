"""Character classes of the tokenizers, from the Unicode tables of Python.

The standard `re` is safe here: these patterns are fixed, and each repeats one class only. Tables
are made on first use, in one or two milliseconds, so that a node without an analyzer has none.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import cache
from typing import Final

_BLOCKS: Final = (
    (0x0080, 0x3100), (0xA000, 0xAC00), (0xD7B0, 0xD800), (0xF900, 0x10000), (0x10000, 0x12500),
    (0x16800, 0x17000), (0x1BC00, 0x1BD00), (0x1CF00, 0x1F000), (0xE0100, 0xE01F0),
)  # fmt: skip
"""Code points that are neither ASCII, Han, Hangul nor private: all others with categories M, P."""

CJK: Final = (
    "\u1100-\u11ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303b\u3041-\u3096"
    "\u3099-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f\u3131-\u318e\u31a0-\u31bf\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7a3\ud7b0-\ud7ff\uf900-\ufaff\uff66-\uffdc"
    "\U00016fe0-\U00018cff\U0001aff0-\U0001b16f\U00020000-\U0003ffff"
)
"""Han, kana, bopomofo and Hangul, as the inside of a class of `re`."""
_ASCII_PUNCTUATION: Final = r"!-/:-@\[-`{-~"


def _ranges(belongs: Callable[[str], bool]) -> str:
    """Return the characters of `_BLOCKS` with a property, as the inside of a class of `re`."""
    found: list[str] = []
    for start, end in _BLOCKS:
        first: int | None = None
        for code in range(start, end + 1):
            if code < end and belongs(chr(code)):
                first = code if first is None else first
            elif first is not None:
                found.append(f"\\U{first:08x}-\\U{code - 1:08x}")
                first = None
    return "".join(found)


@cache
def marks() -> str:
    """Return the combining marks, which belong to the letter before them."""
    return _ranges(lambda one: unicodedata.category(one)[0] == "M")


@cache
def punctuation() -> str:
    """Return the punctuation and the symbols of ASCII."""
    return _ASCII_PUNCTUATION + _ranges(lambda one: unicodedata.category(one)[0] == "P")


@cache
def word_pattern(tokenizer: str) -> re.Pattern[str]:
    """Return the pattern of the words of a tokenizer: `class`, `punct` or `blank`."""
    if tokenizer == "class":
        # Letters with their marks, or digits; `\w` has the letters but not the marks.
        return re.compile(rf"(?:[^\W\d_]|[{marks()}])+|\d+")
    if tokenizer == "punct":
        return re.compile(rf"[^\s{punctuation()}]+")
    return re.compile(r"\S+")


CJK_RUN: Final = re.compile(f"[{CJK}]+")
CJK_OR_OTHER: Final = re.compile(f"([{CJK}]+)|[^{CJK}]+")


def camel_parts(word: str) -> list[tuple[int, int]]:
    """Return the parts of a word that begin with a capital: `HTMLPage` has HTML and Page."""
    starts = [0]
    for at in range(1, len(word)):
        if not word[at].isupper():
            continue
        follows_small = not word[at - 1].isupper()
        begins_word = at + 1 < len(word) and word[at + 1].islower()
        if follows_small or begins_word:
            starts.append(at)
    return list(zip(starts, [*starts[1:], len(word)], strict=True))
