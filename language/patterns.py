"""Regular expressions, matched by RE2 alone: its time is linear in the text for every pattern,
where 27 characters can hold the standard library's matcher for seconds.

Linear is not short: a pattern like `b[ab]{500}x` goes through all of its steps for each byte, ten
seconds for a megabyte, in one call that nothing interrupts. So what a pattern's size and a text's
make together is bounded, and a match or a compilation that may take long begins in a slice of its
own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import re2

from language.planning import Charge
from protocol import limits
from protocol.errors import BadRequest, TooLarge, TypeRefused
from protocol.values import PACE, type_name

_MEMORY_BYTES: Final = limits.MIB
"""What one compiled pattern may take: `(x{1000}){1000}` is refused and not built."""
_SHORT_STEPS: Final = 4096
"""A match of no more takes some tens of microseconds at most: rows of a batch need no tick."""

_STEPS_A_COST: Final = 16
"""Steps that take as long as an item of an array."""
_CLASS_COST: Final = 2 * PACE
"""Of a class of Unicode, most of whose hundreds of ranges are folded to both cases."""

Match = Callable[[str, Charge], bool]
"""Whether a pattern matches somewhere in a text; raises TooLarge past `limits.PATTERN_STEPS`."""


def pattern(expression: Any, tick: Charge) -> Match:
    """The test for a pattern.

    :param tick: called before one is compiled
    :raises TypeRefused: not a string
    :raises TooLarge: longer than `limits.PATTERN_CHARACTERS`, more than `limits.PATTERN_CLASSES`
    :raises BadRequest: not in the syntax of RE2, or too large once compiled
    """
    if type(expression) is not str:
        raise TypeRefused(f"a pattern is a string, not {type_name(expression)}")
    if len(expression) > limits.PATTERN_CHARACTERS:
        raise TooLarge(
            f"a pattern has at most {limits.PATTERN_CHARACTERS} characters",
            limit=limits.PATTERN_CHARACTERS,
        )
    found = _known.get(expression)
    if found is None:
        tick(PACE + _CLASS_COST * _classes(expression))
        found = _compiled(expression)
        if len(_known) >= PATTERNS_KNOWN:
            del _known[next(iter(_known))]
        _known[expression] = found
    if isinstance(found, str):
        raise BadRequest(f"not a pattern: {found}", pattern=expression)
    return found


_known: Final[dict[str, Match | str]] = {}
PATTERNS_KNOWN: Final = 256
"""Patterns kept as they were compiled, or why they were not: it takes up to some milliseconds."""


def _classes(expression: str) -> int:
    """Return how many classes of Unicode a pattern names. :raises TooLarge: more than may be"""
    found = expression.count("\\p") + expression.count("\\P")
    if found > limits.PATTERN_CLASSES:
        raise TooLarge(
            f"a pattern has at most {limits.PATTERN_CLASSES} classes of Unicode, this one {found}",
            limit=limits.PATTERN_CLASSES,
            size=found,
        )
    return found


def _compiled(expression: str) -> Match | str:
    """Return the test for a pattern, or why it is none."""
    options = re2.Options()
    options.max_mem = _MEMORY_BYTES
    options.log_errors = False
    options.never_capture = True  # nobody asks for groups, and to find them takes longer
    try:
        compiled = re2.compile(expression, options)
    except re2.error as error:
        return _words(error)
    search, size = compiled.search, compiled.programsize

    def match(text: str, tick: Charge) -> bool:
        steps = len(text) * size
        if steps > _SHORT_STEPS:
            _hold_to_steps(text, size)
            tick(PACE + steps // _STEPS_A_COST)
        return search(text) is not None

    return match


def _hold_to_steps(text: str, size: int) -> None:
    """:raises TooLarge: a text that is too long for a pattern of that size"""
    most = limits.PATTERN_STEPS // size
    if len(text) * 4 <= most:
        return
    length = len(text) if text.isascii() else len(text.encode())
    if length > most:
        raise TooLarge(
            f"this pattern is held against texts of at most {most} bytes, this one has {length}:"
            " a simpler pattern takes longer ones, and string::contains and string::starts any",
            limit=most,
            size=length,
        )


def beginning(expression: str) -> str:
    """What every text that a pattern matches begins with, as far as the pattern shows it plainly:
    `ab` of `^ab+c*`; nothing of a pattern that is not bound to the beginning.

    Nor of one with `(?`: RE2 takes a group of flags for nothing at all, so that in `^ab(?i)*` it is
    the `b` that may be missing.
    """
    if expression[:1] != "^" or "|" in expression or "(?" in expression:
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
