"""Wrong clients, which a case of the suite catches each, by its name."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT
from tests.conformance.cases import cases
from tests.conformance.testee import Failed, Testee
from tests.conformance.worlds import Servers, judge

CAUGHT_BY = {
    "repeats": "faults: a cut before the answer of a write: reset",
    "stale": "nodes: a read never shows less than the client has done",
    "rounds": "values: int 9007199254740993, both ways",
}

SHOWS = {"repeats": "no error but", "stale": "seq: ", "rounds": "9007199254740992"}
"""Part of the failure's message."""
HARMLESS = "caches: only where it is absent, only where it is present"


@pytest.fixture(params=list(CAUGHT_BY))
def planted(request: pytest.FixtureRequest) -> Iterator[tuple[str, Testee]]:
    words = [sys.executable, "-m", "tests.conformance.planted", request.param]
    path = f"{ROOT}:{ROOT / 'clients' / 'python'}"
    found = Testee(words, {"PYTHONPATH": path})
    yield request.param, found
    found.close()


def test_it_is_caught(planted: tuple[str, Testee], servers: Servers, tmp_path: Path) -> None:
    name, testee = planted
    known = {one.id: one for one in cases()}
    judge(known[HARMLESS], testee, servers, tmp_path)
    with pytest.raises(Failed, match=SHOWS[name]):
        judge(known[CAUGHT_BY[name]], testee, servers, tmp_path)
