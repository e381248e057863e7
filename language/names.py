"""AST analysis: the fields that an expression reads, and generic traversal of AST nodes."""

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
"""Cost of visiting one AST node, in units of `Env.tick`."""
_SALTED: Final = (str, bytes, bool, type(None))
"""Leaves whose hash no caller can choose."""
_LEAVES: Final = (str, int, float, bytes, bool, type(None), tree.Constant)


def children(node: Any) -> Iterator[Any]:
    """Yield the child nodes of a node or a tuple of nodes. Charges for them."""
    if isinstance(node, tuple):
        yield from node
    elif not isinstance(node, _LEAVES) and hasattr(node, "__dataclass_fields__"):
        charge(NODE)
        for name in node.__dataclass_fields__:
            yield getattr(node, name)


def subtree(node: Any) -> Iterator[Any]:
    """Yield an expression and all its parts, but not those of its subqueries."""
    yield node
    if not isinstance(node, tree.Subquery):
        for child in children(node):
            if child is not None:
                yield from subtree(child)


def has_subquery(node: Any) -> bool:
    """True if an expression contains a subquery."""
    return isinstance(node, tree.Subquery) or any(map(has_subquery, children(node)))


def rebuilt(node: Any, change: Callable[[Any], Any]) -> Any:
    """Return a copy of a node, or tuple of nodes, with a function applied to each child node."""
    if isinstance(node, tuple):
        return tuple(map(change, node))
    if isinstance(node, _LEAVES) or not hasattr(node, "__dataclass_fields__"):
        return node
    charge(NODE)
    return replace(node, **{one.name: change(getattr(node, one.name)) for one in fields(node)})


class Numbers:
    """Hash-consing of ASTs: equal trees have equal numbers.

    Each node is hashed once, by the numbers of its children. Hashing every subtree would take
    quadratic time.
    """

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._known: dict[int, tuple[int, Any]] = {}
        """Number of each node by its `id()`. The node is kept alive: its address stays unique."""

    def number(self, node: Any) -> int | None:
        """Return the number of a node added by itself or within another, else None."""
        known = self._known.get(id(node))
        return None if known is None else known[0]

    def add(self, node: Any) -> int:
        """Assign numbers to a tree, or tuple of trees, and its subtrees. Charges for the nodes."""
        known = self._known.get(id(node))
        if known is not None:
            return known[0]
        key: tuple[Any, ...]
        if isinstance(node, tuple):
            key = (tuple, *map(self.add, node))
        elif isinstance(node, _SALTED) or not hasattr(node, "__dataclass_fields__"):
            charge(1)
            # Python salts the hash of texts alone: the caller could choose others that collide.
            key = (type(node), node if isinstance(node, _SALTED) else repr(node))
        else:
            charge(NODE)
            kind: Any = type(node)
            key = (kind, *[self.add(getattr(node, name)) for name in _compared(kind)])
        number = self._numbers.setdefault(key, len(self._numbers))
        self._known[id(node)] = number, node
        return number


@cache
def _compared(kind: Any) -> tuple[str, ...]:
    """Return the names of the fields that node equality compares."""
    return tuple([one.name for one in fields(kind) if one.compare])


def shape_of(*nodes: Any) -> Shape:
    """Return the smallest shape with all fields that these expressions read. None is skipped."""
    names: set[str] = set()
    if not all(_collect(node, names) for node in nodes):
        return WHOLE
    return shape(names) if names else NO_FIELDS


def _collect(node: Any, names: set[str]) -> bool:
    """Add the fields that a node reads. Return False if it reads the row as a whole."""
    if isinstance(node, tree.Name):
        names.add(node.name)
        return True
    if isinstance(node, tree.Parameter):
        return node.name != "this"
    if isinstance(node, tree.Assignment) and node.operator != "=":
        names.add(str(node.path[0]))  # `+=` and `-=` read the field
    if isinstance(node, tree.Call) and node.name in (SCORE, DISTANCE):
        names.add("id")
        return True
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
    """True if an expression may read records, by a subquery or by a path that may follow a link.

    :param row: a parameter that is an object: the first step from it follows no link
    """
    if isinstance(node, tree.Attribute) and row is not None and node.of == row:
        return False
    if isinstance(node, tree.Subquery | tree.Attribute | tree.Index | tree.Each):
        return True
    return any(reads_store(child, row) for child in children(node))


def mentions(node: Any, names: frozenset[str]) -> bool:
    """True if an expression mentions one of the given parameters."""
    if isinstance(node, tree.Parameter):
        return node.name in names
    return any(mentions(child, names) for child in children(node))


AGGREGATES: Final = frozenset({
    "count", "sum", "min", "max", "mean", "count_distinct", "collect", "median", "stddev", "first",
    "last",
})  # fmt: skip
"""Functions over the rows of a group."""
SCORE: Final = "search::score"
"""Function that reads the id of its row."""
DISTANCE: Final = "vector::distance"
"""Function that reads the id of its row, too."""
ONCE: Final = (
    "NEAREST ranks the rows of one table: it stands once in the WHERE of a SELECT, UPDATE or"
    " DELETE, by itself or joined by AND"
)
"""Refusal of NEAREST anywhere else."""
DEFINED: Final = "fn::"
"""Prefix of calls to user-defined functions."""


def defined_name(name: str) -> str | None:
    """Return the defined name of a user-defined function; None for a built-in function."""
    return name[len(DEFINED) :] if name.startswith(DEFINED) else None


def called(node: Any) -> set[str]:
    """Return the user-defined functions called by an expression, tuple or definition."""
    found = set().union(*map(called, children(node)))
    if isinstance(node, tree.Call) and node.name.startswith(DEFINED):
        found.add(node.name[len(DEFINED) :])
    return found


def parent_fields(node: Any) -> frozenset[str] | None:
    """Return the fields of `$parent` that a subquery reads; None if it reads all of it."""
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
    """Return the number of nodes of a tree, not counted on beyond `most`."""
    total = 0
    pending = [node]
    while pending and total <= most:
        total += 1
        below = (child for child in children(pending.pop()) if not isinstance(child, str | int))
        pending.extend(islice(below, most + 1))  # an array may have a million
    return total
