"""Expressions with one value for all rows, and subqueries with one result for a whole statement."""

from __future__ import annotations

from typing import Any, Final

from language import tree
from language.names import AGGREGATES, DEFINED, children, mentions, parent_fields

_BOUND_ROW_BY_ROW: Final = frozenset({"input"})
"""Variables that ON DUPLICATE UPDATE binds for each row."""


def is_fixed(node: Any) -> bool:
    """True if an expression has the same value for every row."""
    if isinstance(node, tree.Name):
        return False
    if isinstance(node, tree.Parameter):
        return node.name != "this"
    if isinstance(node, tree.Subquery):
        return parent_fields(node.select) == frozenset() and not _draws(node)
    if isinstance(node, tree.Call) and (_draws(node) or node.name in AGGREGATES):
        return False
    return (
        all(map(is_fixed, children(node)))
        if hasattr(node, "__dataclass_fields__")
        else (all(map(is_fixed, node)) if isinstance(node, tuple) else True)
    )


def _draws(node: Any) -> bool:
    """True if an expression is or may be random. User-defined functions count: their body is not
    known before the call."""
    if isinstance(node, tree.Call) and node.name.startswith(("rand::", DEFINED)):
        return True
    return any(map(_draws, children(node)))


def is_steady(select: tree.Select) -> bool:
    """True if a SELECT gives the same result anywhere in a statement.

    It reads neither the enclosing row nor a variable bound again for each row.
    """
    return parent_fields(select) == frozenset() and not mentions(select, _BOUND_ROW_BY_ROW)
