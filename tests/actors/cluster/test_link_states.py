"""The states of both ends of a link, and of a feed: every row of their tables, and no other."""

from __future__ import annotations

from enum import Enum
from itertools import product
from types import ModuleType
from typing import Any

import pytest

from actors.cluster import replica_receiver, replica_senders
from actors.cluster.replica_receiver import RECEIVER_STEPS, LeaderConnector, ReceiverState
from actors.cluster.replica_senders import SENDER_STEPS, ReplicaSender, SenderState
from actors.feeds import feed as feeds
from actors.feeds.feed import FEED_STEPS, Feed, FeedState

ENDS: list[tuple[ModuleType, type, dict[Any, frozenset[Any]]]] = [
    (replica_receiver, LeaderConnector, RECEIVER_STEPS),
    (replica_senders, ReplicaSender, SENDER_STEPS),
]
STEPS: list[tuple[Any, dict[Any, frozenset[Any]]]] = [
    (LeaderConnector, RECEIVER_STEPS), (ReplicaSender, SENDER_STEPS), (Feed, FEED_STEPS),
]  # fmt: skip
ALL = [
    (owner, before, after, after in steps[before])
    for owner, steps in STEPS
    for before, after in product(steps, steps)
]


@pytest.mark.parametrize(
    ("module", "_owner", "steps"), ENDS, ids=[owner.__name__ for _, owner, _ in ENDS]
)
def test_the_table_at_the_head_has_every_step(
    module: ModuleType, _owner: type, steps: dict[Enum, frozenset[Enum]]
) -> None:
    lines = str(module.__doc__).split("| from | to |")[1].split("\n\n")[0].splitlines()[2:]
    rows = [tuple(cell.strip() for cell in line.strip("|").split("|")[:2]) for line in lines]
    expected = {(before.name, after.name) for before, each in steps.items() for after in each}
    assert len(rows) == len(expected) and set(rows) == expected


def test_the_table_of_a_feed_has_every_step() -> None:
    lines = str(feeds.__doc__).split("| state |")[1].split("\n\n")[0].splitlines()[2:]
    rows: dict[str, set[str]] = {}
    for line in lines:
        state, _, until = (cell.strip() for cell in line.strip("|").split("|"))
        rows[state] = {part.split("→")[1].strip() for part in until.split(";") if "→" in part}
    found = {before.name: {after.name for after in each} for before, each in FEED_STEPS.items()}
    assert rows == found


@pytest.mark.parametrize(("owner", "before", "after", "may"), ALL)
def test_these_steps_are_taken_alone(owner: Any, before: Any, after: Any, may: bool) -> None:
    one: Any = owner.__new__(owner)
    one.state = before
    if may:
        one._enter(after)
        assert one.state is after
    else:
        with pytest.raises(AssertionError, match="no step from"):
            one._enter(after)
        assert one.state is before


def test_each_state_has_its_steps() -> None:
    assert set(RECEIVER_STEPS) == set(ReceiverState)
    assert set(SENDER_STEPS) == set(SenderState)
    assert set(FEED_STEPS) == set(FeedState)
