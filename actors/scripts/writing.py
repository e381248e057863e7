"""CREATE, INSERT, UPSERT, UPDATE, DELETE.

A statement reads the state as it was when it began, and never meets its own writes: every
expression of it, those of WHERE, SET and RETURN and the subqueries in them, is evaluated before the
first record is written. So each statement here computes what it will write, then what it answers,
and writes last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from actors.rights import untold
from actors.scripts.execution import Execution
from actors.scripts.fields import NO_MISFIT, conform, conform_new
from actors.scripts.handlers import Need, OnRecords, When, handles
from actors.scripts.reading import one_record, rows
from language import tree
from language.budget import Budget
from language.names import reads_store
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
    type_name,
    without_none,
)
from storage import keys, records
from storage.catalog import Table
from storage.changes import Changes

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
    answer = _Answer(run, statement.returning, _default(run, table))
    answer.add(None, {"id": record, **fields})
    told = answer.value()
    records.create(run.transaction, table, record.id, fields)
    return told


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
    return _Insertion(run, statement, table).of(rows)


TOGETHER: Final = 64
"""Rows that are inserted in one go where that is possible."""
_OBJECTS: Final = frozenset({dict})
_ONCE: Final = "ON DUPLICATE UPDATE changes what was there before the statement, and a record once"


class _Insertion:
    """One INSERT.

    New records are written as they come where nothing is read between two of them; records that are
    changed, and new ones where something is, wait for the last row.
    """

    def __init__(self, run: Execution, statement: tree.Insert, table: Table) -> None:
        self._run = run
        self._statement = statement
        self._table = table
        self._has_rules = bool(table.fields) or table.schemafull
        self._at_once = not (
            self._has_rules
            or reads_store(statement.returning)
            or reads_store(statement.on_duplicate, tree.Parameter("input"))
        )
        self._changes = Changes(run.transaction, table)
        self._written: set[bytes] = set()
        """Keys of records that ON DUPLICATE UPDATE must not meet: the statement has written them,
        or is going to."""
        self._answer = _Answer(run, statement.returning, _default(run, table))

    def of(self, rows: list[Any]) -> Value:
        """Write the rows. The answer of the statement."""
        for part, made in self._parts(rows):
            if made:
                self._note(made)
            elif not all(map(self._take, part)):
                break
        told = self._answer.value()
        passed = self._changes.write(self._run.tick, self._is_passed)
        return [one for number, one in enumerate(told) if number not in passed] if passed else told

    def _parts(self, rows: list[Any]) -> Iterator[tuple[list[Any], list[tuple[Any, Row]]]]:
        """The rows some at a time, with the ids and fields of those that were made in one go; where
        there are none, each has to be seen to."""
        # What came with the request has been checked, and stays as it came.
        source = self._statement.rows
        checked = type(source) is tree.Parameter and rows is self._run.request.parameters.get(
            source.name
        )
        at = 0
        while at < len(rows):
            self._run.tick()
            part = rows[at : at + TOGETHER]
            made = self._together(part, checked) if self._at_once else []
            yield part, made
            at += len(made) or len(part)

    def _together(self, rows: list[Any], checked: bool) -> list[tuple[Any, Row]]:
        """Make the first of some new records, as many as are made in one go. Answers their ids and
        fields; none when each has to be made for itself: one is refused, or meets another one."""
        run, table = self._run, self._table
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

    def _note(self, made: list[tuple[Any, Row]]) -> None:
        """Remember and answer what was made in one go."""
        table = self._table
        if self._statement.on_duplicate is not None:
            self._written.update(keys.record(table.prefix, id) for id, _ in made)
        if not self._answer.is_empty:
            for id, fields in made:
                self._answer.add(None, {"id": RecordId(table.name, id), **fields})

    def _take(self, row: Any) -> bool:
        """See to one row. Answers whether to go on: not behind one that is refused unless one
        before it is."""
        run, table = self._run, self._table
        run.tick()
        if type(row) is not dict:
            raise TypeRefused(f"a row is an object, not {type_name(row)}", found=type_name(row))
        record, fields = _address(run, table, row, None), _storable(row, run.tick)
        if self._at_once:
            self._create(record, fields, row)
            return True
        return self._compute(record, fields, row)

    def _create(self, record: RecordId, fields: Row, row: Row) -> None:
        """Write a record now."""
        try:
            records.create(self._run.transaction, self._table, record.id, fields)
        except (AlreadyExists, Duplicate) as taken:
            self._meet(taken, record, row)
        else:
            self._note([(record.id, fields)])

    def _compute(self, record: RecordId, fields: Row, row: Row) -> bool:
        """Have a record written with all the others. As `_take`."""
        run, table, statement = self._run, self._table, self._statement
        refused: Refusal | None = None
        if self._has_rules:
            try:
                fields = conform(run, table, record, fields, None, None)
            except NO_MISFIT:
                raise
            except Refusal as refusal:
                refused = refusal
        if statement.ignore or statement.on_duplicate is not None:
            try:
                records.check_new(run.transaction, table, record.id, fields)
            except (AlreadyExists, Duplicate) as taken:
                self._meet(taken, record, row)
                return True
        if refused is not None:
            # One before it may be refused first, or be what is in its way: that shows at the end.
            self._changes.refuse(record.id, fields, refused)
            return statement.ignore
        self._changes.put(record.id, fields, None)
        self._answer.add(None, {"id": record, **fields})
        return True

    def _meet(self, taken: AlreadyExists | Duplicate, record: RecordId, row: Row) -> None:
        """What becomes of a row that is there already, or whose values another record has."""
        data = self._statement.on_duplicate
        if self._statement.ignore:
            return
        if data is None:
            raise taken
        # What a UNIQUE index met is the record that has the values, under whatever id.
        met = taken.detail["record"] if isinstance(taken, Duplicate) else record
        assert isinstance(met, RecordId)
        key = keys.record(self._table.prefix, met.id)
        if key in self._written:
            raise _twice(taken)
        self._written.add(key)
        self._change(met, data, row)

    def _change(self, record: RecordId, data: tree.Data, row: Row) -> None:
        """Change a record, with the row that met it as `$input`."""
        run = self._run
        outer = run.variables.get("input", NONE)
        run.variables["input"] = row
        try:
            stored = records.stored(run.transaction, self._table, record.id)
            self._answer.add(*_put(run, self._changes, self._table, record, stored, data))
        finally:
            if outer is NONE:
                del run.variables["input"]
            else:
                run.variables["input"] = outer

    def _is_passed(self, taken: AlreadyExists | Duplicate) -> bool:
        """Whether a new record that turns out to be there is passed over. It was not there when the
        statement began, so what is in its way is another row."""
        if self._statement.on_duplicate is not None:
            raise _twice(taken)
        return self._statement.ignore


def _twice(taken: AlreadyExists | Duplicate) -> Refusal:
    """The refusal of a row that meets another row of its own statement, there or in a record."""
    return type(taken)(f"{taken.message}, as another row of this INSERT: {_ONCE}", **taken.detail)


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
    changes = Changes(run.transaction, table)
    answer = _Answer(run, statement.returning, _default(run, table))
    stored = records.stored(run.transaction, table, record.id)
    answer.add(*_put(run, changes, table, record, stored, statement.data))
    told = answer.value()
    changes.write(run.tick)
    return told


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
    answer = _Answer(run, statement.returning, AFTER)
    changes: dict[str, Changes] = {}
    is_told: dict[str, bool] = {}
    for table, record in _targets(run, statement):
        run.tick()
        stored = records.stored(run.transaction, table, record.id)
        if stored is None:
            continue
        name = table.name
        if name not in changes:
            changes[name] = Changes(run.transaction, table)
            is_told[name] = statement.returning is not None or run.may_read(table)
        change = _put(run, changes[name], table, record, stored, statement.data)
        if is_told[name]:
            answer.add(*change)
    told = answer.value()
    for each in changes.values():
        each.write(run.tick)
    return told


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
    answer = _Answer(run, statement.returning, NOTHING)
    targets, told = _targets(run, statement), []
    # What is not answered is not held: a table deleted whole may be larger than memory.
    if not answer.is_empty:
        targets = list(targets)
        for table, record in targets:
            run.tick()
            raw = records.read(run.transaction, table, record.id)
            if raw is not None:
                answer.add({"id": record, **unpack_object(raw)}, None)
        told = answer.value()
    for table, record in targets:
        run.tick()
        stored = records.stored(run.transaction, table, record.id)
        if stored is not None:
            records.delete(run.transaction, table, record.id, stored)
    return told


def _targets(
    run: Execution, statement: tree.Update | tree.Delete
) -> Iterable[tuple[Table, RecordId]]:
    """The records to write, each once. They are all found before the first is computed."""
    verbs = run.verbs(statement)
    plan: SelectPlan = run.plan.made(statement, plan_targets)
    found = rows(run, plan, (statement.target,), verbs)
    tables: dict[str, Table] = {}
    for record in found:
        if not isinstance(record, RecordId):
            raise TypeRefused(f"only records can be written, not {type_name(record)}")
        if record.table not in tables:
            tables[record.table] = run.table(record.table, verbs)
    targets = ((tables[record.table], record) for record in found)
    # A table has each of its records once; what an expression names may stand there twice.
    return _each_once(targets) if isinstance(statement.target, tree.ExpressionTarget) else targets


def _each_once(targets: Iterable[tuple[Table, RecordId]]) -> Iterator[tuple[Table, RecordId]]:
    seen: set[bytes] = set()
    for table, record in targets:
        key = keys.record(table.prefix, record.id)
        if key not in seen:
            seen.add(key)
            yield table, record


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


def _put(
    run: Execution,
    changes: Changes,
    table: Table,
    record: RecordId,
    stored: records.Stored | None,
    data: tree.Data,
) -> tuple[Row | None, Row]:
    """Compute what becomes of a record, which may not exist yet, and have it written when the time
    comes. Answers it before and after."""
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
    changes.put(record.id, fields, stored)
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
    return run.plan.made(data, plan_data)(before, run)


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


ANSWERED: Final = 512
"""Records in an answer after which it is weighed how much it holds."""


class _Answer:
    """What RETURN asks for of each record that a statement writes: taken in before the first of
    them is written, so that its expressions see what the others of the statement see."""

    def __init__(self, run: Execution, returning: tree.Return | None, default: tree.Return) -> None:
        self._run = run
        self._returning = returning or default
        self._kind = self._returning.kind
        self._rows: list[Any] = []
        self._budget = Budget(tick=run.tick)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is asked for."""
        return self._kind == "NONE"

    def add(self, before: Row | None, after: Row | None) -> None:
        """A record as it is and as it will be; None: it is not there.

        :raises TooLarge: the answer would hold more than a statement may
        """
        if self._kind == "NONE":
            return
        self._rows.append(self._shown(before, after))
        if not len(self._rows) % ANSWERED:
            self._budget.sample(self._rows[-ANSWERED:])

    def _shown(self, before: Row | None, after: Row | None) -> Any:
        if self._kind == "DIFF":
            return diff(before or {}, after or {}, self._run.tick)
        if self._kind == "FIELDS":
            return before if after is None else after
        row = before if self._kind == "BEFORE" else after
        return NONE if row is None else row

    def value(self) -> list[Any]:
        """The answer, a row for each record that was added."""
        if self._kind != "FIELDS":
            return self._rows
        plan: SelectPlan = self._run.plan.made(self._returning, _plan_returning)
        return plan.run(_batches(self._rows), self._run)


def _batches(rows: list[Row]) -> Iterator[Objects]:
    for start in range(0, len(rows), PACE):
        yield Objects(rows[start : start + PACE])


def _plan_returning(returning: tree.Return) -> SelectPlan:
    return plan_select(
        tree.Select(value=False, everything=False, columns=returning.columns, omit=(), sources=())
    )
