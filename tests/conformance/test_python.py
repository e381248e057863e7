"""The Python client keeps every rule of docs/clients.md."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT
from tests.conformance.cases import Case, cases
from tests.conformance.testee import Testee
from tests.conformance.worlds import Servers, judge

WORDS = [sys.executable, str(ROOT / "clients" / "python" / "testee.py")]

PARAMETERS = [
    pytest.param(one, id=one.id, marks=[pytest.mark.hard] if one.hard else []) for one in cases()
]


@pytest.mark.parametrize("case", PARAMETERS)
def test_case(case: Case, testee: Testee, servers: Servers, tmp_path: Path) -> None:
    judge(case, testee, servers, tmp_path)
