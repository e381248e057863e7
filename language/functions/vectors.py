"""`vector::…` functions: arrays of numbers as vectors, computed in floats."""

from __future__ import annotations

import math
import sys
from decimal import Decimal
from operator import mul
from typing import Any, Final, NoReturn

from language.env import Env
from language.functions.table import function
from language.numbers import finite
from language.pieces import slices
from protocol import limits
from protocol.errors import BadRequest, NumberTooLarge, TooLarge, TypeRefused
from protocol.values import type_name

_NUMBERS: Final = frozenset({int, float, Decimal})


def _floats(items: list[Any], env: Env) -> list[float]:
    found: list[float] = []
    for part in slices(items, env):
        if not set(map(type, part)) <= _NUMBERS:
            other = next(item for item in part if type(item) not in _NUMBERS)
            raise TypeRefused(f"a vector is an array of numbers, not {type_name(other)}")
        found += map(float, part)
    return found


def _pair(env: Env, left: list[Any], right: list[Any]) -> tuple[list[float], list[float]]:
    if len(left) > limits.DIMENSIONS:
        raise TooLarge(
            f"a vector has at most {limits.DIMENSIONS} dimensions, not {len(left)}",
            limit=limits.DIMENSIONS,
        )
    if len(left) != len(right):
        raise BadRequest(
            f"vectors of {len(left)} and {len(right)} dimensions: both need the same number"
        )
    return _floats(left, env), _floats(right, env)


def _dot(env: Env, left: list[float], right: list[float]) -> float:
    env.tick(len(left))
    try:
        return finite(math.fsum(map(mul, left, right)))
    except (OverflowError, ValueError):  # sum overflowed, or two infinite products
        raise NumberTooLarge("a float is out of range") from None


@function("vector::distance", result="float", env=True, fixed=False)
def distance(env: Env) -> NoReturn:
    """Distance of the row by the NEAREST of WHERE: 1 - cosine, Euclidean or -dot product."""
    raise BadRequest("vector::distance is about the rows that NEAREST has found")


@function("vector::dot", "array", "array", result="float", env=True)
def dot(env: Env, left: list[Any], right: list[Any]) -> float:
    """Dot product of two vectors."""
    return _dot(env, *_pair(env, left, right))


@function("vector::euclidean", "array", "array", result="float", env=True)
def euclidean(env: Env, left: list[Any], right: list[Any]) -> float:
    """Euclidean distance of two points."""
    return finite(math.dist(*_pair(env, left, right)))


class DistanceTo:
    """Distances from one vector, as the functions for them compute them.

    :param kind: `COSINE`, `EUCLIDEAN` or `DOT`
    """

    def __init__(self, env: Env, kind: str, vector: list[Any]) -> None:
        self._env, self._kind = env, kind
        self._vector = _floats(vector, env)
        self._direction, self._length = self._vector, 1.0
        if kind == "COSINE":
            self._direction = _direction(self._vector, env)
            self._length = math.hypot(*self._direction)

    def __call__(self, vector: list[Any]) -> float:
        """Return the distance of a vector of the same dimension: -cosine, Euclidean, or -dot."""
        other = _floats(vector, self._env)
        if self._kind == "EUCLIDEAN":
            return finite(math.dist(other, self._vector))
        if self._kind == "DOT":
            return -_dot(self._env, other, self._vector)
        direction = _direction(other, self._env)
        return -_cosine(self._env, direction, self._direction, math.hypot(*direction), self._length)


def _cosine(env: Env, one: list[float], two: list[float], first: float, second: float) -> float:
    return max(-1.0, min(1.0, _dot(env, one, two) / (first * second)))


@function("vector::cosine", "array", "array", result="float", env=True)
def cosine(env: Env, left: list[Any], right: list[Any]) -> float:
    """Cosine similarity of two vectors: 1 for the same direction, 0 for a right angle."""
    left, right = _pair(env, left, right)
    one = _direction(left, env)
    two = _direction(right, env)
    return _cosine(env, one, two, math.hypot(*one), math.hypot(*two))


def _direction(vector: list[float], env: Env) -> list[float]:
    """Scale a vector so that its largest component is between 0.5 and 1.

    Squares and products of very short or long vectors would leave the range of floats.

    :raises BadRequest: its length is zero
    """
    env.tick(len(vector))
    largest = max(map(abs, vector), default=0.0)
    if largest == 0.0:
        raise BadRequest("vector::cosine takes no vector of length zero")
    power = -math.frexp(largest)[1]
    if power > sys.float_info.max_exp - 1:
        return [math.ldexp(part, power) for part in vector]
    # A product by a power of two is rounded as `ldexp` does it, and takes a quarter of the time.
    factor = 2.0**power
    return [part * factor for part in vector]
