"""A bad block of the state."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.processes import NodeProcess
from tests.reliability import faulty

pytestmark = [pytest.mark.hard, pytest.mark.timeout(300)]
ROWS = 2_000
PLACE = {"ns": "a", "db": "b"}


@contextmanager
def living(directory: Path, faults: str = "") -> Iterator[NodeProcess]:
    """A node that is stopped in order after the block."""
    told = {faulty.FAULTS: f"never-compacts,{faults}"}
    node = NodeProcess(directory, more=told, module=faulty.MODULE).start()
    try:
        yield node
        assert node.stop() == 0
    finally:
        node.end()


def fill(directory: Path, faults: str = "") -> None:
    """In few tables."""
    with living(directory, faults) as node:
        node.script("DEFINE NAMESPACE a; DEFINE DATABASE a.b; USE a.b; DEFINE TABLE t")
        for part in range(4):
            rows = ", ".join(f"{{ id: {n}, v: '{n * 7919:040}' }}" for n in range(part, ROWS, 4))
            assert "error" not in node.script(f"INSERT INTO t [{rows}]", **PLACE)
        node.script("DEFINE TABLE u", **PLACE)
        for first in range(0, 80, 10):  # each a batch of its own: a segment ends between batches
            some = "; ".join(f"CREATE u:{n} SET v = 1" for n in range(first, first + 10))
            assert "error" not in node.script(some, **PLACE)


def flip(directory: Path) -> None:
    """A few bytes in the middle of the largest table."""
    tables = (directory / "state").glob("*.sst")
    size, table = max((path.stat().st_size, path) for path in tables)
    with table.open("r+b") as file:
        file.seek(size // 2)
        data = file.read(8)
        file.seek(-8, 1)
        file.write(bytes(byte ^ 0xFF for byte in data))


def last(node: NodeProcess, script: str) -> Any:
    """What the last statement answers; the code where it is refused."""
    answer = node.script(script, **PLACE)
    return answer["error"]["code"] if "error" in answer else answer["results"][-1]["value"]


def meet(node: NodeProcess) -> None:
    """Read the bad block often, and what is good beside it; write."""
    for _ in range(10):
        assert last(node, "SELECT * FROM t") == "Failed"
    assert len(last(node, "SELECT * FROM t:0..3")) == 3
    assert len(last(node, "CREATE t:9999 SET v = 1")) == 1
    assert last(node, "DELETE t:9999; RETURN 1") == 1
    assert node.request("GET", "/health", user=None).status == 200
    assert b"store_state_damage 1.0" in node.request("GET", "/metrics", user=None).body
    assert "can't be read" in last(node, "INFO FOR NODE")["state_damage"]


def test_a_bad_block_ends_nothing_and_a_start_makes_the_state_anew(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    fill(directory)
    flip(directory)
    with living(directory) as node:
        meet(node)
    assert node.events().count("a part of the state can't be read") == 1, "said once"
    assert (directory / "DAMAGED").exists()
    with living(directory) as node:
        assert len(last(node, "SELECT * FROM t")) == ROWS
        assert last(node, "INFO FOR NODE")["state_damage"] is None
    assert "the state is made anew from the log" in node.events()
    assert not (directory / "DAMAGED").exists()


def test_where_old_log_was_pruned_what_can_be_read_is_served(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    fill(directory, "small")
    flip(directory)
    for _ in range(2):
        with living(directory, "small") as node:
            assert last(node, "INFO FOR NODE")["log_begins"] > 1
            meet(node)
