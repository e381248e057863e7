"""The steps between the roles: every row of the table at the head of `role.py`, and no other."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any, Final

import pytest

from actors.cluster import role as roles
from actors.cluster.role import (
    ROLE_STEPS,
    Alone,
    ClusterMember,
    Elected,
    Follower,
    Founder,
    Leader,
    Role,
    Waiting,
)

ANY: Final[Any] = SimpleNamespace(was_attached=False)
MADE: Final[tuple[Role, ...]] = (
    Alone(), Founder(), Waiting(), Elected(ANY), Leader(ANY), Follower(ANY),
)  # fmt: skip
"""A role of each kind; the steps look at nothing else."""


def rows() -> list[tuple[str, str]]:
    lines = str(roles.__doc__).split("| from | to |")[1].split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines]
    return [(before, after) for before, after, _ in cells]


def test_the_table_has_every_step() -> None:
    steps = {
        (before.__name__, after.__name__) for before, each in ROLE_STEPS.items() for after in each
    }
    assert len(rows()) == len(steps) and set(rows()) == steps
    assert set(ROLE_STEPS) == {type(one) for one in MADE}


@pytest.mark.parametrize(
    ("before", "after"), list(product(MADE, MADE)), ids=lambda one: str(type(one))
)
def test_a_node_takes_these_steps_alone(before: Role, after: Role) -> None:
    member: Any = ClusterMember.__new__(ClusterMember)
    member._role, member._had_caught_up, member._heard_us = before, True, None
    member.clock = SimpleNamespace(monotonic_us=lambda: 7)
    if (type(before).__name__, type(after).__name__) in rows():
        member.become(after)
        assert member.role is after
    else:
        with pytest.raises(AssertionError, match="no step from"):
            member.become(after)
        assert member.role is before
