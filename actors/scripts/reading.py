"""SELECT: the sources of its rows. Filters, groups and order are those of `language.select`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any, Final

from actors.scripts.access import AccessPath
from actors.scripts.access_paths import access_path, equal, unique
from actors.scripts.columns import answer, by_column
from actors.scripts.comparing import check_comparisons
from actors.scripts.execution import Execution
from actors.scripts.handlers import RequiresOnRecords, StatementFunction, compiles
from actors.scripts.nearest import nearest_path
from actors.scripts.plans import rowless
from actors.scripts.text_search import TextScope
from language import tree
from language.planner import ID, Term
from language.rows import Batch, Objects, Pairs
from language.select import SelectPlan, plan_select
from protocol.errors import BadRequest, Refusal, TypeRefused
from protocol.paths import Path, path_text
from protocol.rights import READ, Verbs
from protocol.values import NONE, RecordId, Value, check_record_id, type_name
from storage.catalog.tables import Table
from storage.formats.keys import Range, within
from storage.indexes.entries import BUILDING
from storage.records import records

OBJECTS_IN_A_BATCH = 512


@compiles(tree.Select, "rows", writes=False, needs=[RequiresOnRecords(READ)])
def select(statement: tree.Select) -> StatementFunction:
    """Compile a SELECT: returns its rows, in the current transaction; with FROM ONLY the single
    one."""
    plan = plan_select(statement)
    work = _listing(statement, plan)
    if statement.back is not None:
        (source,) = statement.sources
        assert isinstance(source, tree.TableTarget)
        work = partial(_through_index, statement.back, source.table, work)
    return (lambda run: plan.statement_result(work(run))) if statement.only else work


def _listing(statement: tree.Select, plan: SelectPlan) -> _Listing:
    """Return the function that finds the rows as a list."""
    # The cheapest way first: the counter, one id, one UNIQUE entry; else a plan of batches.
    sources = statement.sources
    if plan.is_count_only:
        (source,) = sources
        assert isinstance(source, tree.TableTarget)
        return partial(_count, plan, source.table)
    if plan.takes_one and len(sources) == 1:
        (source,) = sources
        if type(source) is tree.ExpressionTarget and names_record(source.expression):
            return partial(_by_id, plan, sources, rowless(source.expression))
        if type(source) is tree.TableTarget and plan.point is not None:
            compute = rowless(plan.point.value)
            return partial(_by_point, plan, sources, source.table, plan.point, compute)
    return lambda run: rows(run, plan, sources, READ)


_Listing = Callable[[Execution], list[Any]]


def _through_index(path: Path, name: str, work: _Listing, run: Execution) -> list[Any]:
    """Run `<-table.path`: evaluated for each of many rows, it never scans the table.

    :raises BadRequest: no usable index begins with that path
    """
    table = run.table(name, READ)
    if not any(each.usable and each.paths[0] == path for each in table.indexes):
        raise _no_way(path, table)
    return work(run)


def _no_way(path: Path, table: Table) -> BadRequest:
    name, field = table.name, path_text(path)
    goes = f"<-{name}.{field} needs an index that begins with {field}, but"
    for each in table.indexes:
        if each.state == BUILDING and each.paths[0] == path:
            return BadRequest(
                f"{goes} {each.name} is being built: INFO FOR INDEX {each.name} ON {name} shows"
                " its progress"
            )
    return BadRequest(f"{goes} there is none: DEFINE INDEX … ON {name} FIELDS {field}")


def _count(plan: SelectPlan, name: str, run: Execution) -> list[Any]:
    # The table's counter is a row of the state: no record is read.
    return plan.count_result(records.count(run.transaction, run.table(name, READ)))


def _by_id(
    plan: SelectPlan, sources: Sequence[tree.Target], named: Callable[[Any], Any], run: Execution
) -> list[Any]:
    """Return the rows where the only source is an expression that may name one record."""
    record = named(run)
    if type(record) is not RecordId:
        return rows(run, plan, sources, READ)
    if plan.comparisons:
        check_comparisons(run, plan, run.table(record.table, READ))
    return _one(run, plan, record)


def _one(run: Execution, plan: SelectPlan, record: RecordId) -> list[Any]:
    """Return the answer for one record: read once, decoded once."""
    raw = run.raw(record)
    run.count_read(1)
    if raw is None:
        return []
    if not plan.matches_text:
        return plan.run_one(record, raw, run)
    with text_scope(run, plan, [record.table]):
        return plan.run_one(record, raw, run)


def _by_point(
    plan: SelectPlan,
    sources: Sequence[tree.Target],
    name: str,
    condition: Term,
    compute: Callable[[Any], Any],
    run: Execution,
) -> list[Any]:
    """Return the rows where the only condition is an equality that leads to few records: by their
    id, or by an index over that field."""
    table = run.table(name, READ)
    try:
        value = compute(run)
    except Refusal:
        found = None  # a scan may never evaluate it (short circuit)
    else:
        found = _point(run, plan, table, condition, value)
    return rows(run, plan, sources, READ) if found is None else found


def _point(
    run: Execution, plan: SelectPlan, table: Table, condition: Term, value: Any
) -> list[Any] | None:
    """Return the answer for that record; None: the lookup does not suffice."""
    if condition.path == ID:
        # Any other value goes the general way, which has the rules of comparison.
        named = type(value) is RecordId and value.table == table.name
        return _one(run, plan, value) if named else None
    pairs = unique(run, table, condition.path, value)
    if pairs is None:
        pairs = equal(run, table, condition.path, value)
        if pairs is None:
            return None
        check_comparisons(run, plan, table)
        some = [Pairs(pairs, records.record_id(table))] if pairs else []
        return plan.run(counted(run, some), run)
    run.count_read(1)
    if not pairs:
        check_comparisons(run, plan, table)
        return []
    ((key, raw),) = pairs
    record = records.record_id(table)(key)
    if not plan.matches_text:
        return plan.run_one(record, raw, run)
    with text_scope(run, plan, [table.name]):
        return plan.run_one(record, raw, run)


def names_record(expression: tree.Expression) -> bool:
    """True if an expression may be evaluated first to see if it names a record."""
    return type(expression) in _NAMES


# Evaluated again if they name no record: that is cheap, and has no effect.
_NAMES: Final = frozenset({tree.Parameter, tree.RecordLiteral, tree.Constant})


def rows(
    run: Execution, plan: SelectPlan, sources: Sequence[tree.Target], verbs: Verbs
) -> list[Any]:
    """Return the result of a plan for the rows of some sources, which are read only as far as
    needed.

    :param verbs: privileges required on the tables of these rows
    :raises Unknown: a named table does not exist, even if its rows are not needed
    """
    if plan.nearest is not None:
        with text_scope(run, plan), distances(run):
            return _rows(run, plan, sources, verbs)
    if not plan.matches_text:
        return _rows(run, plan, sources, verbs)
    with text_scope(run, plan):
        return _rows(run, plan, sources, verbs)


def _rows(
    run: Execution, plan: SelectPlan, sources: Sequence[tree.Target], verbs: Verbs
) -> list[Any]:
    alone = len(sources) == 1
    # A list, not a generator: all sources are authorized before the first row is read.
    found = [source_of(run, plan, source, verbs, alone=alone) for source in sources]
    # Index order is the order of all rows only with a single source.
    ordered = len(found) == 1 and isinstance(found[0], AccessPath) and found[0].ordered
    if len(found) == 1 and isinstance(found[0], AccessPath) and found[0].columns is not None:
        return answer(run, plan, found[0], counted)
    batches = [one.batches if isinstance(one, AccessPath) else one for one in found]
    read = counted(run, chain.from_iterable(batches))
    return plan.run(read, run, ordered=ordered, answered=answered(found))


@contextmanager
def text_scope(run: Execution, plan: SelectPlan, tables: Iterable[str] = ()) -> Iterator[None]:
    """Have `@@` mean the fields of some tables meanwhile: those given, and those that are met."""
    scope = TextScope(
        run, run.transaction, run.fiber, run.evaluate, partial(run.table, verbs=READ), plan.scored
    )
    for table in tables:
        scope.add(table)
    outer, run.texts = run.texts, scope
    try:
        yield
    finally:
        run.texts = outer


@contextmanager
def distances(run: Execution) -> Iterator[None]:
    """Keep the distances of the rows that NEAREST finds meanwhile."""
    outer, run.distances = run.distances, {}
    try:
        yield
    finally:
        run.distances = outer


def answered(found: Sequence[AccessPath | Iterator[Batch]]) -> tuple[tree.Expression, ...]:
    """Return the conditions that hold for all rows of some sources."""
    first = found[0]
    return first.answered if len(found) == 1 and isinstance(first, AccessPath) else ()


def counted(run: Execution, batches: Iterable[Batch]) -> Iterator[Batch]:
    """Yield batches, and count their rows against the limit of rows that a statement reads."""
    for batch in batches:
        # Counted as they come: LIMIT stops the sources early.
        run.count_read(len(batch.pairs) if isinstance(batch, Pairs) else len(batch.values))
        yield batch


def source_of(
    run: Execution, plan: SelectPlan, source: tree.Target, verbs: Verbs, *, alone: bool
) -> AccessPath | Iterator[Batch]:
    """Return the access path to the rows of one source.

    :param verbs: privileges required on its table
    :param alone: True if it is the only source of its statement
    """
    if isinstance(source, tree.ExpressionTarget):
        return _values(run, plan, source.expression, verbs)
    table = run.table(source.table, verbs)
    if run.texts is not None and plan.matches_text:
        run.texts.add(table.name)
    check_comparisons(run, plan, table)
    span = _span(run, table, source)
    path = access_path(run, plan, table, span, alone=alone)
    if plan.nearest is not None:
        return nearest_path(run, plan, plan.nearest, table, span, path)
    return by_column(run, plan, path) if path.access == "scan" else path


def _span(run: Execution, table: Table, source: tree.TableTarget | tree.RecordRange) -> Range:
    """Return the key range of a source's records."""
    if isinstance(source, tree.TableTarget):
        return within(table.prefix)
    low, high = _bound(run, source.low), _bound(run, source.high)
    return records.bounds(table, low, high, low_open=False, high_open=not source.inclusive)


def _bound(run: Execution, expression: tree.Expression | None) -> Any:
    """Return the id that bounds a range; None: it is open."""
    if expression is None:
        return None
    value = run.evaluate(expression)
    check_record_id(value)
    return value


def _values(
    run: Execution, plan: SelectPlan, expression: tree.Expression, verbs: Verbs
) -> Iterator[Batch]:
    """Yield a record, an object, or an array of these, in their order."""
    # Not a generator itself: tables are authorized at the call, not at the first row.
    for table in _named_tables(expression):
        run.table(table, verbs)
    return _valued(run, plan, expression, verbs)


def _named_tables(expression: tree.Expression) -> set[str]:
    """Return the tables of record literals in a source. They are authorized, and must exist, even
    if their rows are not needed."""
    items = expression.items if isinstance(expression, tree.Array) else (expression,)
    return {item.table for item in items if isinstance(item, tree.RecordLiteral)}


def _valued(
    run: Execution, plan: SelectPlan, expression: tree.Expression, verbs: Verbs
) -> Iterator[Batch]:
    value = run.evaluate(expression)
    if value is NONE or value is None:
        return
    items = value if isinstance(value, list) else [value]
    objects: list[Value] = []
    met: set[str] = set()
    for item in items:
        if isinstance(item, RecordId):
            # Each table is checked once, however many of its records are listed.
            if plan.comparisons and item.table not in met:
                met.add(item.table)
                check_comparisons(run, plan, run.table(item.table, verbs))
            if run.texts is not None:
                run.texts.add(item.table)
            found, _ = run.read_record(item, verbs)
            if found is not None:
                objects.append(found)
        elif isinstance(item, dict):
            objects.append(item)
        else:
            raise TypeRefused(
                f"rows are records or objects, not {type_name(item)}", found=type_name(item)
            )
        if len(objects) >= OBJECTS_IN_A_BATCH:
            yield Objects(objects)
            objects = []
        run.tick()
    if objects:
        yield Objects(objects)


def one_record(target: tree.ExpressionTarget) -> Callable[[Any], RecordId]:
    """Return the function that yields the single record that CREATE or UPSERT names.

    It raises BadRequest if the expression is something else.
    """
    return partial(_one_record, rowless(target.expression))


def _one_record(named: Callable[[Any], Any], run: Execution) -> RecordId:
    value = named(run)
    if not isinstance(value, RecordId):
        raise BadRequest(f"wanted one record, table:id, not {type_name(value)}")
    return value
