"""Paths of fields: from a record to what lies in it, step by step.

A step is the name of a field, a position in an array, or `EACH`: every item of an array or object.
A field may have any name, `*` among them, so `EACH` is no string: whoever compares a step with a
text would take the one for the other, and write every key where one was meant.
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
"""The step `[*]`: the rest of the path is meant of every item."""

Step = str | int | EachItem
Path = tuple[Step, ...]
"""`a.b[0][*]` is `("a", "b", 0, EACH)`, and ``a.`*` `` is `("a", "*")`."""


def path_text(path: Iterable[Step], keywords: frozenset[str] = frozenset()) -> str:
    """A path as a script writes it.

    :param keywords: upper-case words that stand in back-quotes too; see `quote_name`
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
    """A path as declarations keep it: `*` is `EACH`, and an array of one the name `*`."""
    return [
        _STORED_EACH if step is EACH else [step] if step == _STORED_EACH else step for step in path
    ]


def read_path(stored: Iterable[Any]) -> Path:
    """The path that `stored_path` was given."""
    return tuple(
        EACH if step == _STORED_EACH else step[0] if type(step) is list else step for step in stored
    )
