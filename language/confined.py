"""Confinement of expressions that run with their caller's privileges: field rules, function bodies.

They run with the privileges of the caller, not of the user that defined them. They may read only
their inputs and call functions: no SELECT, and nothing beyond a record link. Otherwise a definer
could have the next caller copy data that only this caller may read to a public place. Violations
visible in the text are rejected at definition. The others are rejected at run time by the
environment of the expression.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from language import tree
from language.fieldtypes import cut, parts_below
from language.names import children
from language.printing import print_expression
from protocol.errors import BadRequest
from protocol.paths import EACH, Path

Types = Mapping[Path, tree.FieldType]
"""Known types of the inputs, by their paths."""
Place = Callable[[tree.Expression], Path | None]
"""Maps a name or parameter to its path among the inputs; None if it is not an input."""


def unknown_variable(node: Any, known: frozenset[str]) -> tree.Parameter | None:
    """Return the first variable of an expression that is not in scope, or None."""
    if isinstance(node, tree.Parameter):
        return None if node.name in known else node
    if isinstance(node, tree.Closure):
        known = known.union(node.parameters)
    found = (unknown_variable(child, known) for child in children(node) if child is not None)
    return next(filter(None, found), None)


def check_reads_nothing(
    what: str, given: str, node: tree.Expression, place: Place, types: Types
) -> None:
    """Check that an expression does not read the store.

    :param what: name of the expression in the error message
    :param given: name of its inputs in the error message
    :raises BadRequest: it has a SELECT, or a path that continues beyond a record: a record literal,
        or an input that is a record by its type
    """
    found = _reads(node, place, types)
    if found is not None:
        raise BadRequest(f"{what} {found}: it may read only {given}")


def _reads(node: Any, place: Place, types: Types) -> str | None:
    """Describe how an expression reads the store; None if its text shows no such access."""
    if isinstance(node, tree.Subquery):
        return "has a SELECT"
    if isinstance(node, tree.Attribute | tree.Index | tree.Each) and _goes_on(node):
        held = path_of(node.of, place)
        known = [] if held is None else [types.get(held), types.get((*held, EACH))]
        if isinstance(node.of, tree.RecordLiteral) or any(map(holds_link, known)):
            return f"follows the record link {cut(print_expression(node.of))}"
    found = (_reads(child, place, types) for child in children(node) if child is not None)
    return next(filter(None, found), None)


def _goes_on(node: tree.Attribute | tree.Index | tree.Each) -> bool:
    """True if a step reads the record when applied to a link. Reading `id` needs no access."""
    return not (isinstance(node, tree.Attribute) and node.name == "id")


def path_of(node: Any, place: Place) -> Path | None:
    """Return the path among the inputs that an expression denotes, or None if it is not such a
    path."""
    if isinstance(node, tree.Collected):
        return path_of(node.of, place)
    if isinstance(node, tree.Attribute | tree.Index | tree.Each):
        above = path_of(node.of, place)
        if above is None:
            return None
        if isinstance(node, tree.Attribute):
            return (*above, node.name)
        return above  # an item has the path of its array
    return place(node)


def holds_link(node: tree.FieldType | None) -> bool:
    """True if a value of a type may be a record link or an array of them. None: the type is
    unknown."""
    if node is None:
        return False
    return isinstance(node, tree.RecordType) or any(map(holds_link, parts_below(node)))
