"""INSERT: any number of rows, atomically; see also the head of `writing.py`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from actors.scripts.execution import Execution
from actors.scripts.handlers import RequiredWhen, Requires, handles
from actors.scripts.schema import NO_MISFIT, conform, conform_new, schema_of, surroundings
from actors.scripts.writing import ReturnedRows, Row, address, default_return, put, storable
from language import tree
from language.error_places import of_row
from language.names import reads_store
from protocol import order
from protocol.binary import EncodedLinks
from protocol.errors import AlreadyExists, BadRequest, Duplicate, Refusal, TypeRefused
from protocol.rights import READ, WRITE, SecurableKind
from protocol.text import brief
from protocol.values import (
    NONE,
    NoneValue,
    RecordId,
    Tick,
    Value,
    check,
    paced,
    present_fields,
    type_name,
    without_none,
)
from storage.catalog.tables import Table
from storage.formats import keys
from storage.records import records
from storage.records.records import RecordChanges


@handles(
    tree.Insert,
    "rows",
    writes=True,
    needs=[
        Requires(WRITE, SecurableKind.TABLE, ("table",)),
        Requires(READ, SecurableKind.TABLE, ("table",), RequiredWhen.ANSWERS),
        Requires(READ, SecurableKind.TABLE, ("table",), RequiredWhen.MEETS),
    ],
)
def insert(run: Execution, statement: tree.Insert, table: Table) -> Value:
    """Insert any number of rows, all or none."""
    given = run.evaluate(statement.rows)
    rows = _columns(given, run.tick) if statement.columns else _rows(given)
    return _Insertion(run, statement, table).of(rows)


def _rows(given: Any) -> list[Any]:
    if isinstance(given, dict):
        return [given]
    if not isinstance(given, list):
        raise TypeRefused(f"INSERT takes an array of objects, not {type_name(given)}")
    return given


def _columns(given: Any, tick: Tick) -> ColumnRows:
    """Check the arrays of COLUMNS. :raises TypeRefused, BadRequest: they are none, or differ in
    length"""
    if not isinstance(given, dict):
        raise TypeRefused(f"INSERT COLUMNS takes an object of arrays, not {type_name(given)}")
    for name, column in paced(given.items(), tick):
        if not isinstance(column, list):
            raise TypeRefused(
                f"INSERT COLUMNS takes an array for each field: {brief(name, 80)} is"
                f" {type_name(column)}",
                field=name,
            )
    # Some clients sort the fields of an object: the ids are the measure wherever they stand.
    measure = "id" if "id" in given else next(iter(given), "")
    for name, column in paced(given.items(), tick):
        if len(column) != len(given[measure]):
            raise BadRequest(
                f"the arrays of INSERT COLUMNS have one length: {brief(measure, 80)} has"
                f" {len(given[measure])} items, {brief(name, 80)} has {len(column)}",
                field=name,
            )
    return ColumnRows(given)


class ColumnRows:
    """Rows of INSERT COLUMNS, made of its arrays a batch at a time.

    :param columns: arrays of one length, by field
    """

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self.step = _step(len(columns))
        """Rows of a batch: fewer if they have many fields."""
        self._names = list(columns)
        self._columns = list(columns.values())

    def __len__(self) -> int:
        return len(self._columns[0]) if self._columns else 0

    def batch(self, start: int, end: int) -> list[Row]:
        """Return the rows from one number to before another."""
        return _rows_of(self.part(start, end))

    def part(self, start: int, end: int) -> dict[str, list[Any]]:
        """Return the columns of these rows."""
        parts = [column[start:end] for column in self._columns]
        return dict(zip(self._names, parts, strict=True))


def _rows_of(columns: dict[str, list[Any]]) -> list[Row]:
    """Make rows of columns of one length, at least one. A NONE field is absent."""
    names = list(columns)
    rows = [dict(zip(names, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    # Most columns hold none.
    if any(map(_has_none, columns.values())):
        rows = list(map(present_fields, rows))
    return rows


def _has_none(column: list[Any]) -> bool:
    return NoneValue in set(map(type, column))


def _step(fields: int) -> int:
    """Return the most rows of a batch, by the number of their fields."""
    return max(min(TOGETHER, CELLS // max(fields, 1)), 1)


TOGETHER: Final = 128
"""Most rows that are inserted in one batch, where that is possible."""
CELLS: Final = 8_192
"""Most values of the rows of a batch."""
_OBJECTS: Final = frozenset({dict})
_NO_FIELDS: Final = frozenset({(), ("id",)})
"""Names in rows without fields."""
_INTEGERS: Final = frozenset({int})
_ONCE: Final = "ON DUPLICATE UPDATE changes only records from before the statement, each once"


class _Insertion:
    """An INSERT statement.

    New records are written at once if no expression reads the store between two of them; rules of
    fields never do. Changed records, and new ones otherwise, are written after the last row was
    computed.
    """

    def __init__(self, run: Execution, statement: tree.Insert, table: Table) -> None:
        self._run = run
        self._statement = statement
        self._table = table
        self._has_rules = bool(table.fields) or table.schemafull
        # An expression that reads the store must not see rows of its own statement.
        self._at_once = not (
            reads_store(statement.returning)
            or reads_store(statement.on_duplicate, tree.Parameter("input"))
        )
        # ON DUPLICATE needs READ, so that skipping an equal record discloses nothing.
        self._changes = RecordChanges(run.transaction, table, skips_same=True)
        self._written: set[bytes] = set()
        """Keys of records that ON DUPLICATE UPDATE must not change: the statement writes them
        already."""
        self._answer = ReturnedRows(run, statement.returning, default_return(run, table))
        self._links = EncodedLinks()
        self._row = 0
        """Number of the current row, from 1."""
        self._several = False
        self._count = 0
        """Records created or changed by the statement, pending ones included."""

    def of(self, rows: list[Any] | ColumnRows) -> Value:
        """Write the rows. Return the statement's answer."""
        self._several = len(rows) > 1
        for part, made in self._parts(rows):
            # `all` stops at the first refused row.
            if not made and not all(map(self._taken, part)):
                break
            self._row += made
        told = self._answer.value()
        # After the answer: RETURN reads the state from before the statement.
        passed = self._changes.write(self._run.tick, self._is_passed)
        self._run.count_changed(self._count - len(passed))
        return [one for number, one in enumerate(told) if number not in passed] if passed else told

    def _parts(self, rows: list[Any] | ColumnRows) -> Iterator[tuple[list[Any], int]]:
        """Yield the rows a batch at a time, with the number of records created as a batch. If that
        is 0, each row has to be handled by itself."""
        # Parameters of the request were checked by the surface, and are not changed.
        source = self._statement.rows
        checked = type(source) is tree.Parameter and self._run.variables.get(
            source.name
        ) is self._run.request.parameters.get(source.name)
        at = 0
        while at < len(rows):
            self._run.tick()
            made = 0
            part: list[Any] = []
            if isinstance(rows, list):
                first = rows[at]
                step = _step(len(first)) if type(first) is dict else TOGETHER
                part = rows[at : at + step]
            else:
                if self._at_once and checked and self._is_by_column:
                    made = self._by_column(rows.part(at, at + rows.step))
                if not made:
                    part = rows.batch(at, at + rows.step)
            if self._at_once and not made:
                made = self._together(part, checked)
            yield part, made
            # A batch may end early: the rest begins the next one.
            at += made or len(part)

    @property
    def _is_by_column(self) -> bool:
        """True if nothing needs the new records as rows."""
        return not self._has_rules or schema_of(self._run, self._table).by_column

    def _by_column(self, columns: dict[str, list[Any]]) -> int:
        """Create records of checked columns in one batch, as many as possible. Return their number;
        0 if each row has to be handled by itself: one is refused, or collides with another."""
        run, table = self._run, self._table
        given = columns.pop("id", None)
        if not columns:
            return 0
        ids = self._ids(given or [NONE] * len(next(iter(columns.values()))))
        if ids is None:
            return 0
        fields: dict[str, list[Any]] | None = columns
        if self._has_rules:
            fields = schema_of(run, table).conform_columns(
                ids, columns, _rows_of, surroundings(run)
            )
        return 0 if fields is None else self._created(ids, fields)

    def _ids(self, given: list[Any]) -> list[Any] | None:
        """Return the ids of new records. None if one of them is refused.

        :param given: ids among their fields, NONE where there is none
        """
        # Fast path: an integer is a valid id.
        if set(map(type, given)) == _INTEGERS:
            return given
        try:
            return [
                one if type(one) is int else address(self._run, self._table, {"id": one}, None).id
                for one in given
            ]
        # Row by row then, so that the refusal gets the number of its row.
        except Refusal:
            return None

    def _together(self, rows: list[Any], checked: bool) -> int:
        """Create records of some rows, as `_by_column` does."""
        run = self._run
        if set(map(type, rows)) != _OBJECTS:
            return 0
        try:
            if not checked:
                for row in rows:
                    check(row, 0, run.tick)
        except Refusal:
            return 0
        names = tuple(rows[0])
        if names not in _NO_FIELDS and self._is_by_column and set(map(tuple, rows)) == {names}:
            columns = zip(*map(dict.values, rows), strict=True)
            return self._by_column(dict(zip(names, map(list, columns), strict=True)))
        ids = self._ids([row.get("id", NONE) for row in rows])
        if ids is None:
            return 0
        fields = self._conformed(ids, rows) if self._has_rules else list(map(_without_id, rows))
        return 0 if fields is None else self._created(ids, fields)

    def _created(self, ids: list[Any], fields: list[Row] | dict[str, list[Any]]) -> int:
        """Create records in one batch. Return their number, as `create_together` does."""
        run, table = self._run, self._table
        made = records.create_together(
            run.transaction, table, order.encode_all(ids), fields, run.tick, self._links
        )
        if made:
            self._note(ids[:made], fields)
        return made

    def _conformed(self, ids: list[Any], rows: list[Row]) -> list[Row] | None:
        """Return the fields of new records as the table's schema requires them. None if one of them
        is refused."""
        run = self._run
        schema = schema_of(run, self._table)
        # The rows may be a parameter, which later statements read: the schema changes copies.
        if schema.by_column:
            fields = [row.copy() for row in rows]
        else:
            fields = [without_none(row, run.tick) for row in rows]
        for one in fields:
            one.pop("id", None)
        return fields if schema.conform_new(ids, fields, surroundings(run)) else None

    def _note(self, ids: list[Any], fields: list[Row] | dict[str, list[Any]]) -> None:
        """Count created records, and add them to the answer.

        :param fields: of as many records or more
        """
        table = self._table
        self._count += len(ids)
        if self._statement.on_duplicate is not None:
            self._written.update(keys.record(table.prefix, id) for id in ids)
        if not self._answer.is_empty:
            rows = _rows_of(fields) if isinstance(fields, dict) else fields
            for id, row in zip(ids, rows, strict=False):
                self._answer.add(None, {"id": RecordId(table.name, id), **row})

    def _taken(self, row: Any) -> bool:
        """Like `_take`; a refusal names the row."""
        self._row += 1
        try:
            return self._take(row)
        except Refusal as refusal:
            raise self._named(refusal) from refusal.__cause__

    def _named(self, refusal: Refusal) -> Refusal:
        """Add the number of the current row to a refusal, where there are several."""
        return of_row(refusal, self._row) if self._several else refusal

    def _take(self, row: Any) -> bool:
        """Handle one row. Return False after a refused row, which ends the INSERT at the write.
        With IGNORE later rows follow: an earlier row may be in its way, so that it is skipped."""
        run, table = self._run, self._table
        run.tick()
        if type(row) is not dict:
            raise TypeRefused(
                f"a row must be an object, not {type_name(row)}", found=type_name(row)
            )
        record, fields = address(run, table, row, None), storable(row, run.tick)
        if not self._at_once:
            return self._compute(record, fields, row)
        self._create(record, fields, row)
        return True

    def _create(self, record: RecordId, fields: Row, row: Row) -> None:
        """Write a record now."""
        run, table = self._run, self._table
        try:
            if self._has_rules:
                given = partial(storable, row, run.tick)
                fields = conform_new(run, table, record, fields, given)
            records.create(run.transaction, table, record.id, fields, run.tick)
        except (AlreadyExists, Duplicate) as taken:
            self._meet(taken, record, row)
        else:
            self._note([record.id], [fields])

    def _compute(self, record: RecordId, fields: Row, row: Row) -> bool:
        """Prepare a record to be written with all the others. Returns as `_take`."""
        run, table, statement = self._run, self._table, self._statement
        refused: Refusal | None = None
        if self._has_rules:
            try:
                fields = conform(run, table, record, fields, None, None)
            # About the run, not the row: later rows could not be judged either.
            except NO_MISFIT:
                raise
            except Refusal as refusal:
                refused = self._named(refusal)
                # Start from the given row again: the refusal has left the fields half changed.
                fields = storable(row, run.tick)
        if statement.ignore or statement.on_duplicate is not None:
            try:
                records.check_new(run.transaction, table, record.id, fields, run.tick)
            except (AlreadyExists, Duplicate) as taken:
                self._meet(taken, record, row)
                return True
        if refused is not None:
            # An earlier row may be refused first, or collide with this one: known at the write.
            self._changes.refuse(record.id, fields, refused)
            return statement.ignore
        run.memory.held += self._changes.put(record.id, fields, None)
        self._count += 1
        self._answer.add(None, {"id": record, **fields})
        return True

    def _meet(self, taken: AlreadyExists | Duplicate, record: RecordId, row: Row) -> None:
        """Handle a row whose record exists, or whose unique values another record has."""
        data = self._statement.on_duplicate
        if self._statement.ignore:
            return
        if data is None:
            raise taken
        # With a UNIQUE index the colliding record has the values, but maybe another id.
        met = taken.detail["record"] if isinstance(taken, Duplicate) else record
        assert isinstance(met, RecordId)
        key = keys.record(self._table.prefix, met.id)
        if key in self._written:
            raise _twice(taken)
        self._written.add(key)
        self._change(met, data, row)

    def _change(self, record: RecordId, data: tree.Data, row: Row) -> None:
        """Change a record, with the colliding row as `$input`."""
        run = self._run
        # `$input` may be a variable of the script.
        outer = run.variables.get("input", NONE)
        run.variables["input"] = row
        try:
            stored = records.stored(run.transaction, self._table, record.id)
            self._answer.add(*put(run, self._changes, self._table, record, stored, data))
            self._count += 1
        finally:
            if outer is NONE:
                del run.variables["input"]
            else:
                run.variables["input"] = outer

    def _is_passed(self, taken: AlreadyExists | Duplicate) -> bool:
        """True if a new record that turns out to exist is skipped. It did not exist when the
        statement began, so that it collides with another row."""
        if self._statement.on_duplicate is not None:
            raise _twice(taken)
        return self._statement.ignore


def _without_id(row: Row) -> Row:
    """Return the fields of a row: a copy where it holds its id, as the rows may be a parameter."""
    if "id" not in row:
        return row
    fields = row.copy()
    del fields["id"]
    return fields


def _twice(taken: AlreadyExists | Duplicate) -> Refusal:
    """Return the refusal of a row that collides with another row of its own statement, directly or
    through a record."""
    return type(taken)(f"{taken.message}, by another row of this INSERT: {_ONCE}", **taken.detail)
