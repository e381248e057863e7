"""Order-preserving encoding: values as bytes that sort as the language orders the values.

The keys of the state engine consist of these. Every encoding is self-delimiting, so encodings can
be concatenated, and the result sorts by its parts in turn.

```
value     tag  content
none      05   –
null      08   –
bool      10   00 | 01
number    18   double · rest            see below: one encoding for int, float and decimal
string    20   escaped UTF-8 · 00 00    a 00 inside is written 00 FF
bytes     28   escaped · 00 00
duration  30   8 bytes, sign bit flipped, microseconds
datetime  38   8 bytes, sign bit flipped, microseconds since 1970
uuid      40   16 bytes
array     48   values · 00              00 is below every tag: shorter arrays come first
object    50   (string · value) in name order · 00
record    58   string · value
```

A number is its nearest double towards zero (8 bytes, with bits flipped so that they sort), then
the rest that this double lacks. `01`: none. `02` · exponent · digits · `00`: a positive rest.
`00` · the same with every byte mirrored · `0F`: a negative rest. Beyond the largest double the
double is an infinity, and the rest is the number itself. So equal numbers of the three types have
the same bytes, and integers beyond 2^53 and decimals between two doubles still sort exactly. The
encoding is injective for record ids; for other values it is injective up to `=`.
"""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from hashlib import blake2b
from typing import Any, Final
from uuid import UUID

from protocol import limits
from protocol.values import MICROSECOND, RecordId, is_large, present_fields, rank

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DOUBLE: Final = struct.Struct(">d")
_TIME: Final = struct.Struct(">BQ")
_POSITIVE: Final = struct.Struct(">BdB")
_WORD: Final = struct.Struct(">Q")
_HALF: Final = struct.Struct(">H")
_EXPONENT_BIAS: Final = 32_768
_LARGEST: Final = sys.float_info.max
_SIGN: Final = 1 << 63
_HASH_BYTES: Final = 16
_ALL: Final = (1 << 64) - 1
_EXACT: Final = 1 << 53
_LONG: Final = Context(prec=1200, Emax=999_999, Emin=-999_999)
"""Precise enough for the exact difference of any valid decimal and any double."""

NUMBER: Final = 0x18
STRING: Final = 0x20
STRINGS: Final = b"\x20"
OBJECTS: Final = b"\x50"
"""First byte of the encodings of all strings, and of all objects."""
UUID_TAG: Final = 0x40
ARRAY: Final = 0x48


def class_bounds(encoding: bytes) -> tuple[bytes, bytes]:
    """Return the range of encodings of all values with the type class of the given one, end
    excluded. All of them begin with one tag, and no two tags are adjacent."""
    tag = encoding[0]
    return bytes((tag,)), bytes((tag + 1,))


def encode(value: Any) -> bytes:
    """Return the sortable bytes of a checked value."""
    kind = type(value)
    if kind is str:
        return b"\x20" + _escaped(value.encode()) + b"\0\0"
    if kind is int or kind is float or kind is Decimal:
        if kind is not Decimal and 0 < value <= _EXACT:
            # Flipping the sign bit of a positive double gives its negative.
            return _POSITIVE.pack(0x18, -value, 1)
        return b"\x18" + _number(value)
    if kind is UUID:
        return b"".join((b"\x40", value.bytes))
    if kind is list:
        return array_of(map(encode, value))
    return _other(value)


def beginning(text: str) -> bytes:
    """Return the common prefix of the encodings of exactly the strings that begin with `text`."""
    return STRINGS + _escaped(text.encode())


def fits_index(value: Any) -> bool:
    """True if a value has few enough parts for an index: encoding a larger one would block the
    event loop."""
    kind = type(value)
    return (kind is not list and kind is not dict) or not is_large(
        value, limits.INDEX_ELEMENTS, math.inf
    )


def array_of(items: Iterable[bytes]) -> bytes:
    """Return the encoding of an array from those of its items."""
    return b"\x48" + b"".join(items) + b"\0"


def encode_all(values: Sequence[Any]) -> list[bytes]:
    """Encode each value; faster than `encode` for many values of one type."""
    kinds = set(map(type, values))
    if kinds == _STRINGS_ONLY:
        contents = [value.encode() for value in values]
        if b"\0" not in b"".join(contents):
            return [b"\x20" + content + b"\0\0" for content in contents]
    elif kinds == _TIMES_ONLY:
        time = _TIME.pack
        return [time(0x38, _microseconds(value) + _SIGN) for value in values]
    elif kinds and kinds <= _DOUBLES_ONLY:
        pack, most = _POSITIVE.pack, _EXACT
        if min(values) > 0 and max(values) <= most:
            return [pack(0x18, -value, 1) for value in values]
        return [pack(0x18, -value, 1) if 0 < value <= most else encode(value) for value in values]
    return list(map(encode, values))


_STRINGS_ONLY: Final = frozenset({str})
_TIMES_ONLY: Final = frozenset({datetime})
_DOUBLES_ONLY: Final = frozenset({int, float})


def shortened(encoding: bytes, most: int) -> bytes:
    """Return an encoding in at most `most` bytes: a longer one as its prefix and a hash of all of
    it. Equality is preserved both ways; order is preserved unless the prefixes are equal."""
    kept = kept_bytes(most)
    if len(encoding) <= kept:
        return encoding
    return encoding[:kept] + blake2b(encoding, digest_size=_HASH_BYTES).digest()


def kept_bytes(most: int) -> int:
    """Return the length of the prefix that `shortened` keeps."""
    return most - _HASH_BYTES


def _escaped(content: bytes) -> bytes:
    return content.replace(b"\0", b"\0\xff")


def _microseconds(value: datetime) -> int:
    """Return the microseconds since 1970. A division of timedeltas would take three times as
    long."""
    passed = value - _EPOCH
    return (passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds


def _other(value: Any) -> bytes:
    kind = type(value)
    if kind is bool:
        return b"\x10\x01" if value else b"\x10\x00"
    if kind is bytes:
        return b"\x28" + _escaped(value) + b"\0\0"
    if kind is timedelta:
        return b"\x30" + _WORD.pack((value // MICROSECOND) + _SIGN)
    if kind is datetime:
        return b"\x38" + _WORD.pack(_microseconds(value) + _SIGN)
    if kind is dict:
        fields = present_fields(value)
        parts = (encode(name) + encode(fields[name]) for name in sorted(fields))
        return b"\x50" + b"".join(parts) + b"\0"
    if kind is RecordId:
        return b"\x58" + encode(value.table) + encode(value.id)
    return b"\x08" if rank(value) else b"\x05"


def _number(value: int | float | Decimal) -> bytes:
    if isinstance(value, float) or (isinstance(value, int) and -_EXACT <= value <= _EXACT):
        return _double(float(value)) + b"\x01"
    exact = Decimal(value)
    base = _towards_zero(exact)
    rest = exact if math.isinf(base) else _LONG.subtract(exact, Decimal(base))
    if rest == 0:
        return _double(base) + b"\x01"
    _, digits, _ = rest.normalize(_LONG).as_tuple()
    exponent = rest.adjusted() + _EXPONENT_BIAS
    # The terminator sorts below every digit, or above every mirrored one.
    if rest > 0:
        text = bytes(digit + 1 for digit in digits)
        return _double(base) + b"\x02" + _HALF.pack(exponent) + text + b"\0"
    text = bytes(10 - digit for digit in digits)
    return _double(base) + b"\0" + _HALF.pack(0xFFFF - exponent) + text + b"\x0f"


def _towards_zero(value: Decimal) -> float:
    """Return the nearest double to `value` that is not further from zero."""
    near = float(value)
    if math.isinf(near):
        within = value.copy_abs() <= Decimal(_LARGEST)
        return math.copysign(_LARGEST, near) if within else near
    return math.nextafter(near, 0.0) if Decimal(near).copy_abs() > value.copy_abs() else near


def _double(value: float) -> bytes:
    (bits,) = _WORD.unpack(_DOUBLE.pack(value + 0.0))  # -0.0 and 0.0 are the same number
    return _WORD.pack(bits ^ _ALL if bits & _SIGN else bits | _SIGN)


def decode_id(data: bytes, at: int = 0) -> Any:
    """Decode the id of a record from sortable bytes, from `at` to their end."""
    # Fast path for positive integers, whose encoding is that of their negative double.
    if data[at] == NUMBER and len(data) == at + _POSITIVE.size:
        _, negative, _ = _POSITIVE.unpack_from(data, at)
        if negative < 0:
            return int(-negative)
    value, _ = _decode(data, at)
    return value


def _decode(data: bytes, at: int) -> tuple[Any, int]:
    tag = data[at]
    at += 1
    if tag == STRING:
        end = _end_of_string(data, at)
        return data[at:end].replace(b"\0\xff", b"\0").decode(), end + 2
    if tag == NUMBER:
        return _decode_int(data, at)
    if tag == UUID_TAG:
        return UUID(bytes=data[at : at + 16]), at + 16
    assert tag == ARRAY, f"tag {tag:#x} is not that of a record's id"
    items = []
    while data[at]:
        item, at = _decode(data, at)
        items.append(item)
    return items, at + 1


def _end_of_string(data: bytes, at: int) -> int:
    end = data.index(b"\0", at)
    while data[end + 1] == 0xFF:
        end = data.index(b"\0", end + 2)
    return end


def _decode_int(data: bytes, at: int) -> tuple[int, int]:
    (bits,) = _WORD.unpack_from(data, at)
    (double,) = _DOUBLE.unpack(_WORD.pack(bits ^ _SIGN if bits & _SIGN else bits ^ _ALL))
    at += 8
    mark = data[at]
    if mark == 1:
        return int(double), at + 1
    (exponent,) = _HALF.unpack_from(data, at + 1)
    end = data.index(b"\0" if mark else b"\x0f", at + 3)
    text = data[at + 3 : end]
    if mark:
        digits = "".join(str(byte - 1) for byte in text)
        return int(double) + _scaled(digits, exponent - _EXPONENT_BIAS), end + 1
    digits = "".join(str(10 - byte) for byte in text)
    return int(double) - _scaled(digits, 0xFFFF - exponent - _EXPONENT_BIAS), end + 1


def _scaled(digits: str, exponent: int) -> int:
    return int(digits + "0" * (exponent - len(digits) + 1))
