"""Judges which statements columns can serve, before any is read. Imports no numpy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from language import tree
from language.functions import TABLE
from language.names import children, shape_of
from language.rows import Batch, shape
from language.search.fields import has_match
from protocol.values import FEW

AGGREGATES: Final = frozenset({"count", "sum", "mean", "min", "max", "stddev", "count_distinct"})
"""Aggregates that columns compute."""
_NODES: Final = (
    tree.Constant, tree.Parameter, tree.Array, tree.Object, tree.RecordLiteral, tree.Name,
    tree.Attribute, tree.Index, tree.Unary, tree.Binary, tree.Range, tree.Call, tree.Choice,
)  # fmt: skip
_LEAVES: Final = (str, int, float, bytes, bool, type(None), tree.Constant)


class Unfit(Exception):  # no error: the segment is read by row instead
    """The columns of a segment can't answer exactly."""


class Inexact(Exception):  # no error: the statement is run again by row
    """A sum might have been rounded on the way if it was made by row."""


class Rows(Protocol):
    """A segment of a table as a scan yields it."""

    @property
    def count(self) -> int:
        """Number of its rows."""

    def has(self, names: Iterable[str]) -> bool:
        """True if it has blocks with the values of these columns."""

    def column(self, name: str) -> Any:
        """Return the block of a column."""

    def ids(self, positions: list[int]) -> list[bytes]:
        """Return the encoded ids of some rows, by their positions."""


class Scan(Protocol):
    """Scan of a table by columns."""

    def segments(self) -> Iterator[Any]:
        """Yield all segments in key order."""

    def rows(self, rows: Any) -> Iterator[Batch]:
        """Yield the records of a segment, by row."""

    def fetch(self, ids: list[bytes]) -> Iterator[Batch]:
        """Yield records by their encoded ids."""


@dataclass
class ColumnPlan:
    """Columns that a statement needs, and what its expressions read."""

    names: tuple[str, ...]
    groups: bool
    """True if it groups: columns answer all of it. Otherwise they find its rows."""
    known: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """Fields of each expression, by the identity of its node, which the plan keeps alive."""
    made: dict[Any, Any] = field(default_factory=dict)
    """Compiled closures of expressions."""

    def fields(self, node: Any) -> tuple[str, ...]:
        """Return the fields that an expression reads."""
        found = self.known.get(id(node))
        if found is None:
            found = self.known[id(node)] = shape_of(node).names
        return found

    def closure(self, node: Any, make: Callable[..., Any]) -> Any:
        """Return the function that computes an expression, compiled once by `make`."""
        found = self.made.get((id(node), make))
        if found is None:
            found = self.made[id(node), make] = make(node, shape(self.fields(node)))
        return found


def obstacle(node: Any) -> str | None:
    """Return the part of an expression that columns can't compute; None if they can."""
    if node is None:
        return None
    pending = [node]
    while pending:
        one = pending.pop()
        if isinstance(one, tree.Call):
            function = TABLE.get(one.name)
            if function is None or not (function.fixed or one.name == "time::now"):
                return f"{one.name} is computed for each row"
            if any(function.closures):
                return f"{one.name} takes a closure"
        elif isinstance(one, tree.Parameter):
            if one.name == "this":
                return "$this is the whole row"
        elif isinstance(one, tree.Name):
            if one.name == "id":
                return "id is no column"
        elif isinstance(one, tuple):
            pending += one
            continue
        elif isinstance(one, _LEAVES):
            continue
        elif not isinstance(one, _NODES):
            return f"a {type(one).__name__.lower()} is computed for each row"
        pending += children(one)
    return None


def column_plan(
    select: tree.Select,
    grouping: Any,
    orders: tuple[tree.Expression, ...],
) -> ColumnPlan | str:
    """Return the columns that serve a statement, or the reason why none do.

    :param grouping: its `Grouping`; None: it does not group
    :param orders: expressions of ORDER BY, without aliases
    """
    if len(select.sources) != 1 or not isinstance(select.sources[0], tree.TableTarget):
        return "only one whole table is read by column"
    if select.split is not None:
        return "SPLIT makes other rows"
    if has_match(select):
        return "`@@` is matched for each row"
    if select.back is not None:
        return "links back are found by an index"
    if grouping is None:
        nodes = _ungrouped(select, orders)
    else:
        nodes = _grouped(grouping)
    if isinstance(nodes, str):
        return nodes
    for node in (select.where, *nodes):
        why = obstacle(node)
        if why is not None:
            return why
    wanted = shape_of(select.where, *nodes)
    if wanted.whole or not wanted.names:
        return "the statement names no field"
    return ColumnPlan(wanted.names, grouping is not None)


def _grouped(grouping: Any) -> tuple[tree.Expression, ...] | str:
    if len(grouping.keys) > FEW:
        return "too many expressions are grouped"
    for one in grouping.aggregates:
        if one.name not in AGGREGATES:
            return f"{one.name} is computed for each row"
    arguments: tuple[tree.Expression, ...] = grouping.arguments
    return arguments


def _ungrouped(
    select: tree.Select, orders: tuple[tree.Expression, ...]
) -> tuple[tree.Expression, ...] | str:
    # How far by row is read decides which refusal of a later record is met.
    if (select.limit is not None or select.only) and not orders:
        return "LIMIT without ORDER BY stops reading early"
    if select.distinct:
        if orders:
            return "DISTINCT with ORDER BY is computed by row"
        if select.everything:
            return "DISTINCT compares whole records"
        # Beside OMIT or FETCH, or with a column that is computed for each row.
        return tuple(column.expression for column in select.columns)
    if select.limit is not None:
        # They are computed for the records that are left only, and may be refused for others.
        if not all(isinstance(one, tree.Name) for one in orders[1:]):
            return "a later expression of ORDER BY is computed for each row"
        return orders[:1]
    return "all records are in the answer" if select.where is None else ()
