"""Scripts of the case files, broken at random: each is refused by name and place, or parses."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from language.lexer import all_tokens
from language.parser import parse
from language.printing import print_script
from protocol.errors import Refusal
from tests.cases.format import read

CASES = Path(__file__).parent.parent / "cases"
PIECES = [
    "(", ")", "[", "]", "{", "}", ",", ";", ":", "::", ".", "..", "..=", "=", "!=", "<", "~", "??",
    "+", "-", "*", "/", "%", "|", "?", "$", "$x", "'", '"', "`", "/*", "*/", "--", "#", "\\", "\n",
    "0", "1.5", "1e", "9" * 30, "1dec", "5m", "b'", "d'x'", "u''", "SELECT", "FROM", "WHERE", "SET",
    "NOT", "IN", "AS", "BY", "NONE", "IF", "{", "VALUE", "RETURN", "é", "\0", "\u2028", "x" * 70,
]  # fmt: skip


def scripts() -> list[str]:
    found = [case.script for path in sorted(CASES.glob("**/*.case")) for case in read(path).cases]
    assert len(found) > 150
    return found


def mutated(dice: random.Random, text: str, others: list[str]) -> str:
    """A text with one to three things wrong."""
    for _ in range(dice.randint(1, 3)):
        tokens = all_tokens(text)
        at = dice.randrange(len(tokens.starts))
        start = tokens.starts[at]
        end = start + len(tokens.texts[at])
        match dice.randrange(7):
            case 0:
                text = text[:start] + text[end:]
            case 1:
                text = text[:start] + dice.choice(PIECES) + text[end:]
            case 2:
                text = text[:start] + dice.choice(PIECES) + " " + text[start:]
            case 3:
                text = text[: dice.randrange(len(text) + 1)]
            case 4:
                other = dice.randrange(len(tokens.starts))
                text = text[:start] + tokens.texts[other] + text[end:]
            case 5:
                cut = dice.randrange(len(text) + 1)
                text = text[:cut] + dice.choice(PIECES) + text[cut:]
            case 6:
                text = text[:start] + dice.choice(others)[: dice.randrange(40)] + text[start:]
    return text


def checked(text: str) -> str:
    """The code of the refusal of a text, empty when it parses; anything else is raised."""
    try:
        script = parse(text)
    except Refusal as refusal:
        line, column = refusal.detail["line"], refusal.detail["column"]
        assert isinstance(line, int) and isinstance(column, int)
        lines = text.split("\n")
        assert 1 <= line <= len(lines) and 1 <= column <= len(lines[line - 1]) + 1
        near = refusal.detail["near"]
        assert isinstance(near, str) and near.endswith("^") and "\n" in near
        return refusal.code
    assert parse(print_script(script)) == script
    return ""


@pytest.mark.parametrize("malformed", [1_000, pytest.param(5_000, marks=pytest.mark.hard)])
def test_malformed_scripts_are_refused_by_name_and_place(malformed: int) -> None:
    dice, originals = random.Random(20261120), scripts()
    codes: Counter[str] = Counter()
    while codes.total() - codes[""] < malformed:
        codes[checked(mutated(dice, dice.choice(originals), originals))] += 1
    assert codes["UnexpectedToken"] > malformed / 2 and len(codes) >= 4


def test_the_check_catches_an_exception_that_is_no_refusal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("language.parsing.literals._integer", lambda text, negative: [][1])
    with pytest.raises(IndexError):
        checked("RETURN 1")
