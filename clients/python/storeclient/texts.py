"""Record ids as text and back, and values as readable JSON.

The text of a record id is that of a statement: `person:1`, `person:ana`, `` person:`any text` ``,
`person:u'…'`, `person:['a', 1]`.
"""

from __future__ import annotations

import re
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Final
from uuid import UUID

_BARE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INT: Final = re.compile(r"-?[0-9]+")
_QUOTED: Final = re.compile(r"`((?:[^`\\]|\\.)*)`", re.DOTALL)
_STRING: Final = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"", re.DOTALL)
_UUID: Final = re.compile(r"u(?:'([0-9A-Fa-f-]{32,36})'|\"([0-9A-Fa-f-]{32,36})\")")
_ESCAPES: Final = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\\": "\\\\", "'": "\\'", "\0": "\\u{0}"}
_ESCAPED: Final = re.compile(r"[\n\t\r\\'\0]")
_ESCAPE: Final = re.compile(r"\\(?:u\{([0-9A-Fa-f]{1,6})\}|(.))", re.DOTALL)
_MEANT: Final = {"n": "\n", "t": "\t", "r": "\r"}
_DEEPEST: Final = 64
_UNITS: Final = (
    ("w", 604_800_000_000), ("d", 86_400_000_000), ("h", 3_600_000_000), ("m", 60_000_000),
    ("s", 1_000_000), ("ms", 1_000), ("us", 1),
)  # fmt: skip


def record_text(table: str, id: Any) -> str:
    """Return the text of a record id. :raises TypeError: an id of another type"""
    return f"{_name(table)}:{_name(id) if isinstance(id, str) else _id(id)}"


def _name(name: str) -> str:
    if _BARE.fullmatch(name):
        return name
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def _id(id: Any) -> str:
    if isinstance(id, str):
        return "'" + _ESCAPED.sub(lambda found: _ESCAPES[found[0]], id) + "'"
    if isinstance(id, UUID):
        return f"u'{id}'"
    if isinstance(id, list | tuple):
        return "[" + ", ".join(map(_id, id)) + "]"
    if isinstance(id, int) and not isinstance(id, bool):
        return str(id)
    raise TypeError(f"an id is a string, int, UUID or list of these, not a {type(id).__name__}")


def read_record(text: str) -> tuple[str, Any]:
    """Parse a record id into table and id. :raises ValueError: it is invalid"""
    table, at = _read_name(text, 0)
    if not text.startswith(":", at):
        raise _no_record(text)
    at += 1
    id: Any
    if (_BARE.match(text, at) and not _UUID.match(text, at)) or text.startswith("`", at):
        id, end = _read_name(text, at)
    else:
        id, end = _read_id(text, at, 0)
    if end != len(text):
        raise _no_record(text)
    return table, id


def _no_record(text: str) -> ValueError:
    return ValueError(f"{text[:80]!r} is not a record: expected table:id, such as person:1")


def _read_name(text: str, at: int) -> tuple[str, int]:
    if found := _BARE.match(text, at):
        return found[0], found.end()
    if found := _QUOTED.match(text, at):
        return _unescaped(found[1]), found.end()
    raise _no_record(text)


def _read_id(text: str, at: int, depth: int) -> tuple[Any, int]:
    if found := _INT.match(text, at):
        return int(found[0]), found.end()
    if found := _UUID.match(text, at):
        try:
            return UUID(found[1] or found[2]), found.end()
        except ValueError:
            raise _no_record(text) from None
    if found := _STRING.match(text, at):
        return _unescaped(found[1] if found[1] is not None else found[2]), found.end()
    if not text.startswith("[", at) or depth > _DEEPEST:
        raise _no_record(text)
    return _read_items(text, _past_space(text, at + 1), depth)


def _read_items(text: str, at: int, depth: int) -> tuple[list[Any], int]:
    items: list[Any] = []
    while not text.startswith("]", at):
        item, at = _read_id(text, at, depth + 1)
        items.append(item)
        at = _past_space(text, at)
        if text.startswith(",", at):
            at = _past_space(text, at + 1)
        elif not text.startswith("]", at):
            raise _no_record(text)
    return items, at + 1


def _past_space(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(_meant, text) if "\\" in text else text


def _meant(found: re.Match[str]) -> str:
    if found[1] is not None:
        code = int(found[1], 16)
        if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            raise ValueError(f"{found[0]} is not a character")
        return chr(code)
    return _MEANT.get(found[2], found[2])


def duration_text(value: timedelta) -> str:
    """Return `1w2d3h4m5s6ms7us`, largest unit first, zero parts omitted; zero is `0s`."""
    rest = value // timedelta(microseconds=1)
    parts = ["-"] if rest < 0 else []
    rest = abs(rest)
    for unit, size in _UNITS:
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def in_utc(value: datetime) -> datetime:
    """Convert a datetime to UTC. :raises ValueError: out of the range of datetime"""
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"{value!r} is beyond the years 1 to 9999 in UTC") from None


def datetime_text(value: datetime) -> str:
    """Return `2026-01-02T03:04:05.123456Z`. :raises ValueError: see `in_utc`"""
    return in_utc(value).replace(tzinfo=None).isoformat() + "Z"


def json_default(value: Any) -> Any:
    """Convert a value without a JSON type, as the `default` of `json.dumps`.

        json.dumps(rows, default=json_default)

    For people and other programs; the types are lost. Records become `table:id`, datetimes RFC 3339
    in UTC, decimals their digits as a string. Durations become `1h30m`, bytes base64, uuids their
    text, `NONE` null.

    :raises TypeError: not a value of the language
    :raises ValueError: a datetime beyond the years 1 to 9999 in UTC
    """
    from storeclient.values import NoneValue, RecordId  # cyclic: values imports this module

    if isinstance(value, RecordId | Decimal | UUID):
        return str(value)
    if isinstance(value, datetime):
        return datetime_text(value)
    if isinstance(value, timedelta):
        return duration_text(value)
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, NoneValue):
        return None
    if isinstance(value, Enum):
        return value.value
    raise TypeError(f"{type(value).__name__} is not a type of the language")
