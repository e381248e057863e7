"""EXPLAIN: describes the access path of a statement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import chain
from typing import Any

from actors.scripts import columns
from actors.scripts.access import AccessPath
from actors.scripts.execution import Execution
from actors.scripts.handlers import RequiresOnRecords, handles
from actors.scripts.reading import answered, counted, distances, source_of, text_scope
from actors.scripts.writing import plan_targets
from language import tree
from language.planner import asked, obstacle
from language.printing import print_expression
from language.rows import Batch, Pairs
from language.select import SelectPlan, plan_select
from protocol.rights import READ
from protocol.values import NONE, Value

_JOINED = " AND "


@handles(tree.Explain, "info", writes=False, needs=[RequiresOnRecords(READ)])
def explain(run: Execution, statement: tree.Explain) -> Value:
    """Describe a statement's access paths. With ANALYZE its records are read, and the cost is
    reported too. Nothing is written either way."""
    explained = statement.statement
    if isinstance(explained, tree.Select):
        plan = run.plan.made(explained, plan_select)
        sources: Sequence[tree.Target] = explained.sources
    else:
        plan = run.plan.made(explained, plan_targets)
        sources = (explained.target,)
    with text_scope(run, plan), distances(run):
        return _explained(run, statement, plan, sources)


def _explained(
    run: Execution, statement: tree.Explain, plan: SelectPlan, sources: Sequence[tree.Target]
) -> Value:
    explained = statement.statement
    # Before the planning, which looks index entries up: `took` includes that.
    began_us = run.services.clock.monotonic_us()
    alone = len(sources) == 1
    # Chosen as the statement itself would, with the values of this run.
    ways = [source_of(run, plan, source, READ, alone=alone) for source in sources]
    # A count of a whole table reads its counter and no record.
    is_count = plan.is_count_only
    answer: dict[str, Value] = {
        "statement": type(explained).__name__.upper(),
        "sources": [
            _count(source) if is_count else _describe_access(run, one, source, plan)
            for one, source in zip(ways, sources, strict=True)
        ],
        "filter": _filter(plan, ways),
        "distinct": getattr(explained, "distinct", False) or NONE,
        "order": _order(run, plan, explained, ways),
    }
    if statement.analyze:
        rows, read = (1, 0) if is_count else _analyzed(run, plan, ways)
        took_us = run.services.clock.monotonic_us() - began_us
        answer |= {"rows_read": read, "rows": rows, "took": timedelta(microseconds=took_us)}
    return {name: value for name, value in answer.items() if value is not NONE}


def _analyzed(
    run: Execution, plan: SelectPlan, ways: Sequence[AccessPath | Iterator[Batch]]
) -> tuple[int, int]:
    """Return the numbers of rows in the answer of the explained statement, and of rows read. It
    reads for real, within the bounds of the statement."""
    first = ways[0]
    if len(ways) == 1 and isinstance(first, AccessPath) and first.columns is not None:
        before = run.rows_read
        return len(columns.answer(run, plan, first, counted)), run.rows_read - before
    reader = _Reader(run, ways)
    rows = plan.run(reader, run, ordered=_in_order(ways), answered=answered(ways))
    return len(rows), reader.rows


class _Reader:
    """Rows of all sources, counted as they are read."""

    def __init__(self, run: Execution, ways: Sequence[AccessPath | Iterator[Batch]]) -> None:
        batches = [one.batches if isinstance(one, AccessPath) else one for one in ways]
        self._batches = counted(run, chain.from_iterable(batches))
        self.rows = 0

    def __iter__(self) -> Iterator[Batch]:
        for batch in self._batches:
            self.rows += len(batch.pairs if isinstance(batch, Pairs) else batch.values)
            yield batch


def _describe_access(
    run: Execution, one: AccessPath | Iterator[Batch], source: tree.Target, plan: SelectPlan
) -> Value:
    if not isinstance(one, AccessPath):
        assert isinstance(source, tree.ExpressionTarget)
        record = isinstance(source.expression, tree.RecordLiteral)
        access = "record" if record else "values"
        return {"access": access, "of": print_expression(source.expression)}
    told: dict[str, Value] = {"table": one.table.name, "access": one.access}
    if len(one.indexes) == 1:
        told["index"] = one.indexes[0]
    elif one.indexes:
        told["indexes"] = list(one.indexes)
    bounds: list[Any] = [print_expression(term.node) for term in one.used]
    if isinstance(source, tree.RecordRange):
        low, high = (
            "" if bound is None else print_expression(bound) for bound in (source.low, source.high)
        )
        bounds.insert(0, f"{low}{'..=' if source.inclusive else '..'}{high}")
    if bounds:
        told["bounds"] = bounds
    if len(one.texts) == 1:
        told |= one.texts[0].described()
    elif one.texts:
        told["texts"] = [{"index": one.index.name, **one.described()} for one in one.texts]
    if one.nearest is not None:
        told |= one.nearest.described()
    if one.reverse:
        told["backwards"] = True
    if one.entries is not None:
        told["entries"] = one.entries
    if one.columns is not None:
        told |= columns.described(run, plan, one.columns)
    elif (why := columns.reason(run, one)) is not None:
        told["by_row"] = why
    unused = list(_unused(run, one, plan))
    if unused:
        told["unused"] = unused
    return told


def _unused(run: Execution, one: AccessPath, plan: SelectPlan) -> Iterator[Value]:
    """Yield indexes over fields in the condition that are not used, with the reason: all of them if
    none is used, else those that might have helped. If records are named, none is considered."""
    if one.access == "record":
        return
    known = asked(plan.question, run.tick)
    for index in one.table.indexes:
        run.tick()
        # Indexes over other fields could not have helped: no reason is shown.
        if index.name in one.indexes or known.keys().isdisjoint(index.paths):
            continue
        why = one.why.get(index.name)
        if not index.is_complete:
            why = f"its state is {index.state}"
        elif why is None and not (one.indexes or one.ordered):
            why = obstacle(known, index)
        if why is not None:
            yield {"index": index.name, "why": why}


def _count(source: tree.Target) -> Value:
    assert isinstance(source, tree.TableTarget)
    return {"table": source.table, "access": "count"}


def _filter(plan: SelectPlan, ways: Sequence[AccessPath | Iterator[Batch]]) -> Value:
    """Return the part of WHERE that no access path fulfils. All of WHERE is applied to every row
    anyway."""
    (*taken,) = [
        {id(term.node) for term in one.used} if isinstance(one, AccessPath) else set()
        for one in ways
    ]
    # Every source has to fulfil a condition; by identity, since equal texts may repeat.
    settled = set.intersection(*taken) if taken else set()
    rest = [node for node in plan.question.conditions if id(node) not in settled]
    if not rest:
        return NONE
    texts = [print_expression(node) for node in rest]
    return texts[0] if len(texts) == 1 else _JOINED.join(map(_operand, rest, texts))


def _operand(node: tree.Expression, text: str) -> str:
    # OR binds less than the AND that joins the parts.
    return f"({text})" if isinstance(node, tree.Binary) and node.operator == "OR" else text


def _in_order(ways: Sequence[AccessPath | Iterator[Batch]]) -> bool:
    # Several sources follow one another, so no order spans them.
    return len(ways) == 1 and isinstance(ways[0], AccessPath) and ways[0].ordered


def _order(
    run: Execution, plan: SelectPlan, statement: Any, ways: Sequence[AccessPath | Iterator[Batch]]
) -> Value:
    if not getattr(statement, "order", ()):
        return NONE
    if _in_order(ways):
        return "as read"
    most = plan.most(run)
    return "sort" if most is None else f"the first {most}"
