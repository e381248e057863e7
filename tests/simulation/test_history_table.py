"""The table of a cluster's history: it is the same for a seed, and shows what the roles allow."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from actors.cluster.role import ROLE_STEPS
from tests.simulation import seeds
from tests.simulation.history_table import EVENTS, HEAD, HistoryTable

STEPS = {
    f"{before.__name__} -> {after.__name__}"
    for before, steps in ROLE_STEPS.items()
    for after in steps
    if before is not after
}


def history(seed: int) -> HistoryTable:
    table = HistoryTable()
    assert seeds.one(seed, Counter(), "members", table) is None
    return table


def test_a_seed_shows_one_history_and_each_of_its_steps_is_a_row_of_the_roles(
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = history(1)
    assert seeds.main(["1", "2", "--of", "members", "--show"]) == 0
    assert capsys.readouterr().out == f"{table}\n"
    assert str(table).startswith(HEAD)
    seen = {row.event for row in table.rows if " -> " in row.event}
    assert seen <= STEPS
    assert {"Alone -> Founder", "Founder -> Waiting", "Waiting -> Elected"} <= seen
    assert {"Elected -> Leader", "Waiting -> Follower", "Follower -> Waiting"} <= seen
    kinds = {row.event.split(" ")[0] for row in table.rows if row.node == "etcd"}
    assert kinds == {"leads:"}


def test_each_event_is_a_line_of_the_log() -> None:
    sources = [path.read_text() for path in Path("actors/cluster").glob("*.py")]
    assert {event for event in EVENTS if not any(f'"{event}"' in one for one in sources)} == set()
