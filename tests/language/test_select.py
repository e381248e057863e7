from __future__ import annotations

import random
from collections import defaultdict
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from language import tree
from language.batchwork import BatchFilter
from language.budget import Budget
from language.names import shape_of
from language.ordering import Sorter
from language.parser import parse
from language.rows import WHOLE, Objects
from language.select import SelectPlan, plan_select
from protocol.errors import BadRequest, Refusal, TooLarge, TypeRefused, Unknown
from protocol.values import RecordId
from tests.language.surroundings import Tables

PEOPLE: list[dict[str, Any]] = [
    {"name": f"n{n}", "age": n * 7 % 90, "city": f"c{n % 5}", "score": n * 31 % 1000 / 8,
     "active": n % 2 == 0, "tags": ["a", f"t{n % 3}"], "home": {"zip": n % 4},
     "link": RecordId("p", n // 2)}
    for n in range(500)
]  # fmt: skip


@pytest.fixture(params=[3, 1000])
def tables(request: pytest.FixtureRequest) -> Tables:
    """The same rows in batches so small that closures do the work, and so large that code does."""
    return Tables(batch=request.param, p=PEOPLE, none=[])


def test_everything(tables: Tables) -> None:
    found = tables.run("SELECT * FROM p")
    assert found == [{"id": RecordId("p", n), **row} for n, row in enumerate(PEOPLE)]


def test_where_and_columns(tables: Tables) -> None:
    found = tables.run("SELECT name, age AS years, nothing FROM p WHERE age >= 30 AND city = 'c1'")
    assert found == [
        {"name": row["name"], "years": row["age"]}
        for row in PEOPLE
        if row["age"] >= 30 and row["city"] == "c1"
    ]


def test_columns_are_named_after_their_path_function_or_text(tables: Tables) -> None:
    (found,) = tables.run(
        "SELECT home.zip, id, string::upper(name), age + 1, $x, tags[0] FROM p LIMIT 1", x=1
    )
    assert found == {
        "home": {"zip": 0}, "id": RecordId("p", 0), "string::upper": "N0", "age + 1": 1, "x": 1,
        "tags[0]": "a",
    }  # fmt: skip


def test_everything_and_more(tables: Tables) -> None:
    (found,) = tables.run("SELECT *, age + 1 AS next, home.zip AS zip OMIT tags, home.zip FROM p "
                          "WHERE name = 'n3'")  # fmt: skip
    row = {k: v for k, v in PEOPLE[3].items() if k != "tags"}
    assert found == {"id": RecordId("p", 3), **row, "home": {}, "next": row["age"] + 1, "zip": 3}
    assert PEOPLE[3]["home"] == {"zip": 3}


def test_values_limit_and_start(tables: Tables) -> None:
    assert tables.run("SELECT VALUE name FROM p LIMIT 3 START 5") == ["n5", "n6", "n7"]
    assert tables.run("SELECT VALUE name FROM p START 498") == ["n498", "n499"]
    assert tables.run("SELECT VALUE name FROM p LIMIT 0") == []
    assert tables.run("SELECT VALUE name FROM p LIMIT $n", n=1) == ["n0"]


def test_limit_stops_reading() -> None:
    tables = Tables(batch=10, p=PEOPLE)
    tables.run("SELECT * FROM p WHERE active LIMIT 5")
    assert tables.pulled == 1
    tables.run("SELECT count() FROM p GROUP ALL")
    assert tables.pulled == 51


@pytest.mark.parametrize("limit", ["LIMIT 'x'", "LIMIT -1", "START 1.0", "LIMIT NONE"])
def test_limits_are_ints(tables: Tables, limit: str) -> None:
    with pytest.raises(BadRequest):
        tables.run(f"SELECT * FROM p {limit}")


@pytest.mark.parametrize("limit", [None, 1, 7, 499, 600])
def test_order_is_stable_in_either_direction(tables: Tables, limit: int | None) -> None:
    clause = "" if limit is None else f" LIMIT {limit}"
    found = tables.run(f"SELECT VALUE id FROM p ORDER BY city DESC, home.zip, score DESC{clause}")
    expected = sorted(range(500), key=lambda n: -PEOPLE[n]["score"])
    expected.sort(key=lambda n: PEOPLE[n]["home"]["zip"])
    expected.sort(key=lambda n: PEOPLE[n]["city"], reverse=True)
    assert found == [RecordId("p", n) for n in expected[:limit]]


@pytest.mark.parametrize(("limit", "start"), [(1, 0), (1, 1), (3, 5), (7, 498), (499, 1), (5, 600)])
def test_limit_counts_from_start_in_order(tables: Tables, limit: int, start: int) -> None:
    """As many rows are sorted out as START passes over and LIMIT then takes."""
    expected = [row["name"] for row in sorted(PEOPLE, key=lambda row: row["score"])]
    for clause in (f"LIMIT {limit} START {start}", f"START {start} LIMIT {limit}"):
        found = tables.run(f"SELECT VALUE name FROM p ORDER BY score {clause}")
        assert found == expected[start : start + limit]
    (select,) = parse(f"SELECT * FROM p ORDER BY score LIMIT {limit} START {start}").statements
    assert isinstance(select, tree.Select)
    assert plan_select(select).most(tables) == start + limit


def test_order_by_an_alias_or_what_is_not_in_the_answer(tables: Tables) -> None:
    found = tables.run("SELECT name, age * -1 AS turned FROM p ORDER BY turned, name LIMIT 2")
    assert [row["turned"] for row in found] == [-89, -89]
    assert tables.run("SELECT VALUE name FROM p ORDER BY score DESC LIMIT 1") == [
        max(PEOPLE, key=lambda row: row["score"])["name"]
    ]


def test_groups(tables: Tables) -> None:
    found = tables.run(
        "SELECT city, count() AS n, sum(age) AS s, mean(score) AS m, min(age), max(name) AS last,"
        " count(nothing) AS none FROM p WHERE active GROUP BY city ORDER BY city"
    )
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in PEOPLE:
        if row["active"]:
            groups[row["city"]].append(row)
    assert found == [
        {
            "city": city, "n": len(rows), "s": sum(row["age"] for row in rows),
            "m": sum(row["score"] for row in rows) / len(rows),
            "min": min(row["age"] for row in rows), "last": max(row["name"] for row in rows),
            "none": 0,
        }
        for city, rows in sorted(groups.items())
    ]  # fmt: skip


def test_groups_by_several_and_computed_keys(tables: Tables) -> None:
    found = tables.run(
        "SELECT active, home.zip * 10 AS z, count() FROM p GROUP BY active, z"
        " HAVING count() >= 125 AND z > 0 ORDER BY z"
    )
    assert found == [
        {"active": False, "z": 10, "count": 125},
        {"active": True, "z": 20, "count": 125},
        {"active": False, "z": 30, "count": 125},
    ]


def test_a_group_of_everything_is_there_without_rows(tables: Tables) -> None:
    found = tables.run("SELECT count(), sum(x), mean(x), min(x) FROM none GROUP ALL")
    assert found == [{"count": 0, "sum": 0}]
    assert tables.run("SELECT city, count() FROM none GROUP BY city") == []
    assert tables.run("SELECT VALUE sum(age) / count() FROM p GROUP ALL") == [
        sum(row["age"] for row in PEOPLE) / 500
    ]


def test_groups_fold_numbers_of_one_worth_and_keep_true_apart() -> None:
    tables = Tables()
    rows = [{"k": k} for k in [1, 1.0, True, "1", None, [1], [1.0], {"a": 1}, {"a": 1.0}]]
    found = tables.run("SELECT VALUE count() FROM $rows GROUP BY k", rows=rows)
    assert found == [2, 1, 1, 1, 2, 2]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT name, count() FROM p GROUP BY city",
        "SELECT * FROM p GROUP BY city",
        "SELECT city FROM p GROUP BY city HAVING age > 1",
        "SELECT city FROM p GROUP BY city ORDER BY age",
        "SELECT name, count() FROM p",
        "SELECT name FROM p HAVING name = 'x'",
        "SELECT city, (SELECT VALUE $parent.city FROM [1]) AS x FROM p GROUP BY city",
    ],
)
def test_clauses_that_do_not_go_together_are_refused(tables: Tables, text: str) -> None:
    with pytest.raises(BadRequest):
        tables.run(text)


def test_sums_of_floats_and_decimals_do_not_mix(tables: Tables) -> None:
    rows = [{"x": 1.5}, {"x": 2}]
    assert tables.run("SELECT VALUE sum(x) FROM $rows GROUP ALL", rows=rows) == [3.5]
    (statement,) = parse("SELECT VALUE sum(x) FROM [{ x: 1.5 }, { x: 1dec }] GROUP ALL").statements
    assert isinstance(statement, tree.Select)
    with pytest.raises(TypeRefused):
        tables.select(statement, None)
    with pytest.raises(TypeRefused):
        tables.run("SELECT sum(name) FROM p GROUP ALL")


def test_split(tables: Tables) -> None:
    found = tables.run("SELECT name, tags FROM p WHERE age = 7 SPLIT tags")
    assert found[:2] == [{"name": "n1", "tags": "a"}, {"name": "n1", "tags": "t1"}]
    counted = tables.run("SELECT tags, count() FROM p SPLIT tags GROUP BY tags ORDER BY tags")
    assert counted[0] == {"tags": "a", "count": 500}
    rows = [{"x": {"y": [1, 2]}}, {"x": {"y": 3}}, {"z": 1}, {"x": {"y": []}}]
    assert tables.run("SELECT * FROM $rows SPLIT x.y", rows=rows) == [
        {"x": {"y": 1}}, {"x": {"y": 2}}, {"x": {"y": 3}}, {"z": 1},
    ]  # fmt: skip
    assert rows[0] == {"x": {"y": [1, 2]}}


def test_fetch_replaces_links(tables: Tables) -> None:
    (found,) = tables.run("SELECT name, link FROM p WHERE name = 'n9' FETCH link, link.link")
    assert found["link"]["name"] == "n4" and found["link"]["link"]["name"] == "n2"
    rows = [{"all": [RecordId("p", 1), RecordId("p", 9999)], "x": 1}]
    (found,) = tables.run("SELECT * FROM $rows FETCH all, x, nothing", rows=rows)
    assert found["all"][0]["name"] == "n1" and found["all"][1] == RecordId("p", 9999)


def test_paths_follow_links(tables: Tables) -> None:
    assert tables.run("SELECT VALUE link.link.name FROM p WHERE link.name = 'n4'") == ["n2", "n2"]


def test_subqueries_see_the_row_around_them(tables: Tables) -> None:
    found = tables.run(
        "SELECT name, (SELECT VALUE name FROM p WHERE age = $parent.age AND id != $parent.id"
        " LIMIT 1) AS twin FROM p WHERE name = 'n0'"
    )
    assert found == [{"name": "n0", "twin": ["n90"]}]
    whole = tables.run("SELECT VALUE (SELECT VALUE $parent FROM [1]) FROM p LIMIT 1")
    assert whole == [[{"id": RecordId("p", 0), **PEOPLE[0]}]]


def test_a_subquery_that_sees_no_row_runs_once(tables: Tables) -> None:
    found = tables.run("SELECT VALUE name FROM p WHERE age IN (SELECT VALUE $this FROM [1, 2, 3])")
    assert found == [row["name"] for row in PEOPLE if row["age"] in (1, 2, 3)]
    assert tables.selected == 1


def test_rows_may_be_anything_an_array_holds(tables: Tables) -> None:
    assert tables.run("SELECT * FROM [1, 'a', { a: 2 }] WHERE $this != 1") == ["a", {"a": 2}]
    assert tables.run("SELECT a FROM [1, { a: 2 }], { a: 3 }") == [{}, {"a": 2}, {"a": 3}]
    assert tables.run("SELECT *, 1 AS b FROM [{ a: 1 }]") == [{"a": 1, "b": 1}]


def test_names_that_no_struct_takes(tables: Tables) -> None:
    rows = [{'a"b': 1, "c\\d": 2, "e\nf": 3, "ü": 4}]
    found = tables.run('SELECT `a"b`, `c\\\\d`, `e\nf`, `ü` FROM $rows WHERE `a"b` = 1', rows=rows)
    assert found == rows


def test_a_table_is_counted_without_being_read() -> None:
    def plan(text: str) -> SelectPlan:
        (statement,) = parse(text).statements
        assert isinstance(statement, tree.Select)
        return plan_select(statement)

    assert plan("SELECT count() FROM p GROUP ALL").count_result(5) == [{"count": 5}]
    assert plan("SELECT count() AS n FROM p GROUP ALL").count_result(5) == [{"n": 5}]
    assert plan("SELECT VALUE count() FROM p GROUP ALL").count_result(5) == [5]
    assert plan("SELECT count() FROM p GROUP ALL").is_count_only
    for text in [
        "SELECT count() FROM p WHERE a GROUP ALL", "SELECT count() FROM p, q GROUP ALL",
        "SELECT count() FROM p:1..5 GROUP ALL", "SELECT count(), sum(a) FROM p GROUP ALL",
        "SELECT count(a) FROM p GROUP ALL", "SELECT count() FROM p GROUP BY a",
        "SELECT count() FROM p GROUP ALL HAVING count() > 1",
        "SELECT count() FROM p GROUP ALL LIMIT 1",
    ]:  # fmt: skip
        assert not plan(text).is_count_only


def test_filters_keep_what_update_and_delete_write() -> None:
    tables = Tables(batch=1000, p=PEOPLE)
    (statement,) = parse("DELETE p WHERE age = 7").statements
    assert isinstance(statement, tree.Delete) and statement.where is not None
    (batch,) = tables.batches([statement.target])
    kept = BatchFilter(statement.where).kept(batch, tables, {})
    numbers = [n for n, row in enumerate(PEOPLE) if row["age"] == 7]
    assert WHOLE.rows(kept) == [{"id": RecordId("p", n), **PEOPLE[n]} for n in numbers]
    objects = BatchFilter(statement.where).kept(Objects(PEOPLE), tables, {})
    assert isinstance(objects, Objects) and len(objects.values) == len(numbers)


def test_what_a_statement_holds_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("protocol.limits.STATEMENT_MEMORY_BYTES", 20_000)
    monkeypatch.setattr(Budget.__init__, "__defaults__", (20_000, None, None))
    for text in [
        "SELECT * FROM p",
        "SELECT VALUE tags FROM p",
        "SELECT name, count() FROM p GROUP BY name",
        "SELECT DISTINCT VALUE name FROM p LIMIT 1 START 1000000",
        "SELECT array::len(collect(name)) FROM p GROUP ALL",
        "SELECT median(score) FROM p, p, p, p, p GROUP ALL",
        "SELECT count(DISTINCT name) FROM p GROUP ALL",
    ]:
        with pytest.raises(TooLarge):
            Tables(p=PEOPLE).run(text)
    assert Tables(p=PEOPLE).run("SELECT VALUE stddev(score) > 0 FROM p GROUP ALL") == [True]
    assert len(Tables(p=PEOPLE).run("SELECT * FROM p LIMIT 5")) == 5
    assert Tables(p=PEOPLE).run("SELECT VALUE name FROM p ORDER BY score LIMIT 1") == ["n0"]


class _Ticks:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.integers(0, 2**32),
    st.sampled_from([(False,), (True,), (False, True), (True, True), (True, False, True)]),
    st.sampled_from([None, 1, 10, 5000, 20_000]),
)
def test_sorting_in_runs_is_sorting(
    seed: int, descending: tuple[bool, ...], most: int | None
) -> None:
    dice = random.Random(seed)
    entries = [(*(dice.randrange(50) for _ in descending), n) for n in range(12_000)]
    ticks = _Ticks()
    sorter = Sorter(descending, most, Budget(), ticks)
    for at in range(0, len(entries), 700):
        sorter.add(entries[at : at + 700])
    expected = list(entries)
    for number in reversed(range(len(descending))):
        expected.sort(key=itemgetter(number), reverse=descending[number])
    assert list(sorter.items()) == [entry[-1] for entry in expected][:most]
    assert ticks.count or most in (1, 10)


def test_the_shape_of_a_statement_is_what_it_looks_at() -> None:
    def looked(text: str) -> tuple[str, ...] | None:
        (statement,) = parse(f"SELECT VALUE {text} FROM t").statements
        assert isinstance(statement, tree.Select)
        shape = shape_of(statement.columns[0].expression)
        return None if shape.whole else shape.names

    assert looked("a.b[c] + $x + d") == ("a", "c", "d")
    assert looked("(SELECT VALUE e FROM t WHERE x = $parent.f)") == ("f",)
    assert looked("(SELECT VALUE e FROM t)") == ()
    assert looked("(SELECT VALUE $parent FROM t)") is None
    assert looked("$this") is None


def test_a_refusal_in_a_row_comes_through(tables: Tables) -> None:
    with pytest.raises(Refusal):
        tables.run("SELECT * FROM p WHERE name + 1 = 2")


def test_rows_that_differ_are_told_apart_however_they_are_hashed() -> None:
    rows: list[dict[str, Any]] = [
        {"a": 1, "b": "x"}, {"b": "x", "a": 1.0}, {"a": True, "b": "x"}, {"a": 1}, {"a": [1]},
        {"a": [1.0]}, {"a": {"b": 1}}, {"a": None}, {}, {"a": [True]},
    ]  # fmt: skip
    kept = [0, 2, 3, 4, 6, 7, 8, 9]
    assert Tables(t=rows).run("SELECT DISTINCT a, b FROM t") == [rows[n] for n in kept]
    assert Tables(t=rows).run("SELECT DISTINCT * OMIT id FROM t") == [rows[n] for n in kept]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("SELECT VALUE CASE WHEN age = 200 THEN $nope ELSE 1 END FROM p", 500),
        ("SELECT VALUE age >= 0 OR age = $nope FROM p", 500),
        ("SELECT age ?? $nope AS a FROM p", 500),
        ("SELECT *, home.zip ?? $nope AS zip FROM p", 500),
        ("SELECT name FROM p WHERE age < 0 AND name IN $nope", 0),
        ("SELECT name FROM p ORDER BY age ?? $nope", 500),
        ("SELECT sum(age ?? $nope) AS n FROM p GROUP BY city ?? $nope", 5),
        ("SELECT city FROM p GROUP BY city HAVING count() > 0 OR city IN $nope", 5),
        ("SELECT name FROM none WHERE name = $nope", 0),
    ],
)
def test_what_no_row_comes_to_need_not_be_bound(tables: Tables, text: str, rows: int) -> None:
    for _ in range(9):  # by closures first, then by code
        assert len(tables.run(text)) == rows


@pytest.mark.parametrize(
    "text",
    [
        "SELECT VALUE CASE WHEN name = 'n499' THEN $nope ELSE 1 END FROM p",
        "SELECT name FROM p WHERE name = 'n499' AND name IN $nope",
        "SELECT name, nothing ?? $nope AS x, active AND $nope AS y FROM p",
    ],
)
def test_what_one_row_comes_to_is_refused_unbound(tables: Tables, text: str) -> None:
    for _ in range(9):
        with pytest.raises(Unknown, match=r"\$nope is not bound"):
            tables.run(text)
