"""Values as the suite writes them: with the tags of its page, and as msgpack.

A codec of its own: neither the node's nor any client's.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

import msgpack

TAGS: Final = frozenset(
    (
        "$int",
        "$float",
        "$none",
        "$dt",
        "$dec",
        "$rec",
        "$dur",
        "$bytes",
        "$uuid",
        "$obj",
        "$bad",
        "$search",
        "$vector",
    )
)


class NotAValue(Exception):
    """Something that is not a tagged value; the message says what."""


def tag_of(value: object) -> str | None:
    """Return the tag of a tagged value, if it is one."""
    if isinstance(value, dict) and len(value) == 1:
        (name,) = value
        return name if name in TAGS else None
    return None


def tagged(value: Any) -> Any:
    """Return the tagged form of a value as a case writes it: numbers without tags."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        return {"$int": str(value)}
    if isinstance(value, float):
        return {"$float": repr(value)}
    if isinstance(value, list):
        return [tagged(one) for one in value]
    tag = tag_of(value)
    if tag == "$rec":
        return {tag: [value[tag][0], tagged(value[tag][1])]}
    if tag == "$search":
        return {tag: tagged(value[tag])}
    if tag is not None and tag != "$obj":
        return value
    if tag == "$obj":
        value = value[tag]
    found = {name: tagged(one) for name, one in value.items()}
    return {"$obj": found} if tag == "$obj" else found


def plain(value: Any) -> Any:
    """Return a value of an answer as a case would write it: ints without tags."""
    if isinstance(value, dict):
        if list(value) == ["$int"]:
            return int(value["$int"])
        return {name: plain(one) for name, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, list) else value


def canonical(value: Any) -> Any:
    """Return a tagged value in the one form in which equal values are equal.

    :raises NotAValue: it is none
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, list):
        return [canonical(one) for one in value]
    if not isinstance(value, dict):
        raise NotAValue(f"a number without a tag: {value!r}")
    tag = tag_of(value)
    if tag is None:
        return {name: canonical(one) for name, one in value.items()}
    inner = value[tag]
    match tag:
        case "$obj":
            return {name: canonical(one) for name, one in inner.items()}
        case "$int" | "$dur":
            return (tag, int(inner))
        case "$float":
            return (tag, repr(float(inner)))
        case "$dt":
            at = datetime.fromisoformat(inner.replace("Z", "+00:00")).astimezone(UTC)
            return (tag, at.isoformat(timespec="microseconds"))
        case "$rec":
            return (tag, inner[0], str(canonical(inner[1])))
        case "$uuid":
            return (tag, str(UUID(inner)))
        case "$bytes":
            return (tag, base64.b64decode(inner, validate=True))
        case _:
            return (tag, inner)


def pack(value: Any) -> bytes:
    """Return a tagged value as msgpack."""
    return msgpack.packb(_outward(value))  # type: ignore[no-any-return]


def _outward(value: Any) -> Any:
    if isinstance(value, list):
        return [_outward(one) for one in value]
    if not isinstance(value, dict):
        return value
    tag = tag_of(value)
    if tag is None:
        return {name: _outward(one) for name, one in value.items()}
    inner = value[tag]
    match tag:
        case "$obj":
            return {name: _outward(one) for name, one in inner.items()}
        case "$int":
            return int(inner)
        case "$float":
            return float(inner)
        case "$none":
            return msgpack.ExtType(5, b"")
        case "$dt":
            return msgpack.Timestamp.from_datetime(
                datetime.fromisoformat(inner.replace("Z", "+00:00"))
            )
        case "$dec":
            return msgpack.ExtType(1, inner.encode())
        case "$rec":
            return msgpack.ExtType(4, msgpack.packb([inner[0], _outward(inner[1])]))
        case "$dur":
            return msgpack.ExtType(2, int(inner).to_bytes(8, "big", signed=True))
        case "$bytes":
            return base64.b64decode(inner)
        case "$uuid":
            return msgpack.ExtType(3, UUID(inner).bytes)
    raise NotAValue(f"{tag} can't be sent by a peer")


def unpack(data: bytes) -> Any:
    """Return msgpack as a tagged value.

    :raises ValueError: it is no msgpack of values
    """
    return _inward(msgpack.unpackb(data, ext_hook=_extension, timestamp=0))


class _Tagged:
    """A value that has its tag already."""

    def __init__(self, value: Mapping[str, Any]) -> None:
        self.value = value


def _extension(code: int, data: bytes) -> _Tagged:
    match code:
        case 1:
            return _Tagged({"$dec": data.decode("ascii")})
        case 2 if len(data) == 8:
            return _Tagged({"$dur": str(int.from_bytes(data, "big", signed=True))})
        case 3:
            return _Tagged({"$uuid": str(UUID(bytes=data))})
        case 4:
            table, id = msgpack.unpackb(data, ext_hook=_extension)
            return _Tagged({"$rec": [table, _inward(id)]})
        case 5 if not data:
            return _Tagged({"$none": True})
    raise ValueError(f"extension {code} of {len(data)} bytes")


def _inward(value: Any) -> Any:
    if isinstance(value, _Tagged):
        return dict(value.value)
    if isinstance(value, msgpack.Timestamp):
        at = value.to_datetime().astimezone(UTC).replace(tzinfo=None)
        return {"$dt": f"{at.isoformat(timespec='microseconds')}Z"}
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, list):
        return [_inward(one) for one in value]
    if isinstance(value, dict):
        found = {name: _inward(one) for name, one in value.items()}
        return {"$obj": found} if tag_of(found) else found
    return tagged(value)


# --- comparing ------------------------------------------------------------------------------------

ANY: Final = "*"


def difference(expected: Any, found: Any, partial: bool, at: str = "") -> str | None:
    """Return where a found value differs from the expected one, None: nowhere.

    :param expected: as a case writes it; `*` is equal to anything
    :param partial: objects may have more fields than expected
    """
    if expected == ANY:
        return None
    tag = tag_of(found)
    if isinstance(expected, list) and isinstance(found, list):
        if len(expected) != len(found):
            return f"{at or 'value'}: {len(found)} elements, not {len(expected)}: {found}"
        pairs = enumerate(zip(expected, found, strict=True))
        differences = (
            difference(one, other, partial, f"{at}[{number}]") for number, (one, other) in pairs
        )
        return next((one for one in differences if one is not None), None)
    if isinstance(expected, dict) and tag_of(expected) is None and isinstance(found, dict):
        if tag == "$obj":
            found = found["$obj"]
        elif tag is not None:
            return f"{at or 'value'}: {found}, not {expected}"
        missing = [name for name in expected if name not in found]
        more = [] if partial else [name for name in found if name not in expected]
        if missing or more:
            return f"{at or 'value'}: {missing} are missing and {more} too many in {found}"
        differences = (
            difference(expected[name], found[name], partial, f"{at}.{name}") for name in expected
        )
        return next((one for one in differences if one is not None), None)
    if canonical(tagged(expected)) != canonical(found):
        return f"{at or 'value'}: {found}, not {tagged(expected)}"
    return None
