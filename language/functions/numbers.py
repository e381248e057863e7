"""`math::…` functions."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Decimal, InvalidOperation, Overflow
from typing import Any

from language.functions.table import function
from language.numbers import DECIMAL, bounded, finite, integer, is_whole
from protocol import limits
from protocol.errors import BadRequest, NumberTooLarge, TypeRefused

_INT_DIGITS = 20
"""More digits than 64 bits have. A decimal with a larger exponent is never expanded to an int."""


def _whole(value: Any, rounding: str) -> int:
    if type(value) is int:
        return value
    exact = Decimal(value)
    if exact.adjusted() > _INT_DIGITS:
        raise NumberTooLarge("an integer does not fit 64 bits")
    return integer(int(exact.to_integral_value(rounding=rounding)))


@function("math::abs", "number", result="number")
def absolute(value: Any) -> Any:
    """Absolute value, of the same type."""
    if type(value) is int:
        return integer(abs(value))
    return value.copy_abs() if type(value) is Decimal else abs(value)


@function("math::floor", "number", result="int")
def floor(value: Any) -> int:
    """Largest int not above a number."""
    return _whole(value, ROUND_FLOOR)


@function("math::ceil", "number", result="int")
def ceil(value: Any) -> int:
    """Smallest int not below a number."""
    return _whole(value, ROUND_CEILING)


@function("math::round", "number", "int", result="number")
def round_(value: Any, digits: int | None = None) -> Any:
    """Nearest int, or number rounded to that many decimal places; halves round away from zero."""
    if digits is None:
        return _whole(value, ROUND_HALF_UP)
    if not 0 <= digits <= limits.DECIMAL_DIGITS:
        raise BadRequest(f"math::round takes 0 to {limits.DECIMAL_DIGITS} digits, not {digits}")
    if type(value) is int:
        return value
    if type(value) is float:
        # A double this large has no digits after the point to round.
        if abs(value) >= 1e15:
            return value
        exact = Decimal(repr(value))
        return value if -_exponent(exact) <= digits else float(_quantized(exact, digits))
    return value if -_exponent(value) <= digits else _quantized(value, digits)


def _exponent(value: Decimal) -> int:
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int), "NaN and infinities are not values"
    return exponent


def _quantized(value: Decimal, digits: int) -> Decimal:
    """Round a decimal to fewer decimal places."""
    return value.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP, context=DECIMAL)


@function("math::sqrt", "number", result="number")
def square_root(value: Any) -> Any:
    """Square root: a decimal for a decimal, a float for other numbers."""
    if value < 0:
        raise TypeRefused("math::sqrt takes no number below zero")
    return DECIMAL.sqrt(value) if type(value) is Decimal else math.sqrt(value)


@function("math::pow", "number", "number", result="number")
def power(base: Any, exponent: Any) -> Any:
    """Power of a number; ints give an int unless the exponent is negative."""
    kinds = {type(base), type(exponent)}
    if kinds == {Decimal, float}:
        raise TypeRefused("math::pow takes no decimal and float together: cast one")
    if base == 0 and exponent < 0:
        raise NumberTooLarge("zero to a power below zero is not finite")
    if kinds == {int} and exponent >= 0:
        # The result's size is checked before it is computed: 2 ** (2 ** 60) never starts.
        if abs(base) > 1 and exponent > 64:
            raise NumberTooLarge("an integer does not fit 64 bits")
        if abs(base) <= 1:
            exponent = exponent % 2 if exponent else 0
            return base**exponent if exponent or base == -1 else (1 if exponent == 0 else base)
        return integer(base**exponent)
    if base < 0 and not is_whole(exponent):
        raise TypeRefused("math::pow of a number below zero takes a whole exponent")
    if Decimal in kinds:
        if exponent == 0:
            return Decimal(1)  # also 0 ** 0, as for ints and floats; the context rejects it
        try:
            return bounded(DECIMAL.power(Decimal(base), Decimal(exponent)))
        except (InvalidOperation, Overflow):
            raise NumberTooLarge("a decimal is out of range") from None
    try:
        return finite(float(base) ** float(exponent))
    except OverflowError:
        raise NumberTooLarge("a float is out of range") from None
