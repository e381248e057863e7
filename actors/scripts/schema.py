"""Fields: DEFINE, ALTER and DROP, and the schema checks of every record that is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from actors.scripts.announcing import declared
from actors.scripts.confined import FOR_WRITER, Confined
from actors.scripts.handlers import RequiredWhen, Requires, handles
from actors.scripts.name_clashes import IF_TAKEN
from language import tree
from language.confined import holds_link
from language.names import called
from language.parser import parse_expression, parse_type
from language.printing import print_expression, print_type
from language.rules import (
    Definition,
    Rule,
    check_definition,
    check_links,
    check_values,
    compile_rule,
)
from language.schema import Schema
from protocol import limits
from protocol.binary import unpack_object
from protocol.errors import (
    FROM_OUTSIDE,
    AssertFailed,
    Conflict,
    Refusal,
)
from protocol.paths import path_text
from protocol.rights import DEFINE, NOTHING, READ, WRITE, SecurableKind
from protocol.text import format_record
from protocol.values import NONE, RecordId, Tick, Value, paced
from storage.catalog import places, tables
from storage.catalog.tables import Field, Table
from storage.records import records
from storage.topics.topics import Topic
from storage.txn.transaction import Transaction

if TYPE_CHECKING:
    from actors.scripts.execution import Execution

Row = dict[str, Any]

NO_MISFIT: Final = (*FROM_OUTSIDE, Conflict)
"""Refusals that say nothing about the current record."""


# --- writing records ------------------------------------------------------------------------------


def conform_new(
    run: Execution, table: Table, record: RecordId, fields: Row, given: Callable[[], Row]
) -> Row:
    """Like `conform`, for a record that is to be created.

    :param given: makes the original fields again: a refusal leaves them half changed
    :raises AlreadyExists, Duplicate: it collides with an existing record, and does not fit the
        schema. A row that is skipped, or changes another record, is not checked
    """
    try:
        return conform(run, table, record, fields, None, None)
    except NO_MISFIT:
        raise
    except Refusal:
        records.check_new(run.transaction, table, record.id, given(), run.tick)
        raise


def conform(
    run: Execution,
    table: Table,
    record: RecordId,
    fields: Row,
    before: Row | None,
    data: tree.Data | None,
) -> Row:
    """Return a record as its table's schema requires it; see `Schema.conform`.

    Called only where the table is SCHEMAFULL or has fields.

    :param data: the statement's change of the record; None: it is new
    """
    replaced = type(data) is tree.Content
    return schema_of(run, table).conform(
        record, fields, before, surroundings(run), replaced=replaced
    )


def schema_of(run: Execution, table: Table) -> Schema:
    """Return the schema of a table."""
    return declared_schema(run.transaction, table, run.tick)


def declared_schema(tx: Transaction, table: Table, tick: Tick) -> Schema:
    """Return the schema of a table, cached for as long as its declaration does not change."""
    at = ("rules", table.id)
    found: Schema | None = tx.known(at)
    if found is None:
        rules = []
        for field in table.fields:
            tick()
            rules.append(_rule(field))
        found = Schema(table.name, rules, table.schemafull)
        # Shared by all transactions until a declaration of this table changes.
        tx.remember(at, found, *tables.declared_of_table(table))
    return found


# Room for eight tables with the most fields that a table may have.
@lru_cache(maxsize=8 * limits.FIELDS)
def _rule(field: Field) -> Rule:
    """Return the compiled rule of a field; cached by its definition."""
    return compile_rule(_definition(field))


@lru_cache(maxsize=8 * limits.FIELDS)
def _definition(field: Field) -> Definition:
    return Definition(
        field.path,
        parse_type(field.type),
        None if field.default is None else parse_expression(field.default),
        None if field.value is None else parse_expression(field.value),
        None if field.assertion is None else parse_expression(field.assertion),
        field.readonly,
    )


def functions_of_field(field: Field) -> set[str]:
    """Return the functions of the database that a field's expressions call."""
    return called(_definition(field))


def surroundings(run: Execution) -> Confined:
    """Return the environment of DEFAULT, VALUE and ASSERT, except for the record: that is their
    row."""
    return Confined(run, FOR_WRITER, {})


# --- statements -----------------------------------------------------------------------------------


_ON_TABLE: Final = [Requires(DEFINE, SecurableKind.TABLE, ("table",))]


@handles(tree.DefineField, "none", writes=True, needs=_ON_TABLE)
def define_field(run: Execution, statement: tree.DefineField, table: Table) -> Value:
    """Define a field of a table, which may hold records already.

    :raises AlreadyExists: it is defined, and the statement has neither IF NOT EXISTS nor OVERWRITE
    :raises TypeRefused, AssertFailed, FieldRefused: records of the table don't fit (with their
        number), and the statement says neither OVERWRITE nor UNCHECKED
    """
    made = Field(
        path=statement.path,
        name=path_text(statement.path),
        type=print_type(statement.type),
        default=_text(statement.default),
        value=_text(statement.value),
        assertion=_text(statement.assertion),
        readonly=statement.readonly,
        comment=statement.comment,
    )
    _define(run, table, made, statement)
    return NONE


@handles(tree.AlterField, "none", writes=True, needs=_ON_TABLE)
def alter_field(run: Execution, statement: tree.AlterField, table: Table) -> Value:
    """Change one part of a field's definition.

    :raises Unknown: the table defines no such field
    :raises TypeRefused, AssertFailed, FieldRefused: records of the table don't fit (with their
        number)
    """
    field = tables.find_field(table, path_text(statement.path))
    if statement.type is not None:
        field = replace(field, type=print_type(statement.type))
    if statement.default is not None:
        field = replace(field, default=_text(statement.default))
    if statement.value is not None:
        field = replace(field, value=_text(statement.value))
    if statement.assertion is not None:
        field = replace(field, assertion=_text(statement.assertion))
    if statement.readonly is not None:
        field = replace(field, readonly=statement.readonly)
    if statement.comment is not None:
        field = replace(field, comment=statement.comment or None)
    # Written first: the checks read the table with the change in it.
    # A refusal ends the transaction, so the write does not outlive it.
    tables.define_field(run.transaction, table, field, places.IfExists.OVERWRITE)
    table = _as_it_is_now(run, table)
    check_definition(_definition(field))
    schema = _checked(run, table, field)
    # A new DEFAULT or READONLY concerns later writes only: no stored record is checked.
    changed = (statement.type, statement.value, statement.assertion)
    if any(part is not None for part in changed):
        _check_records(run, table, schema, field)
    return NONE


@handles(tree.DropField, "none", writes=True, needs=_ON_TABLE)
def drop_field(run: Execution, statement: tree.DropField, table: Table) -> Value:
    """Drop the definition alone: records keep their values. :raises Unknown: there is none"""
    tables.drop_field(run.transaction, table, path_text(statement.path))
    return NONE


@handles(
    tree.AlterTable,
    "none",
    writes=True,
    needs=[
        Requires(DEFINE, SecurableKind.TABLE, ("name",)),
        Requires(READ, SecurableKind.TABLE, ("name",), RequiredWhen.TELLS),
        Requires(WRITE, SecurableKind.TOPIC, ("topic",)),
    ],
)
def alter_table(
    run: Execution, statement: tree.AlterTable, table: Table, _topic: Topic | None
) -> Value:
    """Change a table's schema mode, its ON CHANGE, or its comment.

    :raises FieldRefused: it is to be SCHEMAFULL and records hold undefined fields (with their
        number)
    """
    comment, told = statement.comment, statement.on_change
    # An empty comment removes the present one; None keeps it.
    comment = table.comment if comment is None else comment or None
    schemafull = table.schemafull if statement.schemafull is None else statement.schemafull
    tables.define_table(
        run.transaction,
        table.database,
        table.name,
        schemafull=schemafull,
        comment=comment,
        on_change=table.on_change if told is None else declared(told),
        taken=places.IfExists.OVERWRITE,
    )
    if schemafull and not table.schemafull:
        table = _as_it_is_now(run, table)
        # Every defined field accepts any value here: only undefined fields are looked for.
        free = tree.PlainType("any")
        every = (compile_rule(Definition(each.path, free)) for each in table.fields)
        bare = Schema(table.name, every, True)
        _check_records(run, table, bare, None)
    return NONE


def _as_it_is_now(run: Execution, table: Table) -> Table:
    """Return a table that the statement has just changed."""
    return run.table(table.name, DEFINE)


def _text(expression: tree.Expression | None) -> str | None:
    """Return the text of a DEFAULT, VALUE or ASSERT; None if left out, or the word NONE."""
    if expression is None or expression == tree.Constant(NONE):
        return None
    return print_expression(expression)


def _checked(run: Execution, table: Table, changed: Field) -> Schema:
    """Return the schema of a table after a change of a field. It is compiled even when no record
    has to be checked. That refuses fields that contradict each other, and a field that would look
    beyond a record now that another is a link.

    :raises BadRequest: the fields contradict each other
    :raises Unknown: it calls a function that does not exist
    """
    # Sorted: of several unknown functions each run names the same one.
    for name in sorted(functions_of_field(changed)):
        run.authorizer.function(name, NOTHING)
    definitions = [_definition(field) for field in paced(table.fields, run.tick)]
    types = {each.path: each.type for each in definitions}
    check_values(definitions)
    links = holds_link(types[changed.path])
    # A path in any field may lead through the new link, beyond the record.
    for field in table.fields if links else (changed,):
        run.tick()
        check_links(_definition(field), types)
    return schema_of(run, table)


def _define(run: Execution, table: Table, field: Field, statement: tree.DefineField) -> None:
    check_definition(_definition(field))
    # False: IF NOT EXISTS has found the field, which stays as it is.
    if not tables.define_field(run.transaction, table, field, IF_TAKEN[statement.exists]):
        return
    table = _as_it_is_now(run, table)
    schema = _checked(run, table, field)
    if not statement.unchecked and statement.exists is not tree.Exists.OVERWRITE:
        _check_records(run, table, schema, field)


def _check_records(run: Execution, table: Table, schema: Schema, field: Field | None) -> None:
    """Check all records of a table against one of its fields, or against the whole schema.

    :raises TypeRefused, AssertFailed, FieldRefused: as the first misfit, with the count
    """
    env = surroundings(run)
    address = records.record_id(table)
    found, misfits = 0, 0
    first: tuple[RecordId, Refusal] | None = None
    # The scan enters the read set: a record written meanwhile makes this commit conflict.
    # So no record escapes the check between the scan and the commit.
    for pairs in records.scan(run.transaction, table):
        for key, raw in pairs:
            run.tick()
            found += 1
            record, fields = address(key), unpack_object(raw)
            try:
                if field is None:
                    schema.conform(record, fields, None, env)
                else:
                    schema.conform_below(str(field.path[0]), record, fields, env)
            except NO_MISFIT:
                raise
            except Refusal as refusal:
                misfits += 1
                first = first or (record, refusal)
    if first is not None:
        raise _misfits(table, field, found, misfits, *first)


def _misfits(
    table: Table, field: Field | None, found: int, misfits: int, record: RecordId, first: Refusal
) -> Refusal:
    name = format_record(record)
    what, instead = "SCHEMAFULL", "DEFINE TABLE OVERWRITE"
    if field is not None:
        what, instead = f"field {field.name}", "DEFINE FIELD OVERWRITE"
    wanted = ""
    if field is not None:
        wanted = field.assertion or field.value or field.default or field.type
    detail = {
        "table": table.name,
        "field": "" if field is None else field.name,
        "wanted": wanted,
        "found": first.code,
        **first.detail,
    }
    # An ASSERT may also fail in its computation, as by a division by zero.
    error = type(first) if "wanted" in first.detail else AssertFailed
    return error(
        f"{misfits} of {found} records of {table.path} don't fit {what}; {name} is the first: "
        f"{first.message}; to define it anyway, use {instead}",
        **detail,
        records=misfits,
        of=found,
        first=name,
    )
