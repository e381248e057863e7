"""Compiled rule of one field: its definition, checked and compiled once.

DEFAULT, VALUE and ASSERT run with the privileges of the user that writes a record. They can read
that record and call functions, but cannot read the store; see `language.confined`.

All VALUEs are computed at once, from the given record. No VALUE may read the result of another
(`check_values`), so they have no order and no cycles.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from language import tree
from language.compile import Compiled, Condition, compile_condition, compile_expression
from language.confined import Place, Types, check_reads_nothing, path_of, unknown_variable
from language.fieldtypes import ColumnFit, Fit, compile_column, compile_type, cut, is_option
from language.names import children, shape_of
from language.printing import print_expression
from language.rows import NO_FIELDS, WHOLE
from protocol.errors import BadRequest
from protocol.paths import EACH, Path, path_text


@dataclass(frozen=True, slots=True)
class Definition:
    """Definition of a field."""

    path: Path
    type: tree.FieldType
    default: tree.Expression | None = None
    value: tree.Expression | None = None
    assertion: tree.Expression | None = None
    readonly: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """A compiled field."""

    path: Path
    type: tree.FieldType
    fit: Fit
    fit_column: ColumnFit
    default: Compiled | None
    default_reads: bool
    """True if DEFAULT reads the record."""
    value: Compiled | None
    assertion: Condition | None
    assertion_text: str
    may_be_none: bool
    """True if ASSERT is skipped for an absent field, because its type is an option."""
    looks: bool
    """True if VALUE or ASSERT may read other fields of the record. Always true with a VALUE."""
    readonly: bool


def compile_rule(definition: Definition) -> Rule:
    """Compile a definition. The result depends on no other definition."""
    default, value, assertion = definition.default, definition.value, definition.assertion
    return Rule(
        path=definition.path,
        type=definition.type,
        fit=compile_type(definition.type),
        fit_column=compile_column(definition.type),
        default=None if default is None else compile_expression(default, WHOLE),
        default_reads=default is not None and shape_of(default) is not NO_FIELDS,
        value=None if value is None else compile_expression(value, WHOLE),
        assertion=None if assertion is None else compile_condition(assertion, WHOLE),
        assertion_text="" if assertion is None else cut(print_expression(assertion)),
        may_be_none=is_option(definition.type),
        looks=value is not None or _looks_beyond(definition),
        readonly=definition.readonly,
    )


def _looks_beyond(definition: Definition) -> bool:
    """True if ASSERT reads the record beyond its `id` and the top-level field that contains this
    field."""
    shape = shape_of(definition.assertion)
    return shape.whole or not {"id", definition.path[0]}.issuperset(shape.names)


def check_definition(definition: Definition) -> None:
    """Check the definition of one field.

    :raises BadRequest: the path is `id`, or both VALUE and READONLY are given; an expression names
        an unknown variable, contains a SELECT, or follows a record link visible in the text
    """
    if definition.path[0] == "id":
        raise BadRequest("a record's id is not a field: it can't be defined")
    if definition.readonly and definition.value is not None:
        raise BadRequest(
            f"{path_text(definition.path)} can't have VALUE, which computes it at each write, and"
            " be READONLY: DEFAULT computes it once"
        )
    row = frozenset({"this", "parent"})
    _check_variables("DEFAULT", definition.default, row)
    _check_variables("VALUE", definition.value, row | {"value"})
    _check_variables("ASSERT", definition.assertion, row | {"value"})
    check_links(definition, {definition.path: definition.type})


def check_links(definition: Definition, types: Types) -> None:
    """Check that the expressions of a field do not read the store.

    :raises BadRequest: an expression has a SELECT, or a path that continues beyond a record: a
        record literal, or a field that is a record by its type
    """
    path = definition.path
    expressions = (
        ("DEFAULT", definition.default),
        ("VALUE", definition.value),
        ("ASSERT", definition.assertion),
    )
    for word, expression in expressions:
        if expression is not None:
            what = f"{word} of {path_text(path)}"
            place = partial(_place, path)
            check_reads_nothing(what, "the record that is written", expression, place, types)


def check_values(definitions: Iterable[Definition]) -> None:
    """Check the VALUEs of a table against each other.

    :param definitions: definitions of all fields of the table
    :raises BadRequest: a field with VALUE is below another or reads another, or is below a READONLY
        field, which would change with it
    """
    known = list(definitions)
    computed = [each for each in known if each.value is not None]
    for one in computed:
        for other in known:
            if other.readonly and _is_within(one.path, other.path):
                raise BadRequest(
                    f"{path_text(one.path)} has VALUE, which computes it at each write, and is"
                    f" below {path_text(other.path)}, which is READONLY"
                )
        looked = list(_looked_at(one.value, partial(_place, one.path)))
        for other in computed:
            if other is one:
                continue
            if _is_within(one.path, other.path):
                raise BadRequest(
                    f"{path_text(one.path)} is below {path_text(other.path)}: both have VALUE"
                )
            if any(_meets(path, other.path) for path in looked):
                raise BadRequest(
                    f"VALUE of {path_text(one.path)} reads {path_text(other.path)}, which has VALUE"
                    " too: all are computed together, from the given values"
                )


def _looked_at(node: Any, place: Place) -> Iterator[Path]:
    """Yield the paths of the record's fields that an expression reads, each at full length."""
    path = path_of(node, place)
    if path is not None:
        yield path
        if isinstance(node, tree.Index):
            yield from _looked_at(node.index, place)
        return
    for child in children(node):
        if child is not None:
            yield from _looked_at(child, place)


def _is_within(below: Path, above: Path) -> bool:
    return len(below) > len(above) and below[: len(above)] == above


def _meets(looked: Path, computed: Path) -> bool:
    """True if a computed field and a path that is read overlap: one contains the other.

    Items of an array are not distinguished.
    """
    named = tuple(step for step in computed if step is not EACH)
    return all(one == other for one, other in zip(looked, named, strict=False))


def _place(path: Path, node: tree.Expression) -> Path | None:
    """Return the field path that a name or parameter denotes, or None if it is not of the record.

    :param path: the field that the expression belongs to
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
        raise BadRequest(f"unknown variable ${other.name} in {word}: it has {names}")
