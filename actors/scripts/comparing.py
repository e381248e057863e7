"""Type check of WHERE: refuses comparisons that are false for every record, before any is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from actors.scripts.execution import Execution
from actors.scripts.fields import schema_of
from language import tree
from language.comparisons import Comparison
from language.error_places import placed
from language.fieldtypes import classes, cut, item_classes, may_be_absent, parts_of
from language.printing import print_expression, print_type
from language.schema import Schema
from language.select import SelectPlan
from protocol.errors import Refusal, TypeRefused
from protocol.paths import Path, path_text
from protocol.values import NONE, Tick, Value, paced, rank, type_name
from storage.catalog import Table

_WORDS = {
    2: "bool",
    3: "number",
    4: "string",
    6: "duration",
    7: "datetime",
    8: "uuid",
    11: "record",
}
_BY_EQUALITY = frozenset({"=", "!=", "IN", "CONTAINS"})
_LITERALS = {
    "datetime": "d'…' is a datetime, type::datetime(x) makes one of a string",
    "duration": "1h30m is a duration, type::duration(x) makes one of a string",
    "decimal": "12.50dec is a decimal, type::decimal(x) makes one of a string",
    "float": "1.5 is a float, type::float(x) makes one of a string",
    "int": "12 is an int, type::int(x) makes one of a string",
    "number": "12 is a number, type::int(x) and type::decimal(x) make one of a string",
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
    mine = None if kind is None else (item_classes if one.operator == "CONTAINS" else classes)(kind)
    if kind is None or mine is None:
        return
    if one.other is not None:
        other = _type_at(one.other, table, schema)
        theirs = (
            None if other is None else (item_classes if one.operator == "IN" else classes)(other)
        )
        if other is None or theirs is None or _both_absent(one, kind, other):
            return
        found = print_type(other)
    else:
        met = _met(one, evaluate, tick)
        if met is None:
            return
        theirs, found = met
    if mine.isdisjoint(theirs):
        raise _refused(one, table, (kind, mine), (found, theirs))


def _both_absent(one: Comparison, kind: tree.FieldType, other: tree.FieldType) -> bool:
    """True if two fields may be equal because both are NONE, or both NULL."""
    return one.operator in _BY_EQUALITY and may_be_absent(kind) and may_be_absent(other)


def _type_at(path: Path, table: Table, schema: Schema) -> tree.FieldType | None:
    return tree.RecordType((table.name,)) if path == ("id",) else schema.type_at(path)


def _met(
    one: Comparison, evaluate: Callable[[Any], Value], tick: Tick
) -> tuple[frozenset[int], str] | None:
    """Return the classes that the field is compared with, and their name in a refusal; None: no
    class that could be wrong."""
    if one.operator == "IN" and isinstance(one.value, tree.Range):
        return frozenset({rank(0)}), "int"
    try:
        value = evaluate(one.value)
    except Refusal:
        # A scan may never evaluate it (short circuit): it is refused there, or not at all.
        return None
    if one.operator != "IN":
        return (
            None if value is NONE or value is None else (frozenset({rank(value)}), type_name(value))
        )
    if type(value) is not list:
        return (frozenset({rank("")}), type_name(value)) if type(value) in (str, dict) else None
    found = {rank(item): item for item in paced(value, tick)}
    if not found or rank(NONE) in found or rank(None) in found:
        return None
    names = sorted({type_name(item) for item in found.values()})
    return frozenset(found), f"array of {' and '.join(names)}"


def _refused(
    one: Comparison,
    table: Table,
    mine: tuple[tree.FieldType, frozenset[int]],
    theirs: tuple[str, frozenset[int]],
) -> Refusal:
    field, wanted = path_text(one.path), cut(print_type(mine[0]))
    hint = _hint(one, *mine, theirs[1])
    refusal = TypeRefused(
        f"{table.name}.{field} is {wanted} and can't be compared with {theirs[0]} in"
        f" {cut(print_expression(one.node))}: it would be true of"
        f" {'every' if one.is_negated else 'no'} record{'; ' + hint if hint else ''}",
        table=table.name,
        field=field,
        wanted=wanted,
        found=theirs[0],
    )
    return placed(refusal, one.node.at)


def _hint(
    one: Comparison, kind: tree.FieldType, mine: frozenset[int], theirs: frozenset[int]
) -> str:
    """Return a hint on the literal of the field's type, for a query with a string or a number."""
    if one.operator == "CONTAINS" and not mine:
        return "CONTAINS looks into an array, a string or an object"
    met = {_WORDS.get(found, "") for found in theirs}
    of = kind
    if one.operator == "CONTAINS":
        of = next((part.of for part in parts_of(kind) if isinstance(part, tree.ArrayType)), kind)
    for part in parts_of(of):
        if isinstance(part, tree.RecordType) and met & {"string", "number"}:
            name = part.tables[0] if part.tables else "t"
            return f"{name}:1 is a record, type::record('{name}', x) makes one of an id"
        if isinstance(part, tree.PlainType) and "string" in met and part.kind in _LITERALS:
            return _LITERALS[part.kind]
    if rank("") in mine and "number" in met:
        return "'12' is a string, type::string(x) makes one of a number"
    return ""
