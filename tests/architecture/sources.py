"""The code base as syntax trees, and what a file imports and calls."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("protocol", "language", "storage", "actors", "surfaces")


@dataclass(frozen=True)
class Source:
    """One Python file. `path` is relative to the repository."""

    path: str
    text: str

    @property
    def room(self) -> str:
        return self.path.partition("/")[0]

    @property
    def tree(self) -> ast.Module:
        return _parse(self.text)

    @property
    def nodes(self) -> list[ast.AST]:
        return _nodes(self.text)


@cache
def _nodes(text: str) -> list[ast.AST]:
    return list(ast.walk(_parse(text)))


@cache
def _parse(text: str) -> ast.Module:
    collects = gc.isenabled()
    gc.disable()  # it makes no garbage, and to look for some takes three times as long
    try:
        return ast.parse(text)
    finally:
        if collects:
            gc.enable()


def files(*folders: str) -> list[Source]:
    """Every Python file below the folders."""
    return [
        Source(str(path.relative_to(ROOT)), path.read_text())
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*.py"))
    ]


def imported(source: Source) -> Iterator[tuple[int, str]]:
    """Line and full name of every module that a file imports, wherever the import stands."""
    for node in source.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                folder = source.path.split("/")[: -node.level]
                yield node.lineno, ".".join([*folder, *filter(None, [node.module])])
            elif node.module:
                yield node.lineno, node.module


def called(source: Source) -> Iterator[tuple[int, str]]:
    """Line and dotted name of every call whose callee is a name or a path of names."""
    for node in source.nodes:
        if isinstance(node, ast.Call):
            name = _dotted(node.func)
            if name:
                yield node.lineno, name


def _dotted(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        left = _dotted(node.value)
        return f"{left}.{node.attr}" if left else None
    return None
