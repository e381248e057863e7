"""The trace of one request: what counts, and that each kind is traced."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter

import pytest

from bench.trace import LOG, ORDER, Function, figures, table
from compiling.modules import ROOT
from tests.bound import COMPILED

ONE, TWO, BY_ITSELF = ("a.py", "one", 1), ("a.py", "two", 9), ("b.py", "tick", 1)


def traced(**calls: Counter[Function]) -> dict[str, Counter[Function]]:
    return {column: calls.get(column, Counter()) for column in ORDER}


def test_what_is_not_in_every_trace_does_not_count() -> None:
    first = Counter({ONE: 3, TWO: 1, BY_ITSELF: 1})
    found = figures([traced(actors=first), traced(actors=Counter({ONE: 2, TWO: 1}))])
    assert found["actors"] == {"files": 1, "functions": 2, "calls": 3}
    assert found["surfaces"] == {"files": 0, "functions": 0, "calls": 0}
    head, line = table({"get": found})
    assert head.split() == [*ORDER, "all"]
    assert line.split()[0] == "get" and line.endswith("1 / 2 / 3")


@pytest.mark.hard
@pytest.mark.skipif(bool(COMPILED), reason="a compiled function cannot be traced")
def test_each_kind_of_request_is_traced() -> None:
    command = [sys.executable, "-m", "bench.trace", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    writes = {"create", "take", "publish", "set"}
    assert set(found) == writes | {"select", "get", "http-select"}
    for kind, columns in found.items():
        assert (columns[LOG]["calls"] > 0) is (kind in writes), kind
        assert all(columns[column]["calls"] for column in ORDER if column != LOG), kind
