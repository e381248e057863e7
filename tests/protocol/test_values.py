from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cmp_to_key
from uuid import UUID

import pytest
from hypothesis import given

from protocol import limits
from protocol.errors import NumberTooLarge, Refusal, TooLarge, TypeRefused
from protocol.values import (
    NONE,
    NoneValue,
    RecordId,
    check,
    compare,
    equal,
    identical,
    type_name,
)
from tests.protocol.values import values

IN_ORDER = [
    NONE, None, False, True, -1, Decimal("0.5"), 1, 1.5, "", "a", b"", b"a",
    timedelta(0), timedelta(1), datetime(2026, 1, 1, tzinfo=UTC), UUID(int=0), UUID(int=1),
    [], [1], [1, 1], [2], {}, {"a": 1}, {"a": 1, "b": 0}, {"a": 2}, {"b": 0},
    RecordId("a", 1), RecordId("a", "x"), RecordId("b", 0),
]  # fmt: skip


def test_types_and_values_have_one_total_order() -> None:
    backwards = IN_ORDER[::-1]
    assert sorted(backwards, key=cmp_to_key(compare)) == IN_ORDER
    for place, left in enumerate(IN_ORDER):
        for other, right in enumerate(IN_ORDER):
            assert compare(left, right) == (place > other) - (place < other), (left, right)


def test_numbers_compare_by_what_they_are_worth_exactly() -> None:
    assert equal(1, Decimal("1.0")) and equal(1, 1.0)
    assert compare(2**53 + 1, float(2**53)) == 1
    assert compare(0.1, Decimal("0.1")) == 1  # the double is a little more than a tenth


@given(values, values, values)
def test_order_is_transitive_and_antisymmetric(a: object, b: object, c: object) -> None:
    assert compare(a, b) == -compare(b, a)
    if compare(a, b) <= 0 and compare(b, c) <= 0:
        assert compare(a, c) <= 0


def test_identical_tells_apart_what_is_only_equal() -> None:
    assert not identical(1, 1.0)
    assert not identical(Decimal("1.0"), Decimal("1.00"))
    assert not identical([1, {"a": True}], [1, {"a": 1}])
    assert identical([1, {"a": None}], [1, {"a": None}])
    assert RecordId("t", 1) != RecordId("t", True)


def test_none_is_one_object_that_counts_as_false() -> None:
    assert NoneValue() is NONE and not NONE and type_name(NONE) == "none"


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "refusal"),
    [
        (2**63, NumberTooLarge), (-(2**63) - 1, NumberTooLarge),
        (Decimal("1" * 35), NumberTooLarge), (Decimal("1e7000"), NumberTooLarge),
        (Decimal("NaN"), TypeRefused), (float("nan"), TypeRefused), (float("inf"), TypeRefused),
        ("\ud800", TypeRefused), ({"\udfff": 1}, TypeRefused), ({1: 1}, TypeRefused),
        (datetime(2026, 1, 1), TypeRefused), (object(), TypeRefused),
        (RecordId("t", 1.5), TypeRefused), (RecordId("t", ""), TypeRefused),
        (RecordId("t", "x" * 257), TooLarge), (nested(limits.DEPTH + 1), TooLarge),
    ],
)  # fmt: skip
def test_what_may_not_be_stored_is_refused(value: object, refusal: type[Refusal]) -> None:
    for place in (value, [value], {"a": value}):
        with pytest.raises(refusal):
            check(place)


@given(values)
def test_every_value_of_the_language_passes(value: object) -> None:
    check(value)


def test_the_deepest_value_passes() -> None:
    check(nested(limits.DEPTH))
