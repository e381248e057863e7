"""Type check of WHERE: refuses comparisons that are false for every record, before any is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from actors.scripts.execution import Execution
from actors.scripts.schema import schema_of
from language import tree
from language.comparisons import Comparison
from language.error_places import placed
from language.fieldtypes import (
    classes,
    cut,
    item_classes,
    may_be_absent,
    may_be_alike,
    may_contain,
    may_equal,
    parts_of,
    shown,
)
from language.operators import check_bounds
from language.printing import print_expression, print_type
from language.schema import Schema
from language.select import SelectPlan
from protocol.errors import Refusal, TypeRefused
from protocol.paths import Path, path_text
from protocol.values import NONE, RecordId, Tick, Value, paced, rank, type_name
from storage.catalog.tables import Table

# Keyed by `rank` of a value.
_WORDS = {
    2: "bool",
    3: "number",
    4: "string",
    6: "duration",
    7: "datetime",
    8: "uuid",
    11: "record",
}
_ANY = tree.PlainType("any")
_BY_EQUALITY = frozenset({"=", "!=", "IN", "CONTAINS"})
_LITERALS = {
    "datetime": "d'…' is a datetime; type::datetime(x) converts a string",
    "duration": "1h30m is a duration; type::duration(x) converts a string",
    "decimal": "12.50dec is a decimal; type::decimal(x) converts a string",
    "float": "1.5 is a float; type::float(x) converts a string",
    "int": "12 is an int; type::int(x) converts a string",
    "number": "12 is a number; type::int(x) and type::decimal(x) convert a string",
    "bool": "true is a bool",
    "uuid": "u'…' is a uuid",
}
"""Literal of each type, as a hint for a query with a string."""


def check_comparisons(run: Execution, plan: SelectPlan, table: Table) -> None:
    """Refuse a comparison in WHERE that is false for every record.

    :raises TypeRefused: there is one
    """
    if plan.comparisons:
        schema = schema_of(run, table)
        check_against(schema, plan.comparisons, table, run.evaluate, run.tick)


def check_against(
    schema: Schema,
    comparisons: Iterable[Comparison],
    table: Table,
    evaluate: Callable[[Any], Value],
    tick: Tick,
) -> None:
    """Refuse a comparison that is false for every record of the table: its field's type never has
    the class of the other operand.

    :param evaluate: computes an expression that has one value for all records
    :raises TypeRefused: there is one
    """
    for comparison in comparisons:
        tick()
        _check(comparison, table, schema, evaluate, tick)


def _check(
    one: Comparison, table: Table, schema: Schema, evaluate: Callable[[Any], Value], tick: Tick
) -> None:
    kind = _type_at(one.path, table, schema)
    if kind is None:
        return
    if one.other is None:
        met = _met(one, kind, evaluate, tick)
    else:
        other = _type_at(one.other, table, schema)
        met = None if other is None else _met_field(one, kind, other)
    if met is not None:
        raise _refused(one, table, kind, met)


def _met_field(
    one: Comparison, kind: tree.FieldType, other: tree.FieldType
) -> tuple[frozenset[int], str] | None:
    """Like `_met`, for another field instead of a value."""
    mine = (item_classes if one.operator == "CONTAINS" else classes)(kind)
    theirs = (item_classes if one.operator == "IN" else classes)(other)
    # No known classes: such a type may meet any other.
    if mine is None or theirs is None:
        return None
    meets = not mine.isdisjoint(theirs)
    if one.operator in ("=", "!="):
        meets = meets and may_be_alike(kind, other)
    # Two fields that may both be absent meet in NONE.
    if meets or (one.operator in _BY_EQUALITY and may_be_absent(kind) and may_be_absent(other)):
        return None
    return theirs, print_type(other)


def _type_at(path: Path, table: Table, schema: Schema) -> tree.FieldType | None:
    # No field definition covers `id`: it is a record of its own table.
    return tree.RecordType((table.name,)) if path == ("id",) else schema.type_at(path)


def _met(
    one: Comparison, kind: tree.FieldType, evaluate: Callable[[Any], Value], tick: Tick
) -> tuple[frozenset[int], str] | None:
    """Return the classes of what the field is compared with, and their name in a refusal; None: the
    two may meet.

    :raises TypeRefused: a range that is no range
    """
    if one.operator == "IN" and isinstance(one.value, tree.Range):
        try:
            # As below, the scan decides about bounds without a value.
            low, high = evaluate(one.value.low), evaluate(one.value.high)
        except Refusal:
            return None
        try:
            check_bounds(low, high)
        except Refusal as refusal:
            if not all(type(bound) is tree.Constant for bound in (one.value.low, one.value.high)):
                return None  # as below: of parameters the scan may be asked for none
            raise placed(refusal, one.value.at) from None
        mine = classes(kind)
        ints = frozenset({rank(0)})
        return None if mine is None or not mine.isdisjoint(ints) else (ints, "int")
    try:
        value = evaluate(one.value)
    except Refusal:
        # A scan may never evaluate it (short circuit): it is refused there, or not at all.
        return None
    if one.operator == "IN" and type(value) is not list:
        # IN searches a string, or the field names of an object: both need a string field.
        texts, mine = frozenset({rank("")}), classes(kind)
        looks = type(value) in (str, dict) and mine is not None and mine.isdisjoint(texts)
        return (texts, type_name(value)) if looks else None
    if _may_meet(one, kind, value, tick):
        return None
    if one.operator != "IN":
        held = _ANY if one.operator == "CONTAINS" else kind
        return frozenset({rank(value)}), _named(held, value, tick)
    assert type(value) is list
    # An empty array is not refused: it holds no item of a wrong type.
    found = {rank(item) for item in paced(value, tick)}
    return (frozenset(found), _named(kind, value, tick)) if found else None


def _may_meet(one: Comparison, kind: tree.FieldType, value: Value, tick: Tick) -> bool:
    mine = (item_classes if one.operator == "CONTAINS" else classes)(kind)
    is_literal = _is_literal(one.value)
    if one.operator == "IN":
        assert type(value) is list
        # One item that may meet is enough: the others are data.
        for item in paced(value, tick):
            if _in_class(item, mine) and (not is_literal or may_equal(kind, item, tick)):
                return True
        return False
    if not _in_class(value, mine):
        return False
    if not is_literal:
        # A parameter or subquery is held to its class: its value is data, and another one may meet.
        return True
    if one.operator == "CONTAINS":
        return may_contain(kind, value, tick)
    # The class decides for an order comparison; equality needs the value itself.
    return one.operator not in _BY_EQUALITY or may_equal(kind, value, tick)


def _is_literal(node: Any) -> bool:
    return type(node) in (tree.Constant, tree.RecordLiteral) or (
        type(node) is tree.Array and all(map(_is_literal, node.items))
    )


def _in_class(value: Value, known: frozenset[int] | None) -> bool:
    """True of NONE and NULL too: they are not judged."""
    return value is NONE or value is None or known is None or rank(value) in known


def _named(kind: tree.FieldType, value: Value, tick: Tick) -> str:
    """Return what a refusal calls a value: its type, and more where the type alone would fit."""
    if type(value) is RecordId:
        return f"record<{value.table}>"
    if type(value) is list:
        names = sorted({_named(_ANY, item, tick) for item in paced(value, tick)})
        return cut(f"array of {' and '.join(names)}")
    mine = classes(kind)
    return shown(value) if mine is not None and rank(value) in mine else type_name(value)


def _refused(
    one: Comparison, table: Table, kind: tree.FieldType, met: tuple[frozenset[int], str]
) -> Refusal:
    field, wanted = path_text(one.path), cut(print_type(kind))
    hint = _hint(one, kind, met[0])
    refusal = TypeRefused(
        f"{table.name}.{field} is {wanted} and can't be compared with {met[1]} in"
        f" {cut(print_expression(one.node))}: it would be true of"
        f" {'every' if one.is_negated else 'no'} record{'; ' + hint if hint else ''}",
        table=table.name,
        field=field,
        wanted=wanted,
        found=met[1],
    )
    return placed(refusal, one.node.at)


def _hint(one: Comparison, kind: tree.FieldType, theirs: frozenset[int]) -> str:
    """Return a hint on the literal of the field's type, for a query with a string or a number."""
    mine = (item_classes if one.operator == "CONTAINS" else classes)(kind) or frozenset()
    if one.operator == "CONTAINS" and not mine:
        return "CONTAINS searches an array, a string or an object"
    met = {_WORDS.get(found, "") for found in theirs}
    of = kind
    if one.operator == "CONTAINS":
        of = next((part.of for part in parts_of(kind) if isinstance(part, tree.ArrayType)), kind)
    for part in parts_of(of):
        if isinstance(part, tree.RecordType) and met & {"string", "number"}:
            name = part.tables[0] if part.tables else "t"
            return f"{name}:1 is a record; type::record('{name}', x) converts an id"
        if isinstance(part, tree.PlainType) and "string" in met and part.kind in _LITERALS:
            return _LITERALS[part.kind]
        if part == tree.PlainType("decimal") and "number" in met:
            return "no decimal equals that float: 12.50dec is a decimal"
    if rank("") in mine and "number" in met:
        return "'12' is a string; type::string(x) converts a number"
    return ""
