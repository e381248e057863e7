"""One field of a table: its definition, checked and compiled once.

DEFAULT and ASSERT run with the rights of whoever writes a record, not with those of who defined
them. So they see the record that is written and functions, and nothing else of the store: neither
SELECT nor what lies beyond a record link. A definer could otherwise have the next writer copy into
the table what only that writer may read. What shows in the words is refused where it is defined
(`check_definition`, `check_links`), the rest when it is met: see `FieldEnv`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from language import tree
from language.compile import Compiled, Condition, compile_condition, compile_expression
from language.fieldtypes import Fit, compile_type, cut, is_option, parts_below
from language.names import children, shape_of
from language.printing import print_expression
from language.rows import NO_FIELDS, WHOLE
from protocol.errors import BadRequest
from protocol.paths import EACH, Path, path_text


@dataclass(frozen=True, slots=True)
class Definition:
    """A field as it was defined."""

    path: Path
    type: tree.FieldType
    default: tree.Expression | None = None
    assertion: tree.Expression | None = None
    readonly: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """A field, compiled."""

    path: Path
    type: tree.FieldType
    fit: Fit
    default: Compiled | None
    default_reads: bool
    """Whether DEFAULT looks at the record."""
    assertion: Condition | None
    assertion_text: str
    may_be_none: bool
    """Whether ASSERT has nothing to say of an absent field: its type is an option."""
    readonly: bool


def compile_rule(definition: Definition) -> Rule:
    """A definition, compiled. It depends on no other."""
    default, assertion = definition.default, definition.assertion
    return Rule(
        path=definition.path,
        type=definition.type,
        fit=compile_type(definition.type),
        default=None if default is None else compile_expression(default, WHOLE),
        default_reads=default is not None and shape_of(default) is not NO_FIELDS,
        assertion=None if assertion is None else compile_condition(assertion, WHOLE),
        assertion_text="" if assertion is None else cut(print_expression(assertion)),
        may_be_none=is_option(definition.type),
        readonly=definition.readonly,
    )


def check_definition(definition: Definition) -> None:
    """:raises BadRequest: the path is `id`, or an expression names a variable it can't have, holds
    a SELECT, or follows a record that stands in it"""
    if definition.path[0] == "id":
        raise BadRequest("a record's id is no field: it can't be defined")
    _check_variables("DEFAULT", definition.default, frozenset({"this", "parent"}))
    _check_variables("ASSERT", definition.assertion, frozenset({"value", "this", "parent"}))
    check_links(definition, {definition.path: definition.type})


Types = Mapping[Path, tree.FieldType]
"""The fields that a table defines."""


def check_links(definition: Definition, types: Types) -> None:
    """:raises BadRequest: DEFAULT or ASSERT has a SELECT, or a path that goes on beyond a record:
    one that stands there, or what a field holds by its type"""
    for word, expression in (("DEFAULT", definition.default), ("ASSERT", definition.assertion)):
        if expression is not None:
            _check_links(word, expression, definition.path, types)


def _check_links(word: str, node: Any, path: Path, types: Types) -> None:
    if isinstance(node, tree.Subquery):
        raise _reads(word, path, "has a SELECT")
    if isinstance(node, tree.Attribute | tree.Index | tree.Each) and _goes_on(node):
        held = _place(node.of, path)
        known = [] if held is None else [types.get(held), types.get((*held, EACH))]
        if isinstance(node.of, tree.RecordLiteral) or any(map(holds_link, known)):
            raise _reads(word, path, f"follows the record link {cut(print_expression(node.of))}")
    for child in children(node):
        if child is not None:
            _check_links(word, child, path, types)


def _goes_on(node: tree.Attribute | tree.Index | tree.Each) -> bool:
    """Whether a step reads a record if it comes upon one: its `id` is known without."""
    return not (isinstance(node, tree.Attribute) and node.name == "id")


def _place(node: Any, path: Path) -> Path | None:
    """The path of the field that an expression is; None where it is none of the record's."""
    if isinstance(node, tree.Name):
        return (node.name,)
    if isinstance(node, tree.Parameter) and node.name == "value":
        return path
    if isinstance(node, tree.Parameter) and node.name == "this":
        return ()
    if isinstance(node, tree.Attribute | tree.Index | tree.Each):
        above = _place(node.of, path)
        if above is None:
            return None
        if isinstance(node, tree.Attribute):
            return (*above, node.name)
        return above  # an item is told by its array
    return None


def holds_link(node: tree.FieldType | None) -> bool:
    """Whether a value of a type may be a record, or an array of them. None: nothing is known."""
    if node is None:
        return False
    return isinstance(node, tree.RecordType) or any(map(holds_link, parts_below(node)))


def _reads(word: str, path: Path, what: str) -> BadRequest:
    return BadRequest(
        f"{word} of {path_text(path)} {what}: it may look at the record that is written, at"
        " nothing else of the store"
    )


def _check_variables(word: str, node: Any, known: frozenset[str]) -> None:
    if isinstance(node, tree.Parameter) and node.name not in known:
        names = " and ".join(f"${name}" for name in sorted(known - {"parent"}, reverse=True))
        raise BadRequest(f"{word} knows {names}, not ${node.name}")
    if isinstance(node, tree.Closure):
        known = known.union(node.parameters)
    for child in children(node) if node is not None else ():
        if child is not None:
            _check_variables(word, child, known)
