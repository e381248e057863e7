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


def _parts(env: Env, items: list[Any]) -> tuple[float, Decimal | None, int]:
    """The two parts of a sum, see `total`, and of how many numbers it is."""
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
    return whole, exact, count


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
    whole, exact, _ = _parts(env, items)
    return total(whole, exact)


@function("mean", "array", result="number", env=True)
def mean(env: Env, items: list[Any]) -> Any:
    """The mean of numbers, none and null passed over; none of nothing."""
    return average(*_parts(env, items))


def average(whole: float, exact: Decimal | None, count: int) -> Any:
    """The two parts of a sum, see `total`, by how many numbers it is of: a float, or a decimal
    where there are decimals. The sum is not held to 64 bits: the mean of ints lies among them.

    :raises NumberTooLarge: floats or decimals left their range while they were added up
    :raises TypeRefused: floats and decimals were added up
    """
    if not count:
        return NONE
    if exact is not None:
        return divide(add(exact, whole), count)
    return whole / count if type(whole) is int else finite(whole) / count


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
