"""Conditions and values over the rows of a segment.

Comparisons, logic, arithmetic and times run over arrays. Everything else runs by the closures that
compute it by row, once for each different combination of the values it reads: for a column with a
dictionary once for each entry, in the whole statement. So a condition on strings, or a step along a
record link, costs as much as the column has different values.

AND and OR evaluate their right side for the rows that the left side leaves open, as by row. An
expression that would be refused for a row raises `Unfit`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import numpy as np

from language import tree
from language.columnar.plan import ColumnPlan, Unfit
from language.columnar.vectors import (
    CODED,
    DECIMAL,
    EPOCH,
    FLOAT,
    INT,
    MICROSECOND,
    OPERATORS,
    TIME,
    TURNED,
    Array,
    Holds,
    Mask,
    Vector,
    both,
    bounded,
    compared,
    is_missing,
    negated,
    vector_of,
)
from language.compile import compile_condition, compile_expression, compile_rowless
from language.env import Env
from language.rows import shape
from protocol import limits
from protocol.errors import FROM_OUTSIDE, Refusal
from protocol.values import NONE, Tick

SPAN: Final = 65_536
"""Numbers between the least and the greatest of a vector up to which codes are their offsets."""
_ITEMS: Final = 16
"""Items of an IN that are compared one by one."""
_EVALUATED: Final = 16
"""Cost of computing an expression for one combination of values, as `Env.tick` takes it."""
_DAY: Final = 86_400_000_000
_LEAST: Final = (datetime.min.replace(tzinfo=EPOCH.tzinfo) - EPOCH) // MICROSECOND
_OF_DAY: Final = frozenset({
    "time::year", "time::month", "time::day", "time::weekday", "time::week",
})  # fmt: skip
"""Functions of a datetime that depend on its day alone."""
_DAY_UNITS: Final = frozenset({"year", "quarter", "month", "week", "day"})
_SPANS: Final = {"hour": 3_600_000_000, "minute": 60_000_000, "second": 1_000_000}
_OF_TIME: Final = {
    "time::hour": (3_600_000_000, 24), "time::minute": (60_000_000, 60),
    "time::second": (1_000_000, 60),
}  # fmt: skip


class Constant:
    """Value of an expression that reads no field."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Part:
    """Some rows of a segment.

    :param positions: the rows; None: all
    """

    def __init__(self, rows: Any, positions: Array | None = None) -> None:
        self.rows = rows
        self.positions = positions
        self.count: int = rows.count if positions is None else len(positions)
        self._vectors: dict[str, Vector] = {}

    def vector(self, name: str) -> Vector:
        """Return the vector of a column."""
        found = self._vectors.get(name)
        if found is None:
            found = vector_of(self.rows.column(name))
            if self.positions is not None:
                found = found.taken(self.positions)
            self._vectors[name] = found
        return found

    def where(self, mask: Mask) -> Part:
        """Return the rows for which a mask is true."""
        chosen = np.flatnonzero(mask)
        if self.positions is not None:
            chosen = self.positions[chosen]
        return Part(self.rows, chosen)


class _Memo:
    """Results of an expression for the entries of one list of values."""

    __slots__ = ("done", "holds", "results", "values")

    def __init__(self, values: list[Any]) -> None:
        # Holds the list, so that its identity stays its own.
        self.values = values
        self.results: list[Any] = []
        self.done = np.zeros(0, bool)
        self.holds = np.zeros(0, bool)

    def grow(self) -> None:
        """Have room for entries that were added to the list."""
        more = len(self.values) - len(self.results)
        if more > 0:
            self.results += [NONE] * more
            self.done = np.concatenate([self.done, np.zeros(more, bool)])
            self.holds = np.concatenate([self.holds, np.zeros(more, bool)])


class Expressions:
    """Evaluator of a statement's expressions, for one run."""

    def __init__(self, plan: ColumnPlan, env: Env) -> None:
        self._plan = plan
        self._env = env
        self._constants: dict[int, Constant] = {}
        self._memos: dict[tuple[int, int, bool], _Memo] = {}

    # --- conditions -------------------------------------------------------------------------------

    def condition(self, node: Any, part: Part) -> Holds:
        """Return the rows for which a condition holds.

        :raises Unfit: it can't be told exactly, or would be refused for a row
        """
        if not self._plan.fields(node):
            return self._truth(self._constant(node).value)
        if isinstance(node, tree.Binary):
            if node.operator in ("AND", "OR"):
                return self._logic(node, part)
            if node.operator in OPERATORS:
                return self._comparison(node, part)
            if node.operator in ("IN", "NOT IN"):
                return self._among(node, part)
        if isinstance(node, tree.Unary) and node.operator == "NOT":
            return negated(self.condition(node.operand, part))
        return self._computed_condition(node, part)

    def _truth(self, value: Any) -> bool:
        if value is True or value is False:
            return bool(value)
        if is_missing(value):
            return False
        raise Unfit

    def _logic(self, node: tree.Binary, part: Part) -> Holds:
        left = self.condition(node.left, part)
        if left is (node.operator == "OR"):
            return left
        if isinstance(left, bool):
            return self.condition(node.right, part)
        open_rows: Mask = left if node.operator == "AND" else ~left
        if not open_rows.any():
            return left
        rest = part.where(open_rows)
        right = self.condition(node.right, rest)
        found = left.copy()
        found[open_rows] = right
        return found

    def _comparison(self, node: tree.Binary, part: Part) -> Holds:
        # One column with a dictionary: each entry is compared once.
        if self._is_coded(node, part):
            return self._computed_condition(node, part)
        left, right = self.value(node.left, part), self.value(node.right, part)
        operator: str = node.operator
        if isinstance(left, Constant):
            left, right, operator = right, left, TURNED[operator]
        assert isinstance(left, Vector)
        if isinstance(right, Constant):
            if left.kind == CODED:
                return self._computed_condition(node, part)
            return compared(left, operator, right.value)
        alike = left.kind == right.kind != CODED and left.scale == right.scale
        if not alike or left.state is not None or right.state is not None:
            return self._computed_condition(node, part)
        found: Mask = OPERATORS[operator](left.data, right.data)
        return found

    def _among(self, node: tree.Binary, part: Part) -> Holds:
        if self._plan.fields(node.right) or self._is_coded(node, part):
            return self._computed_condition(node, part)
        value = self.value(node.left, part)
        if not isinstance(value, Vector) or value.kind == CODED:
            return self._computed_condition(node, part)
        if isinstance(node.right, tree.Range):
            found = self._in_range(node.right, value)
        else:
            found = self._in_list(node.right, value)
        if found is None:
            return self._computed_condition(node, part)
        return found if node.operator == "IN" else negated(found)

    def _in_range(self, node: tree.Range, value: Vector) -> Holds | None:
        low, high = self._constant(node.low).value, self._constant(node.high).value
        if value.kind != INT or type(low) is not int or type(high) is not int:
            return None
        upper = "<=" if node.inclusive else "<"
        found = both(bounded(value, ">=", low), bounded(value, upper, high))
        return found if value.state is None else both(found, value.state == 2)

    def _in_list(self, node: Any, value: Vector) -> Holds | None:
        items = self._constant(node).value
        if type(items) is not list or len(items) > _ITEMS:
            return None
        found: Holds = False
        for item in items:
            found = negated(both(negated(found), negated(compared(value, "=", item))))
        return found

    def _is_coded(self, node: Any, part: Part) -> bool:
        names = self._plan.fields(node)
        return len(names) == 1 and part.vector(names[0]).kind == CODED

    def _computed_condition(self, node: Any, part: Part) -> Holds:
        codes, memo = self._computed(node, part, True)
        return memo.holds[codes]

    # --- values -----------------------------------------------------------------------------------

    def value(self, node: Any, part: Part) -> Vector | Constant:
        """Return the values of an expression. :raises Unfit: as `condition`"""
        if not self._plan.fields(node):
            return self._constant(node)
        if isinstance(node, tree.Name):
            return part.vector(node.name)
        if not self._is_coded(node, part):
            found: Vector | None = None
            if isinstance(node, tree.Binary) and node.operator in ("+", "-", "*"):
                found = self._arithmetic(node, part)
            elif isinstance(node, tree.Call) and node.name.startswith("time::"):
                found = self._time(node, part)
            if found is not None:
                return found
        return self._mapped(node, part)

    def vector(self, node: Any, part: Part) -> Vector:
        """Return the values of an expression as a vector, also if it is constant."""
        found = self.value(node, part)
        if isinstance(found, Vector):
            return found
        return Vector(CODED, np.zeros(part.count, np.uint16), values=[found.value])

    def _mapped(self, node: Any, part: Part) -> Vector:
        codes, memo = self._computed(node, part, False)
        return Vector(CODED, codes, values=memo.results)

    def _constant(self, node: Any) -> Constant:
        found = self._constants.get(id(node))
        if found is None:
            found = self._constants[id(node)] = Constant(self._rowless(node))
        return found

    def _rowless(self, node: Any) -> Any:
        made = self._plan.made
        compute = made.get((id(node), None))
        if compute is None:
            compute = made[id(node), None] = compile_rowless(node)
        try:
            return compute(self._env)
        except FROM_OUTSIDE:
            raise
        except Refusal:
            raise Unfit from None

    # --- by closures, once for each combination ---------------------------------------------------

    def _computed(self, node: Any, part: Part, condition: bool) -> tuple[Array, _Memo]:
        """Return codes, and the results of an expression by these codes."""
        names = self._plan.fields(node)
        vectors = [part.vector(name) for name in names]
        make = compile_condition if condition else compile_expression
        compute = self._plan.closure(node, make)
        row_of = shape(names).make
        if len(vectors) == 1 and vectors[0].kind == CODED:
            codes, values = vectors[0].data, vectors[0].values
            key = (id(node), id(values), condition)
            memo = self._memos.get(key)
            if memo is None:
                memo = self._memos[key] = _Memo(values)
            memo.grow()
            done = memo.done[codes]
            if not done.all():
                for code in np.unique(codes[~done]).tolist():
                    self._evaluate(compute, row_of((values[code],)), memo, code, condition)
            return codes, memo
        codes, rows = combinations(vectors, self._env.tick)
        memo = _Memo(rows)
        memo.grow()
        for code, row in enumerate(rows):
            self._evaluate(compute, row_of(row), memo, code, condition)
        return codes, memo

    def _evaluate(
        self, compute: Callable[..., Any], row: Any, memo: _Memo, code: int, condition: bool
    ) -> None:
        self._env.tick(_EVALUATED)
        try:
            found = compute(row, self._env)
        except FROM_OUTSIDE:
            raise
        except Refusal:
            raise Unfit from None
        memo.results[code] = found
        if condition:
            memo.holds[code] = found
        memo.done[code] = True

    # --- arithmetic -------------------------------------------------------------------------------

    def _arithmetic(self, node: tree.Binary, part: Part) -> Vector | None:
        """Return a sum, difference or product; None: closures have to compute it."""
        left = self._operand(self.value(node.left, part))
        right = self._operand(self.value(node.right, part))
        if left is None or right is None:
            return None
        kinds = {left.kind, right.kind}
        if FLOAT in kinds:
            return None if DECIMAL in kinds else _of_floats(node.operator, left, right)
        return _of_integers(node.operator, left, right)

    def _operand(self, value: Vector | Constant) -> Vector | None:
        if isinstance(value, Constant):
            return _constant_vector(value.value)
        return value if value.kind in (INT, FLOAT, DECIMAL) and value.state is None else None

    # --- times ------------------------------------------------------------------------------------

    def _time(self, node: tree.Call, part: Part) -> Vector | None:
        value = self.value(node.arguments[0], part) if node.arguments else None
        if not isinstance(value, Vector) or value.kind != TIME or value.state is not None:
            return None
        if any(self._plan.fields(one) for one in node.arguments[1:]):
            return None
        others = [self._constant(one).value for one in node.arguments[1:]]
        if node.name in _OF_TIME:
            step, most = _OF_TIME[node.name]
            return Vector(INT, value.data // step % most, low=0, high=most - 1)
        if node.name == "time::floor" and others and type(others[0]) is timedelta:
            step = others[0] // MICROSECOND
            return _floored(value, step) if step > 0 else None
        unit = others[0] if others and type(others[0]) is str else ""
        if node.name == "time::trunc" and unit in _SPANS:
            return _floored(value, _SPANS[unit])
        if node.name in _OF_DAY or (node.name == "time::trunc" and unit in _DAY_UNITS):
            return self._of_days(node, value)
        return None

    def _of_days(self, node: tree.Call, value: Vector) -> Vector:
        """Compute a function of the day, once for each day."""
        days = value.data // _DAY
        codes, found = factorized(Vector(INT, days))
        memo = _Memo([EPOCH + timedelta(days=day) for day in found.tolist()])
        memo.grow()
        call = tree.Call(node.name, (tree.Name("day"), *node.arguments[1:]))
        known = self._plan.made.get((id(node), "day"))
        if known is None:
            known = compile_expression(call, shape(("day",)))
            self._plan.made[id(node), "day"] = known
        for code, day in enumerate(memo.values):
            self._evaluate(known, shape(("day",)).make((day,)), memo, code, False)
        return Vector(CODED, codes, values=memo.results)


def _floored(value: Vector, step: int) -> Vector:
    low, high = value.bounds
    if step > limits.INT_MAX or low - low % step < _LEAST:
        raise Unfit
    found = value.data - value.data % step
    return Vector(TIME, found, low=low - low % step, high=high, step=step)


def _constant_vector(value: Any) -> Vector | None:
    """Return a number as a vector of one value, which any number of rows share."""
    if type(value) is int:
        return Vector(INT, np.array([value], np.int64))
    if type(value) is float:
        return Vector(FLOAT, np.array([value]))
    if type(value) is Decimal:
        sign, digits, exponent = value.as_tuple()
        number = int("".join(map(str, digits))) * (-1 if sign else 1)
        fits = isinstance(exponent, int) and -18 <= exponent <= 0 and len(digits) <= 18
        if fits and (number or not sign):
            assert isinstance(exponent, int)
            return Vector(DECIMAL, np.array([number], np.int64), scale=-exponent)
    return None


def _of_floats(operator: str, left: Vector, right: Vector) -> Vector:
    one, other = left.data.astype(np.float64), right.data.astype(np.float64)
    with np.errstate(all="ignore"):
        found = _worked(operator, one, other)
    if not np.isfinite(found).all():
        raise Unfit
    return Vector(FLOAT, found)


def _worked(operator: str, one: Array, other: Array) -> Array:
    found: Array = (
        one + other if operator == "+" else one - other if operator == "-" else one * other
    )
    return found


def _of_integers(operator: str, left: Vector, right: Vector) -> Vector:
    """Compute with ints and decimals exactly. :raises Unfit: the result may not fit 64 bits"""
    kind = DECIMAL if DECIMAL in (left.kind, right.kind) else INT
    scale = left.scale + right.scale if operator == "*" else max(left.scale, right.scale)
    if scale > 18:
        raise Unfit
    pairs = [left.bounds, right.bounds]
    one, other = left.data, right.data
    if operator != "*":
        factors = 10 ** (scale - left.scale), 10 ** (scale - right.scale)
        pairs = [(low * by, high * by) for (low, high), by in zip(pairs, factors, strict=True)]
        _check_bounds(pairs[0])
        _check_bounds(pairs[1])
        one, other = one * factors[0], other * factors[1]
    low, high = _result_bounds(operator, pairs[0], pairs[1])
    _check_bounds((low, high))
    found = _worked(operator, one, other)
    # A decimal product of zero and a negative number is a negative zero.
    if kind == DECIMAL and operator == "*" and (found == 0).any():
        raise Unfit
    return Vector(kind, found, scale=scale, low=low, high=high)


def _result_bounds(operator: str, one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    if operator == "+":
        return one[0] + other[0], one[1] + other[1]
    if operator == "-":
        return one[0] - other[1], one[1] - other[0]
    products = [a * b for a in one for b in other]
    return min(products), max(products)


def _check_bounds(bounds: tuple[int, int]) -> None:
    if bounds[0] < limits.INT_MIN or bounds[1] > limits.INT_MAX:
        raise Unfit


# --- codes ----------------------------------------------------------------------------------------


def factorized(vector: Vector) -> tuple[Array, Array]:
    """Return a code for each row, and the different numbers by these codes. Equal numbers have one
    code. :raises Unfit: zeros of both signs, which differ though they are equal"""
    data = vector.data
    if vector.kind == FLOAT and (np.signbit(data) & (data == 0)).any():
        raise Unfit
    if vector.kind not in (FLOAT, CODED) and len(data):
        low, high, step = int(data.min()), int(data.max()), vector.step
        if high - low < SPAN * step:
            codes = data - low if step == 1 else (data - low) // step
            size = (high - low) // step + 1
            seen = np.zeros(size, bool)
            seen[codes] = True
            found = np.flatnonzero(seen)
            place = np.zeros(size, np.int64)
            place[found] = np.arange(len(found))
            return place[codes], found * step + low
    found, codes = np.unique(data, return_inverse=True)
    return codes, found


def coded(vector: Vector, tick: Tick) -> tuple[Array, list[Any]]:
    """Return a code for each row, and the values by these codes. :raises Unfit: as `factorized`"""
    if vector.kind == CODED:
        return vector.data, vector.values
    codes, found = factorized(vector)
    values = vector.pythons(found, tick)
    if vector.state is not None:
        codes = np.where(vector.state == 2, codes, len(values) + vector.state)
        values += [NONE, None]
    return codes, values


def joined(codes: list[Array], sizes: list[int]) -> tuple[Array, int]:
    """Return one code for each combination of codes, and a bound of it.

    :param sizes: bounds of the codes
    """
    found, size = codes[0].astype(np.int64), sizes[0]
    for more, count in zip(codes[1:], sizes[1:], strict=True):
        if size * count >= 1 << 62:
            known, found = np.unique(found, return_inverse=True)
            size = len(known)
        found, size = found * count + more, size * count
    return found, size


def combinations(vectors: list[Vector], tick: Tick) -> tuple[Array, list[Any]]:
    """Return a code for each row, and the different combinations of values by these codes."""
    each = [coded(vector, tick) for vector in vectors]
    together, _ = joined([codes for codes, _ in each], [max(1, len(v)) for _, v in each])
    _, first, found = np.unique(together, return_index=True, return_inverse=True)
    chosen = [[values[code] for code in codes[first].tolist()] for codes, values in each]
    return found, list(zip(*chosen, strict=True))


__all__ = ["Constant", "Expressions", "Part", "coded", "combinations", "joined"]
