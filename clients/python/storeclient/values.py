"""Values of the language as Python objects, lossless in both directions.

| language | Python |
|---|---|
| none | `NONE` |
| null, bool, int, float, string, bytes | `None`, `bool`, `int`, `float`, `str`, `bytes` |
| decimal | `decimal.Decimal` |
| datetime | `datetime.datetime`, aware, in UTC, to the microsecond |
| duration | `datetime.timedelta` |
| uuid | `uuid.UUID` |
| record | `RecordId` |
| array, object | `list`, `dict` with string keys |

Parameters may also be a tuple or an array of numpy or of the module `array` (an array), a dataclass
(an object of its fields), an Enum (its value), or an aware datetime of any zone. A naive datetime
is refused, since it names no instant.
`into` converts objects in answers to dataclasses.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Final
from uuid import UUID

import msgpack

from storeclient.texts import in_utc, read_record, record_text

Seconds = float | timedelta

_EXT_DECIMAL: Final = 1
_EXT_DURATION: Final = 2
_EXT_UUID: Final = 3
_EXT_RECORD: Final = 4
_EXT_NONE: Final = 5
_DURATION_BYTES: Final = 8

_MICROSECOND: Final = timedelta(microseconds=1)
_SPAN_MOST: Final = timedelta(microseconds=2**63 - 1)
"""Longest duration of the language: 64 bits of microseconds."""


class NoneValue:
    """The type of `NONE`, which has one instance: absent, where `None` is null."""

    __slots__ = ()
    _one: NoneValue | None = None

    def __new__(cls) -> NoneValue:
        if cls._one is None:
            cls._one = super().__new__(cls)
        return cls._one

    def __repr__(self) -> str:
        return "NONE"

    def __bool__(self) -> bool:
        return False

    def __reduce__(self) -> str:
        return "NONE"


NONE: Final = NoneValue()


@dataclass(frozen=True, slots=True)
class RecordId:
    """The id of a record, with its table.

    :param table: the table's name
    :param id: a string, int, UUID, or list of these

    `str` of it is the text of a statement, such as `person:1`; `parse` reads that.
    """

    table: str
    id: Any

    @classmethod
    def parse(cls, text: str) -> RecordId:
        """Parse a record id such as `person:1` or `` person:`any text` ``.

        :raises ValueError: it is invalid
        """
        return cls(*read_record(text))

    def __str__(self) -> str:
        return record_text(self.table, self.id)

    def __hash__(self) -> int:
        return hash((self.table, repr(self.id)))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, RecordId)
            and self.table == other.table
            and type(self.id) is type(other.id)
            and bool(self.id == other.id)
        )


def pack(value: Any) -> bytes:
    """Encode a value, or a message made of values, as msgpack.

    :raises TypeError: a part is not a value of the language
    :raises ValueError: a naive datetime, one beyond the years 1 to 9999 in UTC, an int beyond 64
        bits, or a float that is not finite
    """
    # In a packer `default` is called for what msgpack has no form of: naive datetimes among them.
    packer = msgpack.Packer(default=_Outward().of, datetime=True)
    packed: bytes = packer.pack(value)
    if _MAY_BE_BEYOND.search(packed) is not None:
        if _MAY_BE_UNDATED.search(packed) is not None:
            packed = msgpack.packb(value, default=_Outward().of)
        _check_numbers(msgpack.unpackb(packed, ext_hook=_no_number, timestamp=1))
    return packed


_MAY_BE_BEYOND: Final = re.compile(
    rb"\xcb[\x7f\xff][\xf0-\xff]|\xcf[\x80-\xff]|\xc7\x0c\xff[\s\S]{4}[\x00\xff]{3}[\x3a\xf1]"
)
"""A float that is not finite, an int from 2^63 on, or a datetime of the years 0, 1, 9999 or 10000;
or bytes that look like one. This search is much faster than a look at each value."""
_MAY_BE_UNDATED: Final = re.compile(rb"\xc7\x0c\xff[\s\S]{4}[\x00\xff]{3}[\x3a\xf1]")
"""Such a datetime: it may be beyond the years 1 to 9999 in UTC, which only its conversion tells."""
_INT_MOST: Final = 2**63 - 1


def _check_numbers(value: object) -> None:
    """Check all floats and ints of a decoded message, whose extensions are not decoded."""
    if isinstance(value, list | dict):
        parts = value.values() if isinstance(value, dict) else value
        for kind in set(map(type, parts)):
            # Most columns, and most rows, have numbers that are in order.
            if kind is float and all(map(math.isfinite, _of_type(parts, float))):
                continue
            if kind is int and max(_of_type(parts, int)) <= _INT_MOST:
                continue
            if kind in _HOLDS_NUMBERS:
                for part in _of_type(parts, kind):
                    _check_numbers(part)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError("a float must be finite")
    elif isinstance(value, int) and value > _INT_MOST:
        raise ValueError("an int must fit 64 bits")


def _no_number(code: int, data: bytes) -> None:
    """Stand for an extension."""


_HOLDS_NUMBERS: Final = frozenset({list, dict, float, int})


def _of_type(parts: Iterable[Any], kind: type) -> list[Any]:
    return [part for part in parts if type(part) is kind]


class _Outward:
    """Encodes what msgpack has no form of, for one message."""

    __slots__ = ("_inner", "_links")

    def __init__(self) -> None:
        self._links: dict[tuple[str, int | str], msgpack.ExtType] = {}
        """Encoded record ids: rows often share their links."""
        self._inner: msgpack.Packer | None = None

    def of(self, value: Any) -> object:
        """Return a form that msgpack knows."""
        kind = type(value)
        if kind is RecordId:
            return self._record(value)
        if kind is Decimal:
            return _decimal(value)
        if isinstance(value, datetime):
            if value.tzinfo is None:
                raise ValueError(f"{value!r} has no time zone")
            return msgpack.Timestamp.from_datetime(in_utc(value))
        if isinstance(value, Decimal):
            return _decimal(value)
        if isinstance(value, timedelta):
            _check_span(value)
            data = (value // _MICROSECOND).to_bytes(8, "big", signed=True)
            return msgpack.ExtType(_EXT_DURATION, data)
        if isinstance(value, UUID):
            return msgpack.ExtType(_EXT_UUID, value.bytes)
        if isinstance(value, RecordId):
            return self._record(value)
        if isinstance(value, NoneValue):
            return msgpack.ExtType(_EXT_NONE, b"")
        if isinstance(value, Enum):
            return value.value
        if is_dataclass(value) and not isinstance(value, type):
            return {field.name: getattr(value, field.name) for field in fields(value)}
        if (listed := getattr(value, "tolist", None)) is not None:  # numpy, array
            return listed()
        if isinstance(value, int):  # only reached if out of range
            raise ValueError("an int must fit 64 bits")
        raise TypeError(f"{kind.__name__} is not a type of the language")

    def _record(self, record: RecordId) -> msgpack.ExtType:
        table, id = record.table, record.id
        if type(id) is not str and (type(id) is not int or id > _INT_MOST):
            return msgpack.ExtType(_EXT_RECORD, pack([table, id]))
        made = self._links.get((table, id))
        if made is None:
            if self._inner is None:
                self._inner = msgpack.Packer()  # a new one takes longer than what it does here
            try:
                data = self._inner.pack((table, id))
            except OverflowError:
                raise ValueError("an int must fit 64 bits") from None
            made = self._links[table, id] = msgpack.ExtType(_EXT_RECORD, data)
        return made


def _decimal(value: Decimal) -> msgpack.ExtType:
    text = str(value)
    # Of those with a digit at the end, `Infinity` and `NaN` have none; `NaN1` has letters too.
    if not text[-1].isdigit() or "N" in text:
        raise ValueError("a decimal must be finite")
    return _made(msgpack.ExtType, (_EXT_DECIMAL, text.encode()))


_made: Final = tuple.__new__
"""Makes an ExtType without the checks of its constructor."""


def unpack(data: bytes | memoryview) -> Any:
    """Decode the result of `pack`.

    :raises ValueError: not msgpack, or an extension type unknown to this version
    """
    return msgpack.unpackb(data, ext_hook=_inward, timestamp=3)


def _inward(code: int, data: bytes) -> object:
    if code == _EXT_DECIMAL:
        number = Decimal(data.decode())
        if not number.is_finite():
            raise ValueError(f"a decimal must be finite, not {number}")
        return number
    if code == _EXT_DURATION:
        if len(data) != _DURATION_BYTES:
            raise ValueError("a duration must have 8 bytes")
        return timedelta(microseconds=int.from_bytes(data, "big", signed=True))
    if code == _EXT_UUID:
        return UUID(bytes=bytes(data))
    if code == _EXT_RECORD:
        # A record id contains no record. Decoding a chain of them would overflow the C stack, one
        # decoder per level.
        table, id = msgpack.unpackb(data, ext_hook=_inside_id, timestamp=3)
        if not (isinstance(table, str) and _is_id(id)):
            raise ValueError("a record must be a table and an id")
        return RecordId(table, id)
    if code == _EXT_NONE:
        return NONE
    raise ValueError(f"extension type {code} is not known to this version of the client")


def _is_id(id: object) -> bool:
    if isinstance(id, list):
        return all(map(_is_id, id))
    return isinstance(id, str | int | UUID) and not isinstance(id, bool)


def _inside_id(code: int, data: bytes) -> object:
    if code == _EXT_RECORD:
        raise ValueError("a record's id must not contain a record")
    return _inward(code, data)


def duration(seconds: Seconds | None) -> timedelta | None:
    """Convert seconds to a timedelta; a timedelta and None stay as they are.

    :raises ValueError: infinite, not a number, or longer than the language's durations
    :raises TypeError: neither seconds nor a timedelta
    """
    if seconds is None:
        return None
    if isinstance(seconds, timedelta):
        _check_span(seconds)
        return seconds
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise TypeError(f"a duration must be seconds or a timedelta, not {type(seconds).__name__}")
    try:
        span = timedelta(seconds=seconds)
    except (ValueError, OverflowError):
        raise ValueError(
            f"{seconds!r} seconds is not a duration: it is not finite, or too long"
        ) from None
    _check_span(span)
    return span


def _check_span(span: timedelta) -> None:
    if not -_SPAN_MOST <= span <= _SPAN_MOST:
        raise ValueError(f"{span!r} is too long: a duration is at most {_SPAN_MOST.days} days")
