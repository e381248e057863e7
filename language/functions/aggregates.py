"""`count sum min max mean` and their like: over an array here; over the rows of a group in a SELECT
with GROUP, which the select pipeline compiles (`language.grouping`)."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from math import isinf, sqrt
from typing import Any

from language.env import Env
from language.functions.arrays import order_of, sort
from language.functions.table import function
from language.numbers import NUMBERS, add, divide, finite, integer
from language.operators import hashable
from language.pieces import slices
from protocol.errors import TypeRefused
from protocol.values import NONE, type_name


def present(value: Any) -> bool:
    """Whether an aggregate looks at a value: none and null are passed over."""
    return value is not None and value is not NONE


Sum = tuple[int, Decimal | None, float, float]
"""The parts of a sum: of ints, exact; of decimals, None without any; of floats, a double and what
rounding has taken from it so far (Neumaier's compensated summation). The double is the int 0 until
a float is added."""


def float_added(high: float, low: float, value: float) -> tuple[float, float]:
    """Return the float parts of a sum with one more value."""
    found = high + value
    if abs(high) >= abs(value):
        return found, low + ((high - found) + value)
    return found, low + ((value - found) + high)


def total(ints: int, exact: Decimal | None, high: float, low: float) -> Any:
    """Return a sum from its parts.

    :raises NumberTooLarge: it left the range of its type
    :raises TypeRefused: floats and decimals were added up
    """
    if type(high) is not float:
        return integer(ints) if exact is None else add(exact, ints)
    found = finite(finite(high) + low + ints)
    return found if exact is None else add(exact, found)


def not_a_number(value: Any) -> TypeRefused:
    """What adding up something else is refused with."""
    return TypeRefused(f"sum and mean take numbers, not {type_name(value)}")


def _parts(env: Env, items: list[Any]) -> tuple[Sum, int]:
    """Return the parts of a sum, and of how many numbers it is."""
    ints, exact, count = 0, None, 0
    high: float = 0
    low = 0.0
    for part in slices(items, env):
        for item in part:
            if type(item) is int:
                ints += item
            elif type(item) is float:
                high, low = float_added(high, low, item)
            elif type(item) is Decimal:
                exact = item if exact is None else add(exact, item)
            elif present(item):
                raise not_a_number(item)
            else:
                continue
            count += 1
    return (ints, exact, high, low), count


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
    """Numbers added up, none and null passed over; 0 of nothing. Floats are rounded at the end."""
    parts, _ = _parts(env, items)
    return total(*parts)


@function("mean", "array", result="number", env=True)
def mean(env: Env, items: list[Any]) -> Any:
    """The mean of numbers, none and null passed over; none of nothing. It lies among them."""
    parts, count = _parts(env, items)
    return average(*parts, count)


def average(ints: int, exact: Decimal | None, high: float, low: float, count: int) -> Any:
    """Return the mean from the parts of a sum: a float, or a decimal where there are decimals. The
    sum is not held to 64 bits: the mean of ints lies among them.

    :raises NumberTooLarge: floats or decimals left their range while they were added up
    :raises TypeRefused: floats and decimals were added up
    """
    if not count:
        return NONE
    if exact is not None:
        return divide(add(exact, high if type(high) is float else ints), count)
    if type(high) is not float:
        return ints / count
    whole = Fraction(finite(high)) + Fraction(low) + ints
    return float(whole / count)


@function("min", "array", result="any", env=True)
def min_(env: Env, items: list[Any]) -> Any:
    """The least value in the order of values, none and null passed over; none of nothing."""
    key = order_of(items, env)
    least = [min(found, key=key) for found in _present(items, env) if found]
    return min(least, key=key) if least else NONE


@function("max", "array", result="any", env=True)
def max_(env: Env, items: list[Any]) -> Any:
    """The greatest value in the order of values, none and null passed over; none of nothing."""
    key = order_of(items, env)
    most = [max(found, key=key) for found in _present(items, env) if found]
    return max(most, key=key) if most else NONE


@function("count_distinct", "array", result="int", env=True)
def count_distinct(env: Env, items: list[Any]) -> int:
    """How many different values there are, none and null passed over; also `count(DISTINCT e)`."""
    found: set[Any] = set()
    for part in _present(items, env):
        found.update(hashable(item, env.tick) for item in part)
    return len(found)


@function("collect", "array", result="array", env=True)
def collect(env: Env, items: list[Any]) -> list[Any]:
    """The values as an array, none left out; of the rows of a group in the order they are read."""
    return [item for part in slices(items, env) for item in part if item is not NONE]


@function("median", "array", result="number", env=True)
def median(env: Env, items: list[Any]) -> Any:
    """The middle one of numbers, or the mean of two, none and null passed over; none of nothing."""
    return middle(env, [checked_number(item) for part in _present(items, env) for item in part])


@function("stddev", "array", result="float", env=True)
def stddev(env: Env, items: list[Any]) -> Any:
    """The standard deviation of a sample, none and null passed over; none of fewer than two."""
    state: Deviation = (0, NONE, 0.0, 0.0)
    for part in _present(items, env):
        for item in part:
            state = deviated(*state, item)
    return deviation(*state)


@function("first", "array", result="any", env=True)
def first(env: Env, items: list[Any]) -> Any:
    """The first value that is neither none nor null; of a group as its rows are read, by ids."""
    return next((item for part in _present(items, env) for item in part), NONE)


@function("last", "array", result="any", env=True)
def last(env: Env, items: list[Any]) -> Any:
    """The last value that is neither none nor null; of a group as its rows are read, by ids."""
    found: Any = NONE
    for part in _present(items, env):
        found = part[-1] if part else found
    return found


def checked_number(value: Any) -> Any:
    """The value itself. :raises TypeRefused: it is no number"""
    if type(value) not in NUMBERS:
        raise TypeRefused(f"median and stddev take numbers, not {type_name(value)}")
    return value


def middle(env: Env, numbers: list[Any]) -> Any:
    """The median of numbers, which are sorted in slices."""
    if not numbers:
        return NONE
    ordered, half = sort(env, numbers), len(numbers) // 2
    if len(ordered) % 2:
        return ordered[half]
    return _halfway(ordered[half - 1], ordered[half])


def _halfway(low: Any, high: Any) -> Any:
    """The mean of two numbers. It lies between them, so it is never out of range as their sum may
    be."""
    if type(low) is int and type(high) is int:
        half, rest = divmod(low + high, 2)
        return (low + high) / 2 if rest else half
    if type(low) is float and type(high) is float and isinf(low + high):
        return low / 2 + high / 2
    return divide(add(low, high), 2)


Deviation = tuple[int, Any, float, float]
"""Of numbers seen one by one: how many, the first, and of their distances from it the mean and the
sum of the squares around that."""


def deviated(count: int, first: Any, mean: float, squares: float, value: Any) -> Deviation:
    """A deviation with one more number (Welford's way: nothing is taken from large sums).

    Counted from the first number on: doubles tell large ones that are close together apart only by
    their distance."""
    checked_number(value)
    if not count:
        first = value
    far = value - first if type(value) is type(first) else float(value) - float(first)
    away = float(far)
    count += 1
    apart = away - mean
    mean += apart / count
    return count, first, mean, squares + apart * (away - mean)


def deviation(count: int, first: Any, mean: float, squares: float) -> Any:
    """What it comes to. :raises NumberTooLarge: it left the range of floats"""
    return NONE if count < 2 else sqrt(finite(squares) / (count - 1))


def _present(items: list[Any], env: Env) -> Any:
    for part in slices(items, env):
        yield [item for item in part if present(item)]


assert {int, float, Decimal} == NUMBERS
