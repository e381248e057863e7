from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from protocol.order import array_of, decode_id, encode, encode_all
from protocol.values import compare
from tests.protocol.values import datetimes, identities, numbers, strings, values


def sign(left: bytes, right: bytes) -> int:
    return (left > right) - (left < right)


@settings(max_examples=200)
@given(values, values)
def test_bytes_sort_as_values_do(left: object, right: object) -> None:
    assert sign(encode(left), encode(right)) == compare(left, right)


@settings(max_examples=200)
@given(numbers, numbers)
@example(Decimal("-3E+400"), Decimal("-4E+308"))
@example(2**53 + 1, float(2**53))
@example(Decimal("1e-6000"), 0)
@example(Decimal("-1e-6000"), -0.0)
@example(0.1, Decimal("0.1"))
@example(Decimal("-0.1"), -0.1)
def test_numbers_of_all_kinds_share_one_order(left: object, right: object) -> None:
    assert sign(encode(left), encode(right)) == compare(left, right)


@given(identities)
def test_ids_come_back(identity: object) -> None:
    encoded = encode(identity)
    assert decode_id(encoded) == identity
    assert decode_id(b"prefix" + encoded, 6) == identity


@given(
    st.one_of(
        st.lists(strings), st.lists(numbers), st.lists(values), st.lists(datetimes),
        st.lists(st.integers(1, 2**54)),
    )
)  # fmt: skip
@example(["a", "b\0c"])
@example([1, 2.5, -1, 0, -0.0, 2**53 + 1])
@example([True, 1])
def test_many_are_encoded_as_each_is(some: list[object]) -> None:
    assert encode_all(some) == [encode(one) for one in some]
    assert array_of(map(encode, some)) == encode(some)


@given(values, values, values, values)
def test_a_tuple_of_encodings_sorts_as_the_tuple(
    a: object, b: object, c: object, d: object
) -> None:
    expected = compare(a, c) or compare(b, d)
    assert sign(encode(a) + encode(b), encode(c) + encode(d)) == expected


def test_the_checker_catches_an_order_that_compares_doubles_only() -> None:
    def careless(value: float) -> bytes:
        return encode(float(value))

    with pytest.raises(AssertionError):
        assert sign(careless(2**53 + 1), careless(2**53)) == compare(2**53 + 1, 2**53)
