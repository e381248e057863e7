"""Long work ticks: counted here, so that nothing of it can come back as one long stretch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from language import tree
from language.budget import bounded
from language.compile import compile_rowless
from language.names import weight
from language.parser import parse
from language.select import plan_select
from language.writes import plan_data
from protocol.errors import Cancelled, UnexpectedToken
from protocol.values import PACE
from tests.language.surroundings import Tables

MANY = 20 * PACE


class Rows(Tables):
    """A table `t` in batches as large as an engine's."""

    def __init__(self, count: int = MANY) -> None:
        rows = [{"n": n, "k": n * 7919 % 100_003, "s": f"name {n}"} for n in range(count)]
        super().__init__(batch=512, t=rows)


def ticks_of(env: Tables, text: str, **variables: Any) -> tuple[Any, int]:
    before = env.ticks
    found = env.run(text, **variables) if text.startswith("SELECT") else env.value(text)
    return found, env.ticks - before


SCAN = MANY // 512
"""Ticks of the scan itself: one for each batch."""


@pytest.mark.parametrize(
    ("text", "more"),
    [
        ("SELECT VALUE n FROM t ORDER BY k", MANY // 4096),
        ("SELECT VALUE n FROM t ORDER BY s, k DESC", MANY // 4096),
        ("SELECT k, count() AS c FROM t GROUP BY k", MANY // PACE),
        ("SELECT k, count() AS c FROM t GROUP BY k HAVING count() > 0 ORDER BY k", MANY // PACE),
        ("SELECT VALUE n FROM t WHERE k IN (SELECT VALUE k FROM t)", SCAN + MANY // PACE),
    ],
)
def test_the_end_of_a_select_ticks_as_its_scan_does(text: str, more: int) -> None:
    found, ticks = ticks_of(Rows(), text)
    assert len(found) == MANY
    assert ticks >= SCAN + more


def test_in_a_large_literal_or_parameter_ticks() -> None:
    env = Rows(100)
    env.run("SELECT VALUE n FROM t WHERE n IN $many", many=list(range(MANY)))
    literal = ", ".join(map(str, range(MANY)))
    before = env.ticks
    assert len(env.run(f"SELECT VALUE n FROM t WHERE n IN [{literal}]")) == 100
    assert before > MANY // PACE and env.ticks - before > MANY // PACE


def test_split_ticks_and_goes_on_in_batches() -> None:
    env = Tables(t=[{"a": list(range(MANY)), "b": 1}])
    found, ticks = ticks_of(env, "SELECT a FROM t SPLIT a")
    assert [row["a"] for row in found] == list(range(MANY))
    assert ticks >= MANY // PACE
    found, ticks = ticks_of(env, "SELECT VALUE a FROM t SPLIT a LIMIT 3")
    assert found == [0, 1, 2] and ticks < 10, "LIMIT stops it early"


@pytest.mark.parametrize(
    ("text", "times", "more"),
    [
        ("SET a[*] += 1", 1, MANY // PACE), ("SET a[*] += 1, a[*] = 0, a[*] -= 1", 3, MANY // PACE),
        ("SET o[*].x = 1", 1, MANY // PACE), ("SET o.x = 1", 1, MANY // PACE),
        ("SET f.* = 1", 1, MANY // PACE), ("SET f.n1 = 1, f.n2 = NONE", 2, 1),
        ("SET a[0] = 1, a[1] = NONE", 2, 1), ("SET a += 1, a += [2], s += 'y'", 3, 1),
        ("UNSET a[*]", 1, MANY // PACE), ("UNSET o[*].x, o.x", 2, MANY // PACE),
        ("UNSET f.*", 1, MANY // PACE), ("UNSET f.n1, a[0], o[1].x", 3, 1),
    ],
)  # fmt: skip
def test_what_writes_into_large_values_ticks(text: str, times: int, more: int) -> None:
    """Sixty assignments to the items of an array held the loop for a second and more, against
    TIMEOUT and KILL too."""
    record = {
        "a": [1] * MANY,
        "o": [{"x": 1, "y": 2}] * MANY,
        "f": {f"n{n}": n for n in range(MANY)},
        "s": "x" * MANY,
    }
    (statement,) = parse(f"UPDATE t {text}").statements
    assert isinstance(statement, tree.Update)
    env = Tables()
    plan_data(statement.data)(record, env)
    assert env.ticks >= times * more


def test_what_writes_into_a_small_record_does_not_tick() -> None:
    (statement,) = parse("UPDATE t SET b.c = 1, a += 1, s += 'x', n = 1 + 1").statements
    assert isinstance(statement, tree.Update)
    env = Tables()
    plan_data(statement.data)({"a": [1], "b": {}, "s": ""}, env)
    assert env.ticks == 0


@pytest.mark.parametrize("path", ["a[*].x", "a.x", "f.*", "a[*]"])
def test_what_is_left_out_of_large_rows_ticks(path: str) -> None:
    row = {"a": [{"x": 1, "y": 2}] * MANY, "f": {f"n{n}": n for n in range(MANY)}}
    env = Tables()
    (statement,) = parse(f"SELECT * OMIT {path} FROM t").statements
    assert isinstance(statement, tree.Select)
    plan = plan_select(statement)
    found = plan._finished([row], env)
    assert found[0].get("a", []) in ([], [{"y": 2}] * MANY, row["a"])
    assert env.ticks >= MANY // PACE


def calls_of(work: Callable[[], Any]) -> int:
    calls = 0

    def called(frame: FrameType, event: str, found: Any) -> None:
        nonlocal calls
        calls += event == "call"

    outer = sys.getprofile()
    sys.setprofile(called)
    try:
        work()
    finally:
        sys.setprofile(outer)
    return calls


def sums(count: int) -> str:
    return f"SELECT VALUE [{', '.join(f'sum(n + {n})' for n in range(count))}] FROM t GROUP ALL"


def keys(count: int) -> str:
    found = [f"[n, {n}]" for n in range(count)]
    columns = ", ".join(f"{key} AS c{n}" for n, key in enumerate(found))
    return f"SELECT {columns} FROM t GROUP BY {', '.join(found)}"


@pytest.mark.parametrize("text", [sums, keys])
def test_many_aggregates_and_keys_take_linear_time_to_plan(text: Callable[[int], str]) -> None:
    def calls(count: int) -> int:
        (select,) = parse(text(count)).statements
        return calls_of(lambda: plan_select(select))  # type: ignore[arg-type]

    assert calls(400) < 6 * calls(100)


@pytest.mark.parametrize("count", [40, 300])
def test_rows_are_folded_into_many_aggregates_in_steps(count: int) -> None:
    rows = [{"n": n, "k": n % 3} for n in range(10)]
    values = ", ".join(["k", "count()", *(f"sum(n + {n})" for n in (*range(count), 0))])
    by = ", ".join(["k", *(f"{n}" for n in range(count // 4))])
    env = Tables(t=rows)
    found = env.run(f"SELECT VALUE [{values}] FROM t GROUP BY {by}")
    for k, row in enumerate(found):
        group = [one["n"] for one in rows if one["k"] == k]
        totals = [sum(n + more for n in group) for more in (*range(count), 0)]
        assert row == [k, len(group), *totals]
    assert len(found) == 3 and env.ticks >= len(rows) * count // 32


def literal(count: int) -> str:
    rows = ",".join(f"{{id: {n}, s: 'x{n}', a: [1, {{b: {n}}}], n: -{n}}}" for n in range(count))
    return f"[{rows}]"


@pytest.mark.parametrize("wrap", ["{}", "{{rows: {}, more: [{}]}}"])
def test_a_script_that_carries_data_is_computed_in_steps(wrap: str) -> None:
    env = Tables()
    (statement,) = parse("RETURN " + wrap.format(literal(5000), "1")).statements
    (short,) = parse("RETURN " + wrap.format(literal(5), "1")).statements
    found = compile_rowless(statement.value)(env)  # type: ignore[union-attr, arg-type]
    assert env.ticks >= 5000 // PACE
    rows = found if isinstance(found, list) else found["rows"]
    assert (
        rows[:5] == [{"id": n, "s": f"x{n}", "a": [1, {"b": n}], "n": -n} for n in range(5)]
        and len(rows) == 5000
    )
    before = env.ticks
    compile_rowless(short.value)(env)  # type: ignore[union-attr, arg-type]
    assert env.ticks == before


def test_weighing_a_large_value_ticks() -> None:
    ticks = 0

    def tick() -> None:
        nonlocal ticks
        ticks += 1
        if ticks > 2 * MANY // PACE:
            raise Cancelled("enough")

    rows = [{"n": n, "a": [1]} for n in range(MANY)]
    assert bounded(rows, tick) is rows
    assert ticks >= MANY // PACE


def test_a_script_that_carries_data_is_not_counted_to_its_end() -> None:
    looked = 0

    class Watched(tuple[Any, ...]):
        def __iter__(self) -> Iterator[Any]:
            nonlocal looked
            for item in super().__iter__():
                looked += 1
                yield item

    array = tree.Array(Watched(tree.Constant(n) for n in range(MANY)))
    assert weight(array, 100) == 101
    assert looked < 300


def test_a_long_text_is_searched_for_secrets_in_steps() -> None:
    env = Tables()
    data = "x" * 1_000_000
    text = f"RETURN ['{data}', 'paSSword', 5 5]"
    with pytest.raises(UnexpectedToken) as refused:
        parse(text, env.tick)
    assert env.ticks >= len(data) // (1 << 18) and "paSS" not in str(refused.value)
    across = "x" * ((1 << 18) - 12)
    with pytest.raises(UnexpectedToken) as refused:
        parse(f"RETURN ['{across}pass', 'hidden', 5 5]")
    assert "hidden" not in str(refused.value)
