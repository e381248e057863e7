"""Values as JSON: native types where JSON has them, one-key tags otherwise.

| value | JSON |
|---|---|
| datetime, decimal, record | `{"$dt": "…Z"}` `{"$dec": "12.30"}` `{"$rec": "person:1"}` |
| duration, bytes, uuid | `{"$dur": "5m"}` `{"$bytes": "base64"}` `{"$uuid": "…"}` |
| int beyond ±2^53 | `{"$int": "9007199254740993"}` |
| none | `{"$none": true}` (an answer or an array element; a field that is none is absent) |
| object with one key that begins with `$` | `{"$obj": {…}}` around it |
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from codecs import BOM_UTF8
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final, NoReturn
from uuid import UUID

import msgspec

from protocol import limits
from protocol.binary import ITEMS_A_STEP, Check
from protocol.errors import BadRequest, NumberTooLarge, TooLarge
from protocol.jsonsteps import load_in_steps
from protocol.text import (
    format_datetime,
    format_decimal,
    format_duration,
    format_record,
    parse_datetime,
    parse_decimal,
    parse_duration,
    parse_record,
)
from protocol.values import (
    LONG,
    NONE,
    NoneValue,
    RecordId,
    Tick,
    Value,
    check_given,
    is_flat,
    paced,
    unpaced,
)

EXACT: Final = 2**53
"""Integers within ± this are exact in every JSON reader."""

LONG_TEXT: Final = 64 * limits.KIB
"""Length in characters above which a text is parsed in steps."""

_AS_IS: Final = frozenset({str, bool, float, type(None)})


def to_json(value: Any) -> Any:
    """Convert a value into Python objects that `encode_plain` accepts."""
    kind = type(value)
    if kind in _AS_IS:
        return value
    if kind is int:
        return value if -EXACT <= value <= EXACT else {"$int": str(value)}
    if kind is dict:
        plain = {name: to_json(item) for name, item in value.items() if item is not NONE}
        if len(plain) == 1 and next(iter(plain)).startswith("$"):
            return {"$obj": plain}
        return plain
    if kind is list:
        return [to_json(item) for item in value]
    return _TAGGED[kind](value)


_TAGGED: Final[dict[type, Callable[[Any], dict[str, Any]]]] = {
    datetime: lambda value: {"$dt": format_datetime(value)},
    Decimal: lambda value: {"$dec": format_decimal(value)},
    RecordId: lambda value: {"$rec": format_record(value)},
    timedelta: lambda value: {"$dur": format_duration(value)},
    bytes: lambda value: {"$bytes": base64.b64encode(value).decode()},
    UUID: lambda value: {"$uuid": str(value)},
    NoneValue: lambda value: {"$none": True},
}


def dump(value: Any) -> bytes:
    """Encode a value as JSON."""
    return encode_plain(to_json(value))


def encode_plain(plain: Any) -> bytes:
    """Encode the result of `to_json`, or other objects, arrays and plain values, as JSON."""
    return _encode(plain)


_encode: Final[Callable[[Any], bytes]] = msgspec.json.Encoder().encode
"""Takes a tenth of the time of Python's json. It supports neither NaN nor subclasses of `str`."""


def dump_in_steps(value: Any, tick: Tick, add: Callable[[bytes], None]) -> None:
    """Encode like `dump`, and pass the parts to `add` one after the other.

    :param tick: called at intervals
    :raises Exception: any exception of `tick` or `add`, which can so stop the encoding early
    """
    kind = type(value)
    if kind is list:
        add(b"[")
        _dump_items(value, tick, add)
        add(b"]")
    elif kind is dict:
        _dump_object(value, tick, add)
    elif kind is str and len(value) > LONG:
        # Characters are encoded independently, so concatenated pieces equal the whole.
        add(b'"')
        for start in range(0, len(value), LONG):
            tick()
            add(encode_plain(value[start : start + LONG])[1:-1])
        add(b'"')
    elif kind is bytes and len(value) > LONG:
        add(b'{"$bytes":"')
        for start in range(0, len(value), _THREES):
            tick()
            add(base64.b64encode(value[start : start + _THREES]))
        add(b'"}')
    else:
        add(dump(value))


_THREES: Final = LONG // 3 * 3
"""Bytes per piece, a multiple of three: base64 turns three into four, so concatenated pieces equal
the encoding of the whole."""


def _dump_items(items: list[Any], tick: Tick, add: Callable[[bytes], None]) -> None:
    for start in range(0, len(items), ITEMS_A_STEP):
        tick()
        if start:
            add(b",")
        part = items[start : start + ITEMS_A_STEP]
        if all(map(is_flat, part)):
            add(encode_plain([to_json(item) for item in part])[1:-1])
            continue
        for number, item in enumerate(part):
            if number:
                add(b",")
            dump_in_steps(item, tick, add)


def _dump_object(fields: dict[str, Any], tick: Tick, add: Callable[[bytes], None]) -> None:
    if is_flat(fields):
        add(dump(fields))
        return
    there = [(name, item) for name, item in fields.items() if item is not NONE]
    tagged = len(there) == 1 and there[0][0].startswith("$")
    before = b'{"$obj":{' if tagged else b"{"
    for name, item in paced(there, tick):
        add(before + encode_plain(name) + b":")
        before = b","
        dump_in_steps(item, tick, add)
    add((b"{" if before[:1] == b"{" else b"") + (b"}}" if tagged else b"}"))


def load(text: bytes | str) -> Value:
    """Decode and check a value from JSON.

    :raises BadRequest: not JSON, a duplicate key, an unknown tag, invalid content of a tag
    :raises Refusal: any refusal of `values.check`
    """
    return from_json(parse(text))


def parse(text: bytes | str, tick: Tick | None = None) -> Any:
    """Parse JSON into Python objects, tags not yet resolved.

    Bytes must be UTF-8, with or without a byte order mark. `_check_counts` counts in these bytes,
    and would count wrongly in another encoding.

    :param tick: called at intervals while a long text is parsed
    :raises BadRequest: not JSON, or not UTF-8
    :raises TooLarge: more arrays and objects, or more elements, than a message may have
    """
    _check_counts(text, tick or unpaced)
    try:
        if tick is None or len(text) < LONG_TEXT:
            return _decode(_text(text))
        text = _text(text)
        made = _Names().unique
        decoder: Any = json.JSONDecoder(
            parse_int=_integer, parse_constant=_no_constant, object_pairs_hook=made
        )
        return load_in_steps(text, decoder.scan_once, made, tick)
    except RecursionError:
        raise TooLarge(f"values nest at most {limits.DEPTH} deep", limit=limits.DEPTH) from None
    except ValueError as error:
        raise BadRequest(f"not JSON: {error}") from None


def _text(text: bytes | str) -> str:
    if isinstance(text, str):
        return text
    return text[len(BOM_UTF8) :].decode() if text.startswith(BOM_UTF8) else text.decode()


def from_json(plain: Any, tick: Tick | None = None, refuse: Check = check_given) -> Value:
    """Return the value of parsed JSON, with its tags resolved. Raises like `load`.

    :param tick: called at intervals while a large value is processed
    :param refuse: checks the value
    """
    value = _resolve(plain, 0, tick)
    refuse(value, tick)
    return value  # type: ignore[no-any-return]


_STRINGS: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+("|\\?\Z)', re.DOTALL)
"""Strings up to their closing quote, or to the end of a window. A string cut by the window includes
a trailing backslash, whose escaped character is in the next one."""
_WINDOW_BYTES: Final = 64 * limits.KIB


def _check_counts(text: bytes | str, tick: Tick) -> None:
    """Refuse too many containers or elements before anything is built: an empty array is 2 bytes as
    text and 56 in memory."""
    if len(text) <= limits.CONTAINERS:
        return
    raw = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    if not _over(*_counted(raw)):
        return
    # Too many, unless some are inside strings: remove the strings and count again.
    opened = parted = 0
    unclosed = b""
    for at in range(0, len(raw), _WINDOW_BYTES):
        tick()
        parts = _STRINGS.split(unclosed + raw[at : at + _WINDOW_BYTES])
        bare, ends = b"".join(parts[::2]), parts[1::2]
        unclosed = b'"' + ends[-1] if ends and ends[-1] != b'"' else b""
        more = _counted(bare)
        opened, parted = opened + more[0], parted + more[1]
    if _over(opened, parted):
        raise TooLarge(
            f"a message has at most {limits.CONTAINERS} arrays and objects"
            f" and {limits.ELEMENTS} elements",
            limit=limits.CONTAINERS,
        )


def _counted(text: bytes) -> tuple[int, int]:
    """Return the number of opening brackets, and of commas."""
    return text.count(b"[") + text.count(b"{"), text.count(b",")


def _over(opened: int, parted: int) -> bool:
    return opened > limits.CONTAINERS or parted > limits.ELEMENTS


def _integer(digits: str) -> int:
    # Checked before the conversion, which is quadratic in the number of digits.
    if len(digits) > 20:
        raise NumberTooLarge("an integer does not fit 64 bits")
    return int(digits)


def _no_constant(word: str) -> NoReturn:
    raise BadRequest(f"not JSON: {word}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise BadRequest("a JSON object has a duplicate key")
    return found


# Shared by all calls, like the encoder.
_decoder: Final[Any] = json.JSONDecoder(
    parse_int=_integer, parse_constant=_no_constant, object_pairs_hook=_unique
)
_scan: Final[Callable[[str, int], tuple[Any, int]]] = _decoder.scan_once
_BLANKS: Final = " \t\n\r"


def _decode(text: str) -> Any:
    """Decode like `JSONDecoder.decode`, without its two searches for blanks, which take as long as
    parsing a short text.

    :raises ValueError: not JSON
    """
    try:
        found, end = _scan(text, 0)
    except StopIteration as stop:
        if stop.value:
            raise json.JSONDecodeError("Expecting value", text, stop.value) from None
        return _decoder.decode(text)  # leading blanks, or not JSON
    if end < len(text):
        rest = text[end:].lstrip(_BLANKS)
        if rest:
            raise json.JSONDecodeError("Extra data", text, len(text) - len(rest))
    return found


class _Names:
    """Interns the names in one text: the scanner does that only within one call."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def unique(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """Build an object with interned names, refusing duplicate keys."""
        known = self._known.setdefault
        return _unique([(known(name, name), value) for name, value in pairs])


def _resolve(plain: Any, depth: int, tick: Tick | None) -> Any:
    if depth > 2 * limits.DEPTH:  # a tag or an $obj adds a level
        raise TooLarge(f"values nest at most {limits.DEPTH} deep", limit=limits.DEPTH)
    if type(plain) is list:
        items = plain if tick is None else paced(plain, tick)
        return [_resolve(item, depth + 1, tick) for item in items]
    if type(plain) is not dict:
        return plain
    if len(plain) == 1:
        ((tag, content),) = plain.items()
        if tag.startswith("$"):
            return _untag(tag, content, depth, tick)
    return _fields(plain, depth, tick)


def _fields(plain: dict[str, Any], depth: int, tick: Tick | None) -> dict[str, Any]:
    items = plain.items() if tick is None else paced(plain.items(), tick)
    return {name: _resolve(item, depth + 1, tick) for name, item in items}


def _untag(tag: str, content: Any, depth: int, tick: Tick | None) -> Any:
    if tag == "$obj" and type(content) is dict:
        return _fields(content, depth, tick)
    if tag == "$none" and content is True:
        return NONE
    read = _TAGS.get(tag)
    if read is None:
        raise BadRequest(f"unknown tag {tag!r}: send an object with that one key as $obj", tag=tag)
    if type(content) is not str:
        raise BadRequest(f"{tag} holds a string")
    return read(content)


def _read_int(text: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,20}", text):
        raise BadRequest("$int holds the digits of a 64-bit integer")
    return int(text)


def _read_bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadRequest("$bytes holds base64") from None


def _read_uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise BadRequest("$uuid holds a uuid") from None


_TAGS: Final[dict[str, Callable[[str], Value]]] = {
    "$dt": parse_datetime,
    "$dec": parse_decimal,
    "$rec": parse_record,
    "$dur": parse_duration,
    "$bytes": _read_bytes,
    "$uuid": _read_uuid,
    "$int": _read_int,
}
