"""Surroundings for expressions: an `Env` over plain objects, packed as a store packs rows."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from language import tree
from language.compile import evaluate
from language.functions.search import text_matches
from language.parser import parse
from language.rows import Batch, Objects, Pairs
from language.search.analysis import Analyzer
from language.search.definitions import Definition, TokenFilter
from language.search.terms import Query, Term
from language.select import SelectPlan, plan_select
from language.sizing import WorkingMemory
from protocol import binary
from protocol.errors import Unknown
from protocol.paths import Path
from protocol.values import PACE, RecordId

NOW = datetime(2026, 11, 20, 12, 30, 15, 250000, tzinfo=UTC)


class Dice:
    def __init__(self, seed: int = 1) -> None:
        self._random = random.Random(seed)

    def bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)


class Tables:
    """An `Env` in which a table is a list of objects, whose ids count from 0."""

    def __init__(self, batch: int = 7, **tables: list[dict[str, Any]]) -> None:
        self.tables = tables
        self.batch = batch
        self.variables: dict[str, Any] = {}
        self.now = NOW
        self.rng = Dice()
        self.memory = WorkingMemory()
        self.ticks = 0
        """Looks at the clock, as those of `actors.execution.fiber`."""
        self._charged = 0
        self.selected = 0
        self.pulled = 0
        self._plain = Analyzer(Definition(("class",), (TokenFilter("lowercase"),)))
        self._plans: dict[int, tuple[tree.Select, SelectPlan]] = {}

    def tick(self, cost: int = PACE) -> None:
        self._charged += cost
        if self._charged >= PACE:
            self._charged = 0
            self.ticks += 1

    def record(self, record: RecordId) -> dict[str, Any] | None:
        rows = self.tables.get(record.table, [])
        if isinstance(record.id, int) and record.id < len(rows):
            return {"id": record, **rows[record.id]}
        return None

    def call(self, name: str, arguments: list[Any]) -> Any:
        raise Unknown(f"there is no function {name}", kind="function", name=name)

    def analyzer(self, name: str) -> Analyzer:
        if name != "plain":
            raise Unknown(f"there is no analyzer {name}", kind="analyzer", name=name)
        return self._plain

    def text_match(self, paths: tuple[Path, ...], values: list[Any], query: Any) -> bool:
        return text_matches(self, self._plain, values, query)

    def text_score(self, record: Any, path: Path | None) -> float:
        raise AssertionError("no test of the language alone has scores")

    def text_queries(self, path: Path) -> list[tuple[Analyzer, Query]]:
        return [(self._plain, Term("b"))]

    def distance(self, record: Any) -> float:
        raise AssertionError("no test of the language alone has distances")

    def select(self, select: tree.Select, parent: Any) -> Any:
        self.selected += 1
        outer = dict(self.variables)
        self.variables["parent"] = parent
        try:
            plan = self._plan(select)
            return plan.statement_result(plan.run(self.batches(select.sources), self))
        finally:
            del self.variables["parent"]
            self.variables.update(outer)

    def _plan(self, select: tree.Select) -> SelectPlan:
        """Made once for a tree, which is held: no other has its address."""
        if id(select) not in self._plans:
            self._plans[id(select)] = select, plan_select(select)
        return self._plans[id(select)][1]

    def batches(self, sources: Sequence[tree.Target]) -> Iterator[Batch]:
        for source in sources:
            if isinstance(source, tree.TableTarget):
                yield from self._scan(source.table)
            else:
                assert isinstance(source, tree.ExpressionTarget)
                found = evaluate(source.expression, self)
                items = found if isinstance(found, list) else [found]
                yield Objects([self.record(i) if type(i) is RecordId else i for i in items])

    def _scan(self, name: str) -> Iterator[Batch]:
        packed = [(str(n).encode(), binary.pack(row)) for n, row in enumerate(self.tables[name])]
        for at in range(0, len(packed), self.batch):
            self.pulled += 1
            yield Pairs(packed[at : at + self.batch], lambda key: RecordId(name, int(key)))

    def run(self, text: str, **variables: Any) -> Any:
        """What a SELECT answers."""
        self.variables.update(variables)
        (statement,) = parse(text).statements
        assert isinstance(statement, tree.Select)
        plan = plan_select(statement)
        return plan.statement_result(plan.run(self.batches(statement.sources), self))

    def value(self, text: str, **variables: Any) -> Any:
        """What an expression comes to where there is no row."""
        self.variables.update(variables)
        (statement,) = parse(f"RETURN {text}").statements
        assert isinstance(statement, tree.ReturnStatement)
        assert isinstance(statement.value, tree.Expression)
        return evaluate(statement.value, self)
