from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from language import tree
from language.parser import parse
from language.writes import diff, plan_data
from protocol.errors import BadRequest, Refusal, TypeRefused
from protocol.values import identical
from tests.language.surroundings import Tables

BEFORE: dict[str, Any] = {"a": 1, "b": {"c": [1, 2, {"d": 3}], "e": "x"}, "n": None}


def applied(text: str, before: dict[str, Any] | None = None) -> dict[str, Any]:
    """What `UPDATE t …` makes of a record; the record itself must stay as it was."""
    row = copy.deepcopy(BEFORE if before is None else before)
    kept = copy.deepcopy(row)
    (statement,) = parse(f"UPDATE t {text}").statements
    assert isinstance(statement, tree.Update)
    found = plan_data(statement.data)(row, Tables())
    assert identical(row, kept) and found is not row
    return found


@pytest.mark.parametrize(
    "text, expected",
    [
        ("SET a = 2", {"a": 2}), ("SET a = a + 1, z = a", {"a": 2, "z": 1}), ("SET a = a", {}),
        ("SET b.e = 'y'", {"b": {"c": [1, 2, {"d": 3}], "e": "y"}}),
        ("SET b.c[0] = 9", {"b": {"c": [9, 2, {"d": 3}], "e": "x"}}),
        ("SET b.c[-1].d = 9", {"b": {"c": [1, 2, {"d": 9}], "e": "x"}}),
        ("SET b.c[3] = 9", {"b": {"c": [1, 2, {"d": 3}, 9], "e": "x"}}),
        ("SET b.c[0] = NONE", {"b": {"c": [2, {"d": 3}], "e": "x"}}),
        ("SET b.c[*] = 0", {"b": {"c": [0, 0, 0], "e": "x"}}),
        ("SET b.* = 0", {"b": {"c": 0, "e": 0}}), ("SET x.y.z = 1", {"x": {"y": {"z": 1}}}),
        ("SET x.y[0] = 1", {"x": {"y": [1]}}), ("SET n.x = 1", {"n": {"x": 1}}),
        ("SET x = 1, x.y = 2", None), ("SET x = {}, x.y = 2", {"x": {"y": 2}}),
        ("SET x.y = NONE", {"x": {}}),
        ("MERGE { a: 2, b: { e: NONE, f: 1 } }", {"a": 2, "b": {"c": [1, 2, {"d": 3}], "f": 1}}),
        ("MERGE { b: { c: [] } }", {"b": {"c": [], "e": "x"}}),
        ("MERGE { x: { y: 1 } }", {"x": {"y": 1}}),
    ],
)  # fmt: skip
def test_set_and_merge(text: str, expected: dict[str, Any] | None) -> None:
    if expected is None:
        with pytest.raises(TypeRefused):
            applied(text)
        return
    assert identical(applied(text), {**BEFORE, **expected})


def test_a_field_set_to_none_goes() -> None:
    assert applied("SET a = NONE, b.e = NONE") == {"b": {"c": [1, 2, {"d": 3}]}, "n": None}


def test_unset_takes_away_what_is_there() -> None:
    found = applied("UNSET a, b.c[1], b.c[*].d, b.missing.x, n")
    assert found == {"b": {"c": [1, {}], "e": "x"}}


def test_content_replaces_everything() -> None:
    assert applied("CONTENT { z: a + 1 }") == {"z": 2}


def test_a_constant_is_not_shared_between_records() -> None:
    (statement,) = parse("UPDATE t CONTENT { z: 1 }").statements
    assert isinstance(statement, tree.Update)
    plan = plan_data(statement.data)
    plan({}, Tables())["z"] = 2
    assert plan({}, Tables()) == {"z": 1}


@pytest.mark.parametrize(
    "text, kind",
    [
        ("SET a.x = 1", TypeRefused), ("SET a[0] = 1", TypeRefused), ("SET b[0] = 1", TypeRefused),
        ("SET a[*] = 1", TypeRefused), ("SET b.c[4] = 1", BadRequest),
        ("SET b.c[-4] = 1", BadRequest), ("CONTENT [1]", TypeRefused), ("MERGE 1", TypeRefused),
    ],
)  # fmt: skip
def test_what_can_not_be_set_is_refused(text: str, kind: type[Refusal]) -> None:
    with pytest.raises(kind):
        applied(text)


VALUES = st.recursive(
    st.sampled_from([None, True, 1, 1.0, "x", "a/b~c"]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["a", "b/", "~c", ""]), inner)
    ),
    max_leaves=10,
)
OBJECTS = st.dictionaries(st.sampled_from(["a", "b/", "~c", ""]), VALUES, max_size=4)


def patched(value: Any, changes: list[dict[str, Any]]) -> Any:
    """JSON Patch, as a client would apply it."""
    found = copy.deepcopy(value)
    for change in changes:
        steps = [
            part.replace("~1", "/").replace("~0", "~") for part in change["path"].split("/")[1:]
        ]
        holder = found
        for step in steps[:-1]:
            holder = holder[int(step)] if isinstance(holder, list) else holder[step]
        last = int(steps[-1]) if isinstance(holder, list) else steps[-1]
        if change["op"] == "remove":
            del holder[last]
        elif change["op"] == "add" and isinstance(holder, list):
            holder.insert(last, change["value"])
        else:
            assert change["op"] == "add" or holder[last] is not change
            holder[last] = change["value"]
    return found


@settings(deadline=None)
@given(OBJECTS, OBJECTS)
def test_a_diff_leads_from_one_to_the_other(before: dict[str, Any], after: dict[str, Any]) -> None:
    changes = diff(before, after)
    assert identical(patched(before, changes), after)
    assert bool(changes) != identical(before, after)


def test_a_diff_says_what_changed() -> None:
    assert diff({"a": 1, "b": [1, 2], "c": 1}, {"a": 1, "b": [1, 3, 4], "d": 2}) == [
        {"op": "remove", "path": "/c"},
        {"op": "replace", "path": "/b/1", "value": 3},
        {"op": "add", "path": "/b/2", "value": 4},
        {"op": "add", "path": "/d", "value": 2},
    ]
