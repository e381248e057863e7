"""Files of one folder do not know each other in circles, not even for their types: who reads one of
them reads what it stands on, and never comes back."""

from __future__ import annotations

import ast

import pytest

from tests.architecture.sources import ROOT, Source, files, imported

FOLDERS = (
    "protocol",
    "language",
    *(
        str(path.parent.relative_to(ROOT))
        for path in sorted((ROOT / "storage").glob("*/__init__.py"))
    ),
    "actors/cluster",
    "actors/runtime",
    "actors/topics",
    "actors/vaults",
    "surfaces/http",
    "surfaces/wire",
    "surfaces/command",
    "surfaces/shell",
)
"""Those that are free of circles; the actors are not yet, for types only."""


def knows(sources: list[Source]) -> dict[str, set[str]]:
    """By the name of each module, those of the same folder that it imports."""
    modules = {source.path.removesuffix(".py").replace("/", "."): source for source in sources}
    folder = next(iter(modules)).rpartition(".")[0]
    found: dict[str, set[str]] = {}
    for name, source in modules.items():
        named = {module for _, module in imported(source)} | {
            f"{folder}.{alias}" for alias in _from_folder(source, folder)
        }
        found[name] = (named & modules.keys()) - {name}
    return found


def _from_folder(source: Source, folder: str) -> set[str]:
    """What a file takes by `from folder import name`."""
    return {
        alias.name
        for node in source.nodes
        if isinstance(node, ast.ImportFrom) and node.module == folder
        for alias in node.names
    }


def circle(graph: dict[str, set[str]]) -> list[str]:
    """The modules that stay when those that stand on nothing are taken away, again and again."""
    left = {name: set(stands_on) for name, stands_on in graph.items()}
    while True:
        ground = {name for name, stands_on in left.items() if not stands_on}
        if not ground:
            return sorted(left)
        for name in ground:
            del left[name]
        for stands_on in left.values():
            stands_on -= ground


@pytest.mark.parametrize("folder", FOLDERS)
def test_there_is_no_circle(folder: str) -> None:
    here = folder.count("/") + 1
    assert circle(knows([each for each in files(folder) if each.path.count("/") == here])) == []


def test_a_planted_circle_is_found() -> None:
    planted = [
        Source("room/a.py", "from room.b import B"),
        Source("room/b.py", "if TYPE_CHECKING:\n    from room import c"),
        Source("room/c.py", "def f():\n    import room.a"),
        Source("room/d.py", "from room import a"),
        Source("room/e.py", ""),
    ]
    assert circle(knows(planted)) == ["room.a", "room.b", "room.c", "room.d"]
