"""R11 on the real process: the wall clock is moved by libfaketime, live and over a restart."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.processes import NodeProcess
from tests.reliability.wallclocks import Clock, needs_faketime

HOUR = 3600

pytestmark = needs_faketime


def value(node: NodeProcess, key: str) -> object:
    answer = node.request("GET", f"/kv/shop/main/c/key/{key}")
    return answer.json["value"] if answer.status == 200 else answer.json["error"]["code"]


def put(node: NodeProcess, key: str, expire: str) -> None:
    answer = node.request("PUT", f"/kv/shop/main/c/key/{key}?expire={expire}", "'v'")
    assert answer.json == {"written": True}


def gone_within(node: NodeProcess, key: str, seconds: float) -> None:
    ends = time.monotonic() + seconds
    while value(node, key) != "NoKey":
        assert time.monotonic() < ends
        time.sleep(0.01)


@pytest.mark.parametrize(
    "steps",
    [(HOUR, -HOUR), pytest.param((10 * 365 * 24 * HOUR,), marks=pytest.mark.hard)],
    ids=["hours", "years"],
)
def test_a_step_of_the_clock_ends_nothing_early_and_brings_nothing_back(
    tmp_path: Path, steps: tuple[int, ...]
) -> None:
    clock = Clock(tmp_path)
    node = NodeProcess(tmp_path / "store", more=clock.environment()).start()
    try:
        node.script("DEFINE NAMESPACE shop; DEFINE DATABASE shop.main; DEFINE SPACE c", ns="shop",
                    db="main")  # fmt: skip
        put(node, "long", "30m")
        put(node, "seen", "100ms")
        gone_within(node, "seen", 20)
        for step in steps:
            began = time.monotonic()
            put(node, "short", "1s")
            clock.move(step)
            seen = value(node, "short")
            assert seen == "v" or time.monotonic() - began >= 1, "early"
            assert value(node, "long") == "v", "early"
            gone_within(node, "short", 20)
        node.kill()
        clock.move(min(*steps, 0) - HOUR)
        node = NodeProcess(tmp_path / "store", more=clock.environment()).start()
        assert value(node, "seen") == "NoKey"
        assert value(node, "short") == "NoKey"
        assert value(node, "long") == "v"
        put(node, "new", "100ms")
        gone_within(node, "new", 20)
    finally:
        node.end()


def test_the_clock_of_the_rig_does_move(tmp_path: Path) -> None:
    """Otherwise nothing above would mean anything."""
    clock = Clock(tmp_path)
    clock.move(10 * HOUR)
    node = NodeProcess(tmp_path / "store", more=clock.environment()).start()
    try:
        date = node.request("GET", "/health").headers["Date"]
        assert time.strptime(date, "%a, %d %b %Y %H:%M:%S GMT") > time.gmtime(
            time.time() + 9 * HOUR
        )
    finally:
        node.kill()
