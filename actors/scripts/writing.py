"""CREATE, UPSERT, UPDATE, DELETE; INSERT is `inserting.py`.

A statement reads the state of its begin, and never its own writes (no Halloween problem). Every
expression of it, those of WHERE, SET and RETURN and their subqueries, is evaluated before the first
record is written. So each statement here computes its writes, then its answer, and writes last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

from actors.redaction import redacted
from actors.scripts.execution import Execution
from actors.scripts.handlers import (
    RequiredWhen,
    RequiresOnRecords,
    StatementFunction,
    claims_of,
    compiles,
)
from actors.scripts.plans import rowless
from actors.scripts.reading import names_record, one_record, rows
from actors.scripts.schema import NO_MISFIT, conform, conform_new, schema_of, surroundings
from language import tree
from language.budget import Budget
from language.error_places import of_record
from language.names import reads_store
from language.rows import Objects
from language.select import SelectPlan, plan_select
from language.writes import Write, diff, plan_data
from protocol.binary import HoldsNone, unpack_object, unpack_object_in_steps
from protocol.errors import BadRequest, Refusal, TooLarge, TypeRefused
from protocol.rights import READ, WRITE, Verbs
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
from storage.catalog.tables import Table
from storage.formats import keys
from storage.records import records
from storage.records.records import RecordChanges, Scanned

Row = dict[str, Any]
Found = tuple[RecordId, bytes, records.Stored]
"""Record with its key, as it is stored."""
AFTER = tree.Return("AFTER")
NOTHING = tree.Return("NONE")


@compiles(
    tree.Create,
    "rows",
    writes=True,
    needs=[RequiresOnRecords(WRITE), RequiresOnRecords(READ, RequiredWhen.ANSWERS)],
)
def create(statement: tree.Create) -> StatementFunction:
    """Create a record. :raises AlreadyExists: its id is taken"""
    verbs, target = claims_of(statement).records, statement.target
    apply = _applied(statement.data)
    named = None if isinstance(target, tree.TableTarget) else one_record(target)
    return partial(_create, statement, verbs, named, apply)


def _create(
    statement: tree.Create,
    verbs: Verbs,
    named: Callable[[Any], RecordId] | None,
    apply: Write,
    run: Execution,
) -> Value:
    if named is None:
        table, id = run.table(statement.target.table, verbs), None  # type: ignore[union-attr]
    else:
        record = named(run)
        table, id = run.table(record.table, verbs), record.id
    made = apply({}, run)
    record = address(run, table, made, id)
    # `storable` copies: `made` is left for another copy after a refusal.
    fields = storable(made, run.tick)
    if table.fields or table.schemafull:
        fields = conform_new(run, table, record, fields, partial(storable, made, run.tick))
    answer = ReturnedRows(run, statement.returning, default_return(run, table))
    answer.add(None, {"id": record, **fields})
    # RETURN reads the state before the record exists.
    told = answer.value()
    records.create(run.transaction, table, record.id, fields, run.tick)
    run.count_changed(1)
    return told


@compiles(
    tree.Upsert,
    "rows",
    writes=True,
    needs=[
        RequiresOnRecords(WRITE),
        RequiresOnRecords(READ, RequiredWhen.LOOKS),
        RequiresOnRecords(READ, RequiredWhen.ANSWERS),
    ],
)
def upsert(statement: tree.Upsert) -> StatementFunction:
    """Change a record, or create it."""
    verbs, named = claims_of(statement).records, one_record(statement.target)
    return partial(_upsert, statement, verbs, named)


def _upsert(
    statement: tree.Upsert, verbs: Verbs, named: Callable[[Any], RecordId], run: Execution
) -> Value:
    record = named(run)
    table = run.table(record.table, verbs)
    stored = records.stored(run.transaction, table, record.id)
    answer = ReturnedRows(run, statement.returning, default_return(run, table))
    return _put_one(run, table, record, stored, statement.data, answer)


@compiles(
    tree.Update,
    "rows",
    writes=True,
    needs=[
        RequiresOnRecords(WRITE),
        RequiresOnRecords(READ, RequiredWhen.FILTERS),
        RequiresOnRecords(READ, RequiredWhen.LOOKS),
        RequiresOnRecords(READ, RequiredWhen.ANSWERS),
    ],
)
def update(statement: tree.Update) -> StatementFunction:
    """Change every record of the target that passes WHERE."""
    return partial(_update, statement, _Targets(statement), reads_store(statement.data))


def _update(statement: tree.Update, targets: _Targets, is_reading: bool, run: Execution) -> Value:
    """:param is_reading: True if the data of the statement reads other records"""
    found = targets.one(run)
    if found is None:
        return _update_all(run, statement, targets, is_reading)
    table, record = found
    stored = records.stored(run.transaction, table, record.id)
    if stored is None:
        return []
    run.count_read(1)
    # With a RETURN the default is not used, and privileges are not asked for it.
    default = AFTER if statement.returning is not None else default_return(run, table)
    answer = ReturnedRows(run, statement.returning, default)
    return _put_one(run, table, record, stored, statement.data, answer)


def _update_all(
    run: Execution, statement: tree.Update, targets: _Targets, is_reading: bool
) -> Value:
    answer = ReturnedRows(run, statement.returning, AFTER)
    changes: dict[str, RecordChanges] = {}
    is_told: dict[str, bool] = {}
    scanned = records.Scanned()
    for table, some in targets.all(run, scanned):
        run.tick()
        found = _existing(run, table, some, scanned)
        name = table.name
        if name not in changes:
            # Without READ an unchanged record is written too: no commit would disclose its values.
            may_read = run.may_read(table)
            changes[name] = RecordChanges(run.transaction, table, skips_same=may_read)
            is_told[name] = statement.returning is not None or may_read
        is_answered = is_told[name] and not answer.is_empty
        make = _changed_by_record if is_reading or len(found) < 2 else _changed_together
        made = make(run, changes[name], table, found, statement.data, is_answered)
        run.count_changed(len(found))
        if is_answered:
            for change in made:
                answer.add(*change)
    told = answer.value()
    # All is computed by now: no expression has read a write of this statement.
    # A table's records are written together: UNIQUE holds for the state after all of them.
    for each in changes.values():
        each.write(run.tick)
    return told


@compiles(
    tree.Delete,
    "rows",
    writes=True,
    needs=[
        RequiresOnRecords(WRITE),
        RequiresOnRecords(READ, RequiredWhen.FILTERS),
        RequiresOnRecords(READ, RequiredWhen.ANSWERS),
    ],
)
def delete(statement: tree.Delete) -> StatementFunction:
    """Delete every record of the target that passes WHERE."""
    return partial(_delete, statement, _Targets(statement))


def _delete(statement: tree.Delete, targets: _Targets, run: Execution) -> Value:
    found = targets.one(run)
    if found is None:
        return _delete_all(run, statement, targets)
    table, record = found
    stored = records.stored(run.transaction, table, record.id)
    if stored is None:
        return []
    run.count_read(1)
    answer = ReturnedRows(run, statement.returning, NOTHING)
    if not answer.is_empty:
        answer.add({"id": record, **unpack_object(stored.raw)}, None)
    # RETURN is evaluated while the record still exists.
    told = answer.value()
    records.delete(run.transaction, table, record.id, stored, run.tick)
    run.count_changed(1)
    return told


def _delete_all(run: Execution, statement: tree.Delete, targets: _Targets) -> Value:
    answer = ReturnedRows(run, statement.returning, NOTHING)
    scanned = records.Scanned()
    found, told = targets.all(run, scanned), []
    # Without RETURN no record is held: a table deleted whole may be larger than memory.
    if not answer.is_empty:
        # Walked twice: for the answer, and then to delete.
        found = list(found)
        for table, some in found:
            for record, _, stored in _existing(run, table, some, scanned):
                run.tick()
                answer.add({"id": record, **unpack_object(stored.raw)}, None)
        told = answer.value()
    for table, some in found:
        run.tick()
        there = _existing(run, table, some, scanned)
        if there:
            gone = [key for _, key, _ in there]
            before = [stored for _, _, stored in there]
            records.delete_together(run.transaction, table, gone, before, run.tick)
            run.count_changed(len(there))
    return told


TOGETHER: Final = 64
"""Most records that are changed or deleted in one step."""


TargetBatch = tuple[Table, list[RecordId]]
"""Some records of one table."""


def _together(found: Iterable[tuple[Table, RecordId]]) -> Iterator[TargetBatch]:
    """Yield some records of one table at a time."""
    some: list[RecordId] = []
    of: Table | None = None
    for table, record in found:
        if of is not None and (table is not of or len(some) == TOGETHER):
            yield of, some
            some = []
        of = table
        some.append(record)
    if of is not None:
        yield of, some


def _existing(run: Execution, table: Table, some: list[RecordId], scanned: Scanned) -> list[Found]:
    """Return those of some records that exist: an expression may name others."""
    there = records.stored_together(run.transaction, table, [one.id for one in some], scanned)
    return [
        (record, key, stored)
        for record, (key, stored) in zip(some, there, strict=True)
        if stored is not None
    ]


class _Targets:
    """Records that an UPDATE or DELETE writes."""

    def __init__(self, statement: tree.Update | tree.Delete) -> None:
        self._statement = statement
        self._plan: SelectPlan = plan_targets(statement)
        self._verbs = claims_of(statement).records
        target = statement.target
        # Fast path: one record by its id, without a plan that looks for it.
        self._named: Callable[[Any], Any] | None = None
        """Expression that may name one record, if the statement has no other condition."""
        if (
            statement.where is None
            and statement.limit is None
            and isinstance(target, tree.ExpressionTarget)
            and names_record(target.expression)
        ):
            self._named = rowless(target.expression)

    def one(self, run: Execution) -> tuple[Table, RecordId] | None:
        """Return the record, if the target is a single one; it may not exist."""
        if self._named is None:
            return None
        # If it names no record, `all` evaluates it again: such an expression has no effect.
        record = self._named(run)
        if type(record) is not RecordId:
            return None
        table = run.table(record.table, self._verbs)
        run.begin_count((table,))
        return table, record

    def all(self, run: Execution, scanned: Scanned) -> Iterable[TargetBatch]:
        """Return all records in batches, each once. All are found before the first write is
        computed.

        :param scanned: collects what is read of them
        """
        tx = run.transaction
        tx.scanned = scanned
        try:
            return _targets(run, self._statement, self._plan, self._verbs)
        finally:
            tx.scanned = None
            run.memory.held += records.SCANNED_BYTES - scanned.room


def _targets(
    run: Execution, statement: tree.Update | tree.Delete, plan: SelectPlan, verbs: Verbs
) -> Iterable[TargetBatch]:
    found = rows(run, plan, (statement.target,), verbs)
    if not isinstance(statement.target, tree.ExpressionTarget):
        # READ is checked even if no record was found. All of them are of this table, each once.
        table = run.table(statement.target.table, verbs)
        run.begin_count((table,))
        return _of_table(table, found)
    tables: dict[str, Table] = {}
    for record in found:
        if not isinstance(record, RecordId):
            raise TypeRefused(f"only a record can be written, not {type_name(record)}")
        # Each table is authorized once, not for each of its records.
        if record.table not in tables:
            tables[record.table] = run.table(record.table, verbs)
    run.begin_count(tables.values())
    # An expression may name a record twice.
    return _together(_each_once(_with_tables(tables, found)))


def _of_table(table: Table, found: list[RecordId]) -> Iterator[TargetBatch]:
    for start in range(0, len(found), TOGETHER):
        yield table, found[start : start + TOGETHER]


def _with_tables(
    tables: dict[str, Table], found: list[RecordId]
) -> Iterator[tuple[Table, RecordId]]:
    for record in found:
        yield tables[record.table], record


def _each_once(targets: Iterable[tuple[Table, RecordId]]) -> Iterator[tuple[Table, RecordId]]:
    seen: set[bytes] = set()
    for table, record in targets:
        key = keys.record(table.prefix, record.id)
        if key not in seen:
            seen.add(key)
            yield table, record


def plan_targets(statement: tree.Update | tree.Delete) -> SelectPlan:
    """Return the plan that finds the ids of the records to write."""
    return plan_select(
        tree.Select(
            value=True,
            everything=False,
            columns=(tree.Column(tree.Name("id"), None),),
            omit=(),
            sources=(statement.target,),
            where=statement.where,
            limit=statement.limit,
            # An expression may name a record twice; it counts once against LIMIT.
            distinct=statement.limit is not None
            and isinstance(statement.target, tree.ExpressionTarget),
        )
    )


def put(
    run: Execution,
    changes: RecordChanges,
    table: Table,
    record: RecordId,
    stored: records.Stored | None,
    data: tree.Data,
) -> tuple[Row | None, Row]:
    """Compute the new fields of a record, which may not exist yet, and add it to the pending
    writes. Return it before and after."""
    try:
        return _put(run, changes, table, record, stored, data)
    except Refusal as refusal:
        if run.may_read(table):
            raise of_record(refusal, record) from None
        # The new size would disclose the old one to a caller without READ.
        if isinstance(refusal, TooLarge):
            refusal = redacted(refusal, table.name, table.fields)
        raise refusal from None


def _changed_together(
    run: Execution,
    changes: RecordChanges,
    table: Table,
    found: list[Found],
    data: tree.Data,
    is_answered: bool,
) -> list[tuple[Row | None, Row]]:
    """Compute the new fields of existing records and add them to the pending writes, as `put` does
    for each. Return them before and after, if they are wanted for the answer."""
    held = run.memory.held
    try:
        made = _computed_together(run, changes, table, found, data, is_answered)
    except NO_MISFIT:
        raise
    except (Refusal, HoldsNone):
        made = None
    if made is not None:
        return made
    # What is refused or unusual is computed once more, for its exact refusal.
    run.memory.held = held
    return _changed_by_record(run, changes, table, found, data, is_answered)


def _changed_by_record(
    run: Execution,
    changes: RecordChanges,
    table: Table,
    found: list[Found],
    data: tree.Data,
    is_answered: bool,
) -> list[tuple[Row | None, Row]]:
    """Do the same one by one."""
    made = [put(run, changes, table, record, stored, data) for record, _, stored in found]
    return made if is_answered else []


def _computed_together(
    run: Execution,
    changes: RecordChanges,
    table: Table,
    found: list[Found],
    data: tree.Data,
    is_answered: bool,
) -> list[tuple[Row | None, Row]] | None:
    """Do the same in one step. Return None, with nothing added, if each has to be changed by
    itself.

    :raises Refusal, HoldsNone: the same
    """
    schema = schema_of(run, table) if table.fields or table.schemafull else None
    if schema is not None and not schema.changes_by_column:
        return None
    if sum([len(stored.raw) for _, _, stored in found]) > records.TOGETHER_BYTES:
        return None
    apply: Write = run.plan.made(data, plan_data)
    known = [unpack_object(stored.raw) for _, _, stored in found]
    before = [{"id": record, **fields} for (record, _, _), fields in zip(found, known, strict=True)]
    after = [_storable_change(row, apply(row, run), run.tick) for row in before]
    run.tick()
    if schema is not None:
        ids = [record.id for record, _, _ in found]
        if not schema.conform_new(ids, after, surroundings(run)):
            return None
    size = changes.put_together(found, after, known, run.tick)
    if size is None:
        return None
    run.memory.held += size
    if not is_answered:
        return []
    return [(row, {"id": row["id"], **fields}) for row, fields in zip(before, after, strict=True)]


def _storable_change(before: Row, after: Row, tick: Tick) -> Row:
    """Return the fields of a changed record as `storable` does: values that a stored record had
    already need no check.

    :raises BadRequest: its id is not the same object
    """
    if after.get("id") is not before["id"]:
        raise BadRequest("the id has to be compared")
    for name, value in after.items():
        if value is before.get(name, NONE):
            continue
        if name not in before or value is NONE or type(value) in _PARTED:
            return storable(after, tick)
        check(value)
    fields = after.copy()
    del fields["id"]
    return fields


_PARTED: Final = frozenset({dict, list})


def _put(
    run: Execution,
    changes: RecordChanges,
    table: Table,
    record: RecordId,
    stored: records.Stored | None,
    data: tree.Data,
) -> tuple[Row | None, Row]:
    # `stored` stays packed beside the decoded fields: `changes.put` compares with it.
    known = None if stored is None else unpack_object_in_steps(stored.raw, run.tick)
    before = None if known is None else {"id": record, **known}
    try:
        after = _apply(run, data, before or {"id": record})
    except Refusal as refusal:
        if run.may_read(table):
            raise
        # The message of an expression may quote a field of the record.
        raise redacted(refusal, table.name, table.fields) from None
    # Data may repeat the id, but not change it: it is the key of the record.
    given = after.get("id", NONE)
    if given is not NONE and _identity(table, given) != record.id:
        raise BadRequest(f"the id of {format_record(record)} cannot be changed")
    fields = storable(after, run.tick)
    if table.fields or table.schemafull:
        fields = conform(run, table, record, fields, before, data)
    # Held until the statement has written: the caller's memory account counts it.
    run.memory.held += changes.put(record.id, fields, stored, known, run.tick)
    return before, {"id": record, **fields}


def _put_one(
    run: Execution,
    table: Table,
    record: RecordId,
    stored: records.Stored | None,
    data: tree.Data,
    answer: ReturnedRows,
) -> Value:
    """Write one record, and return the answer."""
    changes = RecordChanges(run.transaction, table, skips_same=run.may_read(table))
    answer.add(*put(run, changes, table, record, stored, data))
    told = answer.value()
    changes.write(run.tick)
    run.count_changed(1)
    return told


def storable(fields: Row, tick: Tick) -> Row:
    """Return a record's fields in stored form: checked, without its id and without NONE values.

    :param tick: called now and then while a large record is processed
    :raises TypeRefused, NumberTooLarge, TooLarge: see `values.check`
    """
    check(fields, 0, tick)
    kept = without_none(fields, tick)
    kept.pop("id", None)
    return kept


def _apply(run: Execution, data: tree.Data, before: Row) -> Row:
    """Return the fields that a statement's data makes of a record; `before` is left as it is."""
    return run.plan.made(data, plan_data)(before, run)


def _applied(data: tree.Data | None) -> Write:
    """Return the function that does the same for a new record."""
    return (lambda before, env: {}) if data is None else plan_data(data)


def address(run: Execution, table: Table, fields: Row, named: Any) -> RecordId:
    """Return the id of a new record: the statement's own, that among its fields, or a generated
    one."""
    given = fields.get("id", NONE)
    if given is NONE:
        return RecordId(table.name, run.new_id() if named is None else named)
    identity = _identity(table, given)
    if named is not None and identity != named:
        raise BadRequest("the statement and the fields of the record name different ids")
    return RecordId(table.name, identity)


def _identity(table: Table, given: Any) -> Any:
    if isinstance(given, RecordId):
        if given.table != table.name:
            raise BadRequest(f"{format_record(given)} is not an id of table {table.name}")
        return given.id
    check_record_id(given)
    return given


def default_return(run: Execution, table: Table) -> tree.Return:
    """Return the default of RETURN: no rows for a caller without READ."""
    return AFTER if run.may_read(table) else NOTHING


ANSWERED: Final = 16
"""Number of answered records between two estimates of their memory."""


class ReturnedRows:
    """Rows of a statement's RETURN. Collected before the first record is written, so that its
    expressions read the same state as those of the statement."""

    def __init__(self, run: Execution, returning: tree.Return | None, default: tree.Return) -> None:
        self._run = run
        self._returning = returning or default
        self._kind = self._returning.kind
        self._rows: list[Any] = []
        self._budget: Budget | None = None

    @property
    def is_empty(self) -> bool:
        """True if RETURN asks for no rows."""
        return self._kind == "NONE"

    def add(self, before: Row | None, after: Row | None) -> None:
        """Add a record before and after its change; None: it does not exist.

        :raises TooLarge: the answer would hold more than a statement may
        """
        if self._kind == "NONE":
            return
        self._rows.append(self._shown(before, after))
        # One of the newest rows is weighed, and stands for all sixteen.
        if not len(self._rows) % ANSWERED:
            if self._budget is None:
                self._budget = Budget(tick=self._run.tick, memory=self._run.memory)
            self._budget.hold(self._budget.size(self._rows[-ANSWERED:], samples=1))

    def _shown(self, before: Row | None, after: Row | None) -> Any:
        if self._kind == "DIFF":
            return diff(before or {}, after or {}, self._run.tick)
        # Columns are those of the record after the change; of a deleted one, before it.
        if self._kind == "FIELDS":
            return before if after is None else after
        row = before if self._kind == "BEFORE" else after
        return NONE if row is None else row

    def value(self) -> list[Any]:
        """Return the answer, a row for each record that was added."""
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
