"""Regular expressions, matched by RE2 only.

RE2's time is linear in the text for every pattern. The standard library's backtracking matcher can
be blocked for seconds by 27 characters.

Linear is not always fast. A pattern like `b[ab]{500}x` runs all of its steps for each byte, ten
seconds for a megabyte, in one call that cannot be interrupted. The product of pattern size and text
length is therefore bounded. A match or compilation that may take long starts in a new time slice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import re2

from language.planning import Charge
from protocol import limits
from protocol.errors import BadRequest, TooLarge, TypeRefused
from protocol.values import PACE, type_name

_MEMORY_BYTES: Final = limits.MIB
"""Maximum memory of a compiled pattern: `(x{1000}){1000}` is rejected without being built."""
_SHORT_STEPS: Final = 4096
"""Maximum number of steps of a match that needs no tick: some tens of microseconds."""

_STEPS_A_COST: Final = 16
"""Number of match steps that cost as much as one array item."""
_CLASS_COST: Final = 2 * PACE
"""Cost of compiling a Unicode class: most of its hundreds of ranges are folded to both cases."""

Match = Callable[[str, Charge], bool]
"""True if the pattern matches anywhere in a text. Raises TooLarge past `limits.PATTERN_STEPS`."""


def pattern(expression: Any, tick: Charge) -> Match:
    """Return the compiled matcher of a pattern, from the cache if possible.

    :param tick: called before a pattern is compiled
    :raises TypeRefused: not a string
    :raises TooLarge: longer than `limits.PATTERN_CHARACTERS`, or more Unicode classes than
        `limits.PATTERN_CLASSES`
    :raises BadRequest: not in RE2 syntax, or too large once compiled
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
"""Number of cached patterns or compile errors: compiling takes up to some milliseconds."""


def _classes(expression: str) -> int:
    """Return the number of Unicode classes in a pattern. :raises TooLarge: more than allowed"""
    found = expression.count("\\p") + expression.count("\\P")
    if found > limits.PATTERN_CLASSES:
        raise TooLarge(
            f"a pattern has at most {limits.PATTERN_CLASSES} classes of Unicode, this one {found}",
            limit=limits.PATTERN_CLASSES,
            size=found,
        )
    return found


def _compiled(expression: str) -> Match | str:
    """Compile a pattern. Return its matcher, or the error message if it is invalid."""
    options = re2.Options()
    options.max_mem = _MEMORY_BYTES
    options.log_errors = False
    options.never_capture = True  # groups are not used, and finding them is slower
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
    """Check the size of a match. :raises TooLarge: the text is too long for the pattern's size"""
    most = limits.PATTERN_STEPS // size
    if len(text) * 4 <= most:
        return
    length = len(text) if text.isascii() else len(text.encode())
    if length > most:
        raise TooLarge(
            f"this pattern takes texts of at most {most} bytes, this one has {length}: use"
            " a simpler pattern, or string::contains or string::starts",
            limit=most,
            size=length,
        )


def beginning(expression: str) -> str:
    """Return the literal prefix of every text that a pattern matches, or an empty string.

    It is `ab` for `^ab+c*`, and empty for a pattern that is not anchored at the start. It is also
    empty for a pattern with `(?`. RE2 treats a flag group as empty, so that in `^ab(?i)*` the `b`
    is optional.
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
