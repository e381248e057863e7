"""CPU charges for evaluating wide expressions.

A text of some KiB may hold a hundred thousand operators, all evaluated for one row. Such an
expression is charged in parts, so that it yields its time slice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from language import tree
from language.names import NODE, children
from language.planning import charge
from protocol.values import PACE

WIDE: Final = 64
"""Number of expression nodes that are evaluated without a charge."""
STRETCH: Final = 4 * PACE
"""Number of node evaluations (nodes × rows) of a batch without a charge."""
_CALL: Final = 4
"""Cost of calling a function with short arguments, in nodes."""


def cost_of_nodes(nodes: Any, most: int = STRETCH) -> int:
    """Return the number of nodes of an expression or tuple, not counted on beyond `most`."""
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
    """Return the number of rows of a batch that are evaluated between two charges."""
    return max(1, STRETCH // cost_of_nodes(nodes))


@dataclass(frozen=True, slots=True)
class Charged:
    """A part of a wide expression whose evaluation is charged. The parser never produces it: it is
    inserted before the expression is compiled, into a copy of the AST.

    :param cost: of the nodes evaluated since the previous charge, in units of `Env.tick`
    """

    of: tree.Expression
    cost: int


Evaluated = tree.Expression | Charged
"""Node of an expression as the compiler sees it: an AST node or a charge around one."""


def charged(node: tree.Expression) -> Evaluated:
    """Return the expression with charges inserted for its parts if it is wide, else unchanged."""
    return node if cost_of_nodes(node, WIDE) <= WIDE else _Charging().changed(node)


class _Charging:
    def __init__(self) -> None:
        self._spent = 0
        """Nodes visited since the last inserted charge."""

    def changed(self, node: Any) -> Any:
        self._spent += 1
        charge(NODE)
        change = _CHANGES.get(type(node))
        return node if change is None else change(self, node)

    def _part(self, node: Any) -> Any:
        """Return a part that is a value by itself, wrapped in a charge if one is due."""
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
        # The compiler tests the types of a path's steps, so `of` is not wrapped in a charge.
        return replace(node, of=self.changed(node.of))

    def _index(self, node: tree.Index) -> Any:
        return replace(node, of=self.changed(node.of), index=self._part(node.index))


_CHARGED: Final = frozenset(
    {tree.Binary, tree.Unary, tree.Call, tree.Choice, tree.Name, tree.Parameter, tree.Attribute,
     tree.Index}
)  # fmt: skip
"""Node types that may be wrapped: no parent node tests for their type. See `language.compile`."""
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
