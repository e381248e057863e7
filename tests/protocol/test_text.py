from __future__ import annotations

import json
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import binary, text
from protocol.errors import BadRequest, NameRefused, Refusal
from protocol.jsonvalues import load
from protocol.text import (
    NAME,
    NAMES_REMEMBERED,
    brief,
    check_name,
    format_datetime,
    format_duration,
    format_record,
    format_value,
    parse_datetime,
    parse_decimal,
    parse_duration,
    parse_record,
    pieces,
    quote_name,
)
from protocol.values import RecordId, microseconds
from surfaces.shell.columns import Column
from tests.protocol.values import datetimes, durations, records, values


@given(durations)
def test_durations_come_back(value: timedelta) -> None:
    assert parse_duration(format_duration(value)) == value


@given(datetimes)
def test_datetimes_come_back(value: object) -> None:
    assert parse_datetime(format_datetime(value)) == value  # type: ignore[arg-type]


@given(records)
def test_records_come_back(value: RecordId) -> None:
    assert parse_record(format_record(value)) == value


@given(values)
def test_pieces_make_the_whole_text(value: object) -> None:
    whole = format_value(value)
    assert "".join(pieces(value)) == whole
    for most in (1, 5, 40):
        shown = brief(value, most)
        assert shown == whole if len(whole) <= most else shown == f"{whole[: most - 1]}…"


def test_of_a_large_value_only_what_is_shown_is_looked_at() -> None:
    assert brief([1, 2, 3, object()], 5) == "[1, …"


def test_durations_are_written_largest_unit_first() -> None:
    value = timedelta(
        weeks=1, days=2, hours=3, minutes=4, seconds=5, milliseconds=6, microseconds=7
    )
    assert format_duration(value) == "1w2d3h4m5s6ms7us"
    assert format_duration(-timedelta(seconds=1)) == "-1s"
    assert format_duration(timedelta(0)) == "0s"


@pytest.mark.parametrize("text", ["", "5", "m", "5 m", "5y", "1.5s", "--5s", "9" * 300 + "s"])
def test_other_texts_are_no_durations(text: str) -> None:
    with pytest.raises(Refusal):
        parse_duration(text)


def _over_the_wire(text: str) -> Any:
    return binary.unpack_strictly(bytes(msgpack.packb(msgpack.ExtType(1, text.encode()))))


@pytest.mark.parametrize("text", ["1.50", ".097", "5.", "-0", "+1e3", "1E-6143"])
def test_a_number_is_one_text_everywhere(text: str) -> None:
    read = Column("n", "decimal").read(text)
    assert read == Decimal(text) == parse_decimal(text) == load(f'{{"$dec":"{text}"}}')
    assert _over_the_wire(text) == Decimal(text)
    assert Column("n", "float").read(text) == float(text)


@pytest.mark.parametrize(
    "text", ["", ".", "1_000", " 1", "1 ", "NaN", "Infinity", "1e", "1.2.3", "٣"]
)
def test_other_texts_are_no_decimals(text: str) -> None:
    for refused in (
        lambda: parse_decimal(text),
        lambda: load(json.dumps({"$dec": text})),
        lambda: _over_the_wire(text),
    ):
        with pytest.raises(Refusal):
            refused()


@pytest.mark.parametrize("name", ["", "1a", "a b", "a" * 65, "é", "a.b", "-a", "a\n"])
def test_other_texts_are_no_names(name: str) -> None:
    with pytest.raises(NameRefused):
        check_name(name)


def test_names_are_quoted_only_where_they_must_be() -> None:
    assert quote_name("order") == "order"
    assert quote_name("order", frozenset({"ORDER"})) == "`order`"
    assert quote_name("a-b") == "`a-b`"
    assert quote_name("tick`ed\\") == "`tick\\`ed\\\\`"


@given(st.integers(-(2**63), 2**63 - 1))
def test_nanoseconds_are_rounded_to_the_nearest_microsecond(nanoseconds: int) -> None:
    assert microseconds(nanoseconds) == round(Fraction(nanoseconds, 1000))


@given(datetimes, st.integers(0, 999))
def test_digits_past_the_microsecond_are_rounded(value: datetime, more: int) -> None:
    text = format_datetime(value.replace(microsecond=0))[:-1] + f".{value.microsecond:06}{more:03}Z"
    up = more > 500 or (more == 500 and value.microsecond % 2 == 1)
    try:
        wanted = value + up * timedelta(microseconds=1)
    except OverflowError:
        with pytest.raises(BadRequest):
            parse_datetime(text)
    else:
        assert parse_datetime(text) == wanted


@pytest.mark.parametrize(
    "text, wanted",
    [
        ("2026-01-02t03:04:05z", "2026-01-02T03:04:05Z"),
        ("2026-01-02T03:04-23:59", "2026-01-03T03:03:00Z"),
        ("2026-01-02T03:04:05.1234567890Z", "2026-01-02T03:04:05.123457Z"),
        ("2026-01-02T03:04:05.0000005000Z", "2026-01-02T03:04:05Z"),
        ("2026-01-02T03:04:05.00000050000001Z", "2026-01-02T03:04:05.000001Z"),
        ("2017-01-01T01:59:60+02:00", "2017-01-01T00:00:00Z"),
        ("2016-12-31T23:59:60.25Z", "2017-01-01T00:00:00.250000Z"),
    ],
)
def test_all_of_rfc_3339_is_taken(text: str, wanted: str) -> None:
    assert format_datetime(parse_datetime(text)) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-02T03:04:05.Z",
        "٢٠٢٦-01-02T03:04:05Z",
        "2026-01-01T00:00:00+00:60",
        "2026-01-01T00:00:00-00:99",
        "2026-01-01T00:00:00+24:00",
        "2026-01-01T00:00:60Z",
        "2026-01-01T23:59:61Z",
        "2026-01-01T24:00:00Z",
        "2026-01-01T00:00:00." + "0" * 100 + "Z",
    ],
)
def test_other_texts_are_no_datetimes(text: str) -> None:
    with pytest.raises(BadRequest):
        parse_datetime(text)


@given(
    st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,70}", fullmatch=True),
    st.from_regex(r"-?[0-9]{1,22}", fullmatch=True),
)
def test_an_address_in_one_step_is_what_it_is_in_three(table: str, number: str) -> None:
    """Blanks before the colon have it read part by part."""
    found: list[object] = []
    for address in (f"{table}:{number}", f"{table} :{number}"):
        try:
            found.append(parse_record(address))
        except Refusal as refusal:
            found.append((type(refusal), refusal.message.replace(" :", ":")))
    assert found[0] == found[1]


def test_names_are_remembered_that_are_some_and_not_too_many() -> None:
    for number in range(2 * NAMES_REMEMBERED):
        assert check_name(f"n{number}") == f"n{number}"
        with pytest.raises(NameRefused):
            check_name(f"n {number}")
    assert len(text._found_good) <= NAMES_REMEMBERED
    assert all(NAME.match(name) for name in text._found_good)
