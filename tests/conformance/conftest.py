"""Servers and testees that the cases of one file share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.languages import started
from tests.conformance.testee import Testee
from tests.conformance.worlds import Servers


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    found = Servers(tmp_path_factory.mktemp("conformance"))
    found.node()
    yield found
    found.close()


@pytest.fixture(scope="module")
def testee(request: pytest.FixtureRequest) -> Iterator[Testee]:
    found = started(request.module.LANGUAGE)
    yield found
    found.close()
