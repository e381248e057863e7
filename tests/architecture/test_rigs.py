"""Rigs: each that the page for contributors lists says what it does, and its proof is there."""

from __future__ import annotations

import ast
import re

import pytest

from tests.architecture.sources import ROOT

PAGE = ROOT / "docs/contributing.md"
PARTS = ("Simulated:", "Not simulated:", "To reproduce:", "Proof:")
LEAST_LINES = 15


def rigs(page: str) -> list[list[str]]:
    """Return the files in each row of the table of rigs: the rig first."""
    rows = page.split("| kind | rig |")[1].split("\n\n")[0].splitlines()[2:]
    return [re.findall(r"`([^`]+)`", row) for row in rows]


def faults(head: str) -> list[str]:
    """Return the faults of a rig's head."""
    found = [f"no {part}" for part in PARTS if f"\n{part}" not in head]
    if len(head.splitlines()) < LEAST_LINES:
        found.append("shorter than half a page")
    proofs = re.findall(r"`(tests/[^`]+)::([^`]+)`", head)
    if not proofs:
        found.append("no test proves its checker")
    for path, name in proofs:
        file = ROOT / path
        names = file.exists() and {
            node.name
            for node in ast.walk(ast.parse(file.read_text()))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        if not names or name not in names:
            found.append(f"no test {path}::{name}")
    return found


ROWS = rigs(PAGE.read_text())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_rig_says_what_it_is(row: list[str]) -> None:
    assert [path for path in row if not (ROOT / path).exists()] == []
    assert faults(ast.get_docstring(ast.parse((ROOT / row[0]).read_text())) or "") == []


def test_a_head_that_lacks_something_is_found() -> None:
    head = "A rig.\n\nSimulated: x\nTo reproduce: y\nProof: `tests/conftest.py::no_such`\n"
    assert faults(head) == [
        "no Not simulated:", "shorter than half a page", "no test tests/conftest.py::no_such",
    ]  # fmt: skip
    assert "no test proves its checker" in faults("A rig.")
