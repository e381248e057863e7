"""Testees of all languages for the tests, each where its toolchain is installed."""

from __future__ import annotations

import os
from typing import Any, Final

import pytest

from bench.testees import TOOLCHAINS, client_program
from tests.actors.agreement.etcds import needs_etcd
from tests.conformance.cases import Case, cases
from tests.conformance.testee import Testee

LANGUAGES: Final = tuple(TOOLCHAINS)


def marks(language: str) -> list[pytest.MarkDecorator]:
    """Return the marks of tests of a language: in CI a missing toolchain fails them."""
    missing = TOOLCHAINS[language].missing
    is_skipped = missing is not None and os.environ.get("CI") != "true"
    return [pytest.mark.hard, pytest.mark.skipif(is_skipped, reason=missing or "")]


def parameters() -> list[Any]:
    """Return all cases as parameters of a test."""
    return [pytest.param(one, id=one.id, marks=_marks(one)) for one in cases()]


def _marks(case: Case) -> list[pytest.MarkDecorator]:
    found = [pytest.mark.hard] if case.hard else []
    return [*found, needs_etcd] if case.node == "cluster" else found


def started(language: str) -> Testee:
    """Build and start the testee of a language."""
    return Testee(client_program(language))
