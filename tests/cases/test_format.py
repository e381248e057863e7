from __future__ import annotations

from pathlib import Path

import pytest

from tests.cases.format import CaseError, parse, read, write

FILES = sorted(Path(__file__).parent.glob("**/*.case"))

TEXT = """\
# What it is about,
# in two lines.

setup
DEFINE TABLE t;

=== One
# Because.
RETURN 1;
RETURN 2
---
= 1
= 2

=== Two
@other.db
RETURN 1 / 0
---
! DivisionByZero: division by zero
"""


def test_a_case_file_is_read_and_written() -> None:
    file = parse(TEXT)
    assert (file.about, file.setup) == ("What it is about,\nin two lines.", "DEFINE TABLE t;")
    one, two = file.cases
    assert (one.title, one.reason, one.script) == ("One", "Because.", "RETURN 1;\nRETURN 2")
    assert one.expected == ["= 1", "= 2"] and one.place == ("shop", "main")
    assert two.place == ("other", "db") and two.expected == ["! DivisionByZero: division by zero"]
    assert write(file) == TEXT


@pytest.mark.parametrize(
    "text",
    [
        "=== A\nRETURN 1\n---\n= 1\n",
        "# x\nwhat\n=== A\nRETURN 1\n---\n= 1\n",
        "# x\n=== A\nRETURN 1\n",
        "# x\n=== A\n---\n= 1\n",
        "# x\n=== A\nRETURN 1\n---\n1\n",
        "# x\n=== A\nRETURN 1\n---\n! Unknown: x\n= 1\n",
        "# x\n=== A\nRETURN 1\n---\n= 1\n\n=== A\nRETURN 1\n---\n= 1\n",
    ],
)
def test_a_file_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(CaseError):
        parse(text)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_file_is_written_as_it_is_read(path: Path) -> None:
    assert write(read(path)) == path.read_text()
