"""Values as the language writes them: names, durations, record addresses, literals.

`parse_record` and `parse_duration` read two of these back, for surfaces that get them outside a
script (JSON tags, query parameters). Scripts are parsed by the language room.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final
from uuid import UUID

from protocol import limits
from protocol.errors import BadRequest, NameRefused, NumberTooLarge
from protocol.values import MICROSECOND, NoneValue, RecordId, check_record_id, microseconds

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}\Z")
_BARE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")

_UNITS: Final = (
    ("w", 604_800_000_000), ("d", 86_400_000_000), ("h", 3_600_000_000), ("m", 60_000_000),
    ("s", 1_000_000), ("ms", 1_000), ("us", 1),
)  # fmt: skip
_UNIT_US: Final = dict(_UNITS)
_DURATION: Final = re.compile(r"-?(?:[0-9]+(?:w|d|h|ms|m|us|s))+\Z")
_DURATION_PART: Final = re.compile(r"([0-9]+)(w|d|h|ms|m|us|s)")

_SIZE_UNITS: Final = {
    "": 1, "KB": 10**3, "KiB": 2**10, "MB": 10**6, "MiB": 2**20, "GB": 10**9, "GiB": 2**30,
    "TB": 10**12, "TiB": 2**40,
}  # fmt: skip
_SIZE: Final = re.compile(r"([0-9]+)((?:[KMGT]i?B)?)\Z")

_ESCAPES: Final = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\\": "\\\\", "'": "\\'", "\0": "\\u{0}"}
_ESCAPED: Final = re.compile(r"[\n\t\r\\'\0]")


def check_name(name: str, what: str = "name") -> str:
    """The name itself. :raises NameRefused: it does not match the pattern of names"""
    if len(name) <= limits.NAME_CHARACTERS and name in _found_good:
        return name
    if not NAME.match(name):
        called = what if what == "name" else f"{what} name"
        shown = name if len(name) <= _SHOWN_CHARACTERS else f"{name[:_SHOWN_CHARACTERS]}…"
        raise NameRefused(f"{shown!r} is no {called}: wanted {NAME.pattern[:-2]}", name=shown)
    if len(_found_good) >= NAMES_REMEMBERED:
        _found_good.clear()
    _found_good.add(name)
    return name


_found_good: Final[set[str]] = set()
_SHOWN_CHARACTERS: Final = 1024
"""Of what is no name."""
NAMES_REMEMBERED: Final = 1024
"""Each request names its places, and mostly the same: to match them took a thirtieth of a read."""


def quote_name(name: str, keywords: frozenset[str] = frozenset()) -> str:
    """A name as a script writes it, in back-quotes where bare it would be read as something else.

    :param keywords: upper-case words that would be ambiguous where the name stands
    """
    if _BARE.match(name) and name.upper() not in keywords:
        return name
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def quote_string(text: str) -> str:
    """A string literal."""
    return "'" + _ESCAPED.sub(lambda found: _ESCAPES[found[0]], text) + "'"


def format_duration(value: timedelta) -> str:
    """`1w2d3h4m5s6ms7us`, largest unit first, zero parts left out; zero is `0s`."""
    rest = value // MICROSECOND
    if rest == 0:
        return "0s"
    parts = ["-"] if rest < 0 else []
    rest = abs(rest)
    for unit, size in _UNITS:
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def parse_duration(text: str) -> timedelta:
    """The duration that a text such as `5m` or `1h30m` names.

    :raises BadRequest: not a duration
    :raises NumberTooLarge: beyond 64 bits of microseconds
    """
    if len(text) > limits.DURATION_CHARACTERS or not _DURATION.match(text):
        raise BadRequest(f"{text[:40]!r} is no duration: wanted 1w2d3h4m5s6ms7us", found=text[:40])
    total = sum(int(count) * _UNIT_US[unit] for count, unit in _DURATION_PART.findall(text))
    if text.startswith("-"):
        total = -total
    return duration(total)


def duration(microseconds: int) -> timedelta:
    """A duration of so many microseconds. :raises NumberTooLarge: it does not fit 64 bits"""
    if not limits.INT_MIN <= microseconds <= limits.INT_MAX:
        raise NumberTooLarge("a duration does not fit 64 bits of microseconds")
    return timedelta(microseconds=microseconds)


def parse_size(text: str) -> int:
    """The bytes that a text such as `10MiB` or `500KB` names.

    :raises BadRequest: not a size
    :raises NumberTooLarge: beyond 64 bits
    """
    found = _SIZE.match(text)
    if found is None:
        raise BadRequest(f"{text[:40]!r} is no size: wanted 10MiB, 500KB or a number of bytes")
    digits = found[1].lstrip("0") or "0"
    size = int(digits) * _SIZE_UNITS[found[2]] if len(digits) < 20 else limits.INT_MAX + 1
    if size > limits.INT_MAX:
        raise NumberTooLarge("a size does not fit 64 bits of bytes")
    return size


def format_size(size: int) -> str:
    """A size in the largest unit that it is a whole number of; zero is `0`."""
    for unit, factor in reversed(_SIZE_UNITS.items()):
        if size and size % factor == 0:
            return f"{size // factor}{unit}"
    return "0"


def format_datetime(value: datetime) -> str:
    """`2026-01-02T03:04:05.123456Z`, the fraction left out when it is zero."""
    return value.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


_DATETIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)"
    r"(?:[Tt](\d\d:\d\d)(?::(\d\d)(?:\.(\d+))?)?([Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d))?\Z",
    re.ASCII,
)
_DATETIME_CHARACTERS: Final = 100
"""Longest text of a datetime: more digits of a second say nothing."""
_SECOND: Final = timedelta(seconds=1)


def parse_datetime(text: str) -> datetime:
    """Return the datetime that a text of RFC 3339 names, or the midnight of a date alone.

    Digits past the microsecond are rounded (see `values.microseconds`). A leap second is the first
    second of the next day, as in PostgreSQL. Seconds may be left out.

    :raises BadRequest: not a datetime
    """
    found = _DATETIME.match(text) if len(text) <= _DATETIME_CHARACTERS else None
    if found is None:
        raise BadRequest(f"{text[:40]!r} is no datetime: wanted 2026-01-02T03:04:05Z")
    date, minutes, seconds, fraction, offset = found.groups()
    leaps = seconds == "60"
    try:
        whole = f"{date}T{minutes or '00:00'}:{'59' if leaps else seconds or '00'}{offset or 'Z'}"
        value = datetime.fromisoformat(whole.upper()).astimezone(UTC)
        if leaps:
            if (value.hour, value.minute) != (23, 59):
                raise BadRequest(f"{text[:40]!r} is no datetime: a leap second ends a day in UTC")
            value += _SECOND
        if fraction:
            # A tenth digit that is not 0 only matters beside an exact half of a microsecond.
            nanoseconds = int(fraction[:9].ljust(9, "0"))
            beyond = nanoseconds % 1000 == 500 and bool(fraction[9:].strip("0"))
            value += microseconds(nanoseconds + beyond) * MICROSECOND
        return value
    except (ValueError, OverflowError):
        raise BadRequest(f"{text[:40]!r} is no datetime") from None


NUMBER: Final = re.compile(
    r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,6})?\Z", re.ASCII
)
"""A number as text, on every way in: digits on either side of the point, or on both."""
_OF_NUMBERS: Final = "0123456789.eE+-"
INT: Final = re.compile(r"[+-]?[0-9]{1,40}\Z", re.ASCII)
"""An integer as text."""


def parse_decimal(text: str) -> Decimal:
    """Return the decimal that a text writes, its scale kept; its range is not looked at.

    :raises BadRequest: not a number
    :raises NumberTooLarge: longer than any decimal
    """
    if len(text) > limits.DECIMAL_DIGITS + 12:
        raise NumberTooLarge(f"a decimal has at most {limits.DECIMAL_DIGITS} digits")
    # `Decimal` alone would take underscores, blanks, NaN and infinities too.
    if not text.strip(_OF_NUMBERS):
        try:
            return Decimal(text)
        except InvalidOperation:
            pass
    raise BadRequest(f"{text!r} is no decimal: wanted 12.50")


def format_decimal(value: Decimal) -> str:
    """The digits of a decimal, its scale kept, without the `dec`."""
    return str(value)


def format_record(value: RecordId) -> str:
    """`person:1`, `` person:`any text` ``, `person:u'…'`, `person:['a', 1]`."""
    table = quote_name(value.table)
    if isinstance(value.id, str):
        return f"{table}:{quote_name(value.id)}"
    return f"{table}:{format_value(value.id)}"


def format_value(value: Any) -> str:
    """A value as a literal that a script reads back as the same value."""
    kind = type(value)
    if kind is str:
        return quote_string(value)
    if kind is bool:
        return "true" if value else "false"
    if kind is int:
        return str(value)
    if kind is float:
        return repr(value)
    if value is None:
        return "NULL"
    if kind is NoneValue:
        return "NONE"
    if kind is Decimal:
        return f"{format_decimal(value)}dec"
    if kind is bytes:
        return f"b'{base64.b64encode(value).decode()}'"
    if kind is datetime:
        return f"d'{format_datetime(value)}'"
    if kind is timedelta:
        return format_duration(value)
    if kind is UUID:
        return f"u'{value}'"
    if kind is RecordId:
        return format_record(value)
    if kind is list:
        return "[" + ", ".join(map(format_value, value)) + "]"
    if not value:
        return "{}"
    fields = (f"{_field(name)}: {format_value(item)}" for name, item in value.items())
    return "{ " + ", ".join(fields) + " }"


def pieces(value: Any) -> Iterator[str]:
    """The text of `format_value` in pieces, so that a large value can be written with pauses, or
    only its beginning."""
    kind = type(value)
    if kind is list and value:
        for number, item in enumerate(value):
            yield ", " if number else "["
            yield from pieces(item)
        yield "]"
    elif kind is dict and value:
        for number, (name, item) in enumerate(value.items()):
            yield ", " if number else "{ "
            if len(name) > _PIECE:
                yield from pieces(name)
            else:
                yield _field(name)
            yield ": "
            yield from pieces(item)
        yield " }"
    elif kind is str and len(value) > _PIECE:
        yield "'"
        for start in range(0, len(value), _PIECE):
            yield quote_string(value[start : start + _PIECE])[1:-1]
        yield "'"
    elif kind is bytes and len(value) > _PIECE:
        yield "b'"
        for start in range(0, len(value), _PIECE):
            yield base64.b64encode(value[start : start + _PIECE]).decode()
        yield "'"
    else:
        yield format_value(value)


_PIECE: Final = 3 * 1024
"""Characters or bytes written at one go: in threes, as base64 takes bytes."""


def brief(value: Any, most: int) -> str:
    """The text of a value, or the beginning of a longer one and `…`: at most `most` characters. No
    more of the value is looked at than is shown."""
    text = ""
    for piece in pieces(value):
        text += piece
        if len(text) > most:
            return f"{text[: most - 1]}…"
    return text


def _field(name: str) -> str:
    return name if _BARE.match(name) else quote_string(name)


# --- reading a record's address ------------------------------------------------------------------

_RECORD_PART: Final = re.compile(
    r"\s*(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?!')|`(?P<quoted>(?:[^`\\]|\\.)*)`|(?P<int>-?[0-9]+)"
    r"|u'(?P<uuid>[0-9a-fA-F-]{36})'|'(?P<string>(?:[^'\\]|\\.)*)'|(?P<mark>[\[\],:]))"
)
_PLAIN_RECORD: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*):(-?[0-9]{1,18})")
"""The address that most requests name, found in one step instead of three."""
_UNESCAPE: Final = re.compile(r"\\(?:u\{([0-9a-fA-F]{1,6})\}|(.))", re.S)
_UNESCAPED: Final = {
    "n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "`": "`",
}  # fmt: skip


def parse_record(text: str) -> RecordId:
    """The record that a text such as `person:ana` addresses.

    :raises BadRequest: not a record's address
    :raises NameRefused: the table's name is none
    :raises TypeRefused, TooLarge, NumberTooLarge: the id is no id
    """
    plain = _PLAIN_RECORD.fullmatch(text)
    if plain is not None:
        return RecordId(check_name(plain[1], "table"), int(plain[2]))
    reader = _RecordReader(text)
    table = reader.take("name", "quoted")
    reader.mark(":")
    identity = reader.identity(0, quoted="quoted", bare="name")
    if reader.at != len(text):
        raise reader.refused()
    check_record_id(identity)
    return RecordId(check_name(table, "table"), identity)


class _RecordReader:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def refused(self) -> BadRequest:
        return BadRequest(f"{self.text[:80]!r} is no record's address: wanted table:id")

    def next(self) -> tuple[str, str]:
        found = _RECORD_PART.match(self.text, self.at)
        if not found or not found.lastgroup:
            raise self.refused()
        self.at = found.end()
        return found.lastgroup, found[found.lastgroup]

    def take(self, *kinds: str) -> str:
        kind, text = self.next()
        if kind not in kinds:
            raise self.refused()
        return text if kind == "name" else unescape(text)

    def mark(self, mark: str) -> None:
        if self.next() != ("mark", mark):
            raise self.refused()

    def identity(self, depth: int, quoted: str = "", bare: str = "") -> Any:
        kind, text = self.next()
        if kind == "int" and len(text) <= 20:
            return int(text)
        if kind == "uuid":
            try:
                return UUID(text)
            except ValueError:
                raise self.refused() from None
        if kind in (quoted, "string" if depth else ""):
            return unescape(text)
        if kind == bare:
            return text
        if (kind, text) == ("mark", "[") and depth < limits.DEPTH:
            return self.items(depth)
        raise self.refused()

    def items(self, depth: int) -> list[Any]:
        items: list[Any] = []
        at = self.at
        if self.next() == ("mark", "]"):
            return items
        self.at = at
        while True:
            items.append(self.identity(depth + 1))
            end = self.next()
            if end == ("mark", "]"):
                return items
            if end != ("mark", ","):
                raise self.refused()


def unescape(text: str) -> str:
    r"""The text that a literal with `\n \t \r \\ \' \" \` \u{…}` stands for.

    :raises BadRequest: an escape beyond Unicode, or none of these: were its backslash dropped, the
        pattern `\d` would look for the letter d
    """
    if "\\" not in text:
        return text

    def one(found: re.Match[str]) -> str:
        if found[1]:
            code = int(found[1], 16)
            if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
                raise BadRequest(f"\\u{{{found[1]}}} is not a character")
            return chr(code)
        if found[2] not in _UNESCAPED:
            raise BadRequest(f"\\{found[2]} is no escape: a backslash itself is written \\\\")
        return _UNESCAPED[found[2]]

    return _UNESCAPE.sub(one, text)
