"""Paths of fields that expressions denote."""

from __future__ import annotations

from language import tree
from protocol.paths import EACH, Path, Step


def path_of(node: tree.Expression, *, with_this: bool = False) -> Path | None:
    """Return the path that an expression denotes, or None. `with_this` also accepts `$this.…`."""
    steps: list[Step] = []
    while not isinstance(node, tree.Name):
        if with_this and node == tree.Parameter("this") and steps and type(steps[-1]) is str:
            return tuple(reversed(steps))
        if isinstance(node, tree.Attribute):
            steps.append(node.name)
        elif isinstance(node, tree.Each):
            steps.append(EACH)
        elif isinstance(node, tree.Index) and isinstance(node.index, tree.Constant):
            step = node.index.value
            if type(step) is not str and type(step) is not int:
                return None
            steps.append(step)
        else:
            return None
        node = node.of
    return node.name, *reversed(steps)
