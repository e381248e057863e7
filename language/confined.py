"""Expressions that run for whoever comes by: those of fields, and the bodies of functions.

They run with the rights of their caller, not with those of who defined them. So they see what they
are given, and functions, and nothing else of the store: neither SELECT nor what lies beyond a
record link. A definer could otherwise have the next caller copy into the open what only that
caller may read. What shows in the words is refused where it is defined, here; the rest when it is
met, by the surroundings that they run in.
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
"""What is known of the values that are given, by their paths."""
Place = Callable[[tree.Expression], Path | None]
"""The path under which a name or a parameter is among them; None: it is none of them."""


def unknown_variable(node: Any, known: frozenset[str]) -> tree.Parameter | None:
    """The first variable in an expression that it does not have; None: it has them all."""
    if isinstance(node, tree.Parameter):
        return None if node.name in known else node
    if isinstance(node, tree.Closure):
        known = known.union(node.parameters)
    found = (unknown_variable(child, known) for child in children(node) if child is not None)
    return next(filter(None, found), None)


def check_reads_nothing(
    what: str, given: str, node: tree.Expression, place: Place, types: Types
) -> None:
    """:param what: the expression, in a message
    :param given: what it sees, in a message
    :raises BadRequest: it has a SELECT, or a path that goes on beyond a record: one that stands
        there, or what is given by its type
    """
    found = _reads(node, place, types)
    if found is not None:
        raise BadRequest(f"{what} {found}: it may look at {given}, at nothing else of the store")


def _reads(node: Any, place: Place, types: Types) -> str | None:
    """How an expression reads the store; None: it does not, as far as its words show."""
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
    """Whether a step reads a record if it comes upon one: its `id` is known without."""
    return not (isinstance(node, tree.Attribute) and node.name == "id")


def path_of(node: Any, place: Place) -> Path | None:
    """The path of what an expression leads to, among what is given; None: it is no such path."""
    if isinstance(node, tree.Collected):
        return path_of(node.of, place)
    if isinstance(node, tree.Attribute | tree.Index | tree.Each):
        above = path_of(node.of, place)
        if above is None:
            return None
        if isinstance(node, tree.Attribute):
            return (*above, node.name)
        return above  # an item is told by its array
    return place(node)


def holds_link(node: tree.FieldType | None) -> bool:
    """Whether a value of a type may be a record, or an array of them. None: nothing is known."""
    if node is None:
        return False
    return isinstance(node, tree.RecordType) or any(map(holds_link, parts_below(node)))
