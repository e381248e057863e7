"""The Rust client keeps every rule of docs/clients.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.test_rust import BUILT, cargo, pytestmark
from tests.conformance.cases import Case, cases
from tests.conformance.testee import Testee
from tests.conformance.worlds import Servers, judge

__all__ = ["pytestmark"]


@pytest.fixture(scope="module")
def testee() -> Iterator[Testee]:
    cargo("build", "--example", "testee", "--all-features", "--locked")
    found = Testee([str(BUILT / "debug" / "examples" / "testee")])
    yield found
    found.close()


@pytest.mark.parametrize("case", [pytest.param(one, id=one.id) for one in cases()])
def test_case(case: Case, testee: Testee, servers: Servers, tmp_path: Path) -> None:
    judge(case, testee, servers, tmp_path)
