"""The demonstration, on fewer cities: real processes, a real SIGKILL."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from bench import demo, geonames, plans
from bench.nodes import NodeFailed, NodeProcess
from bench.questions import QUESTIONS

EVERY = 5


Shown = tuple[demo.Course, str]
READ_LESS = {0, 1, 3, 5, 6, 9}
"""Questions that an index brings to their records; the others want every row."""


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """What one run saw, and what it printed."""
    text = io.StringIO()
    directory = tmp_path_factory.mktemp("demo") / "store"
    course = demo.run(directory, Console(file=text, width=120), EVERY)
    return course, text.getvalue()


def test_every_question_has_an_answer(shown: Shown) -> None:
    course, _ = shown
    for question, answer in zip(QUESTIONS, course.bare.answers, strict=True):
        assert answer, question.asks
        assert all(isinstance(row, dict) for row in answer), question.asks


def test_answers_and_hash_outlive_a_kill(
    shown: Shown, figure: Callable[[str, object], None]
) -> None:
    course, text = shown
    assert course.restarted == course.indexed
    assert course.same
    assert "DIFFERENT" not in text
    figure("demo", f"every {EVERY}th city, {len(QUESTIONS)} questions, the same after SIGKILL")


def test_indexes_change_the_way_and_no_answer(shown: Shown) -> None:
    course, text = shown
    assert course.indexed.answers == course.bare.answers
    assert {plan.access for plan in course.bare.plans} == {"columns", "scan", "values"}
    for number, (bare, indexed) in enumerate(
        zip(course.bare.plans, course.indexed.plans, strict=True)
    ):
        if number in READ_LESS:
            assert indexed.access == "index" and indexed.index in plans.INDEXES
            assert indexed.rows_read < bare.rows_read / 2
        else:
            assert (indexed.access, indexed.rows_read) == (bare.access, bare.rows_read)
    assert [plan.access for plan in course.restarted.plans] == [
        plan.access for plan in course.indexed.plans
    ]
    for told in ("EXPLAIN ANALYZE", "rows read", "index by_country", "index by_population"):
        assert told in text


def test_answers_are_those_of_plain_python(shown: Shown) -> None:
    """Some answers, computed here without the node."""
    course, _ = shown
    before = course.bare
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
