"""CREATE, INSERT, UPSERT, UPDATE, DELETE."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from actors.rights import untold
from actors.scripts.execution import Execution
from actors.scripts.fields import conform, conform_new
from actors.scripts.handlers import Need, OnRecords, When, handles
from actors.scripts.reading import one_record, rows
from language import tree
from language.rows import Objects
from language.select import SelectPlan, plan_select
from language.writes import diff, plan_data
from protocol import order
from protocol.binary import unpack_object
from protocol.errors import AlreadyExists, BadRequest, Duplicate, Refusal, TypeRefused
from protocol.rights import READ, WRITE, Kind
from protocol.text import format_record
from protocol.values import (
    NONE,
    PACE,
    RecordId,
    Tick,
    Value,
    check,
    check_record_id,
    paced,
    type_name,
    without_none,
)
from storage import records
from storage.catalog import Table

Row = dict[str, Any]
AFTER = tree.Return("AFTER")
NOTHING = tree.Return("NONE")


@handles(
    tree.Create,
    "rows",
    writes=True,
    needs=[OnRecords(WRITE), OnRecords(READ, When.ANSWERS)],
)
def create(run: Execution, statement: tree.Create) -> Value:
    """One new record. :raises AlreadyExists: its id is taken"""
    verbs = run.verbs(statement)
    if isinstance(statement.target, tree.TableTarget):
        table, named = run.table(statement.target.table, verbs), None
    else:
        record = one_record(run, statement.target)
        table, named = run.table(record.table, verbs), record.id
    fields = _apply(run, statement.data, {})
    record = _address(run, table, fields, named)
    fields = _storable(fields, run.tick)
    if table.fields or table.schemafull:
        fields = conform_new(run, table, record, fields)
    records.create(run.transaction, table, record.id, fields)
    written = [(None, {"id": record, **fields})]
    return _answers(run, statement.returning, _default(run, table), written)


@handles(
    tree.Insert,
    "rows",
    writes=True,
    needs=[
        Need(WRITE, Kind.TABLE, ("table",)),
        Need(READ, Kind.TABLE, ("table",), When.ANSWERS),
        Need(READ, Kind.TABLE, ("table",), When.MEETS),
    ],
)
def insert(run: Execution, statement: tree.Insert, table: Table) -> Value:
    """Any number of rows, all or none."""
    rows = run.evaluate(statement.rows)
    if isinstance(rows, dict):
        rows = [rows]
    if not isinstance(rows, list):
        raise TypeRefused(f"INSERT takes an array of objects, not {type_name(rows)}")
    written = list(_inserted(run, statement, table, rows))
    return _answers(run, statement.returning, _default(run, table), written)


TOGETHER: Final = 64
"""Rows that are inserted in one go where that is possible."""


def _inserted(
    run: Execution, statement: tree.Insert, table: Table, rows: list[Any]
) -> Iterator[tuple[Row | None, Row]]:
    """The records that were written, before and after; none where RETURN asks for none."""
    quiet = statement.returning is not None and statement.returning.kind == "NONE"
    plain = not (table.fields or table.schemafull)
    # What came with the request has been checked, and stays as it came.
    checked = type(statement.rows) is tree.Parameter and rows is run.request.parameters.get(
        statement.rows.name
    )
    at = 0
    while at < len(rows):
        run.tick()
        part = rows[at : at + TOGETHER]
        made = _together(run, table, part, checked) if plain else []
        changes: Iterable[tuple[Row | None, Row]]
        if made:
            at += len(made)
            changes = ((None, {"id": RecordId(table.name, id), **row}) for id, row in made)
        else:
            at += len(part)
            changes = _one_by_one(run, statement, table, part)
        for change in changes:
            if not quiet:
                yield change


def _together(
    run: Execution, table: Table, rows: list[Any], checked: bool
) -> list[tuple[Any, Row]]:
    """Make the first of some new records, as many as are made in one go. Answers their ids and
    fields; none when each has to be made for itself: one is refused, or meets another one."""
    ids: list[Any] = []
    fields: list[Row] = []
    if set(map(type, rows)) != _OBJECTS:
        return []
    try:
        for row in rows:
            if not checked:
                check(row, 0, run.tick)
            given = row.get("id", NONE)
            # An integer is an id as it is.
            ids.append(given if type(given) is int else _address(run, table, row, None).id)
            if "id" in row:
                row = row.copy()
                del row["id"]
            fields.append(row)
    except Refusal:
        return []
    made = records.create_together(run.transaction, table, order.encode_all(ids), fields)
    return list(zip(ids[:made], fields, strict=False))


_OBJECTS: Final = frozenset({dict})


def _one_by_one(
    run: Execution, statement: tree.Insert, table: Table, rows: list[Any]
) -> Iterator[tuple[Row | None, Row]]:
    transaction = run.transaction
    for row in rows:
        run.tick()
        if type(row) is not dict:
            raise TypeRefused(f"a row is an object, not {type_name(row)}", found=type_name(row))
        record = _address(run, table, row, None)
        fields = _storable(row, run.tick)
        try:
            if table.fields or table.schemafull:
                fields = conform_new(run, table, record, fields)
            records.create(transaction, table, record.id, fields)
        except (AlreadyExists, Duplicate) as taken:
            if statement.ignore:
                continue
            if statement.on_duplicate is None:
                raise
            # What a UNIQUE index met is the record that has the values, under whatever id.
            met = taken.detail["record"] if isinstance(taken, Duplicate) else record
            assert isinstance(met, RecordId)
            yield _change(run, table, met, statement.on_duplicate, row)
        else:
            yield None, {"id": record, **fields}


def _change(
    run: Execution, table: Table, record: RecordId, data: tree.Data, row: Row
) -> tuple[Row | None, Row]:
    """Change the record that a row met, with the row as `$input`."""
    outer = run.variables.get("input", NONE)
    run.variables["input"] = row
    try:
        return _write(run, table, record, data)
    finally:
        if outer is NONE:
            del run.variables["input"]
        else:
            run.variables["input"] = outer


@handles(
    tree.Upsert,
    "rows",
    writes=True,
    needs=[
        OnRecords(WRITE),
        OnRecords(READ, When.LOOKS),
        OnRecords(READ, When.ANSWERS),
    ],
)
def upsert(run: Execution, statement: tree.Upsert) -> Value:
    """Change a record, or create it."""
    record = one_record(run, statement.target)
    table = run.table(record.table, run.verbs(statement))
    written = [_write(run, table, record, statement.data)]
    return _answers(run, statement.returning, _default(run, table), written)


@handles(
    tree.Update,
    "rows",
    writes=True,
    needs=[
        OnRecords(WRITE),
        OnRecords(READ, When.FILTERS),
        OnRecords(READ, When.LOOKS),
        OnRecords(READ, When.ANSWERS),
    ],
)
def update(run: Execution, statement: tree.Update) -> Value:
    """Change every record that the target names and WHERE lets through."""
    told: dict[str, bool] = {}
    changes = []
    for table, record in _targets(run, statement):
        change = _write(run, table, record, statement.data)
        if table.name not in told:
            told[table.name] = statement.returning is not None or run.may_read(table)
        if told[table.name]:
            changes.append(change)
    return _answers(run, statement.returning, AFTER, changes)


@handles(
    tree.Delete,
    "rows",
    writes=True,
    needs=[
        OnRecords(WRITE),
        OnRecords(READ, When.FILTERS),
        OnRecords(READ, When.ANSWERS),
    ],
)
def delete(run: Execution, statement: tree.Delete) -> Value:
    """Remove every record that the target names and WHERE lets through."""
    changes: list[tuple[Row | None, Row | None]] = []
    # What is not answered is not held: a table deleted whole may be larger than memory.
    asked = statement.returning is not None and statement.returning.kind != "NONE"
    for table, record in _targets(run, statement):
        run.tick()
        stored = records.stored(run.transaction, table, record.id)
        if stored is not None:
            records.delete(run.transaction, table, record.id, stored)
            if asked:
                changes.append(({"id": record, **unpack_object(stored.raw)}, None))
    return _answers(run, statement.returning, NOTHING, changes)


def _targets(
    run: Execution, statement: tree.Update | tree.Delete
) -> Iterator[tuple[Table, RecordId]]:
    """The records to write. They are all found before the first is written, so that a statement
    never meets what it wrote itself."""
    verbs = run.verbs(statement)
    plan: SelectPlan = run.prepared.plan(statement, plan_targets)
    found = rows(run, plan, (statement.target,), verbs)
    tables: dict[str, Table] = {}
    for record in found:
        if not isinstance(record, RecordId):
            raise TypeRefused(f"only records can be written, not {type_name(record)}")
        if record.table not in tables:
            tables[record.table] = run.table(record.table, verbs)
    return ((tables[record.table], record) for record in found)


def plan_targets(statement: tree.Update | tree.Delete) -> SelectPlan:
    """What finds the ids of the records to write."""
    return plan_select(
        tree.Select(
            value=True,
            everything=False,
            columns=(tree.Column(tree.Name("id"), None),),
            omit=(),
            sources=(statement.target,),
            where=statement.where,
        )
    )


def _write(
    run: Execution, table: Table, record: RecordId, data: tree.Data
) -> tuple[Row | None, Row]:
    """Change a record that may not exist yet. Answers it before and after."""
    run.tick()
    stored = records.stored(run.transaction, table, record.id)
    before = None if stored is None else {"id": record, **unpack_object(stored.raw)}
    try:
        after = _apply(run, data, before or {"id": record})
    except Refusal as refusal:
        if run.may_read(table):
            raise
        raise untold(refusal, table.name) from None
    given = after.get("id", NONE)
    if given is not NONE and _identity(table, given) != record.id:
        raise BadRequest(f"the id of {format_record(record)} can't be changed")
    fields = _storable(after, run.tick)
    if table.fields or table.schemafull:
        fields = conform(run, table, record, fields, before, data)
    records.put(run.transaction, table, record.id, fields, stored)
    return before, {"id": record, **fields}


def _storable(fields: Row, tick: Tick) -> Row:
    """A record's fields as they are kept: checked, without its id and without what is NONE.

    :param tick: called now and then while a large record is gone through
    :raises TypeRefused, NumberTooLarge, TooLarge: see `values.check`
    """
    check(fields, 0, tick)
    kept = without_none(fields, tick)
    kept.pop("id", None)
    return kept


def _apply(run: Execution, data: tree.Data | None, before: Row) -> Row:
    """The fields that the data of a statement makes of a record; `before` is left as it is."""
    if data is None:
        return {}
    return run.prepared.plan(data, plan_data)(before, run)


def _address(run: Execution, table: Table, fields: Row, named: Any) -> RecordId:
    """Where a new record goes: the statement's own id, that among its fields, or a new one."""
    given = fields.get("id", NONE)
    if given is NONE:
        return RecordId(table.name, run.new_id() if named is None else named)
    identity = _identity(table, given)
    if named is not None and identity != named:
        raise BadRequest("the statement names one id and the record's fields another")
    return RecordId(table.name, identity)


def _identity(table: Table, given: Any) -> Any:
    if isinstance(given, RecordId):
        if given.table != table.name:
            raise BadRequest(f"{format_record(given)} is not an id of table {table.name}")
        return given.id
    check_record_id(given)
    return given


def _default(run: Execution, table: Table) -> tree.Return:
    """What is answered where RETURN is not said: nothing to whoever may not read."""
    return AFTER if run.may_read(table) else NOTHING


def _answers(
    run: Execution,
    returning: tree.Return | None,
    default: tree.Return,
    changes: list[Any],
) -> Value:
    """What RETURN asks for of each (before, after); NONE stands for a side that is not there."""
    returning = returning or default
    if returning.kind == "FIELDS":
        plan: SelectPlan = run.prepared.plan(returning, _plan_returning)
        return plan.run(_afters(changes), run)
    if returning.kind == "DIFF":
        return [
            diff(before or {}, after or {}, run.tick) for before, after in paced(changes, run.tick)
        ]
    return _SHAPES[returning.kind](changes)


def _afters(changes: list[Any]) -> Iterator[Objects]:
    for start in range(0, len(changes), PACE):
        part = changes[start : start + PACE]
        yield Objects([after if after is not None else before for before, after in part])


def _plan_returning(returning: tree.Return) -> SelectPlan:
    return plan_select(
        tree.Select(value=False, everything=False, columns=returning.columns, omit=(), sources=())
    )


_SHAPES: dict[str, Callable[[list[Any]], Value]] = {
    "NONE": lambda changes: [],
    "BEFORE": lambda changes: [NONE if before is None else before for before, _ in changes],
    "AFTER": lambda changes: [NONE if after is None else after for _, after in changes],
}
