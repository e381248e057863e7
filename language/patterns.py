"""Regular expressions, matched by RE2 alone: its time is linear in the text for every pattern,
where 27 characters can hold the standard library's matcher for seconds."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import re2

from protocol import limits
from protocol.errors import BadRequest, TooLarge, TypeRefused
from protocol.values import type_name

_MEMORY_BYTES: Final = limits.MIB
"""What one compiled pattern may take: `(x{1000}){1000}` is refused and not built."""


def pattern(expression: Any) -> Callable[[str], Any]:
    """A search function for a pattern, answering None for no match.

    :raises TypeRefused: not a string
    :raises TooLarge: longer than `limits.PATTERN_CHARACTERS`
    :raises BadRequest: not in the syntax of RE2, or too large once compiled
    """
    if type(expression) is not str:
        raise TypeRefused(f"a pattern is a string, not {type_name(expression)}")
    return _compiled(expression)


@lru_cache(maxsize=256)
def _compiled(expression: str) -> Callable[[str], Any]:
    if len(expression) > limits.PATTERN_CHARACTERS:
        raise TooLarge(
            f"a pattern has at most {limits.PATTERN_CHARACTERS} characters",
            limit=limits.PATTERN_CHARACTERS,
        )
    options = re2.Options()
    options.max_mem = _MEMORY_BYTES
    options.log_errors = False
    try:
        return re2.compile(expression, options).search  # type: ignore[no-any-return]
    except re2.error as error:
        raise BadRequest(f"not a pattern: {_words(error)}", pattern=expression) from None


def beginning(expression: str) -> str:
    """What every text that a pattern matches begins with, as far as the pattern shows it plainly:
    `ab` of `^ab+c*`; nothing of a pattern that is not bound to the beginning."""
    if expression[:1] != "^" or "|" in expression:
        return ""
    found: list[str] = []
    at = 1
    while at < len(expression):
        mark = expression[at]
        if mark == "\\":
            at += 1
            mark = expression[at : at + 1]
            if mark.isalnum() or not mark.isascii() or not mark:
                break  # a class of characters, or a text in quotes
        elif mark in _REPEATED:
            if mark != "+":
                del found[-1:]
            break
        elif mark in _SPECIAL:
            break
        found.append(mark)
        at += 1
    return "".join(found)


_REPEATED: Final = frozenset("*?{+")
_SPECIAL: Final = frozenset(".[]()$^}")


def _words(error: Exception) -> str:
    told = error.args[0] if error.args else error
    return told.decode(errors="replace") if isinstance(told, bytes) else str(told)
