"""GROUP BY and GROUP ALL over columns.

The result is the table of groups that `language.grouping` makes by row: the same keys in the same
order, and states that are equal in every bit. Rows are added in arrays first; `flush` adds these
sums to the states, before a segment is read by row and at the end. Sums of ints and decimals are
exact: numbers are added in two halves of 32 bits, which a double holds for any segment. Sums of
floats repeat the compensated additions of `functions.aggregates` in the order of the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from itertools import islice
from typing import Any, Final

import numpy as np

from language.budget import Budget
from language.columnar.expressions import Expressions, Part, coded, joined
from language.columnar.plan import ColumnPlan, Inexact, Scan, Unfit
from language.columnar.vectors import (
    CODED,
    DECIMAL,
    EXACT,
    FLOAT,
    INT,
    Array,
    Vector,
    is_missing,
)
from language.env import Env
from language.functions.aggregates import Deviation, deviated
from language.generate import Memo
from language.grouping import HELD, Grouping, hold_new, is_unset
from language.numbers import add_decimals
from language.operators import hashable, order_key
from language.rows import Batch
from protocol import limits
from protocol.values import PACE, Tick

Groups = dict[Any, list[Any]]
_DENSE: Final = 65_536
"""Codes up to which the groups of a segment are found by an array, not by sorting."""
_HALF: Final = 32
_LOW: Final = (1 << _HALF) - 1
_EXACT: Final = 1 << 53
_FLOATS_HELD: Final = 1 << 15
"""Floats that wait to be added before they are: these are sorted by group in one step."""
_GROUPS_AT_ONCE: Final = 256
"""Groups whose states are changed without a tick."""
_PLACES: Final = 18
"""Most decimal places of a column."""
_ONE_BY_ONE: Final = 4
"""Cost of adding one value in Python, as `Env.tick` takes it."""


class Aggregation:
    """Groups of one run of a statement.

    :param fold: adds batches of records to the groups by row
    """

    def __init__(
        self,
        plan: ColumnPlan,
        grouping: Grouping,
        where: Any,
        env: Env,
        budget: Budget,
        fold: Callable[[Groups, Iterator[Batch]], None],
    ) -> None:
        self._plan = plan
        self._grouping = grouping
        self._where = where
        self._env = env
        self._budget = budget
        self._fold = fold
        self._expressions = Expressions(plan, env)
        self.groups: Groups = grouping.start()
        self.states = list(self.groups.values())
        """States of the groups, by their numbers."""
        self._numbers: dict[Any, int] = {key: n for n, key in enumerate(self.groups)}
        self._memo: Memo = {HELD: []}
        self._known: dict[tuple[Any, ...], Array] = {}
        """Groups by codes, for keys whose codes are the same in all segments; -1: not known."""
        self._held: list[Any] = []
        """Lists of values whose identity is in `_known`."""
        self._sums = [
            _MAKERS[one.name](self, one) for one in grouping.aggregates if one.name in _MAKERS
        ]
        assert len(self._sums) == len(grouping.aggregates)

    @property
    def count(self) -> int:
        """Number of groups."""
        return len(self.states)

    def run(self, scan: Scan, read: Callable[[int], None]) -> Groups:
        """Group all rows of a scan.

        :param read: called with the number of rows read by column
        :raises Refusal: as by row, but perhaps of another record: the statement has to run by row
        """
        for rows in scan.segments():
            if rows.has(self._plan.names):
                if not rows.count:
                    continue
                try:
                    self._add(rows)
                except Unfit:
                    self._by_row(scan, rows)
                else:
                    read(rows.count)
            else:
                self._by_row(scan, rows)
        self.flush()
        return self.groups

    def _by_row(self, scan: Scan, rows: Any) -> None:
        self.flush()
        self._fold(self.groups, scan.rows(rows))
        for key, state in islice(self.groups.items(), len(self.states), None):
            self._numbers[key] = len(self.states)
            self.states.append(state)

    def flush(self) -> None:
        """Add the sums to the states of the groups."""
        for one in self._sums:
            one.flush(self.states)

    def _add(self, rows: Any) -> None:
        part = Part(rows)
        if self._where is not None:
            mask = self._expressions.condition(self._where, part)
            if mask is False:
                return
            if mask is not True:
                part = part.where(mask)
                if not part.count:
                    return
        # All that may be unfit comes first: the sums change by whole segments.
        arguments = [one.prepared(part) for one in self._sums]
        groups = self._groups_of(part) if self._grouping.keys else None
        for one, argument in zip(self._sums, arguments, strict=True):
            one.add(groups, argument, part.count)

    def argument(self, node: Any, part: Part) -> Vector:
        """Return the values of an aggregate's argument."""
        return self._expressions.vector(node, part)

    # --- groups -----------------------------------------------------------------------------------

    def _groups_of(self, part: Part) -> Array:
        """Return the number of the group of each row."""
        vectors = [self._expressions.vector(key, part) for key in self._grouping.keys]
        each = [coded(vector, self._env.tick) for vector in vectors]
        sizes = [max(1, len(values)) for _, values in each]
        codes, size = joined([codes for codes, _ in each], sizes)
        if size > _DENSE:
            return self._sorted_groups(codes, each)
        steady = all(vector.kind == CODED for vector in vectors)
        known = self._steady(each, size) if steady else np.full(size, -1, np.int64)
        found = known[codes]
        if (found < 0).any():
            self._enter(codes, found, size, each, known)
            found = known[codes]
        return found

    def _steady(self, each: list[tuple[Array, list[Any]]], size: int) -> Array:
        key = (*[id(values) for _, values in each], size)
        known = self._known.get(key)
        if known is None:
            self._held += [values for _, values in each]
            known = self._known[key] = np.full(size, -1, np.int64)
        return known

    def _enter(
        self,
        codes: Array,
        found: Array,
        size: int,
        each: list[tuple[Array, list[Any]]],
        known: Array,
    ) -> None:
        """Find or make the groups of the codes that are not known yet, in the order of their first
        rows."""
        new = np.flatnonzero(found < 0)
        first = np.full(size, -1, np.int64)
        first[codes[new][::-1]] = new[::-1]
        present = np.flatnonzero(first >= 0)
        rows = first[present]
        order = np.argsort(rows)
        numbers = self._made(rows[order], each)
        known[present[order]] = numbers

    def _sorted_groups(self, codes: Array, each: list[tuple[Array, list[Any]]]) -> Array:
        _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
        order = np.argsort(first)
        numbers = np.empty(len(first), np.int64)
        numbers[order] = self._made(first[order], each)
        return numbers[inverse]

    def _made(self, rows: Array, each: list[tuple[Array, list[Any]]]) -> list[int]:
        """Return the groups of some rows, new ones among them."""
        columns = [[values[code] for code in codes[rows].tolist()] for codes, values in each]
        found = []
        before = len(self.states)
        tick = self._env.tick
        for at, values in enumerate(zip(*columns, strict=True)):
            if at % 256 == 255:
                tick()
            hashes = [one if type(one) is str else hashable(one, tick) for one in values]
            key = hashes[0] if len(hashes) == 1 else tuple(hashes)
            number = self._numbers.get(key)
            if number is None:
                number = self._numbers[key] = len(self.states)
                state = self.groups[key] = self._grouping.new_state()
                state[: len(values)] = values
                self.states.append(state)
            found.append(number)
        if len(self.states) > before:
            self._budget.sample(self.states[before:])
        return found

    # --- values held by groups --------------------------------------------------------------------

    def hold_new(self, held: set[Any] | None, value: Any) -> set[Any]:
        """Add a value to the different ones of a group."""
        return hold_new(held, value, self._memo, self._env)

    def weigh_held(self) -> None:
        """Count what groups have come to hold."""
        self._budget.sample(self._memo[HELD])
        self._memo[HELD] = []

    def tick(self, cost: int = PACE) -> None:
        """Charge for work."""
        self._env.tick(cost)

    def hold(self, size: int) -> None:
        """Count arrays against the statement's memory."""
        self._budget.hold(size)


def _grown(array: Array, count: int) -> Array:
    """Return an array of at least so many numbers, with zeros behind the first ones."""
    if len(array) >= count:
        return array
    found = np.zeros(max(count, 2 * len(array)), array.dtype)
    found[: len(array)] = array
    return found


def _added(sums: Array, groups: Array, numbers: Array | None = None) -> None:
    """Add a number for each row to the sums of groups; None: ones."""
    # With many groups the array of all of them costs more than its few rows.
    if len(sums) > _DENSE:
        np.add.at(sums, groups, 1 if numbers is None else numbers)
        return
    # A double holds each of these sums exactly.
    found = np.bincount(groups, numbers)
    sums[: len(found)] += found if numbers is None else found.astype(np.int64)


def _each(groups: Array, tick: Tick) -> Iterator[int]:
    """Yield numbers of groups, of which there may be a million, with ticks."""
    for at in range(0, len(groups), _GROUPS_AT_ONCE):
        tick()
        yield from groups[at : at + _GROUPS_AT_ONCE].tolist()


class _Count:
    """`count()`, and the number of values of `count(e)`."""

    def __init__(self, owner: Aggregation, aggregate: Any) -> None:
        self._owner = owner
        self._node = aggregate.argument
        self._at = aggregate.at
        self._counts = np.zeros(1, np.int64)

    def prepared(self, part: Part) -> Any:
        """Return what `add` needs. :raises Unfit:"""
        return None if self._node is None else _present(self._owner.argument(self._node, part))

    def add(self, groups: Array | None, present: Any, count: int) -> None:
        """Add the rows of a segment."""
        if groups is None:
            self._counts[0] += count if present is None else int(present.sum())
            return
        self._counts = _grown(self._counts, self._owner.count)
        _added(self._counts, groups if present is None else groups[present])

    def flush(self, states: list[list[Any]]) -> None:
        """Add the sums to the states of the groups."""
        for number in _each(np.flatnonzero(self._counts), self._owner.tick):
            states[number][self._at] += int(self._counts[number])
        self._counts = np.zeros(1, np.int64)


def _present(vector: Vector) -> Array | None:
    """Return the rows that have a value; None: all."""
    if vector.kind != CODED:
        return None if vector.state is None else vector.state == 2
    missing = [code for code in np.unique(vector.data).tolist() if is_missing(vector.values[code])]
    return ~np.isin(vector.data, missing) if missing else None


def numeric(vector: Vector) -> Vector | None:
    """Return a vector of numbers; None if all are missing. :raises Unfit: other values, or several
    kinds"""
    if vector.kind in (INT, FLOAT, DECIMAL):
        return vector
    if vector.kind != CODED:
        raise Unfit
    codes = np.unique(vector.data).tolist()
    values = {code: vector.values[code] for code in codes}
    numbers = {code: one for code, one in values.items() if not is_missing(one)}
    if not numbers:
        return None
    kinds = set(map(type, numbers.values()))
    table: Array
    scale = 0
    if kinds == {int}:
        kind, table = INT, np.zeros(len(vector.values), np.int64)
    elif kinds == {float}:
        kind, table = FLOAT, np.zeros(len(vector.values), np.float64)
    else:
        raise Unfit
    state = np.zeros(len(vector.values), np.uint8)
    for code, one in numbers.items():
        table[code], state[code] = one, 2
    states = None if len(numbers) == len(values) else state[vector.data]
    return Vector(kind, table[vector.data], state=states, scale=scale)


class _Total:
    """`sum` and `mean`."""

    def __init__(self, owner: Aggregation, aggregate: Any) -> None:
        self._owner = owner
        self._node = aggregate.argument
        self._at = aggregate.at
        self._parts: dict[tuple[str, int], _Integers] = {}
        """Sums by kind and scale."""
        self._most = 0
        """Bound of the sum of all decimals without their signs, in units of the 18th place."""
        self._fits = False
        """True if the decimals that wait are known to have an exact sum."""
        self._floats: list[tuple[Array | None, Array]] = []
        self._held = 0

    def prepared(self, part: Part) -> Vector | None:
        """Return what `add` needs. :raises Unfit:"""
        vector = numeric(self._owner.argument(self._node, part))
        if vector is not None and vector.state is not None and not (vector.state == 2).any():
            return None
        return vector

    def add(self, groups: Array | None, vector: Vector | None, count: int) -> None:
        """Add the rows of a segment."""
        if vector is None:
            return
        data = vector.data
        if vector.state is not None:
            chosen = vector.state == 2
            data, groups = data[chosen], None if groups is None else groups[chosen]
        if vector.kind == FLOAT:
            self._floats.append((groups, data))
            size = data.nbytes + (0 if groups is None else groups.nbytes)
            self._held += size
            self._owner.hold(size)
            if self._held > _FLOATS_HELD * 16:
                # In the order of the rows: what comes later is added to these sums.
                self._owner.flush()
            return
        sums = self._parts.setdefault((vector.kind, vector.scale), _Integers())
        most = sums.add(groups, data, self._owner.count)
        if vector.kind == DECIMAL:
            self._most += most * len(data) * 10 ** (_PLACES - vector.scale)

    def flush(self, states: list[list[Any]]) -> None:
        """Add the sums to the states of the groups."""
        at = self._at
        for (kind, scale), sums in self._parts.items():
            for number, total, count in sums.totals(self._owner.tick):
                state = states[number]
                state[at + 4] += count
                if kind == INT:
                    state[at] += total
                else:
                    state[at + 1] = self._decimal(state[at + 1], total, scale)
        self._parts, self._most, self._fits = {}, 0, False
        if self._floats:
            self._flush_floats(states)

    def _decimal(self, state: Decimal | None, total: int, scale: int) -> Decimal:
        """Add an exact sum of decimals of one scale to a state. :raises Inexact:"""
        found = EXACT.scaleb(Decimal(total), -scale)
        if state is None:
            self._check_exact(0, Decimal(0))
            return found
        exponent = state.as_tuple().exponent
        assert isinstance(exponent, int), "NaN and infinities are not values"
        self._check_exact(-exponent, abs(state))
        return add_decimals(state, found)

    def _check_exact(self, places: int, more: Decimal) -> None:
        """Check that the largest sum on the way has room for its digits at the finest scale.

        :param places: decimal places of a state that the decimals are added to
        :param more: that state without its sign
        :raises Inexact: it has not
        """
        if self._fits and not more:
            return
        places = max(places, *[scale for _, scale in self._parts])
        bound = Decimal(self._most).scaleb(-_PLACES) + more
        if bound.adjusted() + 1 + places >= limits.DECIMAL_DIGITS:
            raise Inexact
        self._fits = self._fits or not more

    def _flush_floats(self, states: list[list[Any]]) -> None:
        at = self._at
        held, self._floats = self._floats, []
        values = np.concatenate([data for _, data in held])
        if held[0][0] is None:
            each: Iterator[tuple[int, Array]] = iter([(0, values)])
        else:
            each = _by_group(np.concatenate([g for g, _ in held if g is not None]), values)
        for number, some in each:
            self._owner.tick(_ONE_BY_ONE + len(some) // 16)
            state = states[number]
            state[at + 2], state[at + 3] = floats_added(state[at + 2], state[at + 3], some)
            state[at + 4] += len(some)
        self._owner.hold(-self._held)
        self._held = 0


def _by_group(groups: Array, values: Array) -> Iterator[tuple[int, Array]]:
    """Yield the values of each group, in their order."""
    small = groups.astype(np.uint16) if len(groups) and groups.max() < _DENSE else groups
    order = np.argsort(small, kind="stable")
    values, small = values[order], small[order]
    starts = [0, *(np.flatnonzero(small[1:] != small[:-1]) + 1).tolist()]
    for start, end in zip(starts, [*starts[1:], len(values)], strict=True):
        yield int(small[start]), values[start:end]


def floats_added(high: float, low: float, values: Array) -> tuple[float, float]:
    """Add values one after another to the float parts of a sum, as `float_added` does.

    The error of each addition is exact, so Knuth's two-sum finds the same one without a branch.
    """
    sums = np.empty(len(values) + 1)
    sums[0], sums[1:] = high, values
    rests = np.empty(len(values) + 1)
    rests[0] = low
    lost = rests[1:]
    with np.errstate(all="ignore"):
        np.add.accumulate(sums, out=sums)
        before, after = sums[:-1], sums[1:]
        added = after - before
        np.subtract(after, added, out=lost)
        np.subtract(before, lost, out=lost)
        np.subtract(values, added, out=added)
        np.add(lost, added, out=lost)
        np.add.accumulate(rests, out=rests)
    return sums[-1].item(), rests[-1].item()


class _Integers:
    """Exact sums of integers by group, in halves of 32 bits, and their counts."""

    __slots__ = ("_counts", "_high", "_low")

    def __init__(self) -> None:
        self._low = np.zeros(1, np.int64)
        self._high = np.zeros(1, np.int64)
        self._counts = np.zeros(1, np.int64)

    def add(self, groups: Array | None, data: Array, count: int) -> int:
        """Add numbers, of which a segment has no more than some thousands. Return the greatest
        without its sign.

        :param count: number of groups
        """
        most = max(abs(int(data.min())), abs(int(data.max())))
        small = most * len(data) < _EXACT
        if groups is None:
            self._counts[0] += len(data)
            if small:
                self._low[0] += int(data.sum())
            else:
                self._low[0] += int((data & _LOW).sum())
                self._high[0] += int((data >> _HALF).sum())
            return most
        self._low, self._high = _grown(self._low, count), _grown(self._high, count)
        self._counts = _grown(self._counts, count)
        _added(self._counts, groups)
        if small:
            _added(self._low, groups, data)
        else:
            _added(self._low, groups, data & _LOW)
            _added(self._high, groups, data >> _HALF)
        return most

    def totals(self, tick: Tick) -> Iterator[tuple[int, int, int]]:
        """Yield group, sum and count of each group with numbers.

        :param tick: called at intervals
        """
        for number in _each(np.flatnonzero(self._counts), tick):
            total = (int(self._high[number]) << _HALF) + int(self._low[number])
            yield number, total, int(self._counts[number])


class _Extreme:
    """`min` and `max`."""

    def __init__(self, owner: Aggregation, aggregate: Any) -> None:
        self._owner = owner
        self._node = aggregate.argument
        self._at = aggregate.at
        self._least = aggregate.name == "min"
        self._like: Vector | None = None
        self._best: Array = np.zeros(0)
        self._has: Array = np.zeros(0, bool)

    def prepared(self, part: Part) -> Vector:
        """Return what `add` needs. :raises Unfit:"""
        vector = self._owner.argument(self._node, part)
        if vector.kind == FLOAT:
            zeros = vector.data == 0
            if zeros.any() and np.signbit(vector.data[zeros]).any():
                raise Unfit
        return vector

    def add(self, groups: Array | None, vector: Vector, count: int) -> None:
        """Add the rows of a segment."""
        if vector.kind == CODED:
            self.flush(self._owner.states)
            self._add_coded(groups, vector)
            return
        data = vector.data
        if vector.state is not None:
            chosen = vector.state == 2
            data, groups = data[chosen], None if groups is None else groups[chosen]
            if not len(data):
                return
        like = self._like
        if like is None or like.kind != vector.kind or like.scale != vector.scale:
            self.flush(self._owner.states)
            self._like = vector
            self._best = np.zeros(0, data.dtype)
            self._has = np.zeros(0, bool)
        size = self._owner.count
        before = len(self._best)
        if before < size:
            self._best = _grown(self._best, size)
            self._has = _grown(self._has, size)
        if groups is None:
            groups = np.zeros(1, np.int64)
            data = np.array([data.min() if self._least else data.max()])
        fresh = groups[~self._has[groups]]
        if len(fresh):
            # The first value of a group, so that there is one to compare with.
            self._best[groups[::-1]] = np.where(
                self._has[groups[::-1]], self._best[groups[::-1]], data[::-1]
            )
            self._has[fresh] = True
        (np.minimum if self._least else np.maximum).at(self._best, groups, data)

    def _add_coded(self, groups: Array | None, vector: Vector) -> None:
        codes = vector.data.astype(np.int64)
        size = max(1, len(vector.values))
        together = codes if groups is None else groups * size + codes
        _, first = np.unique(together, return_index=True)
        first.sort()
        for row in first.tolist():
            self._owner.tick(_ONE_BY_ONE)
            value = vector.values[int(codes[row])]
            if not is_missing(value):
                self._take(self._owner.states[0 if groups is None else int(groups[row])], value)

    def _take(self, state: list[Any], value: Any) -> None:
        key, at = order_key(value, self._owner.tick), self._at
        better = is_unset(state[at]) or (key < state[at] if self._least else key > state[at])
        if better:
            state[at], state[at + 1] = key, value

    def flush(self, states: list[list[Any]]) -> None:
        """Add the least or greatest numbers to the states of the groups."""
        if self._like is None:
            return
        for number in _each(np.flatnonzero(self._has), self._owner.tick):
            self._take(states[number], self._like.python(self._best[number].item()))
        self._like = None
        self._has = np.zeros(0, bool)


class _Deviation:
    """`stddev`: one number after another."""

    def __init__(self, owner: Aggregation, aggregate: Any) -> None:
        self._owner = owner
        self._node = aggregate.argument
        self._at = aggregate.at

    def prepared(self, part: Part) -> list[Any]:
        """Return what `add` needs. :raises Unfit:"""
        items = self._owner.argument(self._node, part).items(self._owner.tick)
        if not {type(one) for one in items if not is_missing(one)} <= {int, float, Decimal}:
            raise Unfit
        return items

    def add(self, groups: Array | None, items: list[Any], count: int) -> None:
        """Add the rows of a segment."""
        states, at = self._owner.states, self._at
        numbers = [0] * count if groups is None else groups.tolist()
        for row, (number, value) in enumerate(zip(numbers, items, strict=True)):
            if row % 512 == 511:
                self._owner.tick()
            if not is_missing(value):
                state = states[number]
                so_far: Deviation = state[at]
                state[at] = deviated(*so_far, value)

    def flush(self, states: list[list[Any]]) -> None:
        """Nothing waits."""


class _Different:
    """`count_distinct`."""

    def __init__(self, owner: Aggregation, aggregate: Any) -> None:
        self._owner = owner
        self._node = aggregate.argument
        self._at = aggregate.at

    def prepared(self, part: Part) -> tuple[Array, list[Any]]:
        """Return what `add` needs. :raises Unfit:"""
        return coded(self._owner.argument(self._node, part), self._owner.tick)

    def add(self, groups: Array | None, argument: tuple[Array, list[Any]], count: int) -> None:
        """Add the rows of a segment."""
        codes, values = argument
        codes = codes.astype(np.int64)
        together = codes if groups is None else groups * max(1, len(values)) + codes
        _, first = np.unique(together, return_index=True)
        states, at = self._owner.states, self._at
        for row in first.tolist():
            self._owner.tick(_ONE_BY_ONE)
            value = values[int(codes[row])]
            if not is_missing(value):
                state = states[0 if groups is None else int(groups[row])]
                state[at] = self._owner.hold_new(state[at], value)
        self._owner.weigh_held()

    def flush(self, states: list[list[Any]]) -> None:
        """Nothing waits."""


_MAKERS: Final[dict[str, Callable[[Aggregation, Any], Any]]] = {
    "count": _Count, "sum": _Total, "mean": _Total, "min": _Extreme, "max": _Extreme,
    "stddev": _Deviation, "count_distinct": _Different,
}  # fmt: skip

__all__ = ["Aggregation"]
