"""One field of a table: its definition, checked and compiled once.

DEFAULT and ASSERT run with the rights of whoever writes a record: they see that record and
functions, and nothing else of the store; see `language.confined`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from language import tree
from language.compile import Compiled, Condition, compile_condition, compile_expression
from language.confined import Types, check_reads_nothing, unknown_variable
from language.fieldtypes import Fit, compile_type, cut, is_option
from language.names import shape_of
from language.printing import print_expression
from language.rows import NO_FIELDS, WHOLE
from protocol.errors import BadRequest
from protocol.paths import Path, path_text


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


def check_links(definition: Definition, types: Types) -> None:
    """:raises BadRequest: DEFAULT or ASSERT has a SELECT, or a path that goes on beyond a record:
    one that stands there, or what a field holds by its type"""
    path = definition.path
    for word, expression in (("DEFAULT", definition.default), ("ASSERT", definition.assertion)):
        if expression is not None:
            what = f"{word} of {path_text(path)}"
            place = partial(_place, path)
            check_reads_nothing(what, "the record that is written", expression, place, types)


def _place(path: Path, node: tree.Expression) -> Path | None:
    """The path of the field that a name or a parameter is; None where it is none of the record's.

    :param path: of the field whose expression it is
    """
    if isinstance(node, tree.Name):
        return (node.name,)
    if isinstance(node, tree.Parameter) and node.name == "value":
        return path
    if isinstance(node, tree.Parameter) and node.name == "this":
        return ()
    return None


def _check_variables(word: str, expression: tree.Expression | None, known: frozenset[str]) -> None:
    other = unknown_variable(expression, known)
    if other is not None:
        names = " and ".join(f"${name}" for name in sorted(known - {"parent"}, reverse=True))
        raise BadRequest(f"{word} knows {names}, not ${other.name}")
