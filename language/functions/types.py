"""`type::…` functions: explicit casts, exact or rejected. The language converts nowhere else."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NoReturn
from uuid import UUID

from language.env import Env
from language.functions.table import check_string, function
from language.numbers import finite, integer
from protocol import limits
from protocol.errors import BadRequest, NumberTooLarge, TypeRefused
from protocol.text import (
    INT,
    NUMBER,
    check_name,
    format_datetime,
    format_decimal,
    format_duration,
    format_record,
    format_value,
    parse_datetime,
    parse_duration,
    parse_record,
    pieces,
)
from protocol.values import RecordId, check_decimal, check_record_id, type_name, without_none

_TEXT_CHARACTERS: Final = 64


_NUMBERS: Final = ("int", "float", "decimal")
_SHOWN: Final = 40
_NUMBER_CHARACTERS: Final = 16 * limits.KIB
"""Maximum number of characters examined to decide whether a text is a number."""


def _refuse(value: Any, wanted: str) -> NoReturn:
    long = type(value) is str and len(value) > _SHOWN
    if long and wanted in _NUMBERS and NUMBER.match(value[:_NUMBER_CHARACTERS]):
        raise NumberTooLarge(f"a number of {len(value)} characters is too long for {wanted}")
    shown = format_value(value) if type(value) is str and len(value) <= _SHOWN else type_name(value)
    raise TypeRefused(f"cannot convert {shown} to {wanted}", found=type_name(value), wanted=wanted)


@function("type::of", "any", result="string")
def of(value: Any) -> str:
    """Name of a value's type."""
    return type_name(value)


@function("type::int", "any", result="int")
def int_(value: Any) -> int:
    """Int from a text or from a whole number."""
    kind = type(value)
    if kind is int:
        return value  # type: ignore[no-any-return]
    if kind is str and INT.match(value):
        return integer(int(value))
    if kind is float and value == value // 1:
        return integer(int(value))
    if kind is Decimal:
        if value.adjusted() > 20:
            raise NumberTooLarge("an integer does not fit 64 bits")
        if value == value.to_integral_value():
            return integer(int(value))
    _refuse(value, "int")


@function("type::float", "any", result="float")
def float_(value: Any) -> float:
    """Float nearest to a number, or to the number in a text."""
    kind = type(value)
    if kind is int or kind is float or kind is Decimal:
        return finite(float(value))
    if kind is str and len(value) <= _TEXT_CHARACTERS and NUMBER.match(value):
        return finite(float(value))
    _refuse(value, "float")


@function("type::decimal", "any", result="decimal")
def decimal(value: Any) -> Decimal:
    """Decimal from a number or text; from a float, the digits with which it is printed."""
    kind = type(value)
    if kind is Decimal:
        return value  # type: ignore[no-any-return]
    if kind is int:
        return Decimal(value)
    if kind is float:
        return Decimal(repr(value))
    if kind is str and len(value) <= _TEXT_CHARACTERS and NUMBER.match(value):
        try:
            found = Decimal(value)
        except InvalidOperation:
            raise NumberTooLarge(
                f"a decimal's exponent lies within ±{limits.DECIMAL_EXPONENT}"
            ) from None
        check_decimal(found)
        return found
    _refuse(value, "decimal")


@function("type::string", "any", result="string", env=True)
def string(env: Env, value: Any) -> str:
    """Value as text: a string unchanged, other values without the marks of their literals."""
    kind = type(value)
    if kind is str:
        return value  # type: ignore[no-any-return]
    if kind is datetime:
        return format_datetime(value)
    if kind is timedelta:
        return format_duration(value)
    if kind is Decimal:
        return format_decimal(value)
    if kind is UUID:
        return str(value)
    if kind is RecordId:
        return format_record(value)
    if kind is bytes:
        _refuse(value, "text: bytes have no one reading as characters")
    if kind is not list and kind is not dict:
        return format_value(value)
    text, size = [], 0
    for piece in pieces(without_none({"": value}, env.tick)[""]):
        env.tick(1 + len(piece))
        size += len(piece)
        check_string(size)
        text.append(piece)
    return "".join(text)


@function("type::datetime", "any", result="datetime")
def datetime_(value: Any) -> datetime:
    """Datetime from an RFC 3339 text."""
    if type(value) is datetime:
        return value
    if type(value) is str:
        try:
            return parse_datetime(value)
        except BadRequest:
            pass
    _refuse(value, "datetime")


@function("type::duration", "any", result="duration")
def duration(value: Any) -> timedelta:
    """Duration from a text such as 1h30m."""
    if type(value) is timedelta:
        return value
    if type(value) is str:
        try:
            return parse_duration(value)
        except BadRequest:
            pass
    _refuse(value, "duration")


@function("type::record", "any", "any", result="record")
def record(value: Any, id: Any = None) -> RecordId:
    """Record id from a text such as person:ana, or from a table name and an id."""
    if id is not None:
        if type(value) is not str:
            _refuse(value, "table")
        check_record_id(id)
        return RecordId(check_name(value, "table"), id)
    if type(value) is RecordId:
        return value
    if type(value) is str and len(value) <= 4 * limits.RECORD_ID_BYTES:
        try:
            return parse_record(value)
        except BadRequest:
            pass
    _refuse(value, "record")
