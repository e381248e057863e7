"""Log time of a node that leads, and of one that follows: never ahead of who leads."""

from __future__ import annotations

import pytest

from storage.txn.log_time import LogTime
from tests.simulation.environment import START_US, ManualClock

HOUR_US = 3_600_000_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.mark.parametrize("leads_at", [START_US - HOUR_US, START_US + HOUR_US])
def test_who_follows_goes_by_what_it_was_told_and_its_monotonic_clock(
    clock: ManualClock, leads_at: int
) -> None:
    time = LogTime(clock, 0)
    assert time.now() == START_US
    time.follows(2, leads_at)
    assert time.now() == leads_at
    clock.advance(5)
    assert time.now() == leads_at + 5


def test_a_frame_moves_it_on_and_never_back(clock: ManualClock) -> None:
    time = LogTime(clock, 0)
    time.follows(2, 100)
    time.reaches(120)
    clock.advance(5)
    assert time.now() == 125
    time.reaches(110)
    assert time.now() == 125


def test_what_the_same_leader_says_again_moves_it_on_and_never_back(clock: ManualClock) -> None:
    """It was longer on its way."""
    time = LogTime(clock, 0)
    time.follows(2, 100)
    clock.advance(50)
    time.follows(2, 140)
    assert time.now() == 150
    time.follows(2, 160)
    assert time.now() == 160


@pytest.mark.parametrize("told", [START_US - HOUR_US, START_US + HOUR_US])
@pytest.mark.parametrize("end", [0, START_US + 2 * HOUR_US])
def test_who_comes_to_lead_goes_on_from_the_latest(clock: ManualClock, told: int, end: int) -> None:
    """Its own is by the wall clock of its start, and what was set since has no part in it."""
    time = LogTime(clock, 0)
    time.follows(2, told)
    clock.advance(7)
    clock.step_wall(9 * HOUR_US)
    time.leads(end)
    assert time.now() == max(START_US + 7, told + 7, end)
