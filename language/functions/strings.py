"""`string::…` functions. Positions and lengths count characters."""

from __future__ import annotations

from typing import Any, Final

from language.env import Env
from language.functions.table import check_array, check_string, function
from language.pieces import PIECE, find, parts, pieces, slices
from language.sizing import made
from protocol.errors import BadRequest, TypeRefused
from protocol.values import type_name


@function("string::len", "string", result="int")
def length(text: str) -> int:
    """Number of characters."""
    return len(text)


@function("string::lower", "string", result="string", env=True)
def lower(env: Env, text: str) -> str:
    """Text in lower case."""
    if len(text) <= PIECE:
        return text.lower()
    found, end, before = [], 0, ""
    for piece in pieces(text, env.tick):
        end += len(piece)
        # A sigma at the end of a word has another lower case: each piece needs its context.
        after = text[end : end + _AROUND]
        around = (before + piece + after).lower()
        found.append(around[len(before.lower()) : len(around) - len(after.lower())])
        before = piece[-_AROUND:]
    return "".join(found)


_AROUND: Final = 64
"""Characters of context around a piece. They decide whether a sigma at its end is the last letter
of a word."""


@function("string::upper", "string", result="string", env=True)
def upper(env: Env, text: str) -> str:
    """Text in upper case."""
    if len(text) <= PIECE:
        return text.upper()
    # A letter may become three, but its upper case does not depend on its neighbours.
    return "".join([part.upper() for part in pieces(text, env.tick)])


@function("string::trim", "string", result="string", env=True)
def trim(env: Env, text: str) -> str:
    """Text without white space at both ends."""
    if len(text) <= PIECE:
        return text.strip()
    start, end = 0, len(text)
    for piece in pieces(text, env.tick):
        start += len(piece) - len(piece.lstrip())
        if not piece.isspace():
            break
    while end > start:
        piece = text[max(start, end - PIECE) : end]
        end -= len(piece) - len(piece.rstrip())
        if not piece.isspace():
            break
        env.tick()
    return text[start:end]


@function("string::split", "string", "string", result="array", env=True)
def split(env: Env, text: str, separator: str) -> list[str]:
    """Parts of the text between separators."""
    if not separator:
        raise BadRequest("string::split takes a separator that is not empty")
    found: list[str] = []
    for some in parts(text, separator, env):
        found += some
        check_array(len(found))
    return found


@function("string::join", "array", "string", result="string", env=True)
def join(env: Env, parts: list[Any], separator: str) -> str:
    """Strings of an array, joined with a separator."""
    size = 0
    for part in slices(parts, env):
        for one in part:
            if type(one) is not str:
                raise TypeRefused(f"string::join takes strings, not {type_name(one)}")
            size += len(one)
    check_string(size + len(separator) * (len(parts) - 1))
    return separator.join([separator.join(part) for part in slices(parts, env)])


@function("string::starts", "string", "string", result="bool")
def starts(text: str, part: str) -> bool:
    """True if the text starts with the part."""
    return text.startswith(part)


@function("string::ends", "string", "string", result="bool")
def ends(text: str, part: str) -> bool:
    """True if the text ends with the part."""
    return text.endswith(part)


@function("string::contains", "string", "string", result="bool", env=True)
def contains(env: Env, text: str, part: str) -> bool:
    """True if the text contains the part."""
    return find(text, part, env) >= 0


@function("string::replace", "string", "string", "string", result="string", env=True)
def replace(env: Env, text: str, old: str, new: str) -> str:
    """Text with every occurrence of a part replaced."""
    if not old:
        raise BadRequest("string::replace takes a part that is not empty")
    if len(text) <= PIECE:
        if len(new) > len(old):
            size = len(text) + text.count(old) * (len(new) - len(old))
            check_string(size)
            made(size)
        return text.replace(old, new)
    found, size = [], -len(new)
    for some in parts(text, old, env):
        size += sum(map(len, some)) + len(some) * len(new)
        check_string(size)
        found.append(new.join(some))
    made(size)
    return new.join(found)


@function("string::slice", "string", "int", "int", result="string")
def slice_(text: str, start: int, end: int | None = None) -> str:
    """Characters from start up to end, exclusive; negative positions count from the end."""
    return text[start:end]
