"""Vectors: values of one expression for the rows of a segment, and comparisons with constants.

Kinds are those of blocks (`int`, `float`, `time`, `decimal`, `coded`). Comparisons are exact: a
constant of another number type becomes the bound between two numbers of the vector's kind.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from protocol.values import NONE, PACE, NoneValue, Tick

INT, FLOAT, TIME, DECIMAL, CODED = "int", "float", "time", "decimal", "coded"
NUMBERS: Final = (INT, FLOAT, DECIMAL)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)
EXACT: Final = Context(prec=999, Emax=MAX_EMAX, Emin=MIN_EMIN)
"""Context that rounds no number of a column."""

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
Holds = bool | Mask
"""A condition for all rows: the same for each, or one by one."""

OPERATORS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "=": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge,
}  # fmt: skip
TURNED: Final = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


class Vector:
    """Values of an expression for some rows. Immutable."""

    __slots__ = ("data", "high", "kind", "low", "scale", "state", "step", "values")

    def __init__(
        self,
        kind: str,
        data: Array,
        *,
        state: Array | None = None,
        scale: int = 0,
        values: list[Any] | None = None,
        low: Any = None,
        high: Any = None,
        step: int = 1,
    ) -> None:
        self.kind = kind
        self.step = step
        """Number that divides the difference of any two numbers of the vector."""
        self.data = data
        """Numbers; with kind `coded` codes into `values`."""
        self.state = state
        """0 for NONE, 1 for NULL, 2 for a value; None: all are values."""
        self.scale = scale
        self.values: list[Any] = [] if values is None else values
        self.low, self.high = low, high
        """Bounds of the numbers, perhaps not the closest; None: unknown."""

    def taken(self, positions: Array) -> Vector:
        """Return the vector of some of the rows."""
        state = None if self.state is None else self.state[positions]
        return Vector(
            self.kind, self.data[positions], state=state, scale=self.scale, values=self.values,
            low=self.low, high=self.high, step=self.step,
        )  # fmt: skip

    @property
    def bounds(self) -> tuple[Any, Any]:
        """Least and greatest number that the vector may have, of at least one row."""
        if self.low is None:
            return self.data.min().item(), self.data.max().item()
        return self.low, self.high

    def python(self, number: Any) -> Any:
        """Return the value of a number or code of the vector."""
        if self.kind == CODED:
            return self.values[number]
        if self.kind == TIME:
            return EPOCH + timedelta(microseconds=number)
        if self.kind == DECIMAL:
            return Decimal(number).scaleb(-self.scale, EXACT)
        return number

    def items(self, tick: Tick) -> list[Any]:
        """Return the values as Python objects. :param tick: called at intervals"""
        found = self.pythons(self.data, tick)
        if self.state is not None:
            for at, state in enumerate(self.state.tolist()):
                if state < 2:
                    found[at] = None if state else NONE
        return found

    def pythons(self, numbers: Array, tick: Tick) -> list[Any]:
        """Return the values of numbers or codes of the vector."""
        python, found = self.python, []
        for at in range(0, len(numbers), PACE):
            if at:
                tick()
            found += [python(one) for one in numbers[at : at + PACE].tolist()]
        return found


def vector_of(block: Any) -> Vector:
    """Return the vector of a column's block."""
    if block.kind == CODED:
        return Vector(CODED, block.data, values=block.dictionary.values)
    return Vector(
        block.kind, block.numbers, state=block.state, scale=block.scale, low=block.low,
        high=block.high,
    )  # fmt: skip


def both(one: Holds, other: Holds) -> Holds:
    """Return the conjunction of two conditions."""
    if one is True or other is False:
        return other
    if other is True or one is False:
        return one
    found: Mask = one & other
    return found


def negated(holds: Holds) -> Holds:
    """Return the opposite of a condition."""
    return not holds if isinstance(holds, bool) else ~holds


def compared(vector: Vector, operator: str, constant: Any) -> Holds:
    """Compare a vector of numbers or times with a constant."""
    state = vector.state
    if constant is NONE or constant is None:
        if operator not in ("=", "!="):
            return False
        wanted = 1 if constant is None else 0
        same: Holds = False if state is None else state == wanted
        return same if operator == "=" else negated(same)
    if not _is_of(vector.kind, constant):
        return operator == "!="
    found = _numbers_compared(vector, operator, constant)
    if state is None:
        return found
    if operator == "!=":
        return True if found is True else (state != 2) | found
    return both(found, state == 2)


def _is_of(kind: str, constant: Any) -> bool:
    """True if a constant is in the class of the order that a kind is in."""
    if kind == TIME:
        return type(constant) is datetime
    return type(constant) in (int, float, Decimal)


def _numbers_compared(vector: Vector, operator: str, constant: Any) -> Holds:
    if vector.kind == FLOAT:
        return _floats_compared(vector, operator, constant)
    if vector.kind == TIME:
        exact = Fraction((constant - EPOCH) // MICROSECOND)
    else:
        exact = Fraction(constant) * 10**vector.scale
    whole = exact.denominator == 1
    if operator in ("=", "!="):
        if not whole:
            return operator == "!="
        return bounded(vector, operator, int(exact))
    if operator in ("<", ">="):
        return bounded(vector, operator, math.ceil(exact))
    return bounded(vector, operator, math.floor(exact))


def bounded(vector: Vector, operator: str, bound: Any) -> Holds:
    """Compare numbers with a number of their kind. Bounds of the vector may decide for all."""
    low, high = vector.bounds
    if operator in ("=", "!="):
        if bound < low or bound > high:
            return operator == "!="
    else:
        holds = OPERATORS[operator]
        if holds(low, bound) and holds(high, bound):
            return True
        if not holds(low, bound) and not holds(high, bound):
            return False
    found: Mask = OPERATORS[operator](vector.data, bound)
    return found


def _floats_compared(vector: Vector, operator: str, constant: Any) -> Holds:
    near = float(constant)
    if math.isinf(near) or Fraction(near) == Fraction(constant):
        return bounded(vector, operator, near)
    if operator in ("=", "!="):
        return operator == "!="
    # The constant lies between two doubles, and `near` is one of them.
    above = Fraction(near) > Fraction(constant)
    turned = {"<": "<" if above else "<=", "<=": "<" if above else "<=",
              ">": ">=" if above else ">", ">=": ">=" if above else ">"}  # fmt: skip
    return bounded(vector, turned[operator], near)


def is_missing(value: Any) -> bool:
    """True for NONE and NULL."""
    return value is None or type(value) is NoneValue
