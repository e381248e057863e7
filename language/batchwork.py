"""Vectorized expressions: closures for the first rows of a batch, generated code once it pays off;
and the row that made a batch fail."""

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
from language.names import has_subquery, shape_of
from language.pieces import slices
from language.rows import Batch, Objects, Pairs, Row, Shape
from protocol.errors import Refusal
from protocol.values import RecordId

_FEW: Final = 64
"""Rows seen in all for which closures are called; past this, code is generated."""


class Lazily:
    """Expression evaluation over batches. Starts with closures, and generates code after `_FEW`
    rows.

    :param one: computes the result for a list of rows with closures
    :param many: generates the function of a batch: `(rows, …, env, memo)`
    :param nodes: the expressions evaluated for each row
    :param numbered: True if the results are row numbers
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
        """Return the error of a failed batch and the number of the row that raised it.

        The rows are evaluated again, one by one, with closures. Only a closure knows the position
        of its expression in the text, and only a batch of one row identifies the row.
        """
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


class BatchFilter:
    """WHERE or HAVING over batches: returns the numbers of the rows that satisfy the condition."""

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
        """Return the numbers of the matching rows.

        :param batch: the batch of these rows; an error then names the record
        """
        try:
            return self._work(rows, env, memo)
        except Refusal as refusal:
            found, number = self._work.refused(rows, env, refusal)
            if number is not None and batch is not None:
                found = of_record(found, batch.record(number))
            raise found from found.__cause__

    def kept(self, batch: Batch, env: Env, memo: Memo) -> Batch:
        """Return the batch reduced to the rows that satisfy the condition."""
        numbers = self(self.shape.rows(batch), env, memo)
        if isinstance(batch, Pairs):
            return replace(batch, pairs=[batch.pairs[n] for n in numbers])
        return replace(batch, values=[batch.values[n] for n in numbers])


def traced(
    refusal: Refusal,
    expressions: tuple[tree.Expression, ...],
    shape: Shape,
    rows: list[Row],
    env: Env,
) -> tuple[Refusal, int | None]:
    """Return the error of generated code, raised again by the closure of the failing expression,
    and the row's number.

    The closure adds the position in the text. See `Lazily.refused`.
    """
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


class SourceRows(NamedTuple):
    """The batch that rows were read from, and the numbers of the rows still left of it."""

    batch: Batch
    numbers: Sequence[int]

    def record(self, number: int) -> RecordId | None:
        """Return the record that a row was read from, or None if it comes from no record."""
        return self.batch.record(self.numbers[number])

    def without(self, skipped: int) -> SourceRows:
        """Return the same origin without the first rows."""
        return SourceRows(self.batch, self.numbers[skipped:])


def of_item(
    refusal: Refusal, items: list[Any], number: int | None, origin: SourceRows | None
) -> Refusal:
    """Add the record of an item to an error.

    The record comes from the item's origin, from the item itself, or from the id in its fields. An
    item without a record, such as a group, is not named.
    """
    if number is None:
        return refusal
    item = items[number]
    if origin is not None:
        return of_record(refusal, origin.record(number))
    if type(item) is tuple:
        key, _, record_id = item
        return of_record(refusal, record_id(key))
    return of_record(refusal, Objects([item]).record(0))
