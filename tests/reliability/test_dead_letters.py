"""Dead letters that fall due together while the node is away, and take more than one commit may.

Once they made one commit that was too large, again and again: every TAKE on the group was refused,
and the groups after it starved.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.processes import NodeProcess
from tests.reliability import faulty

PLACE = {"ns": "shop", "db": "main"}
GROUPS = ("g", "later")
"""What is due of the second is looked at after the first."""


@dataclass(frozen=True)
class Load:
    """What falls due together, and under which faults or smaller limits."""

    messages: int
    bytes: int
    deadline: str
    words: tuple[str, ...] = ()


@contextmanager
def running(load: Load, directory: Path) -> Iterator[NodeProcess]:
    """A node for it, killed at the end."""
    more = {faulty.FAULTS: ",".join(load.words)}
    node = NodeProcess(directory, more=more, module=faulty.MODULE).start()
    try:
        yield node
    finally:
        node.end()


SMALL = Load(60, 10_000, "2s", ("small-transactions",))
"""600 KB where a transaction holds 256."""
LARGE = Load(450, 200_000, "10s")


def value(node: NodeProcess, script: str, parameters: dict[str, Any] | None = None) -> Any:
    """What the last statement answered; one that was refused fails the test."""
    answer = node.request(
        "POST", "/script", {"script": script, "params": parameters or {}, **PLACE}
    ).json
    assert "error" not in answer, answer["error"]
    return answer["results"][-1]["value"]


def hand_out(node: NodeProcess, load: Load) -> datetime:
    """Have both groups hand all of it out; when the last deadline is."""
    value(node, "DEFINE NAMESPACE shop; DEFINE DATABASE shop.main; USE shop.main;"
                "DEFINE TOPIC t; DEFINE TOPIC dead_g; DEFINE TOPIC dead_later")  # fmt: skip
    for group in GROUPS:
        value(node, f"DEFINE GROUP {group} ON t DEADLINE {load.deadline} DELIVERIES 1"
                    f" DEAD LETTER dead_{group}")  # fmt: skip
    each = min(load.messages, 10_000_000 // load.bytes)
    for start in range(0, load.messages, each):
        count = min(each, load.messages - start)
        value(node, "PUBLISH INTO t VALUE $v;" * count, {"v": "x" * load.bytes})
    last = None
    for group in GROUPS:
        left = load.messages
        while left:
            script = f"LET $m = TAKE 1000 FROM t AS {group};"
            got = value(node, script + "RETURN [array::len($m), array::last($m).deadline]")
            left, last = left - got[0], datetime.fromisoformat(got[1]["$dt"])
    assert last is not None
    return last


def refused(node: NodeProcess) -> int:
    """How often what was due was refused, as /metrics counts it."""
    text = node.request("GET", "/metrics").body.decode()
    samples = re.findall(r"^store_topic_due_refused_total\{.*\} (\d+)$", text, re.MULTILINE)
    assert samples, "it is not counted"
    return sum(map(int, samples))


def until(holds: Callable[[], object], seconds: float) -> None:
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends, "it never came"
        time.sleep(0.05)


def violations(load: Load, directory: Path) -> list[str]:
    """Hand everything out, be away until it is due, and say what then went wrong."""
    with running(load, directory) as node:
        last = hand_out(node, load)
        node.kill()
    until(lambda: datetime.now(last.tzinfo) > last, 60)
    found = []
    with running(load, directory) as node:
        figures: dict[str, Any] = {}

        def done() -> bool:
            for group in GROUPS:
                figures[group] = value(node, f"INFO FOR GROUP {group} ON t")
            lapsed = [figures[group]["dead_lettered"] == load.messages for group in GROUPS]
            return all(lapsed) or refused(node) >= 3

        taken = node.request("POST", "/script", {"script": "TAKE FROM t AS g", **PLACE})
        if taken.status != 200:
            found.append(f"TAKE was refused: {taken.json['error']['code']}")
        until(done, 120)
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


def test_a_planted_lapse_of_all_at_once_is_caught(tmp_path: Path) -> None:
    # Nothing lapses while it is handed out: the node that does that would do it in part.
    planted = Load(60, 10_000, "10s", ("small-transactions", "lapses-all-at-once"))
    found = violations(planted, tmp_path / "store")
    assert "TAKE was refused: TooLarge" in found
    assert "what was due was refused" in found
    assert f"later: 0 of {planted.messages} are dead letters" in found


@pytest.mark.hard
def test_ninety_megabytes_of_dead_letters_come_all(
    tmp_path: Path, figure: Callable[[str, object], None]
) -> None:
    assert violations(LARGE, tmp_path / "store") == []
    figure("dead letters of 200 KB that fell due together", 2 * LARGE.messages)
