"""Comparisons that can't hold of any record of a table are refused before the first is read."""

from __future__ import annotations

from typing import Any

from actors.scripts.execution import Execution
from actors.scripts.fields import schema_of
from language import tree
from language.comparisons import Comparison
from language.error_places import placed
from language.fieldtypes import classes, cut
from language.printing import print_expression, print_type
from language.schema import Schema
from language.select import SelectPlan
from protocol.errors import Refusal, TypeRefused
from protocol.paths import Path, path_text
from protocol.values import NONE, rank, type_name
from storage.catalog import Table

_HINTS = {
    ("datetime", "string"): "d'…' is a datetime, type::datetime(x) makes one of a string",
    ("duration", "string"): "1h30m is a duration, type::duration(x) makes one of a string",
    ("number", "string"): "12 is a number, type::int(x) makes one of a string",
    ("string", "number"): "'12' is a string, type::string(x) makes one of a number",
    ("record", "string"): "t:1 is a record, type::record(t, x) makes one",
}
"""How a value of the one class is written instead of one of the other."""
_WORDS = {3: "number", 4: "string", 6: "duration", 7: "datetime", 11: "record"}


def check_comparisons(run: Execution, plan: SelectPlan, table: Table) -> None:
    """:raises TypeRefused: a comparison in WHERE is false of every record of the table: what its
    field is defined as is never of the class of what it is compared with"""
    if not plan.comparisons:
        return
    schema = schema_of(run, table) if table.fields else None
    for comparison in plan.comparisons:
        run.tick()
        _check(run, comparison, table, schema)


def _check(run: Execution, one: Comparison, table: Table, schema: Schema | None) -> None:
    kind = _type_at(one.path, table, schema)
    mine = None if kind is None else classes(kind)
    if kind is None or mine is None:
        return
    if one.other is not None:
        other = _type_at(one.other, table, schema)
        theirs = None if other is None else classes(other)
        if other is None or theirs is None:
            return
        found = print_type(other)
    else:
        value = _value(run, one.value)
        if value is NONE or value is None:
            return
        theirs, found = frozenset({rank(value)}), type_name(value)
    if mine.isdisjoint(theirs):
        raise _refused(one, table, (kind, mine), (found, theirs))


def _type_at(path: Path, table: Table, schema: Schema | None) -> tree.FieldType | None:
    if path == ("id",):
        return tree.RecordType((table.name,))
    return None if schema is None else schema.type_at(path)


def _value(run: Execution, expression: Any) -> Any:
    try:
        return run.evaluate(expression)
    except Refusal:
        # A scan may never come to evaluate it: it is refused there or not at all.
        return NONE


def _refused(
    one: Comparison,
    table: Table,
    mine: tuple[tree.FieldType, frozenset[int]],
    theirs: tuple[str, frozenset[int]],
) -> Refusal:
    field, wanted = path_text(one.path), cut(print_type(mine[0]))
    hint = next(
        (
            _HINTS[pair]
            for a in mine[1]
            for b in theirs[1]
            if (pair := (_WORDS.get(a, ""), _WORDS.get(b, ""))) in _HINTS
        ),
        "",
    )
    refusal = TypeRefused(
        f"{table.name}.{field} is {wanted} and can't be compared with {theirs[0]} in"
        f" {cut(print_expression(one.node))}: it would be true of no record"
        f"{'; ' + hint if hint else ''}",
        table=table.name,
        field=field,
        wanted=wanted,
        found=theirs[0],
    )
    return placed(refusal, one.node.at)
