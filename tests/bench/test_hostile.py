"""The list of costly inputs is gone through, and what held the loop is found."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from rich.console import Console

from bench.hostile import NOTHING, longest, run, table

LOG = """{"event": "ready"}
held 30.5 60.0
Timeout (0:00:00.100000)!
Thread 0x1 (most recent call first):
  File "log.py", line 1 in wait
Thread 0x2 (most recent call first):
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
def test_an_input_is_measured(tmp_path: Path) -> None:
    names = ["crypto::md5 of emoji", "sign-ins with a wrong password"]
    rows = asyncio.run(run(tmp_path, names, 0.5, Console(quiet=True)))
    assert [row.name for row in rows] == [NOTHING, *names]
    assert rows[1].ended == "answered" and "NotAllowed" not in rows[2].ended
    assert all(row.waits.asked and not row.waits.refused for row in rows)
    assert table(rows).row_count == len(rows)
