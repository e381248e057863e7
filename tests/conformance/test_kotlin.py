"""The Kotlin client keeps every rule of docs/clients.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.cases import Case
from tests.conformance.languages import marks, parameters
from tests.conformance.testee import Testee
from tests.conformance.worlds import Servers, judge

LANGUAGE = "Kotlin"
pytestmark = marks(LANGUAGE)


@pytest.mark.parametrize("case", parameters())
def test_case(case: Case, testee: Testee, servers: Servers, tmp_path: Path) -> None:
    judge(case, testee, servers, tmp_path)
