"""The demonstration, on fewer cities: real processes, a real SIGKILL."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from bench import demo, geonames
from bench.nodes import NodeFailed, NodeProcess
from bench.questions import QUESTIONS

EVERY = 5


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[demo.Seen, demo.Seen, str]:
    """What one run saw before and after its kill, and what it printed."""
    text = io.StringIO()
    directory = tmp_path_factory.mktemp("demo") / "store"
    before, after = demo.run(directory, Console(file=text, width=120), EVERY)
    return before, after, text.getvalue()


def test_every_question_has_an_answer(shown: tuple[demo.Seen, demo.Seen, str]) -> None:
    before, _, _ = shown
    for question, answer in zip(QUESTIONS, before.answers, strict=True):
        assert answer, question.asks
        assert all(isinstance(row, dict) for row in answer), question.asks


def test_answers_and_hash_outlive_a_kill(
    shown: tuple[demo.Seen, demo.Seen, str], figure: Callable[[str, object], None]
) -> None:
    before, after, text = shown
    assert after == before
    assert "DIFFERENT" not in text
    figure("demo", f"every {EVERY}th city, {len(QUESTIONS)} questions, the same after SIGKILL")


def test_a_changed_store_is_seen(shown: tuple[demo.Seen, demo.Seen, str]) -> None:
    """The comparison is worth something: one city less, and it says so."""
    before, _, _ = shown
    poorer = dataclasses.replace(before, answers=[before.answers[0][1:], *before.answers[1:]])
    assert poorer != before
    assert dataclasses.replace(before, state={**before.state, "hash": "0"}) != before


def test_answers_are_those_of_plain_python(shown: tuple[demo.Seen, demo.Seen, str]) -> None:
    """Some answers, computed here without the node."""
    before, _, _ = shown
    cities = list(geonames.cities(EVERY))
    largest = sorted(cities, key=lambda city: -city["population"])
    assert [row["name"] for row in before.answers[5]] == [city["name"] for city in largest[:5]]
    people: dict[str, int] = {}
    for city in cities:
        people[city["timezone"]] = people.get(city["timezone"], 0) + city["population"]
    most = sorted(people.items(), key=lambda item: -item[1])[:5]
    assert [(row["timezone"], row["people"]) for row in before.answers[2]] == most
    smallest_first = sorted(city["population"] for city in cities)
    statistics = before.answers[7][0]
    assert statistics["cities"] == len(cities)
    assert statistics["median"] == smallest_first[len(cities) // 2]
    assert statistics["largest"] == smallest_first[-1]


def test_a_node_that_cannot_start_is_told(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    directory.mkdir()
    (directory / "letter.txt").write_text("not a store")
    with pytest.raises(NodeFailed, match=r"letter\.txt|no store"):
        NodeProcess(directory).start()
