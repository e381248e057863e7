"""The Kotlin client keeps every rule of docs/clients.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.test_kotlin import classpath, pytestmark
from tests.conformance.cases import Case, cases
from tests.conformance.testee import Testee
from tests.conformance.worlds import Servers, judge

__all__ = ["classpath", "pytestmark"]


@pytest.fixture(scope="module")
def testee(classpath: str) -> Iterator[Testee]:
    # A case reads the system's list of IPv4 sockets; those of Java are of both versions.
    words = ["java", "-Djava.net.preferIPv4Stack=true", "-cp", classpath]
    found = Testee([*words, "storeclient.testee.TesteeKt"])
    yield found
    found.close()


@pytest.mark.parametrize("case", [pytest.param(one, id=one.id) for one in cases()])
def test_case(case: Case, testee: Testee, servers: Servers, tmp_path: Path) -> None:
    judge(case, testee, servers, tmp_path)
