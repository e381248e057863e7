"""Rows and values that are too large together are refused before they are all there."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from language import tree
from language.budget import Budget
from language.compile import compile_rowless
from language.parser import parse
from language.sizing import PART_BYTES, Heavy, counted, made
from language.writes import plan_data
from protocol import limits
from protocol.errors import Refusal, TooLarge
from protocol.values import RecordId
from tests.language.surroundings import Tables

MIB = limits.MIB
BUDGET = 8 * MIB
MOST = BUDGET + PART_BYTES + 16 * MIB
"""And some for what is made of rows on the way."""


class Engine(Tables):
    """A table in batches as large as an engine's, and large records behind links."""

    def __init__(self, **tables: list[dict[str, Any]]) -> None:
        super().__init__(batch=512, **tables)

    def record(self, record: RecordId) -> dict[str, Any] | None:
        found = super().record(record)
        if found is not None and "size" in found:
            made(found["size"])
            found["text"] = "x" * found["size"]
        return found


@pytest.fixture(autouse=True)
def budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STATEMENT_MEMORY_BYTES", BUDGET)
    monkeypatch.setattr(Budget.__init__, "__defaults__", (BUDGET, None, None))


def peak(work: Callable[[], Any]) -> int:
    """The most bytes held at once while something is refused as too large."""
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge):
            work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


COLUMNS = ", ".join(f"$s + $s AS c{number}" for number in range(150))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT VALUE $s + $s FROM t", "SELECT n, string::upper($s) AS s FROM t",
        "SELECT n, IF n > 400 { $s + $s } AS s FROM t", "SELECT *, $s + $s AS s FROM t",
        "SELECT n, { a: { b: $s + $s } } AS c, n AS m FROM t",
        "SELECT n AS a, n + 1 AS b, $s + type::string(n) AS s FROM t WHERE n % 2 = 0",
        "SELECT DISTINCT $s + type::string(n) AS s FROM t",
        "SELECT VALUE array::push($many, n) FROM t", "SELECT VALUE n..20000 FROM t",
        "SELECT VALUE (SELECT VALUE $s + $s + type::string($parent.n) FROM ONLY t:1) FROM t",
        "SELECT VALUE link.text FROM t", "SELECT n, link FROM t FETCH link",
        "SELECT VALUE n FROM t ORDER BY $s + type::string(n)",
        "SELECT VALUE n FROM t ORDER BY $s + type::string(n) LIMIT 100",
        "SELECT n FROM t ORDER BY n DESC, $s + type::string(n) LIMIT 400",
        "SELECT VALUE count() FROM t GROUP BY $s + type::string(n)",
        "SELECT VALUE first($s + type::string(n)) FROM t GROUP BY n",
        "SELECT VALUE max($s + type::string(n)) FROM t GROUP BY n % 100",
        "SELECT VALUE last(IF n > 99 { $s + type::string(n) } ELSE { n }) FROM t GROUP BY n % 100",
        "SELECT VALUE array::len(collect($s + type::string(n))) FROM t GROUP ALL",
        "SELECT VALUE count_distinct($s + type::string(n)) FROM t GROUP ALL",
        f"SELECT VALUE [{', '.join(f'max($s + $s + {n!r})' for n in map(str, range(150)))}]"
        " FROM t:1 GROUP ALL",
        f"SELECT {COLUMNS} FROM t:1", f"SELECT n FROM t:1 ORDER BY {', '.join(['$s + $s'] * 150)}",
    ],
)  # fmt: skip
def test_rows_that_are_large_together_are_refused_before_they_are_there(text: str) -> None:
    env = Engine(
        t=[{"n": n, "link": RecordId("big", n)} for n in range(500)],
        big=[{"size": MIB}] * 500,
    )
    env.variables = {"s": "x" * (MIB // 2), "many": [0] * (MIB // 32)}
    assert peak(lambda: env.run(text)) < MOST


@pytest.mark.parametrize(
    "text",
    [
        f"[{', '.join(['$s + $s'] * 150)}]",
        f"[[{', '.join(['$s + $s'] * 75)}], {{ a: [{', '.join(['$s + $s'] * 75)}] }}]",
        f"{{ {', '.join(f'f{n}: string::upper($s)' for n in range(300))} }}",
        f"[{', '.join(['$s + $s'] * 1_000)}]",
    ],
)
def test_literals_of_large_parts_are_refused_before_they_are_there(text: str) -> None:
    env = Engine()
    env.variables = {"s": "x" * (MIB // 2)}
    (statement,) = parse(f"RETURN {text}").statements
    assert isinstance(statement, tree.ReturnStatement)
    work = compile_rowless(statement.value)  # type: ignore[arg-type]
    assert peak(lambda: work(env)) < MOST


def test_assignments_of_large_values_are_refused_before_they_are_there() -> None:
    env = Engine()
    env.variables = {"s": "x" * (MIB // 2)}
    parts = ", ".join(f"f{number} = $s + $s" for number in range(150))
    (statement,) = parse(f"UPDATE t SET {parts}").statements
    assert isinstance(statement, tree.Update)
    assert peak(lambda: plan_data(statement.data)({}, env)) < MOST


def test_records_in_order_are_weighed_where_few_are_asked_for() -> None:
    """Packed, as they wait for what comes before them."""
    env = Engine(t=[{"n": n, "s": "x" * MIB} for n in range(150)])
    batches = list(env.batches(parse("SELECT * FROM t").statements[0].sources))  # type: ignore[union-attr]
    env.batches = lambda sources: iter(batches)  # type: ignore[method-assign]
    assert peak(lambda: env.run("SELECT * FROM t ORDER BY n LIMIT 120")) < MOST
    found = env.run("SELECT * FROM t ORDER BY n DESC LIMIT 3")
    assert [row["n"] for row in found] == [149, 148, 147]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT VALUE string::len($s + type::string(n)) FROM t",
        "SELECT n, string::len($s + $s) AS a, string::len($s + $s) AS b FROM t OMIT n",
        "SELECT *, string::len($s + $s) AS a OMIT link FROM t",
        "SELECT VALUE n FROM t WHERE string::len($s + $s) > n",
        "SELECT VALUE n FROM t ORDER BY string::len($s + type::string(n)), n LIMIT 7",
        "SELECT VALUE (SELECT VALUE string::len($s + $s) FROM t LIMIT 40) FROM t LIMIT 40",
        "SELECT DISTINCT string::len($s + $s) AS a FROM t",
        "SELECT string::len(max($s + type::string(n))) AS a, count() AS b, sum(n) FROM t GROUP ALL",
        "SELECT sum(string::len($s + $s)) AS a, count($s + $s) AS b, collect(n) FROM t"
        " GROUP BY string::len($s + type::string(n)), n % 3",
    ],
)
def test_what_is_large_on_the_way_alone_is_not_refused(text: str) -> None:
    """And it is answered as what is small is."""
    text = text.replace(" FROM t OMIT n", " OMIT n FROM t")
    rows = [{"n": n, "link": RecordId("big", n)} for n in range(200)]
    env = Engine(t=rows)
    env.variables = {"s": "x" * MIB}
    found = env.run(text)
    env.variables = {"s": "x" * MIB}
    again = Tables(batch=1, t=rows)
    again.variables = env.variables
    assert found == again.run(text) and found
    assert "GROUP" not in text or env.ticks >= len(rows), "others get their turn"


def test_a_refusal_in_rows_made_one_by_one_names_the_place() -> None:
    env = Engine(t=[{"n": n} for n in range(100)])
    env.variables = {"s": "x" * MIB}
    text = "SELECT *, string::len($s + $s) AS a, IF n = 90 { n / 0 } AS b FROM t"
    with pytest.raises(Refusal) as caught:
        env.run(text)
    assert caught.value.code == "DivisionByZero" and caught.value.offset == text.index("/")
    assert caught.value.detail["record"] == RecordId("t", 90)


def test_counts_end_where_they_began() -> None:
    def work(size: int) -> str:
        made(size)
        made(10)  # what is small does not count
        return "done"

    assert counted(work, MIB) == ("done", MIB)
    with pytest.raises(Heavy):
        counted(work, 2 * MIB, most=MIB)
    made(1 << 40)  # nobody counts

    def outer() -> None:
        assert counted(work, MIB) == ("done", MIB)
        made(MIB)

    assert counted(outer) == (None, 2 * MIB)
