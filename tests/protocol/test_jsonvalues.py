from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal

import pytest
from hypothesis import given

from protocol import limits
from protocol.errors import BadRequest, NumberTooLarge, Refusal, TooLarge
from protocol.jsonvalues import dump, load, parse
from protocol.values import NONE, RecordId, identical
from tests.protocol.values import values


def without_none(value: object) -> object:
    """JSON carries no field that is NONE, as no record does."""
    if isinstance(value, dict):
        return {name: without_none(item) for name, item in value.items() if item is not NONE}
    if isinstance(value, list):
        return [without_none(item) for item in value]
    return value


@given(values)
def test_every_value_comes_back_as_it_was(value: object) -> None:
    assert identical(load(dump(value)), without_none(value))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2**53, "9007199254740992"), (2**53 + 1, '{"$int":"9007199254740993"}'),
        (Decimal("12.30"), '{"$dec":"12.30"}'), (RecordId("person", 1), '{"$rec":"person:1"}'),
        (RecordId("person", "any text"), '{"$rec":"person:`any text`"}'),
        ({"$dt": 1}, '{"$obj":{"$dt":1}}'), ({"$a": 1, "b": 2}, '{"$a":1,"b":2}'),
        (NONE, '{"$none":true}'),
    ],
)  # fmt: skip
def test_the_form_on_the_wire(value: object, text: str) -> None:
    assert dump(value).decode() == text
    assert identical(load(text), value)


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "nope", "NaN", "Infinity", '{"a":1,"a":2}', '{"$what":"x"}', '{"$dt":"soon"}',
        '{"$dt":5}', '{"$dec":"1_000"}', '{"$dec":"NaN"}', '{"$rec":"person"}', '{"$rec":"1:1"}',
        '{"$rec":"a:b:c"}', '{"$dur":"5 parsecs"}', '{"$bytes":"***"}', '{"$uuid":"x"}',
        '{"$int":"1.5"}', '{"$obj":1}', '"\\ud800"', "9" * 30, "1" * 5000, "[" * 5000,
        json.dumps({"$dec": "1" * 100}), '{"$rec":"a:' + "[" * 200 + '"}',
    ],
)  # fmt: skip
def test_what_is_no_value_is_refused_by_name(text: str) -> None:
    with pytest.raises(Refusal):
        load(text)


def test_a_huge_float_is_refused_and_not_an_infinity() -> None:
    with pytest.raises(Refusal):
        load("1e999")


def test_an_integer_of_a_million_digits_is_refused_before_it_is_read() -> None:
    with pytest.raises(NumberTooLarge):
        load("7" * 1_000_000)


@pytest.mark.parametrize("part", ["[]", "{}", '[[1],{"a":2}]'])
def test_more_containers_than_a_message_may_have_are_refused_unbuilt(part: str) -> None:
    many = "[" + ",".join([part] * (limits.CONTAINERS + 1)) + "]"
    for text in (many, many.encode()):
        with pytest.raises(TooLarge):
            parse(text)


def test_more_elements_than_a_message_may_have_are_refused_unbuilt() -> None:
    with pytest.raises(TooLarge):
        parse("[" + "1," * (limits.ELEMENTS + 1) + "1]")


def test_brackets_and_commas_in_strings_are_not_counted() -> None:
    inside = '[,{\\"' * limits.CONTAINERS
    for text in (f'["{inside}"]', f'["{inside}"]'.encode()):
        assert parse(text) == [inside.replace("\\", "")]


@pytest.mark.parametrize("window", range(1, 12))
def test_wherever_a_string_is_cut_it_is_counted_as_one(
    monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    monkeypatch.setattr("protocol.jsonvalues._WINDOW_BYTES", window)
    monkeypatch.setattr(limits, "CONTAINERS", 2)
    value = [["[[[", "\\", '"', '\\"[[', "é{\\\\", ""], "\\[[["]
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False).encode()):
        assert parse(text) == value
    with pytest.raises(TooLarge):
        parse(json.dumps([value, []]))


def test_a_long_text_is_counted_in_steps() -> None:
    ticks: list[None] = []
    with pytest.raises(TooLarge):
        parse(
            b'["' + b"[" * 8 * limits.MIB + b'"' + b",[]" * limits.CONTAINERS,
            lambda: ticks.append(None),
        )
    assert len(ticks) > 100


ENCODINGS = ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be")


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("text", ['{"a":1}', "[1]", "12", '"é"', "[" + "[]," * 200_000 + "[]]"])
def test_only_utf_8_is_read(encoding: str, text: str) -> None:
    """In another encoding a reader would see what was not counted."""
    data = text.encode(encoding)
    for tick in (None, lambda: None):
        with pytest.raises(BadRequest, match="not JSON"):
            parse(data, tick)


@pytest.mark.parametrize("data", [b'"\xed\xa0\x80"', b'"\xff"', b'{"\xc0\x80":1}', b"\xef\xbb"])
def test_what_is_no_utf_8_is_refused(data: bytes) -> None:
    with pytest.raises(BadRequest, match="not JSON"):
        parse(data)


def test_a_mark_at_the_head_of_utf_8_is_passed_over() -> None:
    assert parse(b'\xef\xbb\xbf{"a":1}') == {"a": 1}


JSON_TEXTS = (
    '{"a":1}', ' {"a":1}', '{"a":1} \r\n\t', "\n[1] ", "1", "", " ", "[1] 2", "[1],", '{"a":}',
    "[1,", "nul", "[nul]", '{"a":1', "{} {}", "[]\x0b", "\ufeff[]", "'a'", "[1]\u00a0",
)  # fmt: skip


@pytest.mark.parametrize("text", JSON_TEXTS)
def test_what_is_read_and_refused_is_what_json_reads_and_refuses(text: str) -> None:
    def told(read: Callable[[], object]) -> object:
        try:
            return read()
        except ValueError as error:
            return f"not JSON: {error}"
        except BadRequest as refusal:
            return refusal.message

    bare = text.removeprefix("\ufeff")
    assert told(lambda: parse(text.encode())) == told(lambda: json.loads(bare))
