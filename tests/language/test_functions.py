from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from language.closures import Closure
from language.functions import TABLE
from language.functions.randoms import uuid7
from language.patterns import beginning
from protocol.errors import (
    BadRequest,
    NameRefused,
    NumberTooLarge,
    Refusal,
    TooLarge,
    TypeRefused,
)
from protocol.values import NONE, RecordId, identical
from tests.language.surroundings import NOW, Dice, Tables

LISTED = """
    count sum min max mean count_distinct collect median stddev first last
    string::{len lower upper trim split join starts ends contains replace
    slice} array::{len first last sort distinct flatten push slice map filter find any all fold}
    object::{keys values merge pick omit} math::{abs floor
    ceil round sqrt pow} time::{now format parse floor year month day hour minute second
    weekday week unix from_unix trunc add diff} type::{of int float decimal
    string datetime duration record} rand::{uuid int} record::{id table}
    search::{all analyze any boost fuzzy highlight matches not offsets phrase prefix rrf score
    snippet} vector::{cosine distance
    euclidean dot} crypto::{sha256 md5}
"""


def value(text: str, **variables: Any) -> Any:
    return Tables().value(text, **variables)


def test_the_table_holds_the_functions_of_the_language_and_no_others() -> None:
    listed: set[str] = set()
    for family, members, alone in re.findall(r"(\w+)::\{([^}]*)\}|(\w+)", LISTED):
        listed |= {alone} if alone else {f"{family}::{one}" for one in members.split()}
    assert set(TABLE) == listed


@pytest.mark.parametrize("name", sorted(TABLE))
def test_every_function_is_documented_and_refuses_what_it_does_not_take(name: str) -> None:
    known = TABLE[name]
    assert known.doc.endswith(".") and len(known.doc) < 100
    assert known.signature.startswith(f"{name}(")
    env = Tables()
    for number, parameter in enumerate(known.parameters):
        if parameter.kind == "any":
            continue
        arguments: list[Any] = [_fitting(p.kind) for p in known.parameters]
        arguments[number] = None
        with pytest.raises(TypeRefused) as caught:
            known.run(env, *arguments)
        assert caught.value.detail["argument"] == number + 1


def _fitting(kind: str) -> Any:
    return {
        "string": "a", "text": "a", "int": 1, "number": 1, "array": [1], "object": {}, "any": 1,
        "bool": True, "datetime": NOW, "duration": timedelta(1), "record": RecordId("t", 1),
        "closure": Closure(("x",), lambda row, env: True, None, Tables(), 1),
    }[kind]  # fmt: skip


@pytest.mark.parametrize(
    "text, expected",
    [
        ("count([1, NONE, NULL, false])", 2),
        ("sum([1, 2.5, NULL])", 3.5),
        ("sum([1, 0.10dec])", Decimal("1.10")),
        ("min([3, 1, 2])", 1),
        ("max(['a', 3])", "a"),
        ("max([])", NONE),
        ("mean([1dec, 2dec])", Decimal("1.5")),
        ("mean([NONE])", NONE),
        ("median([1, 2])", 1.5),
        ("median([9223372036854775807, 9223372036854775807])", 9223372036854775807),
        ("median([9223372036854775805, 9223372036854775807])", 9223372036854775806),
        ("median([-9223372036854775808, -9223372036854775808, 1, 1])", -4611686018427387903.5),
        ("median([1e308, 1.5e308])", 1.25e308),
        ("string::len('añb')", 3),
        ("string::lower('ABC') + string::upper('abc')", "abcABC"),
        ("string::trim('  a b\n')", "a b"),
        ("string::starts('abc', 'ab') AND string::ends('abc', 'bc')", True),
        ("string::replace('aXbX', 'X', '--')", "a--b--"),
        ("string::slice('abcdef', 1, 3) + string::slice('abcdef', -2)", "bcef"),
        ("array::first([1, 2]) + array::last([1, 2])", 3),
        ("array::sort([3, 'a', NULL, 1])", [None, 1, 3, "a"]),
        ("array::sort([1, 2, 3], true)", [3, 2, 1]),
        ("array::distinct([1, 1.0, true, 'a', 'a', [1], [1]])", [1, True, "a", [1]]),
        ("math::abs(-5) + math::abs(5)", 10),
        ("math::abs(-1.5dec)", Decimal("1.5")),
        ("math::round(2.345, 2)", 2.35),
        ("math::round(2.345dec, 2)", Decimal("2.35")),
        ("math::round(1.5dec, 3)", Decimal("1.5")),
        ("math::round(1e300, 2)", 1e300),
        ("math::sqrt(9)", 3.0),
        ("math::sqrt(4.00dec)", Decimal("2.0")),
        ("math::pow(2, 62)", 2**62),
        ("math::pow(-2, 63)", -(2**63)),
        ("math::pow(-1, 9223372036854775807)", -1),
        ("math::pow(-1, 9223372036854775806)", 1),
        ("math::pow(1, 9223372036854775807)", 1),
        ("math::pow(0, 5)", 0),
        ("math::pow(7, 0)", 1),
        ("math::pow(2.0, 0.5)", 2**0.5),
        ("time::format(time::now(), '%Y-%m-%d %H:%M:%S.%f %j %a %A %b %B %%')",
         "2026-11-20 12:30:15.250000 324 Fri Friday Nov November %"),
        ("time::parse('2026-01-02T03:04:05+01:00')", datetime(2026, 1, 2, 2, 4, 5, tzinfo=UTC)),
        ("time::floor(time::now(), 1h)", datetime(2026, 11, 20, 12, tzinfo=UTC)),
        ("time::floor(d'1969-12-31T23:59:59Z', 1m)", datetime(1969, 12, 31, 23, 59, tzinfo=UTC)),
        ("time::year(time::now()) + time::month(time::now()) + time::day(time::now())", 2057),
        ("type::of(NONE) + type::of(1dec) + type::of(t:1)", "nonedecimalrecord"),
        ("type::int('-42')", -42),
        ("type::int(42.0)", 42),
        ("type::int(42.00dec)", 42),
        ("type::float('1.5e3')", 1500.0),
        ("type::float(1)", 1.0),
        ("type::decimal(5)", Decimal(5)),
        ("type::string(12.30dec)", "12.30"),
        ("type::string(5m)", "5m"),
        ("type::string(d'2026-01-02T00:00:00Z')", "2026-01-02T00:00:00Z"),
        ("type::string(u'018f2d5e-7f5a-7c3e-8b1e-0123456789ab')",
         "018f2d5e-7f5a-7c3e-8b1e-0123456789ab"),
        ("type::string(person:ana)", "person:ana"),
        ("type::string(true)", "true"),
        ("type::datetime('2026-01-02')", datetime(2026, 1, 2, tzinfo=UTC)),
        ("type::record('person', 1)", RecordId("person", 1)),
        ("type::record('person', 'any text')", RecordId("person", "any text")),
        ("record::id(person:[1, 'a'])", [1, "a"]),
        ("record::table(person:1)", "person"),
        ("vector::dot([1, 2], [3, 4dec])", 11.0),
        ("vector::cosine([2, 0], [5, 0])", 1.0),
    ],
)  # fmt: skip
def test_what_a_function_answers(text: str, expected: Any) -> None:
    found = value(text)
    assert identical(found, expected), found


@pytest.mark.parametrize(
    "text, kind",
    [
        ("sum(['a'])", TypeRefused), ("sum([1.5, 1dec])", TypeRefused),
        ("sum([9223372036854775807, 1])", NumberTooLarge), ("sum([1e308, 1e308])", NumberTooLarge),
        ("string::split('a', '')", BadRequest), ("string::replace('a', '', 'b')", BadRequest),
        ("string::join([1], '')", TypeRefused), ("math::floor(1e300)", NumberTooLarge),
        ("math::ceil(1e6000dec)", NumberTooLarge), ("math::round(1, -1)", BadRequest),
        ("math::sqrt(-1)", TypeRefused), ("math::pow(2, 63)", NumberTooLarge),
        ("math::pow(0, -1)", NumberTooLarge), ("math::pow(-1.5, 0.5)", TypeRefused),
        ("math::pow(1.5dec, 0.5)", TypeRefused), ("time::format(time::now(), '%Q')", BadRequest),
        ("time::parse('yesterday')", BadRequest), ("time::floor(time::now(), 0s)", BadRequest),
        ("type::int('4.2')", TypeRefused), ("type::int(4.2)", TypeRefused),
        ("type::int('99999999999999999999')", NumberTooLarge), ("type::float('nan')", TypeRefused),
        ("type::float('1e999')", NumberTooLarge), ("type::decimal('1e9999')", NumberTooLarge),
        ("type::string(b'')", TypeRefused), ("type::datetime('2026-13-01')", TypeRefused),
        ("type::duration('5 minutes')", TypeRefused), ("type::record('person')", TypeRefused),
        ("type::record('per son', 1)", NameRefused), ("type::record('person', 1.5)", TypeRefused),
        ("rand::int(2, 1)", BadRequest), ("vector::dot([1], [1, 2])", BadRequest),
        ("vector::dot(['a'], [1])", TypeRefused), ("vector::cosine([0], [1])", BadRequest),
    ],
)  # fmt: skip
def test_what_a_function_refuses(text: str, kind: type[Refusal]) -> None:
    with pytest.raises(kind):
        value(text)


def test_uuids_are_of_version_7_and_ordered_by_time() -> None:
    found = [uuid7(NOW + timedelta(milliseconds=n), Dice(n)) for n in range(50)]
    assert all(one.version == 7 and one.int >> 62 & 3 == 2 for one in found)
    assert found == sorted(found)
    assert isinstance(value("rand::uuid()"), UUID)


def test_random_ints_reach_both_bounds() -> None:
    env = Tables()
    assert {env.value("rand::int(-1, 1)") for _ in range(60)} == {-1, 0, 1}


def test_a_string_is_never_built_beyond_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("protocol.limits.STRING_BYTES", 100)
    for text in [
        "$a + $a", "string::join([$a, $a], '')", "string::join(['a', 'b'], $a + $b)",
        "string::replace($a, 'a', 'aa')", "type::string([$a, $a])",
    ]:  # fmt: skip
        with pytest.raises(TooLarge):
            value(text, a="a" * 60, b="b" * 41)


@pytest.mark.parametrize(
    "expression, expected",
    [
        ("^ab", "ab"), ("ab", ""), ("^", ""), ("", ""), ("^ab+c", "ab"), ("^ab*c", "a"),
        ("^ab?", "a"), ("^a{2}", ""), ("^a.b", "a"), (r"^a\.b", "a.b"), (r"^a\d", "a"),
        ("^a|b", ""), ("(?i)^a", ""), ("^(a)", ""), ("^a$", "a"), ("^é+x", "é"), (r"^\^", "^"),
        (r"^a\Qb", "a"), ("^a\\", "a"), (r"^\.*a", ""), ("^[a]b", ""),
        ("^ab(?i)*", ""), ("^ab+(?s)*", ""), ("^ab(?U)??", ""), ("^ab(c)?", "ab"),
    ],
)  # fmt: skip
def test_what_every_match_of_a_pattern_begins_with(expression: str, expected: str) -> None:
    assert beginning(expression) == expected


def test_a_closure_gives_the_loop_its_turns_and_holds_no_more_than_a_statement_may() -> None:
    env = Tables()
    env.value("array::map(0..1000, |$x| $x)")
    assert env.ticks > 10
    with pytest.raises(TooLarge):
        env.value("array::map(0..1000, |$x| $long)", long="x" * 1_000_000)
    with pytest.raises(TooLarge):
        env.value("array::fold(0..80, [1], |$all, $x| [$all, $all])")
    with pytest.raises(TooLarge):
        env.value("array::fold(0..80, 'ab', |$all, $x| $all + $all)")
    assert not {"x", "all"} & set(env.variables)


@pytest.mark.parametrize("name", ["map", "filter", "find", "any", "all"])
def test_a_closure_that_is_refused_leaves_no_variable_behind(name: str) -> None:
    """Not even while the refusal is looked at: what goes on after it finds what was there."""
    env = Tables()
    with pytest.raises(Refusal) as caught:
        env.value(f"array::{name}([1], |$x| {'1 / 0' if name == 'map' else '$x'})")
    assert not env.variables, caught.value
