"""Arithmetic of the language.

- int with int gives int, and fails beyond 64 bits. `/` of two ints gives an int if it is exact,
  else a float. `%` takes the sign of the dividend, as in SQL.
- float with int or float gives float. A result that is not finite is an error.
- decimal with int or decimal is exact to 34 digits.
- decimal with float is an error: one of them must be cast. Either conversion loses digits, and only
  the author of the statement knows if that matters.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import ROUND_HALF_EVEN, Context, Decimal, InvalidOperation, Overflow
from typing import Any, Final, NoReturn

from language.env import Env
from language.pieces import cost_of, joined
from language.sizing import made
from protocol import limits
from protocol.errors import DivisionByZero, NumberTooLarge, TooLarge, TypeRefused
from protocol.text import duration
from protocol.values import FEW, LONG, MICROSECOND, PACE, type_name

DECIMAL: Final = Context(
    prec=limits.DECIMAL_DIGITS,
    rounding=ROUND_HALF_EVEN,
    Emin=-limits.DECIMAL_EXPONENT,
    Emax=limits.DECIMAL_EXPONENT,
    traps=[InvalidOperation, Overflow],
)
"""Context of every decimal operation."""

_SAFE: Final = limits.DECIMAL_EXPONENT - limits.DECIMAL_DIGITS

NUMBERS: Final = frozenset({int, float, Decimal})


def integer(value: int) -> int:
    """Return the value itself. :raises NumberTooLarge: it does not fit 64 bits"""
    if limits.INT_MIN <= value <= limits.INT_MAX:
        return value
    raise NumberTooLarge("an integer does not fit 64 bits")


def finite(value: float) -> float:
    """Return the value itself. :raises NumberTooLarge: it is infinite or NaN"""
    if value - value == 0.0:
        return value
    raise NumberTooLarge("a float is out of range")


def bounded(value: Decimal) -> Decimal:
    """Return a result of `DECIMAL` itself. :raises NumberTooLarge: its exponent is out of range"""
    # The exponent is at most DECIMAL_DIGITS below this, so that most results need no tuple.
    if -_SAFE <= value.adjusted() <= _SAFE and value.is_finite():
        return value
    exponent = value.as_tuple().exponent
    if (
        isinstance(exponent, int)
        and abs(exponent) <= limits.DECIMAL_EXPONENT
        and abs(value.adjusted()) <= limits.DECIMAL_EXPONENT
    ):
        return value
    raise NumberTooLarge(f"a decimal's exponent lies within ±{limits.DECIMAL_EXPONENT}")


def is_whole(value: Any) -> bool:
    """True if a number has no fractional part.

    `value // 1` would fail for a decimal with more integer digits than the context holds.
    """
    if type(value) is Decimal:
        return bool(value == value.to_integral_value())
    return type(value) is int or value.is_integer()


def _refuse(operator: str, left: Any, right: Any) -> NoReturn:
    kinds = type_name(left), type_name(right)
    if set(kinds) == {"decimal", "float"}:
        message = (
            f"{kinds[0]} {operator} {kinds[1]} would lose digits: "
            "cast one with type::decimal or type::float"
        )
    else:
        message = f"{operator} does not take {kinds[0]} and {kinds[1]}"
    raise TypeRefused(message, operator=operator, left=kinds[0], right=kinds[1])


def _decimals(
    work: Callable[[Decimal, Decimal], Decimal], left: int | Decimal, right: int | Decimal
) -> Decimal:
    try:
        return bounded(work(Decimal(left), Decimal(right)))
    except (InvalidOperation, Overflow):
        raise NumberTooLarge("a decimal is out of range") from None


def add_decimals(left: Decimal, right: Decimal) -> Decimal:
    """Return the sum. :raises NumberTooLarge: it is out of range"""
    try:
        return bounded(DECIMAL.add(left, right))
    except (InvalidOperation, Overflow):
        raise NumberTooLarge("a decimal is out of range") from None


def _floats(work: Callable[[Any, Any], float], left: Any, right: Any) -> float:
    try:
        return finite(work(left, right))
    except OverflowError:
        raise NumberTooLarge("a float is out of range") from None


def _kind(operator: str, left: Any, right: Any) -> type:
    """Return the common type of two numbers of different types."""
    kinds = {type(left), type(right)}
    if kinds <= NUMBERS and kinds != {float, Decimal}:
        return Decimal if Decimal in kinds else float if float in kinds else int
    _refuse(operator, left, right)


def add(left: Any, right: Any, env: Env | None = None) -> Any:
    """`+`: numbers, strings, arrays, durations, and a datetime with a duration.

    :param env: charged for large operands; None if neither is large
    """
    kind = type(left)
    if kind is type(right):
        if kind is int:
            return integer(left + right)
        if kind is float:
            return finite(left + right)
        if kind is str:
            size = len(left) + len(right)
            if size > limits.STRING_BYTES:
                raise TooLarge(f"a string has at most {limits.STRING_BYTES} bytes")
            if size > FEW and env is not None:
                env.tick(cost_of(size))
            if size > LONG:
                made(size)
            return left + right
        if kind is list:
            size = len(left) + len(right)
            if size > limits.RANGE_ITEMS:
                raise TooLarge(f"an array built here has at most {limits.RANGE_ITEMS} items")
            if size > PACE:
                made(8 * size)
            if size <= FEW or env is None:
                return left + right
            env.tick(size)
            return joined(left, right, env)
        if kind is Decimal:
            return add_decimals(left, right)
        if kind is timedelta:
            return duration(left // MICROSECOND + right // MICROSECOND)
    if kind is datetime and type(right) is timedelta:
        return shift(left, right)
    if kind is timedelta and type(right) is datetime:
        return shift(right, left)
    meet = _kind("+", left, right)
    if meet is float:
        return _floats(float.__add__, float(left), float(right))
    return _decimals(DECIMAL.add, left, right)


def subtract(left: Any, right: Any) -> Any:
    """`-`: numbers, durations, a duration from a datetime, two datetimes."""
    kind = type(left)
    if kind is type(right):
        if kind is int:
            return integer(left - right)
        if kind is float:
            return finite(left - right)
        if kind is timedelta:
            return duration(left // MICROSECOND - right // MICROSECOND)
        if kind is datetime:
            return left - right
    if kind is datetime and type(right) is timedelta:
        return shift(left, -right)
    meet = _kind("-", left, right)
    if meet is float:
        return _floats(float.__sub__, float(left), float(right))
    return _decimals(DECIMAL.subtract, left, right)


def multiply(left: Any, right: Any) -> Any:
    """`*`: numbers, and a duration with an int."""
    kinds = {type(left), type(right)}
    if kinds == {timedelta, int}:
        span, times = (left, right) if type(left) is timedelta else (right, left)
        return duration(span // MICROSECOND * times)
    meet = _kind("*", left, right)
    if meet is int:
        return integer(left * right)
    if meet is float:
        return _floats(float.__mul__, float(left), float(right))
    return _decimals(DECIMAL.multiply, left, right)


def divide(left: Any, right: Any) -> Any:
    """`/`: numbers, a duration by a number of parts, two durations to a float.

    :raises DivisionByZero: the right side is worth zero
    """
    if type(left) is timedelta and type(right) in (int, timedelta):
        if not right:
            raise DivisionByZero("division by zero")
        if type(right) is timedelta:
            return left / right
        return duration(left // MICROSECOND // right)
    meet = _kind("/", left, right)
    if not right:
        raise DivisionByZero("division by zero")
    if meet is int:
        whole, rest = divmod(left, right)
        return left / right if rest else integer(whole)
    if meet is float:
        return _floats(float.__truediv__, float(left), float(right))
    return _decimals(DECIMAL.divide, left, right)


def remainder(left: Any, right: Any) -> Any:
    """`%`, with the sign of the left side. :raises DivisionByZero: the right side is zero"""
    meet = _kind("%", left, right)
    if not right:
        raise DivisionByZero("division by zero")
    if meet is int:
        rest = abs(left) % abs(right)
        return -rest if left < 0 else rest
    if meet is float:
        rest = abs(float(left)) % abs(float(right))
        return -rest if left < 0 else rest
    return _decimals(_remainder, left, right)


def _remainder(left: Decimal, right: Decimal) -> Decimal:
    """Return the exact remainder of two decimals.

    The context rejects operands whose quotient has more digits than it holds, however few the
    remainder has.
    """
    if left.adjusted() - right.adjusted() < limits.DECIMAL_DIGITS:
        return DECIMAL.remainder(left, right)
    (units, above), (divisor, unit) = _parts(left), _parts(right)
    rest = units * pow(10, above - unit, divisor) % divisor
    return Decimal(rest).scaleb(unit, DECIMAL).copy_sign(left)


def _parts(value: Decimal) -> tuple[int, int]:
    """Return the digits of a decimal as one int, and its exponent."""
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int), "NaN and infinities are not values"
    return int("".join(map(str, digits))), exponent


def negate(value: Any) -> Any:
    """Unary minus: numbers and durations."""
    kind = type(value)
    if kind is int:
        return integer(-value)
    if kind is float:
        return -value
    if kind is Decimal:
        return value.copy_negate() if value else value.copy_abs()
    if kind is timedelta:
        return duration(-(value // MICROSECOND))
    raise TypeRefused(f"- does not take {type_name(value)}", operator="-", right=type_name(value))


def affirm(value: Any) -> Any:
    """Unary plus: a number or duration as it is."""
    if type(value) in NUMBERS or type(value) is timedelta:
        return value
    raise TypeRefused(f"+ does not take {type_name(value)}", operator="+", right=type_name(value))


def shift(moment: datetime, span: timedelta) -> datetime:
    """Return a datetime plus a duration. :raises NumberTooLarge: it leaves the years 1 to 9999"""
    try:
        return moment + span
    except OverflowError:
        raise NumberTooLarge("a datetime lies within the years 1 to 9999") from None
