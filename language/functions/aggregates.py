"""`count sum min max mean`: over an array here; over the rows of a group in a SELECT with GROUP,
which the select pipeline compiles (`language.grouping`)."""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from typing import Any

from language.env import Env
from language.functions.table import function, slices
from language.numbers import NUMBERS, add, divide, finite, integer
from language.operators import order_key
from protocol.errors import TypeRefused
from protocol.values import NONE, type_name


def present(value: Any) -> bool:
    """Whether an aggregate looks at a value: none and null are passed over."""
    return value is not None and value is not NONE


def total(whole: float, exact: Decimal | None) -> Any:
    """A sum from its two parts: ints and floats, and decimals.

    :raises NumberTooLarge: it left the range of its type
    :raises TypeRefused: floats and decimals were added up
    """
    if exact is not None:
        return add(exact, whole)
    return integer(whole) if type(whole) is int else finite(whole)


def not_a_number(value: Any) -> TypeRefused:
    """What adding up something else is refused with."""
    return TypeRefused(f"sum and mean take numbers, not {type_name(value)}")


def _sum(env: Env, items: list[Any]) -> tuple[Any, int]:
    whole: float = 0
    exact: Decimal | None = None
    count = 0
    for part in slices(items, env):
        for item in part:
            if type(item) is int or type(item) is float:
                whole += item
            elif type(item) is Decimal:
                exact = item if exact is None else add(exact, item)
            elif present(item):
                raise not_a_number(item)
            else:
                continue
            count += 1
    return total(whole, exact), count


@function("count", "array", result="int", env=True)
def count(env: Env, items: list[Any] | None = None) -> int:
    """Rows of a group, or items that are neither none nor null."""
    if items is None:
        raise TypeRefused(
            "count() counts the rows of a group: wanted GROUP BY, GROUP ALL or an array"
        )
    return sum(sum(map(present, part)) for part in slices(items, env))


@function("sum", "array", result="number", env=True)
def sum_(env: Env, items: list[Any]) -> Any:
    """Numbers added up, none and null passed over; 0 of nothing."""
    return _sum(env, items)[0]


@function("mean", "array", result="number", env=True)
def mean(env: Env, items: list[Any]) -> Any:
    """The mean of numbers, none and null passed over; none of nothing."""
    found, number = _sum(env, items)
    return average(found, number)


def average(found: Any, number: int) -> Any:
    """A sum by the number of its parts: a float, or a decimal of decimals."""
    if not number:
        return NONE
    return divide(found, number) if type(found) is Decimal else found / number


@function("min", "array", result="any", env=True)
def min_(env: Env, items: list[Any]) -> Any:
    """The least value in the order of values, none and null passed over; none of nothing."""
    least = [
        min(found, key=partial(order_key, tick=env.tick)) for found in _present(items, env) if found
    ]
    return min(least, key=partial(order_key, tick=env.tick)) if least else NONE


@function("max", "array", result="any", env=True)
def max_(env: Env, items: list[Any]) -> Any:
    """The greatest value in the order of values, none and null passed over; none of nothing."""
    most = [
        max(found, key=partial(order_key, tick=env.tick)) for found in _present(items, env) if found
    ]
    return max(most, key=partial(order_key, tick=env.tick)) if most else NONE


def _present(items: list[Any], env: Env) -> Any:
    for part in slices(items, env):
        yield [item for item in part if present(item)]


assert {int, float, Decimal} == NUMBERS
