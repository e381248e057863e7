"""The rules of a cluster hold in every history of three nodes up to small bounds, and each of them
is there for a reason: without it there is a history that breaks a promise, and the search finds it.
"""

from __future__ import annotations

from typing import Any

import pytest

from actors.cluster.leader_state import LeaderState
from actors.cluster.log_matching import EpochHistory
from protocol.agreement import AgreedState
from tests.actors.cluster.histories import SearchScope, may_take_the_lead, search


class ReleasesAlone(LeaderState):
    """What is durable here is released."""

    @property
    def waited_for(self) -> frozenset[str]:
        return frozenset({self.node})


class ForgetsItsPromise(LeaderState):
    """How large the set is was looked at when a commit came in, and is not again."""

    @property
    def releasable(self) -> int:
        acknowledged = dict(self.held)
        others = (acknowledged.get(each, 0) for each in self.waited_for if each != self.node)
        upto = min([self.synced, *others])
        return max(self.released, upto) if upto >= self.own else self.released

    def may_remove(self, *gone: str) -> bool:
        return self.asked is None and len(gone) == 1 and {*gone} <= self.members - {self.node}


class ReleasesBefore(LeaderState):
    """A member is not waited for from when it is asked out."""

    @property
    def waited_for(self) -> frozenset[str]:
        return self.asked or self.members


class WaitsForTheOldSet(LeaderState):
    """While the set changes, only the one it had is waited for."""

    @property
    def waited_for(self) -> frozenset[str]:
        return self.members


class AddsEarly(LeaderState):
    """Whoever is there is asked into the set."""

    def may_add(self, follower: str) -> bool:
        return self.asked is None and follower not in self.members and self.is_settled


class AddsUnsettled(LeaderState):
    """A new leader asks followers into the set before it knows what is released."""

    def may_add(self, follower: str) -> bool:
        holds = dict(self.held).get(follower, -1) >= self.released
        return self.asked is None and follower not in self.members and holds


class CountsTheGone(LeaderState):
    """What a member had acknowledged before it went still counts, though it may come back without
    it."""

    def left(self, follower: str) -> LeaderState:
        return self


class Shrinks(LeaderState):
    """The set may get smaller than what was promised needs."""

    def may_remove(self, *gone: str) -> bool:
        return self.asked is None and len(gone) == 1 and {*gone} <= self.members - {self.node}


def anyone(agreed: AgreedState, node: str, log: EpochHistory) -> bool:
    return agreed.lead is None


def whatever_it_holds(agreed: AgreedState, node: str, log: EpochHistory) -> bool:
    return may_take_the_lead(agreed._replace(told=None), node, log)


def by_the_sequence_alone(agreed: AgreedState, node: str, log: EpochHistory) -> bool:
    published, ends = agreed.released, log[-1].last if log else 0
    longer = published is None or ends >= published.sequence
    return longer and whatever_it_holds(agreed, node, log)


def by_sequence(ours: EpochHistory, theirs: EpochHistory) -> int:
    return min(max((r.last for r in ours), default=0), max((r.last for r in theirs), default=0))


def takes_all(promised: int, epoch: int) -> bool:
    return True


PLANTED: dict[str, tuple[SearchScope, str]] = {
    "released alone": (SearchScope(changes=0, leading=ReleasesAlone), "without what was released"),
    "anyone leads": (SearchScope(changes=1, may_take=anyone), "without what was released"),
    "released before the answer": (
        SearchScope(changes=1, leading=ReleasesBefore),
        "without what was released",
    ),
    "only the old set": (
        SearchScope(changes=2, leading=WaitsForTheOldSet),
        "without what was released",
    ),
    "added early": (SearchScope(changes=2, leading=AddsEarly), "without what was released"),
    "added by who does not know": (
        SearchScope(frames=3, epochs=3, changes=2, leading=AddsUnsettled),
        "without what was released",
    ),
    "a change ended by reading": (
        SearchScope(frames=3, changes=2, ends_by_reading=True),
        "without what was released",
    ),
    "the set shrinks": (
        SearchScope(changes=2, acks=1, leading=Shrinks),
        "smaller than was promised",
    ),
    "fewer than was promised": (
        SearchScope(changes=2, acks=1, leading=ForgetsItsPromise, small_sets=True),
        "is on 1 nodes",
    ),
    "frames of older epochs": (
        SearchScope(changes=0, takes=takes_all),
        "shows|releases|cut|without",
    ),
    "cut by sequences": (
        SearchScope(frames=3, epochs=3, changes=0, last_common_frame=by_sequence),
        "shows|cut",
    ),
    "an older copy leads": (
        SearchScope(frames=1, changes=0, copies=1, may_take=whatever_it_holds),
        "without what was released",
    ),
    "the commit index by its sequence": (
        SearchScope(epochs=3, changes=0, copies=1, may_take=by_the_sequence_alone),
        "without what was released",
    ),
    "acknowledged before it went": (
        SearchScope(changes=0, copies=1, leading=CountsTheGone),
        "without what was released",
    ),
    "promises in memory": (
        SearchScope(epochs=3, changes=0, crashes=2, keeps_promises=False),
        "without|shows|cut",
    ),
}


LONG = {
    "anyone leads", "only the old set", "added early", "added by who does not know",
    "a change ended by reading", "the commit index by its sequence", "acknowledged before it went",
    "promises in memory",
}  # fmt: skip
"""Those that are found after more than ten thousand states."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.hard if name in LONG else ()) for name in PLANTED]
)
def test_a_rule_that_is_left_out_is_missed(name: str) -> None:
    world, what = PLANTED[name]
    broken, way, _ = search(world, 2_000_000)
    assert any(word in broken for word in what.split("|")), (broken, way)
    assert way, "the world was broken from its beginning"


def test_every_history_without_changes_keeps_every_promise() -> None:
    broken, way, seen = search(SearchScope(changes=0))
    assert (broken, way) == ("", [])
    assert seen > 1_000


WORLDS: dict[str, dict[str, Any]] = {
    "a change": {"changes": 1},
    "two changes, asked again": {"frames": 2, "changes": 2, "repeats": True},
    "a crash": {"changes": 0, "crashes": 1},
    "an older copy": {"changes": 0, "copies": 1},
    "an older copy, and a change": {"frames": 1, "changes": 1, "copies": 1},
    "three epochs": {"frames": 3, "epochs": 3, "changes": 0},
    "one must hold it too": {"changes": 1, "acks": 1, "repeats": True},
    "another takes a place": {"changes": 2, "acks": 1},
}


@pytest.mark.hard
@pytest.mark.parametrize("name", WORLDS)
def test_every_history_keeps_every_promise(name: str) -> None:
    broken, way, seen = search(SearchScope(**WORLDS[name]))
    assert (broken, way) == ("", [])
    assert seen > 1_000
