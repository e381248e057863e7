"""SELECT: where its rows come from. What is done with them is `language.select`'s."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final

from actors.scripts.execution import Execution
from actors.scripts.handlers import OnRecords, handles
from actors.scripts.ways import Way, point, way
from language import tree
from language.rows import Batch, Objects, Pairs
from language.select import SelectPlan, plan_select
from protocol.errors import BadRequest, TypeRefused
from protocol.rights import READ, Verbs
from protocol.values import NONE, RecordId, Value, check_record_id, type_name
from storage import records
from storage.catalog import Table
from storage.keys import Range, within

OBJECTS_IN_A_BATCH = 512


@handles(tree.Select, "rows", writes=False, needs=[OnRecords(READ)])
def select(run: Execution, statement: tree.Select) -> Value:
    """The rows of a SELECT, in the transaction at hand."""
    plan: SelectPlan = run.plan.made(statement, plan_select)
    if plan.is_count_only:
        (source,) = statement.sources
        assert isinstance(source, tree.TableTarget)
        table = run.table(source.table, READ)
        return plan.count_result(records.count(run.transaction, table))
    if plan.takes_one and len(statement.sources) == 1:
        found = _one(run, plan, statement.sources[0])
        if found is not None:
            return found
    return rows(run, plan, statement.sources, READ)


def _one(run: Execution, plan: SelectPlan, source: tree.Target) -> list[Any] | None:
    """The answer, when the only source of a statement, or its only condition, names one record."""
    if type(source) is tree.ExpressionTarget and names_record(source.expression):
        record = run.evaluate(source.expression)
        if type(record) is not RecordId:
            return None
        batch = run.pair(record)
    elif type(source) is tree.TableTarget and plan.point is not None:
        table = run.table(source.table, READ)
        pairs = point(run, plan.point, table)
        if pairs is None:
            return None
        batch = Pairs(pairs, records.record_id(table)) if pairs else None
    else:
        return None
    run.count_read(1)
    return [] if batch is None else plan.run_one(batch, run)


def names_record(expression: tree.Expression) -> bool:
    """Whether an expression may be evaluated to see if it names a record, and again if not."""
    return type(expression) in _NAMES


_NAMES: Final = frozenset({tree.Parameter, tree.RecordLiteral, tree.Constant})


def rows(
    run: Execution, plan: SelectPlan, sources: Sequence[tree.Target], verbs: Verbs
) -> list[Any]:
    """What a plan makes of the rows of some sources, which are pulled only as far as needed.

    :param verbs: what is needed of the tables of these rows
    :raises Unknown: a table named is not there, whether or not its rows would be wanted
    """
    alone = len(sources) == 1
    found = [source_of(run, plan, source, verbs, alone=alone) for source in sources]
    ordered = len(found) == 1 and isinstance(found[0], Way) and found[0].ordered
    batches = [one.batches if isinstance(one, Way) else one for one in found]
    return plan.run(_counted(run, chain.from_iterable(batches)), run, ordered=ordered)


def _counted(run: Execution, batches: Iterable[Batch]) -> Iterator[Batch]:
    for batch in batches:
        run.count_read(len(batch.pairs) if isinstance(batch, Pairs) else len(batch.values))
        yield batch


def source_of(
    run: Execution, plan: SelectPlan, source: tree.Target, verbs: Verbs, *, alone: bool
) -> Way | Iterator[Batch]:
    """How the rows of one source are come by.

    :param verbs: what is needed of its table
    :param alone: whether it is the only one of its statement
    """
    if isinstance(source, tree.ExpressionTarget):
        return _values(run, source.expression, verbs)
    table = run.table(source.table, verbs)
    return way(run, plan, table, _span(run, table, source), alone=alone)


def _span(run: Execution, table: Table, source: tree.TableTarget | tree.RecordRange) -> Range:
    """The keys between which the records of a source lie."""
    if isinstance(source, tree.TableTarget):
        return within(table.prefix)
    low, high = _bound(run, source.low), _bound(run, source.high)
    return records.bounds(table, low, high, low_open=False, high_open=not source.inclusive)


def _bound(run: Execution, expression: tree.Expression | None) -> Any:
    """The id that bounds a range; None where it is open."""
    if expression is None:
        return None
    value = run.evaluate(expression)
    check_record_id(value)
    return value


def _values(run: Execution, expression: tree.Expression, verbs: Verbs) -> Iterator[Batch]:
    """A record, an object, or an array of these, in their order."""
    for table in _named_tables(expression):
        run.table(table, verbs)
    return _valued(run, expression, verbs)


def _named_tables(expression: tree.Expression) -> set[str]:
    """The tables of records that stand in a statement as they are: these are judged, and missed,
    whether or not their rows would be wanted."""
    items = expression.items if isinstance(expression, tree.Array) else (expression,)
    return {item.table for item in items if isinstance(item, tree.RecordLiteral)}


def _valued(run: Execution, expression: tree.Expression, verbs: Verbs) -> Iterator[Batch]:
    value = run.evaluate(expression)
    if value is NONE or value is None:
        return
    items = value if isinstance(value, list) else [value]
    objects: list[Value] = []
    for item in items:
        if isinstance(item, RecordId):
            found = run.record(item, verbs)
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


def one_record(run: Execution, target: tree.ExpressionTarget) -> RecordId:
    """The single record that CREATE or UPSERT names. :raises BadRequest: something else"""
    value = run.evaluate(target.expression)
    if not isinstance(value, RecordId):
        raise BadRequest(f"wanted one record, table:id, not {type_name(value)}")
    return value
