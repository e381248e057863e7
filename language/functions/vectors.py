"""`vector::…`: arrays of numbers as vectors, computed in floats."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

from language.functions.table import function
from language.numbers import finite
from protocol import limits
from protocol.errors import BadRequest, NumberTooLarge, TooLarge, TypeRefused
from protocol.values import type_name


def _floats(items: list[Any]) -> list[float]:
    for item in items:
        if type(item) not in (int, float, Decimal):
            raise TypeRefused(f"a vector is an array of numbers, not {type_name(item)}")
    return [float(item) for item in items]


def _pair(left: list[Any], right: list[Any]) -> tuple[list[float], list[float]]:
    if len(left) > limits.DIMENSIONS:
        raise TooLarge(
            f"a vector has at most {limits.DIMENSIONS} dimensions, not {len(left)}",
            limit=limits.DIMENSIONS,
        )
    if len(left) != len(right):
        raise BadRequest(f"vectors of {len(left)} and {len(right)} dimensions do not meet")
    return _floats(left), _floats(right)


def _dot(left: list[float], right: list[float]) -> float:
    try:
        return finite(math.fsum(x * y for x, y in zip(left, right, strict=True)))
    except (OverflowError, ValueError):  # a sum on the way, or two infinite products
        raise NumberTooLarge("a float left its range") from None


@function("vector::dot", "array", "array", result="float")
def dot(left: list[Any], right: list[Any]) -> float:
    """The sum of the products of two vectors' parts."""
    return _dot(*_pair(left, right))


@function("vector::euclidean", "array", "array", result="float")
def euclidean(left: list[Any], right: list[Any]) -> float:
    """The distance of two points."""
    return finite(math.dist(*_pair(left, right)))


@function("vector::cosine", "array", "array", result="float")
def cosine(left: list[Any], right: list[Any]) -> float:
    """The cosine of the angle between two vectors: 1 for one direction, 0 for a right angle."""
    one, two = map(_direction, _pair(left, right))
    return max(-1.0, min(1.0, _dot(one, two) / (math.hypot(*one) * math.hypot(*two))))


def _direction(vector: list[float]) -> list[float]:
    """A vector of the same direction whose largest part is between a half and one: the squares and
    products of very short or long ones would leave the range of floats.

    :raises BadRequest: its length is zero
    """
    largest = max(map(abs, vector), default=0.0)
    if largest == 0.0:
        raise BadRequest("vector::cosine takes no vector of length zero")
    power = -math.frexp(largest)[1]
    return [math.ldexp(part, power) for part in vector]
