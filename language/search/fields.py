"""Fields of `@@`: `body @@ q` and `[title, body] @@ q`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from language import tree
from language.env import Env
from language.error_places import placed
from language.field_paths import path_of
from language.names import subtree
from language.printing.expressions import print_path
from protocol.errors import BadRequest
from protocol.paths import Path
from protocol.values import PACE, RecordId


def matched_paths(node: tree.Expression) -> tuple[Path, ...]:
    """Return the fields of the left side of `@@`. :raises BadRequest: it is something else"""
    nodes = node.items if isinstance(node, tree.Array) else (node,)
    paths = [path_of(one) for one in nodes]
    if not paths or None in paths:
        raise BadRequest("`@@` takes a field on its left, or an array of fields: body @@ 'tin'")
    return tuple(path for path in paths if path is not None)


def matched(node: Any) -> Iterator[tuple[Path, ...]]:
    """Yield the fields of each `@@` in an expression, not in its subqueries."""
    for part in subtree(node):
        if isinstance(part, tree.Binary) and part.operator == "@@":
            yield matched_paths(part.left)


ON_MATCHES: Final = frozenset(
    {"search::score", "search::highlight", "search::snippet", "search::offsets"}
)
"""Functions of a row that the `@@` of WHERE has found; all but the first take a field."""


def positive_matches(where: tree.Expression | None) -> tuple[tree.Binary, ...]:
    """Return the `@@` of a condition that may be the reason why it holds: not those behind NOT."""
    if not isinstance(where, tree.Binary):
        return ()
    if where.operator == "@@":
        return (where,)
    if where.operator in ("AND", "OR"):
        return (*positive_matches(where.left), *positive_matches(where.right))
    return ()


def field_of(call: tree.Call) -> Path | None:
    """Return the field that a function of matches is about; None: all. :raises BadRequest:"""
    if not call.arguments:
        return None
    path = path_of(call.arguments[0])
    if path is None:
        raise BadRequest(f"{call.name} takes a field of `@@`: {call.name}(body)")
    return path


def check_calls(parts: Any, where: tree.Expression | None) -> tuple[tree.Binary, ...]:
    """Check the calls of `ON_MATCHES` in the parts of a SELECT. Return the `@@` that they are
    about, if there are any.

    :raises BadRequest: WHERE has no `@@`, or none over the field
    """
    calls = [one for one in subtree(parts) if isinstance(one, tree.Call) and one.name in ON_MATCHES]
    if not calls:
        return ()
    nodes = positive_matches(where)
    known = {path for node in nodes for path in matched_paths(node.left)}
    for call in calls:
        path = field_of(call)
        if not nodes:
            raise placed(BadRequest(f"{call.name} needs `@@` in WHERE"), call.at)
        if path is not None and path not in known:
            raise placed(
                BadRequest(f"no `@@` of WHERE is over {print_path(path)}, as {call.name} needs"),
                call.at,
            )
    return nodes


def has_match(select: tree.Select) -> bool:
    """True if a SELECT has `@@`, apart from its subqueries."""
    parts = (select.where, select.columns, select.order, select.group, select.having)
    return any(next(matched(part), None) is not None for part in parts if part is not None)


class TextOf(NamedTuple):
    """A field of a row, with its value."""

    path: Path
    value: Any


class Unlinked:
    """Environment of the paths of `@@`: a record link leads nowhere."""

    __slots__ = ("_env",)

    def __init__(self, env: Env) -> None:
        self._env = env

    def record(self, record: RecordId) -> dict[str, Any] | None:
        """Return None: the linked record is not read."""
        return None

    def tick(self, cost: int = PACE) -> None:
        """Charge for work."""
        self._env.tick(cost)
