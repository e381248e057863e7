"""`string::…`. Positions and lengths count characters."""

from __future__ import annotations

from typing import Any

from language.env import Env
from language.functions.table import check_array, check_string, function, pieces, slices
from language.sizing import made
from protocol.errors import BadRequest, TypeRefused
from protocol.values import type_name


@function("string::len", "string", result="int")
def length(text: str) -> int:
    """Number of characters."""
    return len(text)


@function("string::lower", "string", result="string")
def lower(text: str) -> str:
    """Letters in lower case."""
    return text.lower()


@function("string::upper", "string", result="string", env=True)
def upper(env: Env, text: str) -> str:
    """Letters in upper case."""
    # A letter may become three, and none looks at the ones beside it.
    return "".join([part.upper() for part in pieces(text, env)])


@function("string::trim", "string", result="string")
def trim(text: str) -> str:
    """Without white space at both ends."""
    return text.strip()


@function("string::split", "string", "string", result="array")
def split(text: str, separator: str) -> list[str]:
    """The parts between separators."""
    if not separator:
        raise BadRequest("string::split takes a separator that is not empty")
    check_array(text.count(separator) + 1)
    return text.split(separator)


@function("string::join", "array", "string", result="string", env=True)
def join(env: Env, parts: list[Any], separator: str) -> str:
    """The strings of an array, with a separator between two."""
    size = 0
    for part in slices(parts, env):
        for one in part:
            if type(one) is not str:
                raise TypeRefused(f"string::join takes strings, not {type_name(one)}")
            size += len(one)
    check_string(size + len(separator) * (len(parts) - 1))
    return separator.join(parts)


@function("string::starts", "string", "string", result="bool")
def starts(text: str, part: str) -> bool:
    """Whether the text begins with the part."""
    return text.startswith(part)


@function("string::ends", "string", "string", result="bool")
def ends(text: str, part: str) -> bool:
    """Whether the text ends with the part."""
    return text.endswith(part)


@function("string::contains", "string", "string", result="bool")
def contains(text: str, part: str) -> bool:
    """Whether the part stands anywhere in the text."""
    return part in text


@function("string::replace", "string", "string", "string", result="string")
def replace(text: str, old: str, new: str) -> str:
    """Every occurrence of a part replaced."""
    if not old:
        raise BadRequest("string::replace takes a part that is not empty")
    if len(new) > len(old):
        size = len(text) + text.count(old) * (len(new) - len(old))
        check_string(size)
        made(size)
    return text.replace(old, new)


@function("string::slice", "string", "int", "int", result="string")
def slice_(text: str, start: int, end: int | None = None) -> str:
    """The characters from start up to end, not included; below zero counts from the end."""
    return text[start:end]
