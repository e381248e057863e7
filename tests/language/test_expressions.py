"""Each expression is computed by closures and by generated code; they must agree."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from language import operators, tree
from language.compile import compile_expression
from language.generate import generate_values
from language.names import shape_of
from language.parser import parse_expression
from language.parsing.operators import chain
from language.rows import WHOLE, Pairs
from protocol import binary, limits
from protocol.errors import (
    BadRequest,
    DivisionByZero,
    NumberTooLarge,
    Refusal,
    TooLarge,
    TypeRefused,
)
from protocol.values import NONE, PACE, RecordId, compare, equal, identical
from tests.language.surroundings import Tables
from tests.language.trees import BINARY, CONSTANTS, choices
from tests.protocol.values import durations

ROW: dict[str, Any] = {
    "a": 1, "b": "text", "c": [1, "x", None], "d": {"e": {"f": 2.5}}, "t": True, "n": None,
    "dec": Decimal("12.30"), "link": RecordId("t", 0),
    "links": [RecordId("t", 0), RecordId("t", 9)],
}  # fmt: skip
FIELDS = st.sampled_from(["a", "b", "c", "d", "t", "n", "dec", "link", "links", "id", "missing"])
LEAVES = st.one_of(
    CONSTANTS,
    FIELDS.map(tree.Name),
    st.sampled_from([tree.Parameter("p"), tree.Parameter("list"), tree.Parameter("this")]),
)


def larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(inner, max_size=3).map(tuple)
    return st.one_of(
        some.map(tree.Array),
        st.lists(st.tuples(FIELDS, inner), max_size=2).map(tuple).map(tree.Object),
        st.builds(tree.Attribute, inner, FIELDS),
        st.builds(tree.Index, inner, inner),
        st.builds(tree.Each, inner),
        st.builds(tree.Unary, st.sampled_from(["-", "+", "NOT"]), inner),
        st.builds(tree.Binary, st.sampled_from(BINARY), inner, inner),
        st.builds(
            lambda operator, parts: chain(operator, parts),
            st.sampled_from(["AND", "OR"]),
            st.lists(inner, min_size=2, max_size=3),
        ),
        st.builds(tree.Binary, st.just("IN"), inner, st.builds(tree.Range, inner, inner,
                                                               st.booleans())),
        choices(inner),
        st.builds(tree.Call, st.just("type::of"), st.tuples(inner)),
        st.builds(tree.Call, st.just("array::len"), st.tuples(inner)),
    )  # fmt: skip


def surroundings() -> Tables:
    tables = Tables(t=[ROW])
    tables.variables.update(p=5, list=[1, 2, "x", True, None])
    return tables


def outcome(work: Any) -> Any:
    try:
        return work()
    except Refusal as refusal:
        return refusal.code


def ways(node: tree.Expression) -> list[Any]:
    """What an expression comes to over the same row, each way it can be computed."""
    env = surroundings()
    pairs = Pairs([(b"0", binary.pack(ROW))], lambda key: RecordId("t", int(key)))
    found = []
    for shape in (shape_of(node), WHOLE):
        (row,) = shape.from_pairs(pairs)
        closure = compile_expression(node, shape)
        found.append(outcome(lambda row=row, closure=closure: closure(row, env)))
        generated = generate_values((node,), shape)
        found.append(outcome(lambda row=row, generated=generated: generated([row], env, {})[0]))
    return found


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.recursive(LEAVES, larger, max_leaves=8))
def test_closures_and_generated_code_agree(node: tree.Expression) -> None:
    first, *others = ways(node)
    assert all(identical(first, other) for other in others), (first, others)


def test_the_comparison_of_both_ways_catches_a_wrong_operator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("language.generate._TURNED", {"<": "<=", "<=": "<", ">": ">=", ">=": ">"})
    first, generated, *_ = ways(parse_expression("1 < a"))
    assert first != generated


def value(text: str, **variables: Any) -> Any:
    return surroundings().value(text, **variables)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("1 + 0.5", 1.5),
        ("[1] + [2]", [1, 2]),
        ("1h / 30m", 2.0),
        ("2 * 90m", timedelta(hours=3)),
        ("d'2026-01-01' + 1d", datetime(2026, 1, 2, tzinfo=UTC)),
        ("-9223372036854775808", -(2**63)),
        ("1 = 1.0 AND 1 = 1dec AND 1.0 = 1dec", True),
        ("1 = true", False),
        ("NONE < NULL OR NULL < false OR true < 0 OR 9 < 'a'", False),
        ("NONE <= NONE OR NULL >= NULL OR NONE >= NULL", False),
        ("false < true AND 1 < 1.5dec AND 'a' < 'b' AND b'' < b'eA==' AND 1s < 2s", True),
        ("'a' < b'' OR b'' < 1s OR 1s < d'2026-01-01' OR [1] < { a: 1 }", False),
        ("[1, NONE] < [1, NULL] AND [1] < ['a'] AND { a: 1 } < { a: 'x' }", True),
        ("t:1 < t:2 AND t:9 < t:a AND a:1 < b:0", True),
        ("[1, 2] < [1, 3] AND [1] < [1, 0]", True),
        ("3 IN [1, 2, 3]", True),
        ("3 IN [1, 2, 3.0]", True),
        ("true IN [1, 2, 3, 4, 5]", False),
        ("3 NOT IN 1..3", True),
        ("2.5 IN 1..3", False),
        ("2dec IN 1..3", True),
        ("'x' IN 1..3", False),
        ("'abc' CONTAINS 'b'", True),
        ("{ a: 1 } CONTAINS 'a'", True),
        ("NONE CONTAINS 1", False),
        ("'person' ~ '^per'", True),
        ("NULL ?? NONE ?? 3", 3),
        ("false ?? 3", False),
        ("3..1", []),
        ("NONE OR true", True),
        ("false AND 'never looked at'", False),
        ("[1, 2, 3][-1]", 3),
        ("[1][5]", NONE),
        ("{ a: { b: [{ c: 1 }, { c: 2 }] } }.a.b.c", [1, 2]),
        ("{ a: 1, b: 2 }.*", [1, 2]),
        ("{ 'a b': 1 }['a b']", 1),
        ("t:0.d.e.f", 2.5),
        ("t:9.d", NONE),
        ("t:0.id", RecordId("t", 0)),
        ("[t:0, t:9].a", [1, NONE]),
        ("$p + 1", 6),
        ("t:[1, $p]", RecordId("t", [1, 5])),
        ("t:$p", RecordId("t", 5)),
        ("type::of((SELECT * FROM [{ a: 1 }]))", "array"),
    ],
)  # fmt: skip
def test_what_an_expression_comes_to(text: str, expected: Any) -> None:
    assert identical(value(text), expected)


@pytest.mark.parametrize(
    "text, kind",
    [
        ("1dec % 0", DivisionByZero), ("1h / 0s", DivisionByZero),
        ("-(-9223372036854775808)", NumberTooLarge), ("9223372036854775807 * 2", NumberTooLarge),
        ("9e6143dec * 10", NumberTooLarge), ("1w * 9223372036854775807", NumberTooLarge),
        ("d'9999-12-31' + 2d", NumberTooLarge), ("1 + '1'", TypeRefused),
        ("1 + true", TypeRefused), ("1 IN 5", TypeRefused), ("1 ~ 'x'", TypeRefused),
        ("'x' ~ 1", TypeRefused), ("'x' ~ '('", BadRequest), ("'a'..2", TypeRefused),
        ("[1][true]", TypeRefused), ("t:[1.5]", TypeRefused),
    ],
)  # fmt: skip
def test_what_an_expression_refuses(text: str, kind: type[Refusal]) -> None:
    with pytest.raises(kind):
        value(text)


VALUES = st.recursive(
    st.one_of(
        st.sampled_from([NONE, None, True, False, 0, 1, 0.0, 1.0, Decimal(1), Decimal("1.00")]),
        st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False),
        st.decimals(allow_nan=False, allow_infinity=False, places=2), st.text(max_size=3),
        st.binary(max_size=3), st.uuids(), durations,
        st.builds(RecordId, st.sampled_from(["a", "b"]), st.integers() | st.text(min_size=1)),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner,
                                                                max_size=3),
    max_leaves=5,
)  # fmt: skip


def _key(value: Any) -> Any:
    return operators.hashable(value, lambda: None)


@settings(deadline=None)
@given(VALUES, VALUES)
def test_keys_for_sorting_and_hashing_follow_the_order_of_values(left: Any, right: Any) -> None:
    one, two = operators.order_key(left), operators.order_key(right)
    assert (one > two) - (one < two) == compare(left, right)
    alike = _key(left) == _key(right)
    assert alike == equal(left, right)
    if alike:
        assert hash(_key(left)) == hash(_key(right))


@pytest.mark.parametrize(
    "values",
    [
        [Decimal(n * (2**61 - 1)) for n in range(1, 4_000)],
        [Decimal(n * (2**61 - 1)) / 10 for n in range(1, 4_000)],
        [UUID(int=n * (2**61 - 1)) for n in range(1, 4_000)],
        [RecordId("t", UUID(int=n * (2**61 - 1))) for n in range(1, 4_000)],
        [2.0 ** (61 * n) for n in range(-16, 16)],
    ],
    ids=["decimals", "tenths", "uuids", "records", "floats"],
)
def test_nobody_can_choose_values_whose_keys_collide(values: list[Any]) -> None:
    assert len({hash(_key(value)) for value in values}) > len(values) - 9


def test_records_whose_ids_collide_in_python_do_not() -> None:
    ids = [RecordId("t", UUID(int=n * (2**61 - 1))) for n in range(1, 4_000)]
    assert len(set(map(hash, ids))) > len(ids) - 3


MANY = 100_000
LARGE = {
    "numbers": list(range(MANY)), "same": list(range(MANY)), "arrays": [[n] for n in range(MANY)],
    "copies": [[n] for n in range(MANY)], "rows": [[0] * 1000 for _ in range(100)],
    "others": [[0] * 1000 for _ in range(100)], "object": {f"f{n}": n for n in range(MANY)},
    "twin": {f"f{n}": n for n in range(MANY)}, "objects": [{"a": n} for n in range(MANY)],
    "texts": ["x"] * MANY,
}  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "$numbers = $same", "$numbers != $same", "$numbers < $same", "$numbers >= $same",
        "$arrays = $copies", "$rows = $others", "$object = $twin", "$object < $twin",
        "$numbers IN [$same]", "[$same] CONTAINS $numbers", "$numbers IN [1, 2, 3, 4, $same]",
        "array::distinct([$numbers, $same])", "array::sort([$rows, $others])",
        "min([$numbers, $same])", "$objects.a", "string::join($texts, ',')",
        "type::string($numbers)", "type::string($object)", "1..=100000",
    ],
)  # fmt: skip
def test_whatever_looks_through_a_large_value_ticks(text: str) -> None:
    env = Tables()
    env.value(text, **LARGE)
    pieces = 1 if ".." in text else MANY // (5 * PACE)
    assert env.ticks > pieces, "a loop over it would hold up everybody"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT count() FROM [{ x: $numbers }, { x: $same }] GROUP BY x",
        "SELECT VALUE x[0] FROM [{ x: $numbers }, { x: $same }] ORDER BY x",
        "SELECT VALUE 1 FROM [{ x: $numbers }, { x: $same }] WHERE x = $same",
        "SELECT * FROM [{ x: $objects }] FETCH x.a",
    ],
)
def test_a_select_over_large_values_ticks(text: str) -> None:
    env = Tables()
    env.variables = LARGE
    env.run(text)
    assert env.ticks > MANY // PACE


def test_vectors_have_so_many_dimensions() -> None:
    env = Tables()
    most = [1] * limits.DIMENSIONS
    assert env.value("vector::dot($x, $x)", x=most) == limits.DIMENSIONS
    with pytest.raises(TooLarge, match="at most 16384 dimensions, not 16385"):
        env.value("vector::dot($x, $x)", x=[*most, 1])


@settings(deadline=None)
@given(st.lists(VALUES, max_size=8), VALUES)
def test_members_answer_as_contains_does(values: list[Any], one: Any) -> None:
    env = Tables()
    assert operators.members(values, env)(one) == operators.contains(values, one, env)
