"""The TypeScript client keeps every rule of docs/clients.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.test_typescript import pytestmark, run
from tests.conformance.cases import Case, cases
from tests.conformance.testee import Testee
from tests.conformance.worlds import Servers, judge

__all__ = ["pytestmark"]


@pytest.fixture(scope="module")
def testee(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testee]:
    built = tmp_path_factory.mktemp("typescript")
    run("npm", "ci", "--ignore-scripts")
    run("npx", "tsc", "-p", "tsconfig.json", "--outDir", str(built))
    (built / "package.json").write_text('{"type": "module"}')
    found = Testee(["node", str(built / "testee" / "testee.js")])
    yield found
    found.close()


@pytest.mark.parametrize("case", [pytest.param(one, id=one.id) for one in cases()])
def test_case(case: Case, testee: Testee, servers: Servers, tmp_path: Path) -> None:
    judge(case, testee, servers, tmp_path)
