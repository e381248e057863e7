"""Docstrings open with what a thing does, and name who does it: an imperative or a noun, no vague
pronoun."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.architecture.sources import ROOT

CORE = ("protocol", "language", "storage", "actors", "surfaces", "clients/python")
OPENERS = re.compile(
    r"(what|whether|who|whose|whom|where|when|which|as|one|those|that|how|of)\b", re.IGNORECASE
)
VAGUE = re.compile(
    r"\b(what|who|whoever|whom|nobody|somebody|anybody|everybody|told|anew|thereby)\b",
    re.IGNORECASE,
)
MOST_OPENERS = 0.02
MOST_VAGUE = 3 / 1000


def docstrings(text: str) -> Iterator[str]:
    """Yield those of modules, classes, functions and attributes."""
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        for statement in body:
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                found = statement.value.value
                if isinstance(found, str):
                    yield found.strip()


def shares(found: list[str]) -> tuple[float, float]:
    """Return the share of docstrings with a vague opener, and of vague words."""
    words = sum(len(one.split()) for one in found)
    vague = sum(len(VAGUE.findall(one)) for one in found)
    return sum(bool(OPENERS.match(one)) for one in found) / len(found), vague / words


def test_docstrings_are_plain() -> None:
    for room in CORE:
        texts = [path.read_text() for path in sorted((ROOT / room).rglob("*.py"))]
        openers, vague = shares([one for text in texts for one in docstrings(text)])
        assert openers <= MOST_OPENERS and vague <= MOST_VAGUE, (room, openers, vague)


def test_planted_vague_docstrings_are_caught() -> None:
    planted = (
        "Whether it is there.",
        "Of those that wait.",
        "Hears what somebody was told.",
        "Return the newest sequence.",
    )
    text = "".join(f'def f{n}():\n    """{one}"""\n' for n, one in enumerate(planted))
    text += 'class C:\n    a = 1\n    """Who asks."""\n'
    openers, vague = shares(list(docstrings(text)))
    assert openers == 3 / 5 and vague > 0.2
