"""Modules do not know each other in circles, not even for their types: who reads one of them reads
what it stands on, and never comes back. Nor do they stand on each other too high."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.architecture.sources import ROOMS, Source, files

RECURSIVE = {
    # A subquery is an expression, and a SELECT is made of expressions.
    ("language.tree.expressions", "language.tree.records"),
    # A block is made of statements, and IF, FOR and LET are statements.
    ("language.tree.flow", "language.tree"),
}
"""Imports, for types, that close a circle: the grammar itself is recursive."""

HIGHEST = 31
"""Most modules on a chain of imports. It only falls: whoever cuts a chain lowers it."""


def module(source: Source) -> str:
    return source.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def knows(sources: list[Source], *, types: bool = True) -> dict[str, set[str]]:
    """By the name of each module, those that it imports.

    :param types: False: at run time alone, when it is imported itself
    """
    modules = {module(source): source for source in sources}
    return {
        name: set(_targets(_imports(source, types=types), modules.keys() - {name}))
        for name, source in modules.items()
    }


def _imports(source: Source, *, types: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    nodes = list(source.nodes) if types else list(source.tree.body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif not types and isinstance(node, ast.If | ast.Try):
            if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)):
                nodes += node.body
            nodes += node.orelse


def _targets(imports: Iterator[ast.Import | ast.ImportFrom], modules: set[str]) -> Iterator[str]:
    """Modules that are imported: of `from folder import name` the file of that name, if any."""
    for node in imports:
        for alias in node.names:
            inner = f"{node.module}.{alias.name}" if isinstance(node, ast.ImportFrom) else ""
            outer = node.module if isinstance(node, ast.ImportFrom) else alias.name
            if inner in modules:
                yield inner
            elif outer in modules:
                yield str(outer)


def circle(graph: dict[str, set[str]]) -> list[str]:
    """The modules that stay when those that stand on nothing are taken away, again and again."""
    return sorted(set(graph) - set(floors(graph)))


def floors(graph: dict[str, set[str]]) -> dict[str, int]:
    """By module, the number of modules on its longest chain of imports; without the circles."""
    left = {name: set(stands_on) for name, stands_on in graph.items()}
    found: dict[str, int] = {}
    while ground := {name for name, stands_on in left.items() if not stands_on & left.keys()}:
        for name in ground:
            found[name] = 1 + max((found[one] for one in left[name]), default=0)
        for name in ground:
            del left[name]
    return found


def test_there_is_no_circle() -> None:
    graph = knows(files(*ROOMS))
    for name, target in RECURSIVE:
        graph[name].remove(target)  # fails if it is an exception no more
    assert circle(graph) == []


def test_no_chain_of_imports_grows() -> None:
    found = floors(knows(files(*ROOMS), types=False))
    assert max(found.values()) == HIGHEST, "lower HIGHEST, or cut what has grown"


PLANTED = [
    Source("room/a.py", "from room.b import B"),
    Source("room/b.py", "if TYPE_CHECKING:\n    from room import c"),
    Source("room/c.py", "def f():\n    import other.a"),
    Source("other/__init__.py", ""),
    Source("other/a.py", "from room import a"),
    Source("room/d.py", "from room import e"),
    Source("room/e.py", "from other import NAME"),
]


def test_a_planted_circle_is_found() -> None:
    assert circle(knows(PLANTED)) == ["other.a", "room.a", "room.b", "room.c"]


def test_a_planted_chain_is_measured() -> None:
    found = floors(knows(PLANTED, types=False))
    assert found == {
        "other": 1, "other.a": 3, "room.a": 2, "room.b": 1, "room.c": 1, "room.d": 3, "room.e": 2,
    }  # fmt: skip
