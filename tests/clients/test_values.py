"""The client's own words against the node's: values, kinds, frames and errors must agree."""

from __future__ import annotations

from array import array
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

import storeclient
from language.functions import search as functions
from protocol import binary, errors, foreign, frames, limits, values
from storeclient import NONE, RecordId, json_default, quote_name, search
from storeclient import frames as client_frames
from storeclient.errors import OutcomeUnknown, Refused, refused
from storeclient.values import pack, unpack

HTTP_ONLY = {
    "NoSuchRoute",
    "WrongMethod",
    "MisdirectedRequest",
    "HeadTooLarge",
    "NotImplementedHere",
    "RequestTimeout",
    "UpgradeRequired",
}

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.binary(max_size=20)
    | st.decimals(allow_nan=False, allow_infinity=False, places=4).filter(
        lambda number: len(number.as_tuple().digits) <= 34
    )
    | st.datetimes(timezones=st.just(UTC))
    | st.timedeltas(timedelta(days=-100_000), timedelta(days=100_000))
    | st.uuids()
    | st.just(NONE)
    | st.builds(RecordId, st.just("person"), st.integers(0, 9) | st.text(min_size=1, max_size=5))
)
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=12,
)


def same(left: Any, right: Any) -> bool:
    """Same types and values; the two packages have their own classes of records and NONE."""
    if isinstance(left, RecordId):
        return isinstance(right, values.RecordId) and (left.table, left.id) == (
            right.table,
            right.id,
        )
    if left is NONE:
        return right is values.NONE
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
    return type(left) is type(right) and bool(left == right) and str(left) == str(right)


@given(anything)
def test_the_node_reads_what_the_client_writes_and_back(value: Any) -> None:
    data = pack(value)
    there = foreign.unpack_foreign(data)
    assert same(value, there)
    assert binary.pack(there) == data
    back = unpack(binary.pack(there))
    assert back == value
    assert pack(back) == data


@pytest.mark.parametrize(
    "value",
    [Decimal("12.30"), Decimal("-0.00"), Decimal("1E+20"), Decimal("1e-30")],
)
def test_a_decimal_keeps_its_scale(value: Decimal) -> None:
    assert str(unpack(pack(value))) == str(value)


def test_a_datetime_of_any_zone_is_the_moment_it_names() -> None:
    there = datetime(2026, 1, 2, 5, 4, 5, 123456, tzinfo=timezone(timedelta(hours=2)))
    back = unpack(pack(there))
    assert back == there
    assert back.tzinfo is UTC


def test_arrays_of_numbers_are_vectors() -> None:
    for vector in (array("f", [0.5, 1.0]), array("d", [0.5, 1.0]), numpy.array([0.5, 1.0], "f")):
        found = unpack(pack({"at": vector}))["at"]
        assert found == [0.5, 1.0] and [*map(type, found)] == [float, float]
    with pytest.raises(ValueError):
        pack(array("f", [float("nan")]))


def test_queries_are_those_of_the_language() -> None:
    assert search.phrase("tin ore") == functions.phrase("tin ore")
    assert search.fuzzy("tin") == functions.fuzzy("tin")
    made = search.all(search.not_(search.any("a", search.prefix("b"))), search.boost("c", 2.0))
    assert made == functions.all_of(
        [
            functions.negated(functions.any_of(["a", functions.prefix("b")])),
            functions.boost("c", 2.0),
        ]
    )


def test_a_tuple_is_an_array() -> None:
    assert unpack(pack((1, (2,)))) == [1, [2]]


@pytest.mark.parametrize(
    "value, error",
    [
        (datetime(2026, 1, 2), ValueError),
        (datetime.max.replace(tzinfo=timezone(timedelta(hours=-5))), ValueError),
        (datetime.min.replace(tzinfo=timezone(timedelta(hours=5))), ValueError),
        (2**64, ValueError),
        (-(2**63) - 1, ValueError),
        (object(), TypeError),
        ({1, 2}, TypeError),
        ([1.5, float("nan")], ValueError),
        ({"a": 0.5, "b": (1.0, float("-inf"))}, ValueError),
        ([2, 2**63], ValueError),
        ([{"a": [True, "x", 2**63]}], ValueError),
        (Decimal("NaN12"), ValueError),
        (Decimal("-Infinity"), ValueError),
        (RecordId("t", 2**64), ValueError),
        (RecordId("t", [2**63]), ValueError),
        (RecordId("t", 2**63), ValueError),
    ],
)
def test_what_is_no_value_is_refused_before_it_is_sent(
    value: object, error: type[Exception]
) -> None:
    with pytest.raises(error):
        pack([value])


@pytest.mark.parametrize("value", [datetime.max, datetime.min])
def test_a_moment_that_utc_has_no_datetime_for_is_refused_as_text_too(value: datetime) -> None:
    there = value.replace(tzinfo=timezone(timedelta(hours=-5 if value is datetime.max else 5)))
    with pytest.raises(ValueError, match="beyond the years 1 to 9999 in UTC"):
        json_default(there)


def test_records() -> None:
    assert RecordId("a", 1) == RecordId("a", 1)
    assert RecordId("a", 1) != RecordId("a", "1")
    assert len({RecordId("a", [1]), RecordId("a", [1]), RecordId("b", [1])}) == 2
    assert repr(NONE) == "NONE"
    assert not NONE
    assert type(NONE)() is NONE


def test_kinds_agree() -> None:
    assert {kind.name: int(kind) for kind in client_frames.Kind} == {
        kind.name: int(kind) for kind in frames.MessageKind
    }
    assert client_frames.FRAME_BYTES == limits.FRAME_BYTES


def test_every_code_of_the_node_has_a_class() -> None:
    assert set(Refused.classes) == set(errors.CATALOGUE) - HTTP_ONLY
    for code, cls in Refused.classes.items():
        error = refused(errors.CATALOGUE[code]("because", limit=3).answer("r-1"))
        assert type(error) is cls
        assert error.code == code
        assert error.status == errors.CATALOGUE[code]("").status
        assert error.detail == {"limit": 3}
        assert error.request == "r-1"
        assert str(error) == "because", "the class says the code"


def test_a_refusal_says_its_place_once() -> None:
    at = {"message": "no", "status": 400, "line": 2, "column": 3}
    assert str(refused({"code": "Unknown", **at})) == "no (line 2, column 3)"
    parsed = {**at, "message": "wanted ; (line 2, column 3)\nRETURN ?"}
    assert str(refused({"code": "UnexpectedToken", **parsed})) == parsed["message"]
    assert str(refused({"code": "Sideways", **at})) == "Sideways: no (line 2, column 3)"


def test_a_code_of_a_newer_node_is_a_refusal() -> None:
    error = refused({"code": "Sideways", "message": "no", "status": 418, "retry": True})
    assert type(error) is Refused
    assert (error.code, error.status, error.retry) == ("Sideways", 418, True)


def test_the_nodes_own_unknown_outcome_is_one_here_too() -> None:
    assert isinstance(refused({"code": "UnknownOutcome"}), OutcomeUnknown)


@pytest.mark.parametrize("name", ["a", "_x9", "line-item", "SELECT", "a" * 64])
def test_quoting_a_name(name: str) -> None:
    assert quote_name(name) == f"`{name}`"


@pytest.mark.parametrize("name", ["", "9a", "-a", "a b", "a`; DROP", "é", "a" * 65, "a\n"])
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(ValueError):
        quote_name(name)


def test_everything_public_is_there() -> None:
    for name in storeclient.__all__:
        assert hasattr(storeclient, name), name
