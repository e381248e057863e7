"""SELECT: query plan and batch-wise execution.

Batches flow from the access path through WHERE, SPLIT, GROUP, HAVING, ORDER BY, START and LIMIT
into the projection. Decoding is minimal: only the fields that expressions read. A whole record is
decoded only if it is in the result and `*` asks for it (late materialization). LIMIT without ORDER
BY stops reading early.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cached_property, partial, reduce
from typing import TYPE_CHECKING, Any, Final

from language import columns as shown
from language import generate, tree
from language.batchwork import BatchFilter, Lazily, SourceRows, of_item, traced
from language.budget import Budget, too_large
from language.charges import stretch
from language.columnar.plan import ColumnPlan, Scan, Unfit, column_plan, obstacle
from language.comparisons import Comparison, comparisons
from language.compile import compile_expression, count_of
from language.env import Env
from language.generate import Memo
from language.grouping import Grouping, check_ungrouped, counts_all
from language.names import AGGREGATES, SCORE, rebuilt, shape_of
from language.nearest import ByDistance, by_distance, split_nearest
from language.operators import hashable
from language.ordering import Sorter
from language.pieces import slices
from language.planner import (
    Branches,
    Candidate,
    Either,
    Indexed,
    Question,
    Term,
    candidates,
    question,
    united,
)
from language.rows import WHOLE, Batch, Pairs, Row, Shape, item_value, whole
from language.search.fields import check_calls, has_match
from language.sizing import PART_BYTES, Heavy, counted, is_counted
from language.streaming import StreamedAnswers
from protocol import limits
from protocol.binary import unpack_object
from protocol.errors import BadRequest, Refusal
from protocol.paths import Path
from protocol.values import FEW, LONG, NONE, RecordId

if TYPE_CHECKING:
    from language.columnar.selection import Selection

_ENOUGH: Final = 2
Chunk = tuple[list[Row], list[Any], SourceRows | None]
"""Rows, their items (from which the result is built), and their origin if they are as they were
read."""


def _itself(record: RecordId | None) -> RecordId | None:
    """Return the record id of a row in memory, which takes the place of a stored record's key."""
    return record


class SelectPlan:
    """Query plan of one SELECT: built once for an AST, executed any number of times.

    :raises BadRequest: the clauses do not go together
    """

    def __init__(self, select: tree.Select) -> None:
        if select.group is None and counts_all(select):
            select = replace(select, group=())
        self.nearest, select = split_nearest(select)
        """NEAREST of WHERE, which the source of the rows answers."""
        self._select = select
        self._aliases = {c.alias: c.expression for c in select.columns if c.alias is not None}
        self._grouping = None
        if select.group is not None:
            own = self._aliases.items()
            hidden = frozenset(alias for alias, known in own if known != tree.Name(alias))
            self._grouping = Grouping(self._aliased(select.group), hidden)
        if self._grouping is None:
            check_ungrouped((select.columns, select.where, select.order))
            if select.having is not None:
                raise BadRequest("HAVING goes with GROUP BY or GROUP ALL")
        elif select.everything:
            raise BadRequest("`*` has no meaning for a group: name its columns")
        self.matches_text = has_match(select)
        """True if an expression has `@@`, which needs to know the tables of the rows."""
        self.scored = check_calls(
            (select.columns, select.where, select.order, select.group, select.having), select.where
        )
        """The `@@` of WHERE that scores and highlights are about; empty: it has none of these."""
        self._candidates: tuple[Any, tuple[Candidate, ...]] | None = None
        self._united: tuple[Any, tuple[tuple[Either, Branches], ...]] | None = None
        self._streamed: StreamedAnswers | None = None
        self._rests: dict[tuple[int, ...], BatchFilter | None] = {}
        """Filters without some conjuncts of WHERE, by the identities of these nodes."""
        self._plan_expressions()
        self._plan_shapes()
        self._plan_work()

    # --- planning ---------------------------------------------------------------------------------

    def _aliased(self, node: Any) -> Any:
        """Replace column aliases in GROUP BY, HAVING or ORDER BY by the columns' expressions.

        Inside an aggregate a name always denotes a field: in `sum(n) AS n … HAVING sum(n) > 1` no
        value is summed twice.
        """
        if isinstance(node, tree.Name):
            return self._aliases.get(node.name, node)
        if isinstance(node, tree.Subquery) or (
            isinstance(node, tree.Call) and node.name in AGGREGATES
        ):
            return node
        return rebuilt(node, self._aliased)

    def _plan_expressions(self) -> None:
        select = self._select
        orders = tuple(self._aliased(order.expression) for order in select.order)
        columns, having = select.columns, self._aliased(select.having)
        if self._grouping is not None:
            rewrite = self._grouping.rewritten
            # A column keeps the name that it had before it was rewritten.
            names = [shown.column_path(column) for column in columns]
            columns = tuple(replace(c, expression=rewrite(c.expression)) for c in columns)
            having = None if having is None else rewrite(having)
            orders = rewrite(orders)
        else:
            names = [shown.column_path(column) for column in columns]
        shown.check_names(names, select.columns)
        self._columns = tuple(zip(names, (c.expression for c in columns), strict=True))
        self._omit, self._fetch = self._in_answers(select.omit), self._in_answers(select.fetch)
        self._having, self._orders = having, orders
        self._descending = tuple(order.descending for order in select.order)

    def _in_answers(self, paths: tuple[Path, ...]) -> tuple[Path, ...]:
        """Return the paths of OMIT or FETCH relative to a result row.

        The result of SELECT VALUE is the content of its column; paths outside that column are
        dropped.
        """
        if not self._select.value:
            return paths
        column = self._columns[0][0]
        return tuple(path[len(column) :] for path in paths if path[: len(column)] == column)

    def _plan_shapes(self) -> None:
        select, grouping = self._select, self._grouping
        expressions = tuple(expression for _, expression in self._columns)
        if grouping is not None:
            source = shape_of(select.where, grouping.arguments)
            source = WHOLE if select.split is not None else source
            grouping.finish(source)
            self._source, self._result, self._late = source, grouping.shape, False
            return
        wanted = shape_of(select.where, self._orders, expressions)
        # Only what survives WHERE, ORDER BY and LIMIT is decoded whole.
        self._late = select.everything and select.split is None
        first = shape_of(select.where, self._orders)
        if self._late and not first.whole:
            self._source, self._result = first, WHOLE
        elif select.everything or select.split is not None:
            self._source = self._result = WHOLE
            self._late = False
        else:
            self._source = self._result = wanted
            self._late = False

    def _plan_work(self) -> None:
        select = self._select
        self._where = None if select.where is None else BatchFilter(select.where, self._source)
        self._keep = None if self._having is None else BatchFilter(self._having, self._result)
        keyed = self._result if self._grouping is not None else self._source
        self._entries = self._plan_entries(keyed) if self._orders else None
        self._project = self._plan_columns()

    def _plan_entries(self, shape: Shape) -> Callable[..., list[Any]]:
        made: list[Callable[..., list[Any]]] = []
        step = stretch(self._orders)

        def entries(rows: list[Row], items: list[Any], env: Env, memo: Memo) -> list[Any]:
            if not made:
                made.append(generate.generate_entries(list(self._orders), shape))
            if len(rows) <= step:
                return made[0](rows, items, env, memo)
            found: list[Any] = []
            for part in slices(rows, env, step):
                found += made[0](part, items[len(found) :], env, memo)
            return found

        return entries

    def _plan_columns(self) -> Callable[[list[Row], Env, Memo], list[Any]] | None:
        """Return the projection from rows to results; None if rows are the results."""
        select, shape = self._select, self._result
        nested = any(len(path) > 1 for path, _ in self._columns)
        if select.value:
            only = self._columns[0][1]
            compute = compile_expression(only, shape)
            return Lazily(
                lambda rows, env: [compute(row, env) for row in rows],
                lambda: generate.generate_values((only,), shape),
                only,
            )
        columns = tuple(tree.Column(e, path[0]) for path, e in self._columns)
        if not select.everything and not nested:
            work = shown.compile_columns(columns, False, shape)
            return Lazily(
                lambda rows, env: [work(row, env) for row in rows],
                lambda: self._generated_columns(work),
                tuple(one.expression for one in columns),
            )
        if select.everything and not columns:
            return lambda rows, env, memo: [item_value(row) for row in rows]
        return self._plan_nested(shape)

    def _generated_columns(self, work: Callable[[Row, Env], Any]) -> Callable[..., list[Any]]:
        """Generate the projection of a few columns; with many, Python would take long to compile
        it."""
        if len(self._columns) > FEW:
            return lambda rows, env, memo: [work(row, env) for row in rows]
        return generate.generate_objects([(p[0], e) for p, e in self._columns], self._result)

    def _plan_nested(self, shape: Shape) -> Callable[[list[Row], Env, Memo], list[Any]]:
        expressions = tuple(expression for _, expression in self._columns)
        paths = [path for path, _ in self._columns]
        everything = self._select.everything
        code: list[Callable[..., list[Any]]] = []
        step = stretch(expressions)

        def project(rows: list[Row], env: Env, memo: Memo) -> list[Any]:
            if not code:
                code.append(generate.generate_values(expressions, shape))
            each = (
                (row, values)
                for part in slices(rows, env, step)
                for row, values in zip(part, code[0](part, env, memo), strict=True)
            )
            found = []
            for row, values in each:
                answer: dict[str, Any] = dict(row) if everything else {}
                for path, value in zip(paths, values if len(paths) > 1 else (values,), strict=True):
                    if value is not NONE:
                        shown.place(answer, path, value)
                found.append(answer)
            return found

        return project

    # --- counting ---------------------------------------------------------------------------------

    @property
    def is_count_only(self) -> bool:
        """True if the SELECT only counts a table's records, a number that the store maintains."""
        select = self._select
        counts = tree.Call("count", ())
        return (
            select.group == ()
            and len(select.columns) == 1
            and select.columns[0].expression == counts
            and len(select.sources) == 1
            and isinstance(select.sources[0], tree.TableTarget)
            and not (select.omit or select.order or select.fetch)
            and all(clause is None for clause in (select.where, select.split, select.having))
            and select.limit is None
            and select.start is None
            and self.nearest is None
        )

    def count_result(self, count: int) -> list[Any]:
        """Return the result of a count-only SELECT."""
        return [count] if self._select.value else [{self._columns[0][0][0]: count}]

    # --- running ----------------------------------------------------------------------------------

    @cached_property
    def question(self) -> Question:
        """Predicates and sort order for the planner.

        The sort order is included only if rows are sorted as they are read.
        """
        if self._grouping is not None or self._select.split is not None:
            return question(self._select.where)
        return question(self._select.where, self._orders, self._descending)

    @cached_property
    def comparisons(self) -> tuple[Comparison, ...]:
        """Comparisons in WHERE, checked against the declared types of fields."""
        if self._select.back is not None:
            return ()  # it asks for one link and for a list of them, whatever the field's type is
        return comparisons(self._select.where)

    @cached_property
    def point(self) -> Term | None:
        """Equality predicate of a possible point lookup, if it is all of WHERE; else None."""
        return self.question.point if self.takes_one else None

    def candidates(self, indexes: tuple[Indexed, ...]) -> tuple[Candidate, ...]:
        """Return the access paths by a table's indexes, cached while the same indexes are given."""
        known = self._candidates
        if known is None or known[0] is not indexes:
            known = self._candidates = (indexes, candidates(self.question, indexes))
        return known[1]

    def united(self, indexes: tuple[Indexed, ...]) -> tuple[tuple[Either, Branches], ...]:
        """Return the access paths by index unions for OR conditions."""
        if not self.question.eithers:
            return ()
        known = self._united
        if known is None or known[0] is not indexes:
            known = self._united = (indexes, united(self.question, indexes))
        return known[1]

    def statement_result(self, rows: list[Any]) -> Any:
        """Return the statement's result: the rows, or with FROM ONLY the single row.

        :raises BadRequest: FROM ONLY with several rows
        """
        if not self._select.only:
            return rows
        if len(rows) > 1:
            raise BadRequest(
                "FROM ONLY takes one row, and there are several: narrow it with WHERE, or add"
                " LIMIT 1"
            )
        return rows[0] if rows else NONE

    def _limit(self, env: Env) -> int | None:
        """Return the maximum number of result rows. FROM ONLY needs at most two, to detect an
        error."""
        limit = count_of(self._select.limit, env, "LIMIT")
        if not self._select.only:
            return limit
        return _ENOUGH if limit is None else min(limit, _ENOUGH)

    def most(self, env: Env) -> int | None:
        """Return the number of ordered rows that LIMIT needs; None if it is unknown."""
        select = self._select
        if self._grouping is not None or select.split is not None or select.distinct:
            return None
        limit = self._limit(env)
        return None if limit is None else limit + (count_of(self._select.start, env, "START") or 0)

    @cached_property
    def ranks(self) -> bool:
        """True if rows are wanted in the order of their scores alone."""
        return self._orders == (tree.Call(SCORE, ()),) and self._descending == (True,)

    @cached_property
    def by_distance(self) -> ByDistance | None:
        """The distance of a vector that ORDER BY is about."""
        if self._grouping is not None or self._select.split is not None:
            return None
        return by_distance(self._orders, self._descending)

    def passing(self, batch: Batch, env: Env) -> list[int]:
        """Return the numbers of the rows of a batch that satisfy WHERE, apart from NEAREST."""
        rows = self._source.rows(batch)
        if self._where is None:
            return list(range(len(rows)))
        found: list[int] = self._where(rows, env, {}, batch)
        return found

    @property
    def where(self) -> tree.Expression | None:
        """WHERE apart from NEAREST."""
        return self._select.where

    @property
    def conditional(self) -> bool:
        """True if WHERE has a condition apart from NEAREST."""
        return self._where is not None

    def run(
        self,
        batches: Iterable[Batch],
        env: Env,
        *,
        ordered: bool = False,
        answered: tuple[tree.Expression, ...] = (),
    ) -> list[Any]:
        """Execute the plan over batches of rows, which are pulled only as needed.

        :param ordered: True if the rows come in the order of ORDER BY
        :param answered: conjuncts of WHERE that hold for all of the rows
        :raises TooLarge: over `limits.STATEMENT_MEMORY_BYTES`
        :raises Refusal: errors of expressions and of `env.tick`
        """
        memo: Memo = {}
        budget = Budget(tick=env.tick, memory=env.memory)
        start = count_of(self._select.start, env, "START") or 0
        limit = self._limit(env)
        if limit == 0:
            return []
        most = None if limit is None or self._select.distinct else start + limit
        chunks = self._filtered(batches, env, memo, answered)
        if self._grouping is not None:
            chunks = self._grouped(chunks, env, memo, budget)
        if self._entries is not None and not ordered:
            chunks = self._ordered(chunks, most, env, memo, budget)
        return self._answers(chunks, start, limit, env, memo, budget)

    @cached_property
    def by_column(self) -> ColumnPlan | str:
        """Columns that serve the statement, or the reason why none do."""
        if self._as_groups is not None:
            return self._as_groups.by_column
        return column_plan(self._select, self._grouping, self._orders)

    @cached_property
    def _as_groups(self) -> SelectPlan | None:
        """Plan with GROUP BY for a statement with DISTINCT: the rows of its groups are the distinct
        rows, in the order of their first records. None: no such plan gives the same result."""
        select = self._select
        if not select.distinct or self._grouping is not None or select.everything or select.order:
            return None
        if select.only or select.limit is not None or select.omit or select.fetch:
            return None
        columns = tuple(column.expression for column in select.columns)
        # GROUP BY takes a name as the column of that alias.
        if any(map(obstacle, columns)) or self._aliased(columns) != columns:
            return None
        return SelectPlan(replace(select, distinct=False, group=columns))

    def selection(
        self, plan: ColumnPlan, most: int | None, env: Env, read: Callable[[int], None]
    ) -> Selection:
        """Return the rows of a statement without groups, as far as columns find them.

        :param most: rows that LIMIT and START need, if they are sorted
        :param read: called with numbers of rows that are read by column alone
        """
        from language.columnar.selection import Selection

        select = self._select
        sorts = most is not None and select.limit is not None
        return Selection(
            plan, select.where, env, read,
            order=self._orders[0] if sorts else None,
            descending=sorts and self._descending[0],
            most=most or 0,
        )  # fmt: skip

    def ruled_out(self, plan: ColumnPlan, segments: Iterable[Any], env: Env) -> int:
        """Return how many segments have no row for which WHERE holds, as their bounds tell."""
        from language.columnar.expressions import Expressions, Part

        where, count = self._select.where, 0
        expressions = Expressions(plan, env)
        for rows in segments:
            env.tick()
            if where is not None and rows.count and rows.has(plan.names):
                try:
                    count += expressions.condition(where, Part(rows)) is False
                except Unfit:
                    continue
        return count

    def run_by_column(
        self, plan: ColumnPlan, scan: Scan, env: Env, read: Callable[[int], None]
    ) -> list[Any]:
        """Execute a plan with groups over the columns of a table.

        :param read: called with numbers of rows that are read
        :raises Inexact: it has to run by row
        :raises Refusal: as `run`, but perhaps for another record
        """
        from language.columnar.aggregation import Aggregation

        if self._as_groups is not None:
            return self._as_groups.run_by_column(plan, scan, env, read)
        assert self._grouping is not None
        memo: Memo = {}
        budget = Budget(tick=env.tick, memory=env.memory)
        start = count_of(self._select.start, env, "START") or 0
        limit = self._limit(env)
        if limit == 0:
            return []
        most = None if limit is None or self._select.distinct else start + limit

        def fold(groups: dict[Any, list[Any]], batches: Iterator[Batch]) -> None:
            counted_batches = map(count, batches)
            self._fold(groups, self._filtered(counted_batches, env, memo), env, memo, budget)

        def count(batch: Batch) -> Batch:
            read(len(batch.pairs) if isinstance(batch, Pairs) else len(batch.values))
            return batch

        work = Aggregation(plan, self._grouping, self._select.where, env, budget, fold)
        chunks = self._group_rows(work.run(scan, read), env, memo)
        if self._entries is not None:
            chunks = self._ordered(chunks, most, env, memo, budget)
        return self._answers(chunks, start, limit, env, memo, budget)

    @cached_property
    def takes_one(self) -> bool:
        """True if `run_one` gives the same result for a single row as `run`."""
        select = self._select
        return (
            self._grouping is None
            and not self._orders
            and select.split is None
            and select.limit is None
            and select.start is None
            and self.nearest is None
        )

    def run_one(self, record: RecordId, raw: bytes, env: Env) -> list[Any]:
        """Execute the plan over one stored record, without grouping, sorting or LIMIT.

        :param raw: packed fields of the record
        :raises TooLarge, Refusal: as `run`
        """
        if self._is_bare:
            return [{"id": record, **unpack_object(raw)}]
        memo: Memo = {}
        batch = Pairs([(b"", raw)], lambda _key: record)
        rows = self._source.rows(batch)
        items = self._items(batch, rows)
        if self._where is not None and not self._where(rows, env, memo, batch):
            return []
        origin = SourceRows(batch, range(1))
        if not (self._columns or self._select.fetch):
            # No larger than a record is.
            return self._finished(self._projected(items, env, memo, origin), env)
        budget = Budget(tick=env.tick)
        answer, _ = self._part(items, env, memo, budget, origin)
        budget.sample(answer)
        return answer

    @cached_property
    def _is_bare(self) -> bool:
        """True if the result is the record itself: a plain `SELECT *`."""
        select = self._select
        return (
            select.everything
            and not (select.value or select.columns or select.omit or select.fetch)
            and select.where is None
        )

    def _filtered(
        self,
        batches: Iterable[Batch],
        env: Env,
        memo: Memo,
        answered: tuple[tree.Expression, ...] = (),
    ) -> Iterator[Chunk]:
        """Yield the rows that satisfy WHERE. :param answered: as `run`"""
        memory = env.memory
        where = self._where_without(answered) if answered else self._where
        for batch in batches:
            buffered = batch.size if isinstance(batch, Pairs) else 0
            memory.held += buffered
            env.tick()
            rows = self._source.rows(batch)
            items = self._items(batch, rows)
            origin: SourceRows | None = SourceRows(batch, range(len(rows)))
            if where is not None:
                kept = where(rows, env, memo, batch)
                if len(kept) < len(rows):
                    origin = None if origin is None else origin._replace(numbers=kept)
                    items = [items[n] for n in kept]
                    rows = [rows[n] for n in kept] if items is not rows else items
            if self._select.split is not None:
                for part in shown.split(rows, self._select.split, env):
                    yield part, part, None
            elif rows:
                yield rows, items, origin
            memory.held -= buffered

    def _where_without(self, answered: tuple[tree.Expression, ...]) -> BatchFilter | None:
        """Return the filter of the other conjuncts of WHERE, which is kept for the next run."""
        key = tuple(map(id, answered))
        if key not in self._rests:
            rest = [one for one in self.question.conditions if id(one) not in key]
            both = partial(tree.Binary, "AND")
            node = reduce(both, rest) if rest else None
            self._rests[key] = None if node is None else BatchFilter(node, self._source)
        return self._rests[key]

    def _items(self, batch: Batch, rows: list[Row]) -> list[Any]:
        if not self._late and not self._sorts:
            return rows
        if isinstance(batch, Pairs):
            record_id = batch.record_id
            if not self._late:
                pairs = zip(batch.pairs, rows, strict=True)
                return [(key, row, record_id) for (key, _), row in pairs]
            return [(key, raw, record_id) for key, raw in batch.pairs]
        if self._late:
            return WHOLE.from_objects(batch.values)
        return [(batch.record(number), row, _itself) for number, row in enumerate(rows)]

    @cached_property
    def _sorts(self) -> bool:
        """True if rows are sorted as they were read.

        Each then carries its record's key, or the record id in its fields.
        """
        return self._entries is not None and self._grouping is None and self._select.split is None

    def _grouped(
        self, chunks: Iterable[Chunk], env: Env, memo: Memo, budget: Budget
    ) -> Iterator[Chunk]:
        assert self._grouping is not None
        groups = self._grouping.start()
        self._fold(groups, chunks, env, memo, budget)
        yield from self._group_rows(groups, env, memo)

    def _fold(
        self,
        groups: dict[Any, list[Any]],
        chunks: Iterable[Chunk],
        env: Env,
        memo: Memo,
        budget: Budget,
    ) -> None:
        """Add rows to the groups."""
        assert self._grouping is not None
        for rows, _, origin in chunks:
            try:
                self._grouping.fold(groups, rows, env, memo, budget)
            except Refusal as refusal:
                expressions = self._grouping.arguments
                found, number = traced(refusal, expressions, self._source, rows, env)
                if number is None:
                    found, number = self._grouping.refused(rows, env, refusal)
                raise of_item(found, rows, number, origin) from None

    def _group_rows(self, groups: dict[Any, list[Any]], env: Env, memo: Memo) -> Iterator[Chunk]:
        """Yield the rows of the groups that satisfy HAVING."""
        assert self._grouping is not None
        for part in self._grouping.rows(groups, env):
            env.tick()
            if self._keep is not None:
                part = [part[n] for n in self._keep(part, env, memo)]
            if part:
                yield part, part, None

    def _ordered(
        self,
        chunks: Iterable[Chunk],
        most: int | None,
        env: Env,
        memo: Memo,
        budget: Budget,
    ) -> Iterator[Chunk]:
        assert self._entries is not None
        sorter = Sorter(self._descending, most, budget, env.tick)
        shape = self._source if self._grouping is None else self._result
        for rows, items, origin in chunks:
            try:
                self._order(sorter, rows, items, env, memo)
            except Refusal as refusal:
                found, number = traced(refusal, self._orders, shape, rows, env)
                raise of_item(found, items, number, origin) from None
        part: list[Any] = []
        size = 0
        for item in sorter.items():
            part.append(item)
            if self._late and type(item) is tuple:
                size += len(item[1])
            if len(part) == 1024 or size > PART_BYTES:
                yield part, part, None
                part, size = [], 0
        if part:
            yield part, part, None

    def _order(
        self, sorter: Sorter, rows: list[Row], items: list[Any], env: Env, memo: Memo
    ) -> None:
        """Add rows to the sorter: one at a time if their sort keys are large."""
        assert self._entries is not None
        if is_counted():
            sorter.add(self._entries(rows, items, env, memo))
            return
        try:
            entries, size = counted(self._entries, rows, items, env, memo)
        except Heavy:
            for row, item in zip(rows, items, strict=True):
                env.tick()
                try:
                    entries, _ = counted(
                        self._entries, [row], [item], env, memo, most=limits.STATEMENT_MEMORY_BYTES
                    )
                except Heavy:
                    raise too_large(limits.STATEMENT_MEMORY_BYTES) from None
                sorter.add(entries, large=True)
        else:
            sorter.add(entries, large=size > LONG)

    def _answers(
        self,
        chunks: Iterable[Chunk],
        start: int,
        limit: int | None,
        env: Env,
        memo: Memo,
        budget: Budget,
    ) -> list[Any]:
        answer: list[Any] = []
        if self._select.distinct:
            return self._different(chunks, start, limit, env, memo, budget)
        for _, items, origin in chunks:
            if start:
                skipped = min(start, len(items))
                start -= skipped
                items = items[skipped:]
                origin = None if origin is None else origin.without(skipped)
            if limit is not None:
                items = items[: limit - len(answer)]
            if items:
                part, large = self._part(items, env, memo, budget, origin)
                budget.sample(part, each=large)
                answer += part
            if limit is not None and len(answer) >= limit:
                break
        return answer

    def _different(
        self,
        chunks: Iterable[Chunk],
        start: int,
        limit: int | None,
        env: Env,
        memo: Memo,
        budget: Budget,
    ) -> list[Any]:
        """Build the result with DISTINCT: the first of equal rows. START and LIMIT count distinct
        rows."""
        answer: list[Any] = []
        met: set[Any] = set()
        for _, items, origin in chunks:
            part = []
            found, large = self._part(items, env, memo, budget, origin)
            for row in found:
                key = hashable(row, env.tick)
                if key not in met:
                    met.add(key)
                    part.append(row)
            # Counted twice: the hash keys are held as long as the rows, also those of skipped rows.
            budget.sample(part, each=large)
            budget.sample(part, each=large)
            skipped = min(start, len(part))
            start -= skipped
            answer += part[skipped:]
            if limit is not None and len(answer) >= limit:
                return answer[:limit]
        return answer

    def _part(
        self,
        items: list[Any],
        env: Env,
        memo: Memo,
        budget: Budget,
        origin: SourceRows | None,
    ) -> tuple[list[Any], bool]:
        """Return the results of rows, and True if some values are large.

        Large results were built one row and one value at a time, never beyond the budget. Their
        memory is not reserved.
        """
        if is_counted():
            return self._made(items, env, memo, origin), False
        try:
            part, size = counted(self._made, items, env, memo, origin)
        except Heavy:
            if self._streamed is None:
                self._streamed = StreamedAnswers(
                    self._select, self._columns, self._result, self._decoded, self._finished
                )
            return self._streamed(items, env, budget, origin), True
        return part, size > LONG

    def _made(self, items: list[Any], env: Env, memo: Memo, origin: SourceRows | None) -> list[Any]:
        return self._finished(self._projected(items, env, memo, origin), env)

    def _projected(
        self, items: list[Any], env: Env, memo: Memo, origin: SourceRows | None
    ) -> list[Any]:
        """Project rows to results. An error names the record."""
        assert self._project is not None
        rows = self._decoded(items)
        try:
            return self._project(rows, env, memo)
        except Refusal as refusal:
            if isinstance(self._project, Lazily):
                found, number = self._project.refused(rows, env, refusal)
            else:
                expressions = tuple(expression for _, expression in self._columns)
                found, number = traced(refusal, expressions, self._result, rows, env)
            raise of_item(found, items, number, origin) from found.__cause__

    def _decoded(self, items: list[Any]) -> list[Row]:
        if self._late:
            return [whole(*item) if type(item) is tuple else item for item in items]
        if self._sorts:
            return [item[1] if type(item) is tuple else item for item in items]
        return items

    def _finished(self, answers: list[Any], env: Env) -> list[Any]:
        for path in self._omit:
            answers = [shown.omitted(answer, path, env.tick) for answer in answers]
        for path in self._fetch:
            answers = [shown.fetched(answer, path, env) for answer in answers]
        return answers


def plan_select(select: tree.Select) -> SelectPlan:
    """Return the plan of a SELECT.

    A caller that reuses it keeps it with the AST, in the plan of the text, whose cache is bounded
    in bytes and holds no secrets.
    """
    return SelectPlan(select)
