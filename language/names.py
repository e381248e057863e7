"""What an expression looks at: the fields of its row, and the row around a subquery."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from functools import cache
from itertools import islice
from typing import Any, Final

from language import tree
from language.planning import charge
from language.rows import NO_FIELDS, WHOLE, Shape, shape

NODE: Final = 8
"""What a step of a walk costs, as `Env.tick` takes it."""
_LEAVES: Final = (str, int, float, bytes, bool, type(None), tree.Constant)


def children(node: Any) -> Iterator[Any]:
    """The nodes right below a node or a tuple of nodes. Charges for them."""
    if isinstance(node, tuple):
        yield from node
    elif not isinstance(node, _LEAVES) and hasattr(node, "__dataclass_fields__"):
        charge(NODE)
        for name in node.__dataclass_fields__:
            yield getattr(node, name)


def rebuilt(node: Any, change: Callable[[Any], Any]) -> Any:
    """A node, or a tuple of nodes, with each of the nodes right below it changed."""
    if isinstance(node, tuple):
        return tuple(map(change, node))
    if isinstance(node, _LEAVES) or not hasattr(node, "__dataclass_fields__"):
        return node
    charge(NODE)
    return replace(node, **{one.name: change(getattr(node, one.name)) for one in fields(node)})


class Numbers:
    """Numbers of trees: equal ones have the same. Each node is hashed once, by the numbers of those
    below it: to hash the tree of each would take quadratic time."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._known: dict[int, tuple[int, Any]] = {}
        """By address of a node, which is held: no other has it."""

    def number(self, node: Any) -> int | None:
        """Return the number of a node that was added, by itself or within another."""
        known = self._known.get(id(node))
        return None if known is None else known[0]

    def add(self, node: Any) -> int:
        """Number a tree, or a tuple of some, and all within it. Charges for the nodes."""
        known = self._known.get(id(node))
        if known is not None:
            return known[0]
        key: tuple[Any, ...]
        if isinstance(node, tuple):
            key = (tuple, *map(self.add, node))
        elif isinstance(node, _LEAVES) or not hasattr(node, "__dataclass_fields__"):
            key = (type(node), node)
        else:
            charge(NODE)
            kind: Any = type(node)
            key = (kind, *[self.add(getattr(node, name)) for name in _compared(kind)])
        number = self._numbers.setdefault(key, len(self._numbers))
        self._known[id(node)] = number, node
        return number


@cache
def _compared(kind: Any) -> tuple[str, ...]:
    """Fields that a node is compared by."""
    return tuple([one.name for one in fields(kind) if one.compare])


def shape_of(*nodes: Any) -> Shape:
    """The smallest shape that evaluates these expressions (None among them is passed over)."""
    names: set[str] = set()
    if not all(_collect(node, names) for node in nodes):
        return WHOLE
    return shape(names) if names else NO_FIELDS


def _collect(node: Any, names: set[str]) -> bool:
    """Add the fields that a node looks at; False when it looks at the row as a whole."""
    if isinstance(node, tree.Name):
        names.add(node.name)
        return True
    if isinstance(node, tree.Parameter):
        return node.name != "this"
    if isinstance(node, tree.Assignment) and node.operator != "=":
        names.add(str(node.path[0]))  # it looks at what stands there
    if isinstance(node, tree.Subquery):
        looked = parent_fields(node.select)
        if looked is None:
            return False
        names |= looked
        return True
    if isinstance(node, _LEAVES):
        return True
    return all(_collect(child, names) for child in children(node))


def reads_store(node: Any, row: tree.Parameter | None = None) -> bool:
    """Whether an expression may read records: a subquery, or a path, which may go over a link.

    :param row: a parameter that is an object: the first step from it goes over none
    """
    if isinstance(node, tree.Attribute) and row is not None and node.of == row:
        return False
    if isinstance(node, tree.Subquery | tree.Attribute | tree.Index | tree.Each):
        return True
    return any(reads_store(child, row) for child in children(node))


def mentions(node: Any, names: frozenset[str]) -> bool:
    """Whether one of some parameters stands in an expression."""
    if isinstance(node, tree.Parameter):
        return node.name in names
    return any(mentions(child, names) for child in children(node))


DEFINED: Final = "fn::"
"""What the functions that a database defines are called with, before their names."""


def defined_name(name: str) -> str | None:
    """The name under which a function that is called so was defined; None: it is one of the
    language."""
    return name[len(DEFINED) :] if name.startswith(DEFINED) else None


def called(node: Any) -> set[str]:
    """The functions of the database that an expression calls, or a tuple or definition that holds
    expressions."""
    found = set().union(*map(called, children(node)))
    if isinstance(node, tree.Call) and node.name.startswith(DEFINED):
        found.add(node.name[len(DEFINED) :])
    return found


def parent_fields(node: Any) -> frozenset[str] | None:
    """The fields of `$parent` that a subquery looks at; None when at all of it."""
    found: set[str] = set()
    return frozenset(found) if _parent_fields(node, found) else None


def _parent_fields(node: Any, found: set[str]) -> bool:
    if isinstance(node, tree.Attribute) and _is_parent(node.of):
        found.add(node.name)
        return True
    if _is_parent(node):
        return False
    if isinstance(node, _LEAVES):
        return True
    return all(_parent_fields(child, found) for child in children(node))


def _is_parent(node: Any) -> bool:
    return isinstance(node, tree.Parameter) and node.name == "parent"


def weight(node: Any, most: int = 10_000) -> int:
    """How many nodes a tree has, not counted on beyond `most`."""
    total = 0
    pending = [node]
    while pending and total <= most:
        total += 1
        below = (child for child in children(pending.pop()) if not isinstance(child, str | int))
        pending.extend(islice(below, most + 1))  # an array may have a million
    return total
