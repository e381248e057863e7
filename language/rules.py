"""One field of a table: its definition, checked and compiled once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from language import tree
from language.compile import Compiled, Condition, compile_condition, compile_expression
from language.fieldtypes import Fit, compile_type, cut, is_option
from language.names import children, shape_of
from language.printing import print_expression
from language.rows import NO_FIELDS, WHOLE
from protocol.errors import BadRequest
from protocol.paths import Path


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
    """:raises BadRequest: the path is `id`, or an expression names a variable it can't have"""
    if definition.path[0] == "id":
        raise BadRequest("a record's id is no field: it can't be defined")
    _check_variables("DEFAULT", definition.default, frozenset({"this", "parent"}))
    _check_variables("ASSERT", definition.assertion, frozenset({"value", "this", "parent"}))


def _check_variables(word: str, node: Any, known: frozenset[str]) -> None:
    if isinstance(node, tree.Parameter) and node.name not in known:
        names = " and ".join(f"${name}" for name in sorted(known - {"parent"}, reverse=True))
        raise BadRequest(f"{word} knows {names}, not ${node.name}")
    for child in children(node) if node is not None else ():
        if child is not None:
            _check_variables(word, child, known)
