"""Patterns that mean the same in every Python 3.11."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterable, Iterator
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any

import pytest

from language.lexer import BAD, all_tokens
from language.parser import parse
from protocol.errors import Refusal

ROOMS = ("language", "protocol", "storage", "actors", "surfaces")
LOOKS = {
    _constants.ASSERT, _constants.ASSERT_NOT, _constants.ATOMIC_GROUP, _constants.BRANCH,
    _constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT,
    _constants.SUBPATTERN,
}  # fmt: skip
"""What leaves the matcher where it was begun, though it may fail."""


def patterns() -> Iterator[tuple[str, re.Pattern[Any]]]:
    """All that the node's modules hold, by name."""
    for room in ROOMS:
        package = importlib.import_module(room)
        for found in pkgutil.walk_packages(package.__path__, f"{room}."):
            for name, value in vars(importlib.import_module(found.name)).items():
                held = value.values() if isinstance(value, dict) else [value]
                yield from (
                    (f"{found.name}.{name}", one) for one in held if isinstance(one, re.Pattern)
                )


def wrong(pattern: str | bytes, flags: int = 0) -> bool:
    """Whether it has a possessive group that may fail behind its first character."""
    return any(_wrong(op, told) for op, told in _parts(_parser.parse(pattern, flags)))


def _parts(parsed: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
    for op, told in parsed:
        yield op, told
        if op is _constants.BRANCH:
            for each in told[1]:
                yield from _parts(each)
        elif op is _constants.SUBPATTERN:
            yield from _parts(told[3])
        elif op in (_constants.ASSERT, _constants.ASSERT_NOT):
            yield from _parts(told[1])
        elif op is _constants.ATOMIC_GROUP:
            yield from _parts(told)
        elif op in (
            _constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT,
        ):  # fmt: skip
            yield from _parts(told[2])


def _wrong(op: Any, told: Any) -> bool:
    if op is _constants.ATOMIC_GROUP:
        return True
    return op is _constants.POSSESSIVE_REPEAT and _fails_late(list(told[2]))


def _fails_late(items: list[tuple[Any, Any]]) -> bool:
    if len(items) == 1 and items[0][0] is _constants.BRANCH:
        return any(_fails_late(list(each)) for each in items[0][1][1])
    if len(items) == 1 and items[0][0] is _constants.SUBPATTERN:
        return _fails_late(list(items[0][1][3]))
    late = items[1:]
    if late and late[-1][0] is _constants.POSSESSIVE_REPEAT and late[-1][1][0] == 0:
        late = late[:-1]  # as many as there are, and none will do
    return any(op in LOOKS for op, _ in late)


@pytest.mark.parametrize(
    "pattern", [r"(?:ab?c)*+", r"(?:/\*(?:[^*]++|\*(?!/))*+\*/)", r"(?:\.[0-9]++)?+", r"(?>ab)"]
)
def test_a_planted_pattern_is_found(pattern: str) -> None:
    assert wrong(pattern)


@pytest.mark.parametrize(
    "pattern", [r"[a-z]*+", r"(?:[^'\\]++|\\.)*+", r"(?:#[^\n]*+)*+", r"(?:ab?c)*"]
)
def test_what_means_the_same_everywhere_is_not(pattern: str) -> None:
    assert not wrong(pattern)


def test_no_pattern_means_another_thing_in_an_older_python() -> None:
    found = dict(patterns())
    assert len(found) > 20
    assert [name for name, one in found.items() if wrong(one.pattern, one.flags & re.DOTALL)] == []


@pytest.mark.parametrize(
    "text",
    [
        "RETURN 1 /* WHERE", "RETURN 1 /* a * b", "RETURN 1 /*", "RETURN 1 /*/", "RETURN 1e",
        "RETURN 1e.e", "RETURN 1h5", "RETURN 1.5h", "RETURN 2d5x", "RETURN 1de",
    ],
)  # fmt: skip
def test_what_ends_too_early_is_refused(text: str) -> None:
    with pytest.raises(Refusal):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "RETURN 1 /* a */", "/**/RETURN/***/1/* a * b */", "RETURN 1 -- a", "# a\n// b\nRETURN 1",
        "RETURN 1 /*/ */", "--\n" * 5_000 + "RETURN 1", "/**/" * 5_000 + "RETURN 1", "RETURN 1//",
    ],
)  # fmt: skip
def test_comments_are_passed_over(text: str) -> None:
    assert parse(text).statements == parse("RETURN 1").statements
    assert BAD not in all_tokens(text).kinds
