"""NEAREST in a SELECT: the condition that ranks rows by the distance of a vector.

It is no predicate of one row: which rows it keeps depends on the others. So it stands once in
WHERE, joined by AND, and the source of the rows answers it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial, reduce
from typing import Any, Final, NamedTuple

from language import tree
from language.error_places import placed
from language.field_paths import path_of
from language.fixed import is_fixed
from language.names import DISTANCE, ONCE, subtree
from language.parsing.operators import operands_of
from protocol.errors import BadRequest
from protocol.paths import Path


class Nearest(NamedTuple):
    """NEAREST of a statement."""

    path: Path
    node: tree.Nearest


def split_nearest(select: tree.Select) -> tuple[Nearest | None, tree.Select]:
    """Return NEAREST of a SELECT, and the SELECT without it.

    :raises BadRequest: it stands where it has no meaning, or `vector::distance()` does
    """
    conditions = [] if select.where is None else list(operands_of(select.where, "AND"))
    found = [one for one in conditions if isinstance(one, tree.Nearest)]
    rest = [one for one in conditions if not isinstance(one, tree.Nearest)]
    parts = (select.columns, select.order, select.group, select.having, *rest)
    for other in (*found[1:], *_nearest_in(parts)):
        raise placed(BadRequest(ONCE), other.at)
    calls = _distances((select.columns, select.order, select.group, select.having))
    for call in (*_distances(rest), *(() if found else calls)):
        raise placed(BadRequest(f"{DISTANCE} is about the rows that NEAREST has found"), call.at)
    if not found:
        return None, select
    (node,) = found
    path = path_of(node.of)
    if path is None:
        raise placed(BadRequest("NEAREST takes a field: emb NEAREST 10 TO $vector"), node.at)
    for part in (node.count, node.to, node.probes):
        if part is not None and not is_fixed(part):
            raise placed(BadRequest("the operands of NEAREST can't depend on the row"), node.at)
    if len(select.sources) != 1 or isinstance(select.sources[0], tree.ExpressionTarget):
        raise placed(BadRequest(ONCE), node.at)
    where = reduce(partial(tree.Binary, "AND"), rest) if rest else None
    return Nearest(path, node), replace(select, where=where)


def _nearest_in(node: Any) -> Iterator[tree.Nearest]:
    return (one for one in subtree(node) if isinstance(one, tree.Nearest))


def _distances(node: Any) -> Iterator[tree.Call]:
    parts = subtree(tuple(node))
    return (one for one in parts if isinstance(one, tree.Call) and one.name == DISTANCE)


class ByDistance(NamedTuple):
    """ORDER BY a function of a field and a fixed vector, the nearest first."""

    path: Path
    distance: str
    """Distance of a VECTOR index that has the same order."""
    to: tree.Expression


_ORDERS: Final = {
    "vector::cosine": ("COSINE", True), "vector::euclidean": ("EUCLIDEAN", False),
    "vector::dot": ("DOT", True),
}  # fmt: skip
"""Functions with the distance of their order, and True if the largest value is nearest."""


def by_distance(
    orders: tuple[tree.Expression, ...], descending: tuple[bool, ...]
) -> ByDistance | None:
    """Return the distance that ORDER BY is about; None: it is about something else."""
    if len(orders) != 1 or not isinstance(orders[0], tree.Call) or orders[0].name not in _ORDERS:
        return None
    distance, down = _ORDERS[orders[0].name]
    if descending != (down,) or len(orders[0].arguments) != 2:
        return None
    for one, other in (orders[0].arguments, orders[0].arguments[::-1]):
        path = path_of(one)
        if path is not None and is_fixed(other):
            return ByDistance(path, distance, other)
    return None
