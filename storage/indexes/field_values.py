"""Values of indexed fields: paths evaluated on a record alone."""

from __future__ import annotations

from typing import Any

from protocol import limits
from protocol.errors import TooLarge
from protocol.paths import EACH, Path
from protocol.values import NONE, RecordId


class Linked(Exception):
    """A path leads over a record link."""


def _check_count(parts: int) -> None:
    if parts > limits.INDEX_ELEMENTS:
        raise too_many()


def too_many() -> TooLarge:
    """Return the refusal of a value with too many parts."""
    return TooLarge(
        f"a value has at most {limits.INDEX_ELEMENTS} parts where a field is indexed",
        limit=limits.INDEX_ELEMENTS,
    )


def value_at(value: Any, path: Path) -> Any:
    """Evaluate a path as the language does, but return NONE if that would be refused.

    :raises TooLarge: an array on the way has too many items
    :raises Linked: an expression would read another record on the way
    """
    for at, step in enumerate(path):
        kind = type(value)
        # The linked record may change in a commit that does not touch this one.
        if kind is RecordId and type(step) is not int:
            if step != "id":
                raise Linked
        elif step is EACH:
            if kind is not list and kind is not dict:
                return NONE
            value = list(value.values()) if kind is dict else value
            if at + 1 < len(path):
                return _of_every(value, path[at + 1 :])
        elif type(step) is str:
            # As in the language: a name on an array applies to each item.
            if kind is list:
                return _of_every(value, path[at:])
            value = value.get(step, NONE) if kind is dict else NONE
        elif kind is list:
            assert type(step) is int
            value = value[step] if -len(value) <= step < len(value) else NONE
        else:
            value = NONE
    return value


def _of_every(items: list[Any], path: Path) -> list[Any]:
    _check_count(len(items))
    return [value_at(item, path) for item in items]
