"""Paths of fields: the steps from a record to a value inside it.

A step is the name of a field, a position in an array, or `EACH`: every item of an array or object.
A field may have any name, even `*`, so `EACH` is not a string. Code that compared steps with a text
would confuse the two, and write every key instead of one.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any, Final

from protocol.text import quote_name


class EachItem(Enum):
    """The type of `EACH`, its only member."""

    EACH = "[*]"

    def __repr__(self) -> str:
        return "EACH"


EACH: Final = EachItem.EACH
"""The step `[*]`: the rest of the path applies to every item."""

Step = str | int | EachItem
Path = tuple[Step, ...]
"""`a.b[0][*]` is `("a", "b", 0, EACH)`, and ``a.`*` `` is `("a", "*")`."""


def path_text(path: Iterable[Step], keywords: frozenset[str] = frozenset()) -> str:
    """Return a path as written in a script.

    :param keywords: upper-case words that need back-quotes too; see `quote_name`
    """
    text = ""
    for step in path:
        if step is EACH:
            text += "[*]"
        elif isinstance(step, int):
            text += f"[{step}]"
        else:
            text += ("." if text else "") + quote_name(step, keywords)
    return text


_STORED_EACH: Final = "*"


def stored_path(path: Path) -> list[Any]:
    """Return a path as declarations store it: `*` for `EACH`, and a one-item array for the name
    `*`."""
    return [
        _STORED_EACH if step is EACH else [step] if step == _STORED_EACH else step for step in path
    ]


def read_path(stored: Iterable[Any]) -> Path:
    """Return the path that `stored_path` encoded."""
    return tuple(
        EACH if step == _STORED_EACH else step[0] if type(step) is list else step for step in stored
    )
