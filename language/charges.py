"""What evaluating an expression costs, and where a wide one is charged for: a text of some KiB may
hold a hundred thousand operators, all of them evaluated for one row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from language import tree
from language.names import NODE, children
from language.planning import charge
from protocol.values import PACE

WIDE: Final = 64
"""Nodes of an expression that are evaluated without a charge."""
STRETCH: Final = 4 * PACE
"""Nodes that are evaluated for rows of a batch without a charge, all told."""
_CALL: Final = 4
"""Nodes that a call of a function with short arguments takes as long as."""


def cost_of_nodes(nodes: Any, most: int = STRETCH) -> int:
    """Return how many nodes an expression has, or a tuple of some, not counted on beyond `most`."""
    total, waiting = 0, [nodes]
    while waiting and total <= most:
        node = waiting.pop()
        kind = type(node)
        total += 1
        if kind is tree.Binary:
            waiting += (node.left, node.right)
        elif kind is tree.Call:
            total += _CALL
            waiting += node.arguments
        elif kind is tuple:
            waiting += node
        elif kind not in _LEAVES:
            waiting += children(node)
    return total


_LEAVES: Final = frozenset(
    {tree.Constant, tree.Name, tree.Parameter, tree.RecordLiteral, tree.Subquery, tree.Closure,
     str, int, bool, type(None)}
)  # fmt: skip


def stretch(nodes: Any) -> int:
    """Return for how many rows of a batch expressions are evaluated without a charge."""
    return max(1, STRETCH // cost_of_nodes(nodes))


@dataclass(frozen=True, slots=True)
class Charged:
    """A part of a wide expression whose evaluation is charged for. No text makes it: it is put in
    before the expression is compiled, and stands in no tree but that one.

    :param cost: of what is evaluated since the last one, as `Env.tick` takes it
    """

    of: tree.Expression
    cost: int


Evaluated = tree.Expression | Charged
"""A part of an expression that is compiled."""


def charged(node: tree.Expression) -> Evaluated:
    """Return an expression that charges for its parts as they are evaluated, if it is wide."""
    return node if cost_of_nodes(node, WIDE) <= WIDE else _Charging().changed(node)


class _Charging:
    def __init__(self) -> None:
        self._spent = 0
        """Nodes before the one at hand that nothing charges for."""

    def changed(self, node: Any) -> Any:
        self._spent += 1
        charge(NODE)
        change = _CHANGES.get(type(node))
        return node if change is None else change(self, node)

    def _part(self, node: Any) -> Any:
        """A part that is a value by itself, which may be charged for."""
        found = self.changed(node)
        if self._spent < WIDE or type(node) not in _CHARGED:
            return found
        spent, self._spent = self._spent, 0
        return Charged(found, spent)

    def _parts(self, nodes: Any) -> Any:
        return tuple([self._part(one) for one in nodes])

    def _array(self, node: tree.Array) -> Any:
        return replace(node, items=self._parts(node.items))

    def _object(self, node: tree.Object) -> Any:
        return replace(node, fields=tuple([(name, self._part(one)) for name, one in node.fields]))

    def _binary(self, node: tree.Binary) -> Any:
        return replace(node, left=self._part(node.left), right=self._part(node.right))

    def _unary(self, node: tree.Unary) -> Any:
        return replace(node, operand=self._part(node.operand))

    def _range(self, node: tree.Range) -> Any:
        return replace(node, low=self._part(node.low), high=self._part(node.high))

    def _call(self, node: tree.Call) -> Any:
        self._spent += _CALL
        return replace(node, arguments=self._parts(node.arguments))

    def _choice(self, node: tree.Choice) -> Any:
        return replace(
            node,
            subject=None if node.subject is None else self._part(node.subject),
            branches=tuple([(self._part(one), self._part(two)) for one, two in node.branches]),
            otherwise=None if node.otherwise is None else self._part(node.otherwise),
        )

    def _path(self, node: Any) -> Any:
        # The steps of a path are told by their types.
        return replace(node, of=self.changed(node.of))

    def _index(self, node: tree.Index) -> Any:
        return replace(node, of=self.changed(node.of), index=self._part(node.index))


_CHARGED: Final = frozenset(
    {tree.Binary, tree.Unary, tree.Call, tree.Choice, tree.Name, tree.Parameter, tree.Attribute,
     tree.Index}
)  # fmt: skip
"""Nodes of which nothing that they stand in asks for their type; see `language.compile`."""
_CHANGES: Final[dict[type, Callable[[_Charging, Any], Any]]] = {
    tree.Array: _Charging._array,
    tree.Object: _Charging._object,
    tree.Binary: _Charging._binary,
    tree.Unary: _Charging._unary,
    tree.Range: _Charging._range,
    tree.Call: _Charging._call,
    tree.Choice: _Charging._choice,
    tree.Attribute: _Charging._path,
    tree.Each: _Charging._path,
    tree.Collected: _Charging._path,
    tree.Index: _Charging._index,
}
