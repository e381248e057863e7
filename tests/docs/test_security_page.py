"""`docs/security.md`: each promise names tests, and these exist."""

from __future__ import annotations

import ast
import re
from functools import cache

from tests.architecture.sources import ROOT

PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def promises(page: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """The rows of the tables of promises: what is promised, and the tests that it names."""
    part = page.partition("## What is promised")[2].partition("## What is not promised")[0]
    rows = re.findall(r"^\| (?!promise \||-)(.+?) \| (.*) \|$", part, re.MULTILINE)
    return [(promise, NAMED.findall(held)) for promise, held in rows]


def said_wrong(page: str) -> list[str]:
    """Promises of which the page says otherwise than the tests whether a change is held to them."""
    return [
        promise
        for promise, tests in promises(page)
        if promise.endswith("(hard tier)") != all(_tests(path).get(name) for path, name in tests)
    ]


def gone(page: str) -> list[str]:
    """Tests that are named and are not there."""
    return [
        f"{path}::{name}"
        for path, name in dict.fromkeys(NAMED.findall(page))
        if name not in _tests(path)
    ]


@cache
def _tests(path: str) -> dict[str, bool]:
    """The tests of a file, and whether each is of the hard tier."""
    if not (ROOT / path).is_file():
        return {}
    module = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    marks = [node.value for node in module.body if isinstance(node, ast.Assign) and _marks(node)]
    return {
        node.name: any(map(_is_hard, [*marks, *node.decorator_list]))
        for node in ast.walk(module)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def _marks(node: ast.Assign) -> bool:
    return ast.unparse(node.targets[0]) == "pytestmark"


def _is_hard(mark: ast.expr) -> bool:
    parts = mark.elts if isinstance(mark, ast.List) else [mark]
    return any(ast.unparse(part) == "pytest.mark.hard" for part in parts)


def test_every_promise_is_held_by_a_test_that_exists() -> None:
    found = promises(PAGE)
    assert len(found) > 25
    assert [promise for promise, tests in found if not tests] == []
    assert gone(PAGE) == []
    assert said_wrong(PAGE) == []
