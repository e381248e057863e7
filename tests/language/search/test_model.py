"""Random queries find in random texts what the plain model finds."""

from __future__ import annotations

import random

import pytest

from language.search import analysis, matching
from language.search.analysis import Analyzer
from language.search.definitions import Definition, TokenFilter
from language.search.matching import matches
from language.search.query import parse_query
from protocol.values import unpaced
from tests.language.search import model

ANALYZER = Analyzer(
    Definition(("class",), (TokenFilter("lowercase"), TokenFilter("stop", ([model.STOP],))))
)
STOPPED = frozenset({model.STOP})
TEXTS = 4


def differing(seed: int, count: int) -> str | None:
    """The first query that finds another text than the model does."""
    chance = random.Random(seed)
    for _ in range(count):
        value, match = model.some_query(chance, STOPPED)
        tree = parse_query(value, ANALYZER)
        if tree is None:
            if match is not model.NOTHING:
                return f"{value!r} asks for nothing"
            continue
        for _ in range(TEXTS):
            words = model.some_text(chance)
            text = " ".join(words)
            postings, _ = ANALYZER.postings(text)
            found = matches(tree, (postings,), unpaced)
            if found != (match is not model.NOTHING and match(words)):
                return f"{value!r} in {text!r}: {found}"
    return None


@pytest.mark.parametrize("seed", range(4))
def test_queries_find_what_the_model_finds(seed: int) -> None:
    assert differing(seed, 400) is None


@pytest.mark.hard
def test_many_queries_find_what_the_model_finds() -> None:
    for seed in range(100, 140):
        assert differing(seed, 1_000) is None


def test_a_planted_fault_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Phrases whose words may stand anywhere, negations that are ignored, a longer reach."""
    monkeypatch.setattr(
        matching, "has_phrase",
        lambda phrase, field, tick: all(term in field for _, term in phrase.parts),
    )  # fmt: skip
    assert differing(0, 400) is not None
    monkeypatch.undo()
    monkeypatch.setattr(matching, "accepts", lambda leaf: lambda term: True)
    assert differing(0, 400) is not None
    monkeypatch.undo()
    monkeypatch.setattr(analysis, "_stopped", lambda one: frozenset())
    monkeypatch.setattr(ANALYZER, "_known", {})
    assert differing(0, 400) is not None
    ANALYZER._known.clear()
