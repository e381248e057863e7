"""Values as text of the language: names, durations, record ids, literals.

`parse_record` and `parse_duration` parse two of these, for surfaces that receive them outside of
scripts (JSON tags, query parameters). Scripts are parsed by the language room.
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
    """Return the name if it is valid. :raises NameRefused: it does not match `NAME`"""
    if len(name) <= limits.NAME_CHARACTERS and name in _found_good:
        return name
    if not NAME.match(name):
        called = what if what == "name" else f"{what} name"
        shown = name if len(name) <= _SHOWN_CHARACTERS else f"{name[:_SHOWN_CHARACTERS]}…"
        raise NameRefused(f"invalid {called} {shown!r}: expected {NAME.pattern[:-2]}", name=shown)
    if len(_found_good) >= NAMES_REMEMBERED:
        _found_good.clear()
    _found_good.add(name)
    return name


_found_good: Final[set[str]] = set()
_SHOWN_CHARACTERS: Final = 1024
"""Characters of an invalid name quoted in the error message."""
NAMES_REMEMBERED: Final = 1024
"""Size of the cache of valid names. Requests mostly name the same databases; matching the pattern
each time was a thirtieth of a read."""


def quote_name(name: str, keywords: frozenset[str] = frozenset()) -> str:
    """Return a name as written in a script, in back-quotes where it would be ambiguous.

    :param keywords: upper-case words that are ambiguous at that position
    """
    if _BARE.match(name) and name.upper() not in keywords:
        return name
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def quote_string(text: str) -> str:
    """Return a string literal."""
    return "'" + _ESCAPED.sub(lambda found: _ESCAPES[found[0]], text) + "'"


def format_duration(value: timedelta) -> str:
    """Return `1w2d3h4m5s6ms7us`, largest unit first, zero parts omitted; zero is `0s`."""
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
    """Parse a duration such as `5m` or `1h30m`.

    :raises BadRequest: not a duration
    :raises NumberTooLarge: beyond 64 bits of microseconds
    """
    if len(text) > limits.DURATION_CHARACTERS or not _DURATION.match(text):
        raise BadRequest(
            f"{text[:40]!r} is not a duration: expected 1w2d3h4m5s6ms7us", found=text[:40]
        )
    total = sum(int(count) * _UNIT_US[unit] for count, unit in _DURATION_PART.findall(text))
    if text.startswith("-"):
        total = -total
    return duration(total)


def duration(microseconds: int) -> timedelta:
    """Return a duration from microseconds. :raises NumberTooLarge: beyond 64 bits"""
    if not limits.INT_MIN <= microseconds <= limits.INT_MAX:
        raise NumberTooLarge("a duration does not fit 64 bits of microseconds")
    return timedelta(microseconds=microseconds)


def parse_size(text: str) -> int:
    """Parse a size such as `10MiB` or `500KB` into bytes.

    :raises BadRequest: not a size
    :raises NumberTooLarge: beyond 64 bits
    """
    found = _SIZE.match(text)
    if found is None:
        raise BadRequest(f"{text[:40]!r} is not a size: expected 10MiB, 500KB or a number of bytes")
    digits = found[1].lstrip("0") or "0"
    size = int(digits) * _SIZE_UNITS[found[2]] if len(digits) < 20 else limits.INT_MAX + 1
    if size > limits.INT_MAX:
        raise NumberTooLarge("a size does not fit 64 bits of bytes")
    return size


def format_size(size: int) -> str:
    """Return a size in the largest unit of which it is a whole multiple; zero is `0`."""
    for unit, factor in reversed(_SIZE_UNITS.items()):
        if size and size % factor == 0:
            return f"{size // factor}{unit}"
    return "0"


def format_datetime(value: datetime) -> str:
    """Return `2026-01-02T03:04:05.123456Z`; a zero fraction is omitted."""
    return value.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


_DATETIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)"
    r"(?:[Tt](\d\d:\d\d)(?::(\d\d)(?:\.(\d+))?)?([Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d))?\Z",
    re.ASCII,
)
_DATETIME_CHARACTERS: Final = 100
"""Longest text of a datetime: further digits of a second have no effect."""
_SECOND: Final = timedelta(seconds=1)


def parse_datetime(text: str) -> datetime:
    """Parse a datetime of RFC 3339, or a date alone as its midnight.

    Digits beyond the microsecond are rounded (see `values.microseconds`). A leap second is the
    first second of the next day, as in PostgreSQL. Seconds may be omitted.

    :raises BadRequest: not a datetime
    """
    found = _DATETIME.match(text) if len(text) <= _DATETIME_CHARACTERS else None
    if found is None:
        raise BadRequest(f"{text[:40]!r} is not a datetime: expected 2026-01-02T03:04:05Z")
    date, minutes, seconds, fraction, offset = found.groups()
    leaps = seconds == "60"
    try:
        whole = f"{date}T{minutes or '00:00'}:{'59' if leaps else seconds or '00'}{offset or 'Z'}"
        value = datetime.fromisoformat(whole.upper()).astimezone(UTC)
        if leaps:
            if (value.hour, value.minute) != (23, 59):
                raise BadRequest(
                    f"{text[:40]!r} is not a datetime: a leap second must end a day in UTC"
                )
            value += _SECOND
        if fraction:
            # Digits beyond the ninth matter only after an exact half of a microsecond.
            nanoseconds = int(fraction[:9].ljust(9, "0"))
            beyond = nanoseconds % 1000 == 500 and bool(fraction[9:].strip("0"))
            value += microseconds(nanoseconds + beyond) * MICROSECOND
        return value
    except (ValueError, OverflowError):
        raise BadRequest(f"{text[:40]!r} is not a datetime") from None


NUMBER: Final = re.compile(
    r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,6})?\Z", re.ASCII
)
"""A number as text, on every surface: digits before the point, after it, or both."""
_OF_NUMBERS: Final = "0123456789.eE+-"
INT: Final = re.compile(r"[+-]?[0-9]{1,40}\Z", re.ASCII)
"""An integer as text."""


def parse_decimal(text: str) -> Decimal:
    """Parse a decimal, keeping its scale; its range is not checked.

    :raises BadRequest: not a number
    :raises NumberTooLarge: longer than any decimal
    """
    if len(text) > limits.DECIMAL_DIGITS + 12:
        raise NumberTooLarge(f"a decimal has at most {limits.DECIMAL_DIGITS} digits")
    # `Decimal` alone would accept underscores, blanks, NaN and infinities too.
    if not text.strip(_OF_NUMBERS):
        try:
            return Decimal(text)
        except InvalidOperation:
            pass
    raise BadRequest(f"{text!r} is not a decimal: expected 12.50")


def format_decimal(value: Decimal) -> str:
    """Return the digits of a decimal with its scale, without the suffix `dec`."""
    return str(value)


def format_record(value: RecordId) -> str:
    """Return `person:1`, `` person:`any text` ``, `person:u'…'` or `person:['a', 1]`."""
    table = quote_name(value.table)
    if isinstance(value.id, str):
        return f"{table}:{quote_name(value.id)}"
    return f"{table}:{format_value(value.id)}"


def format_value(value: Any) -> str:
    """Return a literal that a script parses as the same value."""
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
    """Yield the text of `format_value` in pieces, so that a large value can be written in slices,
    or only its beginning."""
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
"""Characters or bytes per piece: a multiple of three, for base64."""


def brief(value: Any, most: int) -> str:
    """Return the text of a value, cut to at most `most` characters with `…` at its end. Formats no
    more of the value than it shows."""
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
"""The most common form of a record id, matched in one step instead of three."""
_UNESCAPE: Final = re.compile(r"\\(?:u\{([0-9a-fA-F]{1,6})\}|(.))", re.S)
_UNESCAPED: Final = {
    "n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "`": "`",
}  # fmt: skip


def parse_record(text: str) -> RecordId:
    """Parse a record id such as `person:ana`.

    :raises BadRequest: not a record id
    :raises NameRefused: invalid table name
    :raises TypeRefused, TooLarge, NumberTooLarge: invalid id
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
        return BadRequest(f"{self.text[:80]!r} is not a record id: expected table:id")

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
    r"""Resolve the escapes of a literal: `\n \t \r \\ \' \" \` \u{…}`.

    :raises BadRequest: beyond Unicode, or an unknown escape. Dropping the backslash instead would
        turn the pattern `\d` into the letter d
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
            raise BadRequest(f"\\{found[2]} is not an escape: write a backslash as \\\\")
        return _UNESCAPED[found[2]]

    return _UNESCAPE.sub(one, text)


def strings_of(value: Any) -> list[str]:
    """Return the texts of a value: of a string, or of the strings of an array; others have none."""
    if type(value) is str:
        return [value]
    return [one for one in value if type(one) is str] if type(value) is list else []
