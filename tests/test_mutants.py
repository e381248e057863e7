"""What `make mutants` takes for a place that runs, and for a test that is near."""

from __future__ import annotations

import textwrap

import pytest

from tests import mutants

SOURCE = textwrap.dedent('''\
    """A docstring with 1 + 1."""
    from typing import TYPE_CHECKING
    if TYPE_CHECKING:
        ONE = 1
    @kept(1)
    def add(a: int | None, b: "x" = 2) -> int | None:
        return a + b
    TWO: int | None = 2
    ''')


@pytest.mark.parametrize(
    "line, text, silent",
    [
        (1, "1 + 1", True),
        (4, "1", True),
        (5, "@", True),
        (5, "1", True),
        (6, "| None, b", True),
        (6, "2)", False),
        (6, "| None:", True),
        (7, "+ b", False),
        (8, "| None", True),
        (8, "2", False),
    ],
)
def test_only_what_runs_is_mutated(line: int, text: str, silent: bool) -> None:
    column = SOURCE.splitlines()[line - 1].index(text)
    assert mutants.is_silent((line, column), mutants.silent(SOURCE)) is silent


def test_near_are_those_of_its_name_and_those_that_import_it() -> None:
    tests = {
        "tests/storage/log/test_log.py": "",
        "tests/storage/txn/test_ledger.py": "import storage.log.log\n",
        "tests/storage/formats/test_frames.py": "from storage.log import log\n",
        "tests/storage/test_logs.py": "from storage.logs import x\nimport storage.logs\n",
        "tests/actors/test_log.py": "from storage.log.log import Log\n",
    }
    near = mutants.near("storage/log/log.py", tests)
    assert near == [path for path in tests if path.startswith("tests/storage")][:3]


@pytest.mark.parametrize("name, told", [
    ("NumberReplacer", True), ("AddNot", True), ("ReplaceBinaryOperator_Add_Sub", True),
    ("ReplaceBinaryOperator_Add_BitOr", False), ("ReplaceComparisonOperator_Lt_LtE", True),
    ("ReplaceComparisonOperator_Eq_Is", False), ("ReplaceComparisonOperator_Is_IsNot", True),
])  # fmt: skip
def test_mutations_that_say_little_are_left_out(name: str, told: bool) -> None:
    assert bool(mutants.TELLING.fullmatch(f"core/{name}")) is told
