"""Names and headings: what a reader relies on to find their way."""

from __future__ import annotations

import ast
import re

import pytest

from tests.architecture.sources import ROOMS, ROOT, Source, files

NO_NOUN = {"util", "utils", "common", "helper", "helpers", "misc", "base", "manager", "core"}
FILE_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*|__init__|__main__")


def violations(source: Source) -> list[str]:
    """What is wrong with a file's name and heading."""
    name = source.path.rpartition("/")[2].removesuffix(".py")
    found = []
    if name in NO_NOUN:
        found.append(f"{source.path}: {name} says nothing about what is in it")
    if not FILE_NAME.fullmatch(name):
        found.append(f"{source.path}: file names are lower-case words")
    if not ast.get_docstring(source.tree):
        found.append(f"{source.path}: no docstring says what lives here")
    return found


def undocumented(source: Source) -> list[str]:
    """Public classes and functions of a module that say nothing about themselves."""
    return [
        f"{source.path}:{node.lineno} {node.name} has no docstring"
        for node in source.tree.body
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
        and not _is_bare_refusal(node)
    ]


def _is_bare_refusal(node: ast.stmt) -> bool:
    """An error class whose meaning stands in the catalogue."""
    return isinstance(node, ast.ClassDef) and any(
        isinstance(base, ast.Name) and base.id == "Refusal" for base in node.bases
    )


def test_files_are_named_and_headed() -> None:
    found = [line for source in files(*ROOMS) for line in violations(source)]
    assert not found, "\n".join(found)


SELF_EVIDENT = (
    "language/tree/",  # a node is named after the clause it holds, its fields after the parts
)


def test_public_names_are_documented() -> None:
    found = [
        line
        for source in files(*ROOMS)
        if not source.path.startswith(SELF_EVIDENT)
        for line in undocumented(source)
    ]
    assert not found, "\n".join(found)


def test_top_level_holds_the_rooms() -> None:
    known = {*ROOMS, "console", "clients", "tests", "docs", "bench", "compiling"}
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages <= known


@pytest.mark.parametrize("path", ["storage/utils.py", "actors/common.py", "storage/BigFile.py"])
def test_planted_name_is_caught(path: str) -> None:
    assert violations(Source(path, '"""Planted."""')) != []


def test_planted_silence_is_caught() -> None:
    assert violations(Source("storage/log/log.py", "x = 1")) != []
    assert undocumented(Source("storage/log/log.py", "def append(): ...\nclass Log: ...")) != []


GLOSSARY = ROOT / "docs" / "glossary.md"
RETIRED = re.findall(
    r"`(\w+)`", "".join(re.findall(r"^\| (`.*?`) \| `", GLOSSARY.read_text(), re.MULTILINE))
)


def retired(source: Source) -> list[str]:
    """Names of a file that the glossary has retired."""
    found = []
    for node in source.nodes:
        name = next(
            (n for n in (getattr(node, a, None) for a in ("id", "attr", "arg", "name")) if n), ""
        )
        if name in RETIRED:
            found.append(f"{source.path}: {name} is retired, see docs/glossary.md")
    return found


def test_no_retired_name_is_used() -> None:
    assert len(RETIRED) > 25
    found = [line for source in files(*ROOMS) for line in retired(source)]
    assert not found, "\n".join(found)
    assert retired(Source("storage/planted.py", "def f(x: Layer): return x.released_upto"))


REFERENCE = re.compile(r"(?<![\w/.*{}])[\w-][\w/-]*\.py\b(?!\.)")
ELSEWHERE = {"storenode/__init__.py"}  # in the wheel
FILES = [
    str(path.relative_to(ROOT))
    for folder in (*ROOMS, "clients", "compiling", "bench", "tests", "docs", "examples")
    for path in (ROOT / folder).rglob("*.py")
]


def lost_files(source: Source) -> list[str]:
    """Files that a text names, and that are not in its folder, its room or the repository."""
    folder, found = source.path.rpartition("/")[0], []
    for name in {match[0] for match in REFERENCE.finditer(source.text)} - ELSEWHERE:
        in_room = [p for p in FILES if p.startswith(f"{source.room}/") and p.endswith(f"/{name}")]
        if name not in FILES and f"{folder}/{name}" not in FILES and len(in_room) != 1:
            found.append(f"{source.path}: {name} is not one file of {source.room}/: write its path")
    return found


def test_files_that_are_named_exist() -> None:
    found = [line for source in files(*ROOMS, "bench", "compiling") for line in lost_files(source)]
    assert not found, "\n".join(sorted(found))
    planted = lost_files(Source("storage/planted.py", "# see lineage.py, log.py and trail.py"))
    assert len(planted) == 2  # one is gone, and two are called trail.py
