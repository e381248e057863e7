"""The list of costly inputs is gone through, and what held the loop is found."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bench.hostile import NOTHING, longest
from tests.architecture.sources import ROOT

LOG = """{"event": "ready"}
held 30.5 60.0
stack, most recent call first:
  File "slow.py", line 2 in sort
  File "loop.py", line 3 in run
held 250.0 260.0
{"event": "slow"}
held 20.0 900.0
"""


def test_the_longest_hold_is_found_with_its_stack() -> None:
    found = longest(LOG)
    assert (found.busy, found.clock) == (250.0, 260.0)
    (stack,) = found.stacks
    assert stack.splitlines()[0].strip() == 'File "slow.py", line 2 in sort'
    assert longest("").busy == 0


@pytest.mark.hard
def test_an_input_is_measured() -> None:
    names = ["crypto::md5 of emoji", "sign-ins with a wrong password"]
    asked = [word for name in names for word in ("--input", name)]
    command = [sys.executable, "-m", "bench.hostile", "--seconds", "0.5", *asked]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    for name, ended in zip([NOTHING, *names], ["", "answered", "SignInRefused"], strict=True):
        (row,) = [line for line in ran.stdout.splitlines() if name in line and " ms" in line]
        assert ended in row
