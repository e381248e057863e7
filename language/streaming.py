"""Streaming: the answers of a SELECT are made one at a time, and each of them value by value, where
what a batch of rows makes is too large to be there at once before it is weighed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from language import columns as shown
from language import tree
from language.batchwork import Origin, of_item
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
    """What rows are answered as.

    :param decode: what makes rows of items
    :param finish: what makes answers of what the columns say: OMIT and FETCH
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
        self, items: list[Any], env: Env, budget: Budget, origin: Origin | None
    ) -> list[Any]:
        """The answers, which the budget has room for; it does not hold them afterwards.

        :raises TooLarge: it has no room for them
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
