"""Target of a request: decoding of its path and its query."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote_to_bytes

from protocol import limits
from protocol.errors import BadRequest
from surfaces.http.operation import RouteParameter

_BAD_PERCENT: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_INTEGER: Final = re.compile(r"-?[0-9]{1,19}\Z")


def decoded(part: str, plus: bool = False) -> str:
    """Return a part of a target, percent-decoded once.

    :raises BadRequest: malformed, or not UTF-8
    """
    if plus:
        part = part.replace("+", " ")
    if "%" not in part and part.isascii():
        return part
    if _BAD_PERCENT.search(part):
        raise BadRequest(f"{part[:80]!r} has a % without two hexadecimal digits after it")
    try:
        return unquote_to_bytes(part.encode("latin-1")).decode()
    except UnicodeDecodeError:
        raise BadRequest(f"{part[:80]!r} is not UTF-8") from None


def parameters(query: str, known: tuple[RouteParameter, ...]) -> dict[str, str]:
    """Return the parameters of a query.

    :raises BadRequest: a parameter is unknown or repeated, or a required one is missing
    """
    found: dict[str, str] = {}
    for part in query.split("&") if query else ():
        name, _, value = part.partition("=")
        name = decoded(name, plus=True)
        for one in known:
            if one.name == name:
                break
        else:
            names = ", ".join([one.name for one in known])
            takes = f"takes {names}" if names else "takes no query"
            raise BadRequest(f"unknown parameter {name[:80]!r}: this route {takes}")
        if name in found:
            raise BadRequest(f"the parameter {name} is given twice")
        found[name] = decoded(value, plus=True)
    for one in known:
        if one.required and one.name not in found:
            raise BadRequest(f"this route needs the parameter {one.name}")
    return found


def integer(text: str, name: str) -> int:
    """Return the integer value of a parameter.

    :raises BadRequest: it is not an integer of 64 bits
    """
    number = int(text) if _INTEGER.match(text) else None
    if number is None or not limits.INT_MIN <= number <= limits.INT_MAX:
        raise BadRequest(f"{name} must be an integer of 64 bits, not {text[:40]!r}")
    return number


def sequence(text: str, name: str) -> int:
    """Return the sequence number in a parameter.

    :raises BadRequest: it is none
    """
    number = natural(text, name)
    if number > limits.SEQUENCE_MAX:
        raise BadRequest(f"{name} must be a sequence, 0 to {limits.SEQUENCE_MAX}, not {number}")
    return number


def natural(text: str, name: str) -> int:
    """Return the non-negative integer in a parameter.

    :raises BadRequest: it is not an integer, or below 0
    """
    number = integer(text, name)
    if number < 0:
        raise BadRequest(f"{name} must be 0 or more, not {number}")
    return number
