"""Expressions over batches of rows: closures first, generated code once it pays; and for which row
a batch was refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from language import generate, tree
from language.charges import stretch
from language.compile import compile_condition, compile_expression
from language.env import Env
from language.error_places import is_of_values, of_record
from language.generate import Memo
from language.names import children, shape_of
from language.pieces import slices
from language.rows import Batch, Objects, Pairs, Row, Shape
from protocol.errors import Refusal
from protocol.values import RecordId

_FEW: Final = 64
"""Rows seen in all for which closures are called; past this, code is generated."""


class Lazily:
    """Work on batches that begins with closures and has code generated once it pays.

    :param one: what to compute of one row
    :param many: makes the function of a batch: `(rows, …, env, memo)`
    :param nodes: the expressions that are evaluated for each row
    :param numbered: whether what is answered are numbers of rows
    """

    def __init__(
        self,
        one: Callable[[list[Row], Env], Any],
        many: Callable[[], Callable[..., Any]],
        nodes: Any,
        *,
        numbered: bool = False,
    ) -> None:
        self._one, self._many = one, many
        self._step = stretch(nodes)
        self._numbered = numbered
        self._generated: Callable[..., Any] | None = None
        # Only generated code remembers the answer of a subquery between rows.
        self._seen = _FEW if has_subquery(nodes) else 0

    def __call__(self, rows: list[Row], env: Env, memo: Memo) -> Any:
        if len(rows) <= self._step:
            return self._computed(rows, env, memo)
        found: list[Any] = []
        before = 0
        for part in slices(rows, env, self._step):
            some = self._computed(part, env, memo)
            found += [before + n for n in some] if self._numbered else some
            before += len(part)
        return found

    def _computed(self, rows: list[Row], env: Env, memo: Memo) -> Any:
        if self._generated is None:
            self._seen += len(rows)
            if self._seen <= _FEW:
                return self._one(rows, env)
            self._generated = self._many()
        return self._generated(rows, env, memo)

    def refused(self, rows: list[Row], env: Env, refusal: Refusal) -> tuple[Refusal, int | None]:
        """What the work on a batch was refused with, and the number of the row that it came up
        with. Rows are gone through once more, one by one: only closures know where in the text an
        expression stands, and only one row at a time says which it is."""
        if is_of_values(refusal):
            for number, row in enumerate(rows):
                env.tick()
                try:
                    self._one([row], env)
                except Refusal as found:
                    if type(found) is type(refusal):
                        return found, number
                    break
        return refusal, None


class Filter:
    """WHERE or HAVING over batches: answers the numbers of the rows that it holds for."""

    def __init__(self, node: tree.Expression, shape: Shape | None = None) -> None:
        self.shape = shape_of(node) if shape is None else shape
        holds = compile_condition(node, self.shape)
        self._work = Lazily(
            lambda rows, env: [n for n, row in enumerate(rows) if holds(row, env)],
            lambda: generate.generate_filter(node, self.shape),
            node,
            numbered=True,
        )

    def __call__(self, rows: list[Row], env: Env, memo: Memo, batch: Batch | None = None) -> Any:
        """:param batch: where the rows are from: a refusal then names the record"""
        try:
            return self._work(rows, env, memo)
        except Refusal as refusal:
            found, number = self._work.refused(rows, env, refusal)
            if number is not None and batch is not None:
                found = of_record(found, batch.record(number))
            raise found from found.__cause__

    def kept(self, batch: Batch, env: Env, memo: Memo) -> Batch:
        """The batch with only what the condition holds for."""
        numbers = self(self.shape.rows(batch), env, memo)
        if isinstance(batch, Pairs):
            return replace(batch, pairs=[batch.pairs[n] for n in numbers])
        return replace(batch, values=[batch.values[n] for n in numbers])


def has_subquery(node: Any) -> bool:
    """Whether a SELECT stands in an expression."""
    return isinstance(node, tree.Subquery) or any(map(has_subquery, children(node)))


def traced(
    refusal: Refusal,
    expressions: tuple[tree.Expression, ...],
    shape: Shape,
    rows: list[Row],
    env: Env,
) -> tuple[Refusal, int | None]:
    """What generated code was refused with, from the closure of the expression that it rose in,
    which knows where it stands; with the number of the row. As `Lazily.refused`."""
    if is_of_values(refusal):
        for compute in [compile_expression(node, shape) for node in expressions]:
            for number, row in enumerate(rows):
                env.tick()
                try:
                    compute(row, env)
                except Refusal as found:
                    same = type(found) is type(refusal)
                    return (found, number) if same else (refusal, None)
    return refusal, None


class Origin(NamedTuple):
    """Where the rows of a batch are from, those that are left of it."""

    batch: Batch
    numbers: Sequence[int]

    def record(self, number: int) -> RecordId | None:
        """The record that a row was made of; None: of none."""
        return self.batch.record(self.numbers[number])

    def without(self, skipped: int) -> Origin:
        """The same without the first rows."""
        return Origin(self.batch, self.numbers[skipped:])


def of_item(
    refusal: Refusal, items: list[Any], number: int | None, origin: Origin | None
) -> Refusal:
    """A refusal that names the record of an item: by where the items are from, by the item itself,
    or by the id in its fields. One of no record, such as a group, is not named."""
    if number is None:
        return refusal
    item = items[number]
    if origin is not None:
        return of_record(refusal, origin.record(number))
    if type(item) is tuple:
        key, _, record_id = item
        return of_record(refusal, record_id(key))
    return of_record(refusal, Objects([item]).record(0))
