"""Comparisons of a field in a condition, checked against the field's declared type.

Every operator compares within one class of the value order only. Between a field declared as a
datetime and a string written as one, `<` and `=` are false for every record. `!=` and NOT are true
for every record, so that a DELETE would remove all rows or none. Such comparisons are rejected
before the first record is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from language import tree
from language.field_paths import path_of
from language.fixed import is_fixed
from language.names import children, mentions
from protocol.paths import Path

_TURNED: Final = {
    "<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!=", "IN": "CONTAINS",
    "NOT IN": "CONTAINS", "CONTAINS": "IN",
}  # fmt: skip
"""The operator with the same meaning when its operands are swapped, apart from a NOT."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A field compared with a value that is the same for all rows, or with another field."""

    path: Path
    operator: str
    """The operator with the field on the left; NOT IN is reported as IN."""
    value: tree.Expression | None
    other: Path | None
    """The other field; None if the field is compared with a value."""
    node: tree.Binary

    @property
    def is_negated(self) -> bool:
        """True if the comparison holds where the two sides are never equal."""
        return self.node.operator in ("!=", "NOT IN")


def comparisons(where: tree.Expression | None) -> tuple[Comparison, ...]:
    """Return all comparisons of a condition at any depth, without those of subqueries."""
    return () if where is None else tuple(_found(where, frozenset()))


def _found(node: Any, bound: frozenset[str]) -> Iterator[Comparison]:
    """:param bound: parameters of enclosing closures, which change with each item"""
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
