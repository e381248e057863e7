"""Streaming projection: builds the results of a SELECT one at a time, value by value.

Used when the results of a whole batch would be too large to exist before they are weighed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from language import columns as shown
from language import tree
from language.batchwork import SourceRows, of_item
from language.budget import Budget, too_large
from language.compile import compile_expression
from language.env import Env
from language.error_places import is_of_values
from language.rows import Row, Shape, item_value
from language.sizing import Heavy, counted
from protocol.errors import Refusal
from protocol.values import NONE

Columns = tuple[tuple[tuple[str, ...], tree.Expression], ...]


class StreamedAnswers:
    """Projection of rows under a memory budget.

    :param decode: decodes items to rows
    :param finish: applies OMIT and FETCH to the projected results
    """

    def __init__(
        self,
        select: tree.Select,
        columns: Columns,
        shape: Shape,
        decode: Callable[[list[Any]], list[Row]],
        finish: Callable[[list[Any], Env], list[Any]],
    ) -> None:
        self._select = select
        self._computed = [(path, compile_expression(one, shape)) for path, one in columns]
        self._decode, self._finish = decode, finish

    def __call__(
        self, items: list[Any], env: Env, budget: Budget, origin: SourceRows | None
    ) -> list[Any]:
        """Return the results. They fit the budget, but their memory is not reserved afterwards.

        :raises TooLarge: they do not fit
        """
        before = budget.held
        answers: list[Any] = []
        for number, item in enumerate(items):
            env.tick()
            try:
                answers.append(self._answer(self._decode([item])[0], env, budget))
            except Refusal as refusal:
                if not is_of_values(refusal):
                    raise
                raise of_item(refusal, items, number, origin) from refusal.__cause__
        budget.hold(before - budget.held)
        return answers

    def _answer(self, row: Row, env: Env, budget: Budget) -> Any:
        select = self._select
        if select.value:
            answer = self._computed[0][1](row, env)
            budget.hold_one(answer)
        elif not self._computed:
            answer = item_value(row)
        else:
            answer = dict(row) if select.everything else {}
            for path, compute in self._computed:
                env.tick()
                value = compute(row, env)
                if value is not NONE:
                    budget.hold_one(value)
                    shown.place(answer, path, value)
        if not select.fetch:
            return self._finish([answer], env)[0]
        room = max(0, budget.most - budget.held)
        try:
            found, _ = counted(self._finish, [answer], env, most=room)
        except Heavy:
            raise too_large(budget.most) from None
        budget.hold_one(found[0])
        return found[0]
