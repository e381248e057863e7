"""Closures: functions of the language applied to each item of an array.

During a call, its parameters are bound among the statement's variables and shadow variables of the
same name. The body can read everything that the enclosing expression can read.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any, Final

from language.budget import Budget, bounded
from language.env import Env
from protocol.weights import weigh

_ABSENT: Final = object()


class Closure:
    """A closure with its captured row and environment.

    :param names: names of its parameters
    :param body: computes its value, once the parameters are bound
    :param row: the enclosing row; the body may read it
    :param pace: number of items between two ticks
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
        """Yield the closure's value for each item in turn."""
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
        """Return the closure's values for all items. :raises TooLarge: over the statement's memory
        limit"""
        tick = self._env.tick
        budget, found = Budget(tick=tick, memory=self._env.memory), []
        for value in self.of_each(items):
            budget.hold(weigh(value, tick))
            found.append(value)
        budget.hand_on()
        return found

    def folded(self, found: Any, items: Iterable[Any]) -> Any:
        """Fold the items into an initial value: apply the closure to accumulator and item."""
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
