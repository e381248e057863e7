"""Comparisons of a field in a condition, to be held against the field's declared type.

Every operator compares within one class of the order only. Between a field declared as a datetime
and a string that was meant for one, `<` and `=` are false of every record, and `!=` and NOT true: a
DELETE would remove all rows or none. Such comparisons are refused before the first record is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from language import tree
from language.names import children, mentions
from language.planner import is_fixed, path_of
from protocol.paths import Path

_TURNED: Final = {
    "<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!=", "IN": "CONTAINS",
    "NOT IN": "CONTAINS", "CONTAINS": "IN",
}  # fmt: skip
"""The operator that reads the same with its sides exchanged, apart from a NOT."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A field beside a value that is the same for all rows, or beside another field."""

    path: Path
    operator: str
    """As it reads with the field on the left; NOT IN is IN here."""
    value: tree.Expression | None
    other: Path | None
    """The other field; None where there is a value."""
    node: tree.Binary

    @property
    def is_negated(self) -> bool:
        """True if the comparison holds where the two sides are never equal."""
        return self.node.operator in ("!=", "NOT IN")


def comparisons(where: tree.Expression | None) -> tuple[Comparison, ...]:
    """All of them in a condition, however deep they stand; those of subqueries are theirs."""
    return () if where is None else tuple(_found(where, frozenset()))


def _found(node: Any, bound: frozenset[str]) -> Iterator[Comparison]:
    """:param bound: parameters that closures around the node give another value for each item"""
    if isinstance(node, tree.Subquery):
        return
    if isinstance(node, tree.Closure):
        bound = bound.union(node.parameters)
    if isinstance(node, tree.Binary) and node.operator in _TURNED and not mentions(node, bound):
        one = _comparison(node)
        if one is not None:
            yield one
    for child in children(node):
        yield from _found(child, bound)


def _comparison(node: tree.Binary) -> Comparison | None:
    left, right = path_of(node.left, with_this=True), path_of(node.right, with_this=True)
    operator: str = "IN" if node.operator == "NOT IN" else node.operator
    if left is not None and right is not None:
        return Comparison(left, operator, None, right, node)
    if left is not None and is_fixed(node.right):
        return Comparison(left, operator, node.right, None, node)
    if right is not None and is_fixed(node.left):
        return Comparison(right, _TURNED[operator], node.left, None, node)
    return None
