"""Dead letters that fall due together while the node is away, and take more than one commit may."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.processes import NodeProcess
from tests.reliability import faulty
from tests.reliability.wallclocks import later, needs_faketime

pytestmark = needs_faketime

PLACE = {"ns": "shop", "db": "main"}
GROUPS = ("g", "later")
"""What is due of the second is looked at after the first."""


@dataclass(frozen=True)
class Load:
    """What falls due together, and under which faults or smaller limits."""

    messages: int
    bytes: int
    words: tuple[str, ...] = ()


@contextmanager
def running(load: Load, directory: Path, **environment: str) -> Iterator[NodeProcess]:
    """A node for it, killed at the end."""
    more = {faulty.FAULTS: ",".join(load.words), **environment}
    node = NodeProcess(directory, more=more, module=faulty.MODULE).start()
    try:
        yield node
    finally:
        node.end()


SMALL = Load(60, 10_000, ("small-transactions",))
"""600 KB where a transaction holds 256."""
LARGE = Load(450, 200_000)


def value(node: NodeProcess, script: str, parameters: dict[str, Any] | None = None) -> Any:
    """What the last statement answered; one that was refused fails the test."""
    answer = node.request(
        "POST", "/script", {"script": script, "params": parameters or {}, **PLACE}
    ).json
    assert "error" not in answer, answer["error"]
    return answer["results"][-1]["value"]


def hand_out(node: NodeProcess, load: Load) -> None:
    """Have both groups hand all of it out, for an hour."""
    value(node, "DEFINE NAMESPACE shop; DEFINE DATABASE shop.main; USE shop.main;"
                "DEFINE TOPIC t; DEFINE TOPIC dead_g; DEFINE TOPIC dead_later")  # fmt: skip
    for group in GROUPS:
        value(node, f"DEFINE GROUP {group} ON t DEADLINE 1h DELIVERIES 1"
                    f" DEAD LETTER dead_{group}")  # fmt: skip
    each = min(load.messages, 10_000_000 // load.bytes)
    for start in range(0, load.messages, each):
        count = min(each, load.messages - start)
        value(node, "PUBLISH INTO t VALUE $v;" * count, {"v": "x" * load.bytes})
    for group in GROUPS:
        left = load.messages
        while left:
            left -= value(node, f"LET $m = TAKE 1000 FROM t AS {group}; RETURN array::len($m)")


def refused(node: NodeProcess) -> int:
    """How often what was due was refused, as /metrics counts it."""
    text = node.request("GET", "/metrics").body.decode()
    samples = re.findall(r"^store_topic_due_refused_total\{.*\} (\d+)$", text, re.MULTILINE)
    assert samples, "it is not counted"
    return sum(map(int, samples))


def violations(load: Load, directory: Path) -> list[str]:
    """Hand everything out, be away until it is due, and say what then went wrong."""
    with running(load, directory) as node:
        hand_out(node, load)
        node.kill()
    found = []
    with running(load, directory, **later(3_700)) as node:
        figures: dict[str, Any] = {}

        def done() -> bool:
            for group in GROUPS:
                figures[group] = value(node, f"INFO FOR GROUP {group} ON t")
            lapsed = [figures[group]["dead_lettered"] == load.messages for group in GROUPS]
            return all(lapsed) or refused(node) >= 3

        taken = node.request("POST", "/script", {"script": "TAKE FROM t AS g", **PLACE})
        if taken.status != 200:
            found.append(f"TAKE was refused: {taken.json['error']['code']}")
        ends = time.monotonic() + 120
        while not done():
            assert time.monotonic() < ends, "it never came"
            time.sleep(0.01)
        if refused(node):
            found.append("what was due was refused")
        for group, one in figures.items():
            if one["dead_lettered"] != load.messages:
                found.append(f"{group}: {one['dead_lettered']} of {load.messages} are dead letters")
                continue
            positions = dead(node, group)
            if positions != list(range(1, load.messages + 1)):
                found.append(f"{group}: the dead letters are {positions}")
    return found


def dead(node: NodeProcess, group: str) -> list[int]:
    """Where the dead letters of a group come from, in their order."""
    found: list[int] = []
    while page := value(
        node,
        f"LET $m = READ FROM dead_{group} AFTER $n LIMIT 30;"
        "RETURN (SELECT VALUE headers.`dead-position` FROM $m)",
        {"n": len(found)},
    ):
        found += map(int, page)
    return found


def test_large_dead_letters_come_in_commits_that_hold_them(
    tmp_path: Path, figure: Callable[[str, object], None]
) -> None:
    assert violations(SMALL, tmp_path / "store") == []
    figure("dead letters that fell due together", 2 * SMALL.messages)


@pytest.mark.hard
def test_ninety_megabytes_of_dead_letters_come_all(
    tmp_path: Path, figure: Callable[[str, object], None]
) -> None:
    assert violations(LARGE, tmp_path / "store") == []
    figure("dead letters of 200 KB that fell due together", 2 * LARGE.messages)
