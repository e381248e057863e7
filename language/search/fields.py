"""Fields of `@@`: `body @@ q` and `[title, body] @@ q`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from language import tree
from language.env import Env
from language.field_paths import path_of
from language.names import children
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
    if isinstance(node, tree.Binary) and node.operator == "@@":
        yield matched_paths(node.left)
    elif not isinstance(node, tree.Subquery):
        for child in children(node):
            if child is not None:
                yield from matched(child)


def has_match(select: tree.Select) -> bool:
    """True if a SELECT has `@@`, apart from its subqueries."""
    parts = (select.where, select.columns, select.order, select.group, select.having)
    return any(next(matched(part), None) is not None for part in parts if part is not None)


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
