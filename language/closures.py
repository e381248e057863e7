"""Closures: what a function of the language does to each item of an array.

While one runs, its parameters stand among the variables of the statement, and those of the same
name that were there before stand aside. It may look at all that the expression around it looks at.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any, Final

from language.budget import Budget, bounded
from language.env import Env
from protocol.weights import weigh

_ABSENT: Final = object()


class Closure:
    """:param names: of its parameters
    :param body: computes its value, once they are bound
    :param row: the row around it, and what else it may look at
    :param pace: items between two ticks
    """

    __slots__ = ("_body", "_env", "_names", "_pace", "_row")

    def __init__(
        self, names: tuple[str, ...], body: Callable[[Any, Env], Any], row: Any, env: Env, pace: int
    ) -> None:
        self._names = names
        self._body = body
        self._row = row
        self._env = env
        self._pace = pace

    def of_each(self, items: Iterable[Any]) -> Generator[Any, None, None]:
        """What it makes of each item, one after the other."""
        (name,) = self._names
        row, env, body = self._row, self._env, self._body
        variables = env.variables
        before = variables.get(name, _ABSENT)
        try:
            for number, item in enumerate(items):
                if not number % self._pace:
                    env.tick()
                variables[name] = item
                yield body(row, env)
        finally:
            _restore(variables, name, before)

    def all_of(self, items: list[Any]) -> list[Any]:
        """What it makes of every item. :raises TooLarge: together more than a statement may hold"""
        tick = self._env.tick
        budget, found = Budget(tick=tick, memory=self._env.memory), []
        for value in self.of_each(items):
            budget.hold(weigh(value, tick))
            found.append(value)
        budget.hand_on()
        return found

    def folded(self, found: Any, items: Iterable[Any]) -> Any:
        """What it makes of a first value and an item, then of that and the next, and so on."""
        of, name = self._names
        row, env, body = self._row, self._env, self._body
        variables = env.variables
        before = variables.get(of, _ABSENT), variables.get(name, _ABSENT)
        try:
            for number, item in enumerate(items):
                if not number % self._pace:
                    env.tick()
                variables[of], variables[name] = found, item
                found = bounded(body(row, env), env.tick)  # it may double each time
        finally:
            _restore(variables, name, before[1])
            _restore(variables, of, before[0])
        return found


def _restore(variables: Any, name: str, before: Any) -> None:
    if before is _ABSENT:
        variables.pop(name, None)
    else:
        variables[name] = before
