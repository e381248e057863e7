"""Work on long texts and arrays in pieces, with a tick between two.

A single interpreter call on megabytes would block the event loop until it ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final, TypeVar

from language.env import Env
from protocol import limits
from protocol.values import PACE, Tick

Item = TypeVar("Item")

PIECE: Final = 16 * limits.KIB
"""Number of characters, bytes or items processed or copied at once."""
SLICE: Final = PACE
"""Number of array items that a function processes at once."""


def cost_of(size: int) -> int:
    """Return the cost of processing a number of characters or bytes, in units of `Env.tick`."""
    return size >> 4


def pieces(text: Any, tick: Tick) -> Iterator[Any]:
    """Yield a text in pieces, with a tick before each but the first."""
    for start in range(0, len(text), PIECE):
        if start:
            tick()
        yield text[start : start + PIECE]


def slices(items: Iterable[Item], env: Env, most: int = SLICE) -> Iterator[list[Item]]:
    """Yield items in lists of at most `most`, with a tick between two."""
    each = iter(items)
    part = list(islice(each, most))
    while part:
        yield part
        part = list(islice(each, most))
        if part:
            env.tick()


def cut(items: list[Any], env: Env, start: int | None = None, end: int | None = None) -> list[Any]:
    """Return a slice of an array."""
    if len(items) <= PIECE:
        return items[start:end]
    first, last, _ = slice(start, end).indices(len(items))
    found: list[Any] = []
    for at in range(first, last, PIECE):
        env.tick()
        found += items[at : min(at + PIECE, last)]
    return found


def joined(left: list[Any], right: list[Any], env: Env) -> list[Any]:
    """Concatenate two arrays."""
    found = cut(left, env)
    for at in range(0, len(right), PIECE):
        if at:
            env.tick()
        found += right[at : at + PIECE] if len(right) > PIECE else right
    return found


def find(text: str, part: str, env: Env, at: int = 0) -> int:
    """Return the position of the first occurrence at or after `at`; -1 if there is none."""
    if len(text) - at <= PIECE:
        return text.find(part, at)
    probe = part[:PIECE]
    last = len(text) - len(part)
    while at <= last:
        env.tick()
        found = text.find(probe, at, min(at + PIECE, last + 1) + len(probe) - 1)
        if found < 0:
            at += PIECE
        elif len(probe) == len(part) or text.startswith(part, found):
            return found
        else:
            at = found + 1
    return -1


def parts(text: str, separator: str, env: Env) -> Iterator[list[str]]:
    """Yield the parts between separators, in lists."""
    if len(text) <= PIECE:
        yield text.split(separator)
        return
    begin = at = 0
    last = len(text) - len(separator)
    if len(separator) > PIECE:
        while (at := find(text, separator, env, begin)) >= 0:
            yield [text[begin:at]]
            begin = at + len(separator)
        at = last + 1
    while at <= last:
        env.tick()
        # Finds separators that start in this piece; the remainder is searched with the next piece.
        window = text[at : at + PIECE + len(separator) - 1]
        end = at + len(window)
        found = window.split(separator)
        if len(found) > 1:
            found[0] = text[begin : at + len(found[0])]
            begin = end - len(found.pop())
            yield found
        at = max(begin, end - len(separator) + 1)
    yield [text[begin:]]
