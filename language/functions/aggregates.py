"""Aggregate functions: `count sum min max mean …` over an array.

Over the rows of a group, in a SELECT with GROUP, they are compiled by `language.grouping`.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from math import isinf, sqrt
from typing import Any

from language.env import Env
from language.functions.arrays import order_of, sort
from language.functions.table import function
from language.numbers import NUMBERS, add, add_decimals, divide, finite, integer
from language.operators import hashable
from language.pieces import slices
from protocol.errors import TypeRefused
from protocol.values import NONE, type_name


def present(value: Any) -> bool:
    """True if an aggregate includes a value: NONE and NULL are ignored."""
    return value is not None and value is not NONE


Sum = tuple[int, Decimal | None, float, float]
"""Parts of a sum: ints, exact; decimals, None if there are none; floats, a double and its rounding
error so far (Neumaier's compensated summation). The double is the int 0 until a float is added."""


def float_added(high: float, low: float, value: float) -> tuple[float, float]:
    """Add a value to the float parts of a sum."""
    found = high + value
    if abs(high) >= abs(value):
        return found, low + ((high - found) + value)
    return found, low + ((value - found) + high)


def total(ints: int, exact: Decimal | None, high: float, low: float) -> Any:
    """Return a sum from its parts.

    :raises NumberTooLarge: the sum is outside the range of its type
    :raises TypeRefused: both floats and decimals were added
    """
    if type(high) is not float:
        return integer(ints) if exact is None else add_decimals(exact, Decimal(ints))
    found = finite(finite(high) + low + ints)
    return found if exact is None else add(exact, found)


def not_a_number(value: Any) -> TypeRefused:
    """Return the error for adding a value that is not a number."""
    return TypeRefused(f"sum and mean take numbers, not {type_name(value)}")


def _parts(env: Env, items: list[Any]) -> tuple[Sum, int]:
    """Return the parts of a sum and the count of its numbers."""
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
    """Number of rows of a group, or of array items that are neither NONE nor NULL."""
    if items is None:
        raise TypeRefused(
            "count() counts the rows of a group: it needs GROUP BY, GROUP ALL or an array"
        )
    return sum(sum(map(present, part)) for part in slices(items, env))


@function("sum", "array", result="number", env=True)
def sum_(env: Env, items: list[Any]) -> Any:
    """Sum of numbers, ignoring NONE and NULL; 0 if empty. Floats are rounded at the end."""
    parts, _ = _parts(env, items)
    return total(*parts)


@function("mean", "array", result="number", env=True)
def mean(env: Env, items: list[Any]) -> Any:
    """Mean of numbers, ignoring NONE and NULL; NONE if there are none. It is within their range."""
    parts, count = _parts(env, items)
    return average(*parts, count)


def average(ints: int, exact: Decimal | None, high: float, low: float, count: int) -> Any:
    """Return the mean from the parts of a sum: a float, or a decimal if there are decimals.

    The sum is not limited to 64 bits, because the mean of ints lies between them.

    :raises NumberTooLarge: the sum of floats or decimals left their range
    :raises TypeRefused: both floats and decimals were added
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
    """Smallest value in the order of values, ignoring NONE and NULL; NONE if there are none."""
    key = order_of(items, env)
    least = [min(found, key=key) for found in _present(items, env) if found]
    return min(least, key=key) if least else NONE


@function("max", "array", result="any", env=True)
def max_(env: Env, items: list[Any]) -> Any:
    """Largest value in the order of values, ignoring NONE and NULL; NONE if there are none."""
    key = order_of(items, env)
    most = [max(found, key=key) for found in _present(items, env) if found]
    return max(most, key=key) if most else NONE


@function("count_distinct", "array", result="int", env=True)
def count_distinct(env: Env, items: list[Any]) -> int:
    """Number of distinct values, ignoring NONE and NULL; also written `count(DISTINCT e)`."""
    found: set[Any] = set()
    for part in _present(items, env):
        found.update(hashable(item, env.tick) for item in part)
    return len(found)


@function("collect", "array", result="array", env=True)
def collect(env: Env, items: list[Any]) -> list[Any]:
    """Array of the values without NONE; in a group, in the order in which its rows are read."""
    return [item for part in slices(items, env) for item in part if item is not NONE]


@function("median", "array", result="number", env=True)
def median(env: Env, items: list[Any]) -> Any:
    """Median of numbers (mean of the middle two), ignoring NONE and NULL; NONE if empty."""
    return middle(env, [checked_number(item) for part in _present(items, env) for item in part])


@function("stddev", "array", result="float", env=True)
def stddev(env: Env, items: list[Any]) -> Any:
    """Sample standard deviation of numbers, ignoring NONE and NULL; NONE for fewer than two."""
    state: Deviation = (0, NONE, 0.0, 0.0)
    for part in _present(items, env):
        for item in part:
            state = deviated(*state, item)
    return deviation(*state)


@function("first", "array", result="any", env=True)
def first(env: Env, items: list[Any]) -> Any:
    """First value that is neither NONE nor NULL; a group's rows are read by ascending id."""
    return next((item for part in _present(items, env) for item in part), NONE)


@function("last", "array", result="any", env=True)
def last(env: Env, items: list[Any]) -> Any:
    """Last value that is neither NONE nor NULL; a group's rows are read by ascending id."""
    found: Any = NONE
    for part in _present(items, env):
        found = part[-1] if part else found
    return found


def checked_number(value: Any) -> Any:
    """Return the value itself. :raises TypeRefused: it is not a number"""
    if type(value) not in NUMBERS:
        raise TypeRefused(f"median and stddev take numbers, not {type_name(value)}")
    return value


def middle(env: Env, numbers: list[Any]) -> Any:
    """Return the median of numbers. They are sorted in slices."""
    if not numbers:
        return NONE
    ordered, half = sort(env, numbers), len(numbers) // 2
    if len(ordered) % 2:
        return ordered[half]
    return _halfway(ordered[half - 1], ordered[half])


def _halfway(low: Any, high: Any) -> Any:
    """Return the mean of two numbers. It lies between them, so it stays in range even if their sum
    does not."""
    if type(low) is int and type(high) is int:
        half, rest = divmod(low + high, 2)
        return (low + high) / 2 if rest else half
    if type(low) is float and type(high) is float and isinf(low + high):
        return low / 2 + high / 2
    return divide(add(low, high), 2)


Deviation = tuple[int, Any, float, float]
"""State of a running deviation: count, first number, mean of the differences from it, and the sum
of squared differences from that mean."""


def deviated(count: int, first: Any, mean: float, squares: float, value: Any) -> Deviation:
    """Add a number to a running deviation (Welford's algorithm, which avoids subtracting large
    sums).

    Differences are taken from the first number: large doubles close together keep their precision
    only in their difference.
    """
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
    """Return the standard deviation. :raises NumberTooLarge: it is outside the range of floats"""
    return NONE if count < 2 else sqrt(finite(squares) / (count - 1))


def _present(items: list[Any], env: Env) -> Any:
    for part in slices(items, env):
        yield [item for item in part if present(item)]


assert {int, float, Decimal} == NUMBERS
