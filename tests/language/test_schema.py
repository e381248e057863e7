"""Types of fields against a model of them, and what a schema makes of records."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from language import fieldtypes, tree
from language.fieldtypes import MISFIT, SHOWN, compile_type
from language.parser import parse, parse_expression, parse_type
from language.printing import print_type
from language.rules import Definition, check_definition, compile_rule
from language.schema import Schema
from protocol.errors import (
    AssertFailed,
    BadRequest,
    FieldRefused,
    Refusal,
    TooLarge,
    TypeRefused,
    UnexpectedToken,
)
from protocol.paths import Path, path_text
from protocol.values import NONE, RecordId, equal, identical
from tests.language.surroundings import Tables
from tests.language.trees import FIELD_PATHS, FIELD_TYPES, SCALARS

SLOW = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
VALUES = st.recursive(
    st.one_of(SCALARS, st.builds(RecordId, st.sampled_from(["a", "order"]), st.integers(0, 9))),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
    ),
    max_leaves=4,
)


def no_tick() -> None:
    """For values that are small."""


CLASSES = {
    "bool": bool, "int": int, "float": float, "decimal": Decimal, "string": str, "bytes": bytes,
    "datetime": datetime, "duration": timedelta, "uuid": UUID, "object": dict,
}  # fmt: skip


def belongs(node: tree.FieldType, value: Any) -> bool:
    """Whether a value fits a type, as the docs say it: nothing is compiled or converted here."""
    if isinstance(node, tree.UnionType):
        return any(belongs(member, value) for member in node.members)
    if isinstance(node, tree.OptionType):
        return value is NONE or belongs(node.of, value)
    if isinstance(node, tree.LiteralType):
        return identical(node.value, value)
    if isinstance(node, tree.RecordType):
        return type(value) is RecordId and (not node.tables or value.table in node.tables)
    if isinstance(node, tree.ArrayType):
        if type(value) is not list or len(value) > (9**9 if node.most is None else node.most):
            return False
        return all(belongs(node.of, item) for item in value)
    if node.kind == "any":
        return True
    if node.kind == "number":
        return type(value) in (int, float, Decimal)
    if node.kind == "float" and type(value) is int and abs(value) <= 2**53:
        return True
    if node.kind == "decimal" and type(value) is int:
        return True
    return type(value) is CLASSES[node.kind]


def typed(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, Any]]:
    """A type and a value that has a good chance to fit it."""
    return st.one_of(
        st.tuples(FIELD_TYPES, inner),
        inner.map(lambda value: (tree.LiteralType(value), value))
        if inner is SCALARS
        else st.tuples(st.builds(tree.ArrayType, FIELD_TYPES), st.lists(inner, max_size=2)),
    )


@SLOW
@given(st.one_of(typed(SCALARS), typed(VALUES)))
def test_a_type_takes_what_its_model_takes_and_changes_no_value(pair: tuple[Any, Any]) -> None:
    node, value = pair
    found = compile_type(node)(value, no_tick)
    assert (found is not MISFIT) == belongs(node, value), print_type(node)
    if found is not MISFIT:
        assert equal(found, value), print_type(node)


def test_the_model_finds_a_type_that_takes_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fieldtypes, "_float", lambda value, tick: value)
    node = parse_type("array<float>")
    assert compile_type(node)(["x"], no_tick) is not MISFIT and not belongs(node, ["x"])


@SLOW
@given(FIELD_PATHS)
def test_a_path_is_read_as_it_is_shown(path: Path) -> None:
    (statement,) = parse(f"DROP FIELD {path_text(path)} ON t").statements
    assert isinstance(statement, tree.DropField) and statement.path == path


@SLOW
@given(FIELD_TYPES)
def test_a_type_is_read_as_it_is_printed(node: tree.FieldType) -> None:
    assert print_type(parse_type(print_type(node))) == print_type(node)


# --- whole schemas --------------------------------------------------------------------------------


class Around(Tables):
    """Surroundings of DEFAULT, VALUE and ASSERT."""

    def of_value(self, value: Any) -> Around:
        around = Around()
        around.variables = {"value": value}
        return around


def schema(*lines: str, schemafull: bool = False) -> Schema:
    def definitions() -> Iterator[Definition]:
        for line in lines:
            (made,) = parse("DEFINE FIELD " + line.replace(" ", " ON t TYPE ", 1)).statements
            assert isinstance(made, tree.DefineField)
            definition = Definition(
                made.path, made.type, made.default, made.value, made.assertion, made.readonly
            )
            check_definition(definition)
            yield definition

    return Schema("t", map(compile_rule, definitions()), schemafull)


def conform(
    found: Schema, fields: dict[str, Any], before: dict[str, Any] | None = None, **how: Any
) -> dict[str, Any]:
    return found.conform(RecordId("t", 1), fields, before, Around(), **how)


def refused(found: Schema, fields: dict[str, Any], **how: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        conform(found, fields, **how)
    return caught.value


def detail(refusal: Refusal) -> tuple[Any, ...]:
    return tuple(refusal.detail[name] for name in ("table", "field", "wanted", "found"))


@pytest.mark.parametrize(
    "line, value, wanted, found",
    [
        ("a int", "x", "int", "string"),
        ("a int", NONE, "int", "none"),
        ("a option<int>", None, "option<int>", "null"),
        ("a array<int, 2>", [1, 2, 3], "array<int, 2>", "array of 3"),
        ("a array<int, 2>", {"x": 1}, "array<int, 2>", "object"),
        ("a record<b>", RecordId("c", 1), "record<b>", "record<c>"),
        ("a 'x' | 'y'", "z", "'x' | 'y'", "'z'"),
        ("a 'x' | 'y'", 1, "'x' | 'y'", "int"),
        ("a int | bool", 1.5, "int | bool", "float"),
    ],
)
def test_a_wrong_type_says_what_was_wanted_and_found(
    line: str, value: Any, wanted: str, found: str
) -> None:
    refusal = refused(schema(line), {"a": value})
    assert type(refusal) is TypeRefused
    assert detail(refusal) == ("t", "a", wanted, found)


def test_a_wrong_item_says_where_it_stands() -> None:
    rows = schema("a array", "a[*].b array<array<int>>")
    refusal = refused(rows, {"a": [{"b": []}, {"b": [[1], [2, "x"]]}]})
    assert detail(refusal) == ("t", "a[1].b[1][1]", "int", "string")


def test_a_failed_assert_says_what_was_wanted_and_found() -> None:
    refusal = refused(schema("a int ASSERT $value > 3"), {"a": 3})
    assert type(refusal) is AssertFailed
    assert detail(refusal) == ("t", "a", "$value > 3", "3")


def test_a_field_that_is_not_defined_says_what_is() -> None:
    refusal = refused(schema("a int", "c object", "c.d int", schemafull=True), {"a": 1, "b": "x"})
    assert type(refusal) is TypeRefused, "c is made, and d must be there"
    full = schema("a int", "c.d option<int>", schemafull=True)
    refusal = refused(full, {"a": 1, "c": {"e f": 1}})
    assert type(refusal) is FieldRefused
    assert detail(refusal) == ("t", "c.`e f`", "d", "int")


def test_a_readonly_field_says_what_it_is_and_should_have_become() -> None:
    refusal = refused(schema("a int READONLY"), {"a": 2}, before={"id": RecordId("t", 1), "a": 1})
    assert type(refusal) is FieldRefused
    assert detail(refusal) == ("t", "a", "1", "2")


def test_a_refusal_shows_little_of_what_is_long() -> None:
    words = " | ".join(f"'word number {n}'" for n in range(100))
    for line, value in (("a int", "x" * 5000), (f"a {words}", "y" * 5000)):
        refusal = refused(schema(line), {"a": value})
        assert len(refusal.message) < 3 * SHOWN
        assert all(len(str(shown)) <= SHOWN for shown in detail(refusal))
    wide = {f"field{n}": n for n in range(10_000)}
    refusal = refused(schema("a int", schemafull=True), {"a": 1, **wide})
    assert len(refusal.message) < 2 * SHOWN


def test_what_a_default_gives_is_not_shared() -> None:
    lists = schema("a array DEFAULT []", "a[*].n int DEFAULT 1")
    one, two = conform(lists, {}), conform(lists, {})
    one["a"].append({})
    assert two == {"a": []} and conform(lists, {}) == {"a": []}
    objects = schema("o object DEFAULT { x: {} }", "o.x.n int DEFAULT 1")
    assert conform(objects, {}) == {"o": {"x": {"n": 1}}}
    assert conform(objects, {}) is not conform(objects, {})


def test_a_default_may_not_nest_a_record_too_deep() -> None:
    deep = "[" * 64 + "]" * 64
    with pytest.raises(TooLarge):
        conform(schema(f"a.b array DEFAULT {deep[1:-1]}"), {})
    assert conform(schema(f"a array DEFAULT {deep[1:-1]}"), {})["a"] == eval(deep[1:-1])


def test_defaults_see_the_record_as_it_was_given() -> None:
    found = schema("a int DEFAULT 1", "b int DEFAULT a ?? 5", "c int DEFAULT d + 1")
    assert conform(found, {"d": 2}) == {"d": 2, "a": 1, "b": 5, "c": 3}


def test_what_an_expression_is_refused_for_names_the_field() -> None:
    refusal = refused(schema("a int ASSERT 1 / $value = 1"), {"a": 0})
    assert refusal.code == "DivisionByZero"
    assert (refusal.detail["table"], refusal.detail["field"]) == ("t", "a")
    refusal = refused(schema("a int DEFAULT 1 / 0"), {})
    assert refusal.message == "division by zero (DEFAULT of t.a)"


@pytest.mark.parametrize(
    "line",
    [
        "a int ASSERT $x = 1", "a int ASSERT $value = (SELECT VALUE n FROM t)",
        "a int ASSERT $value = t:1.n", "a int DEFAULT { b: [t:1['n']] }", "a any DEFAULT t:1.*",
        "a record ASSERT $value.n = 1", "a option<array<record<t>>> ASSERT $value[*].n = [1]",
        "a record | int ASSERT a.n = 1", "a record ASSERT $this.a.n = 1", "a int DEFAULT $value",
        "a int DEFAULT { b: [$this, $x] }", "id int", "id.x int",
    ],
)  # fmt: skip
def test_a_definition_that_can_not_be(line: str) -> None:
    with pytest.raises(BadRequest):
        schema(line)


@pytest.mark.parametrize(
    "lines",
    [
        ("a int", "a.b int"), ("a 'x' | 'y'", "a.b int"), ("a array<int>", "a.b int"),
        ("a option<record<t>>", "a[*] int"), ("a[*] int", "a[*].b int"),
    ],
)  # fmt: skip
def test_fields_that_contradict_each_other(lines: tuple[str, ...]) -> None:
    with pytest.raises(BadRequest, match="which has no"):
        schema(*lines)


def test_names_of_every_alphabet() -> None:
    names = ["имя", "名前", "اسم", "😀", "a b", "`", "\\", "'", "été"]
    found = Schema(
        "t", [compile_rule(Definition((name,), parse_type("int"))) for name in names], True
    )
    fields = dict.fromkeys(names, 1)
    assert conform(found, dict(fields)) == fields
    for name in names:
        refusal = refused(found, {**fields, name: "x"})
        shown = refusal.detail["field"]
        assert parse(f"DROP FIELD {shown} ON t").statements == (tree.DropField((name,), "t"),)


@pytest.mark.parametrize(
    "text, refusal",
    [
        ("option<" * 70 + "int" + ">" * 70, TooLarge), ("array<" * 70 + "int" + ">" * 70, TooLarge),
        (" | ".join(["1"] * 1001), UnexpectedToken), ("array<int, 4000001>", Refusal),
        ("array<int, -1>", UnexpectedToken), ("1" * 1000 + "dec", Refusal),
        ("- 'x'", UnexpectedToken), ("option", UnexpectedToken), ("record<>", UnexpectedToken),
        ("int |", UnexpectedToken), ("set<int>", UnexpectedToken), ("none", UnexpectedToken),
    ],
)  # fmt: skip
def test_types_that_are_none(text: str, refusal: type[Refusal]) -> None:
    with pytest.raises(refusal):
        parse(f"DEFINE FIELD a ON t TYPE {text}")


def test_the_longest_union_there_may_be() -> None:
    node = parse_type(" | ".join(f"'{n}'" for n in range(1000)))
    fit = compile_type(node)
    assert fit("999", no_tick) == "999" and fit("1000", no_tick) is MISFIT


def test_a_path_is_at_most_so_long() -> None:
    with pytest.raises(TooLarge):
        parse(f"DEFINE FIELD {'.'.join(['a'] * 66)} ON t TYPE int")


def test_a_long_array_gives_others_their_turn() -> None:
    for line in ("a[*] int", "a array<int>", "a array<string> | array<int>", "a.* int"):
        around = Around()
        values = {f"f{n}": n for n in range(5000)} if "." in line else [1] * 5000
        schema(line).conform(RecordId("t", 1), {"a": values}, None, around)
        assert around.ticks >= 4, line


def test_expressions_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found = schema("a int DEFAULT 1 ASSERT $value > 0")
    monkeypatch.setattr("language.rules.compile_expression", None)
    monkeypatch.setattr("language.rules.compile_condition", None)
    assert conform(found, {}) == {"a": 1}
    assert parse_expression("1") == tree.Constant(1)
