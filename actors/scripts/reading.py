"""SELECT: where its rows come from. What is done with them is `language.select`'s."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from actors.scripts.execution import Execution
from actors.scripts.handlers import handles
from language import tree
from language.rows import Batch, Objects, Pairs
from language.select import SelectPlan, plan_select
from protocol.errors import BadRequest, TypeRefused
from protocol.values import NONE, RecordId, Value, check_record_id, type_name
from storage import records
from storage.catalog import Table

OBJECTS_IN_A_BATCH = 512


@handles(tree.Select, "rows")
def select(run: Execution, statement: tree.Select) -> Value:
    """The rows of a SELECT, in the transaction at hand."""
    plan: SelectPlan = run.prepared.plan(statement, plan_select)
    if plan.is_count_only:
        (source,) = statement.sources
        assert isinstance(source, tree.TableTarget)
        table = run.table(source.table)
        run.authorise("READ", table)
        return plan.count_result(records.count(run.transaction, table))
    return plan.run(batches(run, statement.sources), run)


def batches(run: Execution, sources: Iterable[tree.Target]) -> Iterator[Batch]:
    """The rows of some sources one after another, pulled only as far as they are wanted.

    :raises Unknown: a table named is not there, whether or not its rows would be wanted
    """
    return chain.from_iterable([_source(run, source) for source in sources])


def _source(run: Execution, source: tree.Target) -> Iterator[Batch]:
    if isinstance(source, tree.ExpressionTarget):
        return _values(run, source.expression)
    table = run.table(source.table)
    run.authorise("READ", table)
    return _range(run, table, source) if isinstance(source, tree.RecordRange) else _scan(run, table)


def _scan(
    run: Execution, table: Table, low: Any = None, high: Any = None, high_open: bool = True
) -> Iterator[Batch]:
    record_id = records.record_id(table)
    for pairs in records.scan(run.transaction, table, low, high, high_open=high_open):
        yield Pairs(pairs, record_id)
        run.tick()


def _range(run: Execution, table: Table, source: tree.RecordRange) -> Iterator[Batch]:
    low, high = _bound(run, source.low), _bound(run, source.high)
    yield from _scan(run, table, low, high, not source.inclusive)


def _bound(run: Execution, expression: tree.Expression | None) -> Any:
    """The id that bounds a range; None where it is open."""
    if expression is None:
        return None
    value = run.evaluate(expression)
    check_record_id(value)
    return value


def _values(run: Execution, expression: tree.Expression) -> Iterator[Batch]:
    """A record, an object, or an array of these, in their order."""
    value = run.evaluate(expression)
    if value is NONE or value is None:
        return
    items = value if isinstance(value, list) else [value]
    objects: list[Value] = []
    for item in items:
        if isinstance(item, RecordId):
            found = run.record(item)
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
