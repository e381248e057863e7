"""`docs/statements.md` has an example of each form of statement; test_examples_run.py runs them."""

from __future__ import annotations

from typing import Final, get_args

from language import tree
from tests.architecture.sources import ROOT
from tests.docs.examples import statements

PAGE: Final = (ROOT / "docs" / "statements.md").read_text(encoding="utf-8")
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
