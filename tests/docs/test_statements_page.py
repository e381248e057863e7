"""`docs/statements.md`: its examples answer what they say, and each form of statement has one.

`make cases-accept` writes what is answered now into the page: read the difference, and put `…` for
what differs from run to run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, get_args

from language import tree
from tests.architecture.sources import ROOT
from tests.cases.test_cases import ACCEPT
from tests.docs.examples import play, statements
from tests.nodes import running

PATH: Final = ROOT / "docs" / "statements.md"
PAGE: Final = PATH.read_text(encoding="utf-8")
FORMS: Final = {form.__name__ for form in get_args(tree.Statement)}
SUBJECTS: Final = {f"INFO FOR {subject}" for subject in get_args(tree.InfoSubject)}


def lacking(page: str) -> set[str]:
    """The forms of statements that no example of a page shows."""
    found = set(statements(page))
    forms = {type(one).__name__ for one in found}
    asked = {f"INFO FOR {one.subject}" for one in found if isinstance(one, tree.Info)}
    return (FORMS | SUBJECTS) - forms - asked


def test_every_form_has_an_example() -> None:
    assert lacking(PAGE) == set()


async def test_every_example_answers_what_it_says(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as node:
        wrong = await play(PATH, node, accept=ACCEPT)
    assert not wrong, "\n\n".join(wrong)


def test_a_form_without_an_example_is_found() -> None:
    assert lacking(PAGE.replace("KILL 'r-none'", "RETURN 'r-none'")) == {"Kill"}
    assert lacking(PAGE.replace("INFO FOR STATE;", "INFO FOR STORE;")) == {"INFO FOR STATE"}
