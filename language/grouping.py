"""Hash aggregation: GROUP BY and GROUP ALL fold rows into one row for each group, batch by batch.

Groups are kept in a hash table with salted keys (see `language.operators.hashable`), so that a
client cannot choose colliding keys. Expressions evaluated after GROUP (columns, HAVING, ORDER BY)
are rewritten to read the row of a group. Each grouped expression and each aggregate becomes a field
of that row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from operator import length_hint
from typing import Any, Final

from language import tree
from language.budget import Budget, too_large
from language.charges import WIDE, stretch
from language.compile import compile_expression
from language.error_places import is_of_values, placed
from language.functions.aggregates import (
    average,
    checked_number,
    deviated,
    deviation,
    float_added,
    middle,
    not_a_number,
    present,
    total,
)
from language.functions.table import check_array
from language.generate import Code, Memo, order_source
from language.names import AGGREGATES, NODE, Numbers, children, has_subquery, parent_fields, rebuilt
from language.numbers import add_decimals
from language.operators import hashable
from language.pieces import slices
from language.planning import charge
from language.printing import print_expression
from language.rows import Row, Shape, shape
from language.sizing import Heavy, counted, is_counted
from protocol import limits
from protocol.errors import BadRequest, Refusal
from protocol.values import FEW, HASH_SALT, LONG, NONE, PACE
from protocol.weights import weigh

HELD: Final = "held"
"""Memo key: values of the current batch that groups retain, still to be weighed."""


KEPT: Final = "kept"
"""Memo key: by group, bytes of the row values it retains, as counted in the budget."""


class _Unset:
    pass


_UNSET: Final = _Unset()
"""Initial state of `min` and `max`."""


def is_unset(state: Any) -> bool:
    """True if a state of `min` or `max` has met no value."""
    return state is _UNSET


def add_up(exact: Decimal | None, value: Any) -> Decimal | None:
    """Add a value that is neither int nor float to the decimal part of a sum."""
    if type(value) is Decimal:
        return value if exact is None else add_decimals(exact, value)
    if present(value):
        raise not_a_number(value)
    return exact


@dataclass(frozen=True, slots=True)
class _Aggregate:
    """An aggregate of a SELECT, and the position of its parts in a group's state."""

    name: str
    argument: tree.Expression | None
    at: int
    offset: int
    """Offset in the text."""

    @property
    def empty(self) -> list[Any]:
        """Initial state, that of a group without rows."""
        if self.name == "count":
            return [0]
        if self.name in ("min", "max"):
            return [_UNSET, NONE]
        if self.name in ("first", "last"):
            return [NONE]
        if self.name == "stddev":
            return [(0, NONE, 0.0, 0.0)]
        if self.name in _HOLDING:
            return [None]
        return [0, None, 0, 0.0, 0]  # ints, decimals, floats, their rounding, how many

    def result(self, state: list[Any], env: Any) -> Any:
        """Return the aggregate's result. An error carries the position in the text."""
        try:
            return self._result(state, env)
        except Refusal as refusal:
            raise placed(refusal, self.offset) from None

    def _result(self, state: list[Any], env: Any) -> Any:
        at = self.at
        if self.name == "stddev":
            return deviation(*state[at])
        if self.name in _HOLDING:
            held = state[at] or []
            if self.name == "median":
                return middle(env, held)
            return len(held) if self.name == "count_distinct" else held
        if self.name in ("min", "max"):
            return state[at + 1]
        if self.name == "sum":
            return total(*state[at : at + 4])
        if self.name == "mean":
            return average(*state[at : at + 5])
        return state[at]

    def update(self, code: Code, value: str) -> list[str]:
        """Return source that updates the state `g` with a row.

        :param value: name of the variable that holds the argument's value
        """
        at = self.at
        if self.argument is None:
            return [f"g[{at}] += 1"]
        if self.name in ("min", "max"):
            key, symbol = code.name("v"), "<" if self.name == "min" else ">"
            return [
                f"if {value} is not None and {value} is not NONE:",
                f"    {key} = {order_source(code, _Ready(value))}",  # type: ignore[arg-type]
                f"    if g[{at}] is UNSET or {key} {symbol} g[{at}]:",
                f"        g[{at}] = {key}; g[{at + 1}] = {value}",
            ]
        if self.name in _TAKING:
            return [line.format(v=value, g=f"g[{at}]") for line in _TAKING[self.name]]
        if self.name == "count":
            return [f"if {value} is not None and {value} is not NONE: g[{at}] += 1"]
        return [
            f"if type({value}) is int:",
            f"    g[{at}] += {value}; g[{at + 4}] += 1",
            f"elif type({value}) is float:",
            f"    g[{at + 2}], g[{at + 3}] = float_added(g[{at + 2}], g[{at + 3}], {value})",
            f"    g[{at + 4}] += 1",
            f"elif {value} is not None and {value} is not NONE:",
            f"    g[{at + 1}] = add_up(g[{at + 1}], {value}); g[{at + 4}] += 1",
        ]

    @property
    def kept(self) -> tuple[int, ...]:
        """Positions of state parts that retain a value of a row."""
        if self.name in ("min", "max"):
            return (self.at, self.at + 1)
        return (self.at,) if self.name in ("first", "last") else ()


_TOGETHER: Final = 32
"""Maximum number of aggregates in one generated function: Python compiles it without yielding."""
_WRITING: Final = 512
"""Cost of generating code for one aggregate, in units of `Env.tick`."""
_RESULTS: Final = 16 * PACE
"""Number of group values turned into rows between two ticks."""
_ASKING: Final = 16
"""Number of rows with subqueries between two checks of the groups' memory."""
_PRESENT: Final = "if {v} is not None and {v} is not NONE: "
_HOLDING: Final = frozenset({"count_distinct", "collect", "median"})
"""Aggregates for which a group retains all values."""
_TAKING: Final[dict[str, tuple[str, ...]]] = {
    "first": ("if {g} is NONE and {v} is not None: {g} = {v}",),
    "last": (_PRESENT + "{g} = {v}",),
    "stddev": (_PRESENT + "{g} = deviated(*{g}, {v})",),
    "collect": ("if {v} is not NONE: {g} = hold({g}, {v}, memo)",),
    "median": (_PRESENT + "{g} = hold({g}, number({v}), memo)",),
    "count_distinct": (_PRESENT + "{g} = hold_new({g}, {v}, memo, env)",),
}
"""Source templates that update the state `g` with a value `v`."""


def hold(held: list[Any] | None, value: Any, memo: Memo) -> list[Any]:
    """Append a value to the list that a group retains."""
    memo[HELD].append(value)
    if held is None:
        return [value]
    held.append(value)
    check_array(len(held))
    return held


def hold_new(held: set[Any] | None, value: Any, memo: Memo, env: Any) -> set[Any]:
    """Add a value to the set of distinct values that a group retains."""
    known = set() if held is None else held
    key = hashable(value, env.tick)
    if key not in known:
        known.add(key)
        memo[HELD].append(value)
    return known


@dataclass(frozen=True, slots=True)
class _Ready:
    """Pseudo-expression for a value that a variable already holds."""

    source: str


class Grouping:
    """Aggregation plan of one GROUP clause.

    :param keys: the grouped expressions; empty for GROUP ALL
    :param hidden: fields that GROUP BY cannot name, because a column's alias has the same name
    """

    def __init__(
        self, keys: tuple[tree.Expression, ...], hidden: frozenset[str] = frozenset()
    ) -> None:
        self.keys = keys
        self._hidden = hidden
        self.aggregates: list[_Aggregate] = []
        """Aggregates of the rewritten expressions."""
        self._slots: dict[tuple[str, int | None], str] = {}
        """Fields of aggregates, by aggregate name and the number of the argument's tree."""
        self._trees = Numbers()
        self._key_names: dict[int | None, str] = {}
        for number, key in enumerate(keys):
            self._key_names.setdefault(self._trees.add(key), f"k{number}")
        self._size = len(keys)
        self.shape: Shape
        """Shape of group rows, set once every expression is rewritten."""
        self._closures = 0
        """Number of closures around the expression being rewritten."""
        self._folds: list[Callable[..., Any]] = []
        self._source: Shape

    # --- rewriting --------------------------------------------------------------------------------

    def rewritten(self, node: Any) -> Any:
        """Rewrite an expression over rows to one over groups.

        :raises BadRequest: it reads a field that is neither grouped nor inside an aggregate
        """
        self._trees.add(node)
        return self._rewritten(node)

    def _rewritten(self, node: Any) -> Any:
        key = self._key_names.get(self._trees.number(node))
        if key is not None:
            return tree.Name(key)
        if isinstance(node, tree.Call) and node.name in AGGREGATES and not self._closures:
            return tree.Name(self._slot(node))
        if isinstance(node, tree.Closure):  # an aggregate in it is that of an array
            self._closures += 1
            try:
                return rebuilt(node, self._rewritten)
            finally:
                self._closures -= 1
        if isinstance(node, tree.Name):
            instead = f"; GROUP BY reads {node.name} as the column of that alias"
            raise BadRequest(
                f"{node.name} is neither grouped nor inside an aggregate: count, sum, first …"
                f"{instead if node.name in self._hidden else ''}",
                name=node.name,
            )
        if isinstance(node, tree.Parameter) and node.name == "this":
            raise BadRequest(
                "$this is neither grouped nor inside an aggregate: a group is not a single row"
            )
        if isinstance(node, tree.Subquery) and parent_fields(node.select) != frozenset():
            raise BadRequest(
                "a subquery beside GROUP can't use $parent: a group is not a single row"
            )
        return node if isinstance(node, tree.Subquery) else rebuilt(node, self._rewritten)

    def _slot(self, call: tree.Call) -> str:
        argument = call.arguments[0] if call.arguments else None
        of = None if argument is None else self._trees.number(argument)
        known = self._slots.get((call.name, of))
        if known is not None:
            return known
        charge(NODE)
        found = _Aggregate(call.name, argument, self._size, call.at)
        self._slots[call.name, of] = name = f"a{len(self.aggregates)}"
        self.aggregates.append(found)
        self._size += len(found.empty)
        return name

    @property
    def arguments(self) -> tuple[tree.Expression, ...]:
        """Expressions evaluated for each input row: grouped expressions and aggregate arguments."""
        return self.keys + tuple(a.argument for a in self.aggregates if a.argument is not None)

    def finish(self, source: Shape) -> None:
        """Finish the plan after the last expression. `source` is the shape of the input rows."""
        del self._trees, self._slots, self._key_names  # a plan may be kept for long
        names = [f"k{n}" for n in range(len(self.keys))]
        names += [f"a{n}" for n in range(len(self.aggregates))]
        self._names = names
        self.shape = shape(names)
        self._source = source
        self._step = stretch(self.arguments)
        self._kept = [*range(len(self.keys))]
        """Positions in a group's state that retain a value of a row."""
        for aggregate in self.aggregates:
            self._kept += aggregate.kept
        if any(map(has_subquery, self.arguments)):
            self._step = min(self._step, _ASKING)  # groups may retain the subqueries' results

    # --- folding ----------------------------------------------------------------------------------

    def start(self) -> dict[Any, list[Any]]:
        """Return the initial groups: for GROUP ALL one group without rows."""
        return {} if self.keys else {(): self.new_state()}

    def new_state(self) -> list[Any]:
        """Return the state of a group without rows. Its first parts are the grouped values."""
        state: list[Any] = [NONE] * len(self.keys)
        for aggregate in self.aggregates:
            state += aggregate.empty
        return state

    def fold(
        self, groups: dict[Any, list[Any]], rows: list[Row], env: Any, memo: Memo, budget: Budget
    ) -> None:
        """Aggregate a batch of rows: one row at a time where large values are built."""
        if not self._folds:
            self._folds = self._generate(env)
        for part in slices(rows, env, self._step):
            if len(self._folds) == 1 and len(part) > 1:
                part = self._fold_together(groups, part, env, memo, budget)
            for row in part:
                self._fold_alone(groups, row, env, memo, budget)

    def _fold_together(
        self, groups: dict[Any, list[Any]], part: list[Row], env: Any, memo: Memo, budget: Budget
    ) -> list[Row]:
        """Aggregate rows up to the first that builds a large value. Return the remaining rows."""
        before, held, each = len(groups), list[Any](), iter(part)
        memo[HELD] = held
        left: list[Row] = []
        try:
            counted(self._folds[0], groups, each, env, memo, most=LONG)
        except Heavy:
            if is_counted():
                raise
            # The row at hand has changed nothing: its values are computed before the first is used.
            left = part[len(part) - length_hint(each) - 1 :]
        budget.sample(held)
        if len(groups) > before:
            budget.sample(list(islice(reversed(groups.values()), len(groups) - before)))
        return left

    def _fold_alone(
        self, groups: dict[Any, list[Any]], row: Row, env: Any, memo: Memo, budget: Budget
    ) -> None:
        """Aggregate one row, and weigh each large value that its group retains."""
        before, held = len(groups), list[Any]()
        memo[HELD] = held
        try:
            group, size = self._take(groups, row, env, memo)
        except Heavy:
            if is_counted():
                raise
            raise too_large(limits.STATEMENT_MEMORY_BYTES) from None
        budget.sample(held, each=size > LONG)
        is_new = len(groups) > before
        if is_new:
            budget.hold_one(group)
        if size > LONG:
            weights: dict[int, int] = memo.setdefault(KEPT, {})
            known = weights.get(id(group), 0)
            weights[id(group)] = weight = weigh([group[at] for at in self._kept], env.tick)
            if not is_new:
                budget.hold(weight - known)

    def refused(self, rows: list[Row], env: Any, refusal: Refusal) -> tuple[Refusal, int | None]:
        """Return an aggregate's error with its position in the text, and the number of the failing
        row.

        The number is None if no row fails by itself.
        """
        if not is_of_values(refusal):
            return refusal, None
        folds = []
        for one in self.aggregates:
            env.tick(_WRITING)
            folds.append((one, self._generated([one], first=False)))
        group = self.new_state()
        for number, row in enumerate(rows):
            for one, fold in folds:
                env.tick()
                memo = {HELD: list[Any]()}
                try:
                    counted(fold, group, [row], env, memo, most=limits.STATEMENT_MEMORY_BYTES)
                except Refusal as found:
                    same = type(found) is type(refusal)
                    return (placed(found, one.offset), number) if same else (refusal, None)
                except Heavy:
                    if is_counted():
                        raise
                    return refusal, None
                group[one.at : one.at + len(one.empty)] = one.empty  # a large value is not kept
        return refusal, None

    def _take(
        self, groups: dict[Any, list[Any]], row: Row, env: Any, memo: Memo
    ) -> tuple[list[Any], int]:
        """Aggregate one row. Return its group and the bytes of large values built for it.

        :raises Heavy: more than a statement may hold
        """
        size, group = 0, groups
        for fold in self._folds:
            env.tick()
            group, more = counted(fold, group, [row], env, memo, most=limits.STATEMENT_MEMORY_BYTES)
            size += more
        return group, size  # type: ignore[return-value]

    def _generate(self, env: Any) -> list[Callable[..., Any]]:
        """Generate functions `(groups, rows, env, memo) -> last group`, each for `_TOGETHER`
        aggregates.

        All but the first function take a group instead of the groups.
        """
        folds = []
        for at in range(0, max(1, len(self.aggregates)), _TOGETHER):
            some = self.aggregates[at : at + _TOGETHER]
            env.tick(_WRITING * len(some))
            folds.append(self._generated(some, first=not at))
        return folds

    def _generated(self, aggregates: list[_Aggregate], first: bool) -> Callable[..., Any]:
        code = _Folding(self._source)
        code.namespace.update(
            add_up=add_up, float_added=float_added, UNSET=_UNSET, hold=hold, hold_new=hold_new,
            number=checked_number, deviated=deviated, HASH_SALT=HASH_SALT,
        )  # fmt: skip
        body = ["for r in rows:"]
        if first and self.keys:
            body = ["get = groups.get", *body, *[f"    {line}" for line in self._find(code)]]
        elif first:
            body = ["g = groups[()]", *body]
        updates: list[str] = []
        for aggregate in aggregates:
            value = ""
            if aggregate.argument is not None:
                value = code.name("v")
                body.append(f"    {value} = {code.expression(aggregate.argument)}")
            updates += [f"    {line}" for line in aggregate.update(code, value)]
        return code.build(
            f"{'groups' if first else 'g'}, rows, env, memo",
            [*body, *(updates or ["    pass"]), "return g"],
        )

    def _find(self, code: Code) -> list[str]:
        """Return source that finds or creates the group `g` of the row `r`."""
        empty = code.keep(self.new_state())
        if len(self.keys) > FEW:  # with many, Python would take long to compile it
            computes = [compile_expression(key, self._source) for key in self.keys]

            def values(row: Row, env: Any) -> list[Any]:
                found = []
                for compute in computes:
                    env.tick(WIDE)
                    found.append(compute(row, env))
                return found

            return [
                f"v = {code.keep(values)}(r, env)",
                "h = hashable(v, env.tick)",
                "g = get(h)",
                "if g is None:",
                f"    g = groups[h] = {empty}.copy()",
                f"    g[:{len(self.keys)}] = v",
            ]
        lines, names, hashes = [], [], []
        for key in self.keys:
            value = code.name("v")
            lines.append(f"{value} = {code.expression(key)}")
            names.append(value)
            hashes.append(
                f"{value} if type({value}) is str else {value} * HASH_SALT"
                f" if type({value}) is int else hashable({value}, env.tick)"
            )
        made = hashes[0] if len(hashes) == 1 else f"({', '.join(hashes)})"
        return [
            *lines,
            f"h = {made}",
            "g = get(h)",
            "if g is None:",
            f"    g = groups[h] = {empty}.copy()",
            f"    g[:{len(names)}] = ({', '.join(names)},)",
        ]

    def rows(self, groups: dict[Any, list[Any]], env: Any) -> Iterator[list[Row]]:
        """Yield the groups' rows in batches, in the order in which the groups were first seen.

        Consumes the groups: each is freed with its batch.
        """
        places = {name: at for at, name in enumerate(self._names)}
        order = [places[name] for name in self.shape.names]
        together = max(1, min(PACE, _RESULTS // max(1, len(places))))
        count = len(self.keys)
        states = list(groups.values())
        groups.clear()
        states.reverse()
        while states:
            found = []
            for state in reversed(states[-together:]):
                values = state[:count] + [one.result(state, env) for one in self.aggregates]
                if self.shape.whole:
                    found.append(dict(zip(self._names, values, strict=True)))
                else:
                    found.append(self.shape.make([values[at] for at in order]))
            del states[-together:]
            yield found


class _Folding(Code):
    """Code generator that also accepts a value already held by a variable as an expression."""

    def expression(self, node: Any) -> str:
        return node.source if isinstance(node, _Ready) else super().expression(node)


def counts_all(select: tree.Select) -> bool:
    """True if a SELECT without GROUP means GROUP ALL.

    Its columns are all aggregates and include `count()`, which cannot be the function of an array.
    """
    calls = [column.expression for column in select.columns]
    return (
        not select.everything
        and tree.Call("count", ()) in calls
        and all(isinstance(one, tree.Call) and one.name in AGGREGATES for one in calls)
    )


def check_ungrouped(node: Any) -> None:
    """Check a SELECT without GROUP.

    :raises BadRequest: an aggregate that can only refer to a group's rows
    """
    if isinstance(node, tree.Call) and node.name == "count" and not node.arguments:
        raise BadRequest(
            f"{print_expression(node)} counts the rows of a group: it needs GROUP BY or GROUP ALL"
        )
    if not isinstance(node, tree.Subquery):
        for child in children(node):
            check_ungrouped(child)
