"""Every row of the table of rules at the head of `election.py`: one situation that it decides."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

import pytest

from actors.cluster import election
from actors.cluster.election import (
    RULES,
    ClaimAsFounder,
    ClaimByOrder,
    ClaimLead,
    FollowLeader,
    FollowUpstream,
    NextRole,
    NoteFounded,
    Situation,
    StayWaiting,
    TrustAgain,
    decide_role,
)
from protocol.agreement import (
    AgreedState,
    InSyncReplicas,
    LeaderEntry,
    ReleasedFrame,
    ReleaseReport,
)
from protocol.failover import Policy
from storage.files.cluster_file import BootstrapState, ClusterState, Upstream
from storage.formats.positions import EpochEnd

KNOWN: Final = ClusterState("etcd", 20, promised=7)
SET: Final = InSyncReplicas(7, frozenset({"a", "b"}), 15)
VACANT: Final = AgreedState("etcd", 21, None, SET)
EMPTY: Final = VACANT._replace(insync=None)
LED: Final = VACANT._replace(lead=LeaderEntry("b", 16))
SET_BACK: Final = VACANT._replace(revision=19)
POLICY: Final = Policy(("http://e",), timedelta(seconds=6), 1, timedelta(seconds=3), "AUTO")
FOUNDING: Final = BootstrapState(SET.members, POLICY, 1)
FOUNDS: Final = ClusterState(founding=FOUNDING)
UPSTREAM: Final = Upstream("b", ("b:1",), "")

CASES: Final[dict[str, tuple[type, dict[str, Any]]]] = {
    "4": (ClaimByOrder, {"forced": True, "agreed": SET_BACK}),
    "5": (TrustAgain, {"agreed": SET_BACK._replace(lineage=21)}),
    "6a": (StayWaiting, {"memory": FOUNDS, "agreed": EMPTY, "coordinates": False}),
    "6b": (StayWaiting, {"memory": FOUNDS._replace(doubts=True), "agreed": EMPTY}),
    "6c": (NoteFounded, {"memory": FOUNDS}),
    "6d": (
        StayWaiting,
        {"memory": FOUNDS, "agreed": EMPTY._replace(lead=LeaderEntry("b", 16))},
    ),
    "6e": (ClaimAsFounder, {"memory": FOUNDS, "agreed": EMPTY}),
    "7": (StayWaiting, {"agreed": SET_BACK}),
    "8": (FollowUpstream, {"memory": ClusterState(upstream=UPSTREAM), "agreed": EMPTY}),
    "9a": (StayWaiting, {"agreed": LED._replace(lead=LeaderEntry("b", 6))}),
    "9b": (FollowLeader, {"agreed": LED}),
    "10": (StayWaiting, {"node": "b", "agreed": LED}),
    "11a": (StayWaiting, {"node": "c"}),
    "11b": (
        StayWaiting,
        {"agreed": VACANT._replace(told=ReleaseReport(ReleasedFrame(7, 31), 18))},
    ),
    "12a": (StayWaiting, {"coordinates": False}),
    "12b": (StayWaiting, {"asked": False}),
    "12c": (StayWaiting, {"yields": lambda members: members == SET.members}),
    "13": (ClaimLead, {}),
}
"""For each rule a situation in which it is the first that fits, and what it decides."""


def situation(**other: Any) -> Situation:
    told: dict[str, Any] = {
        "memory": KNOWN, "agreed": VACANT, "node": "a", "log": (EpochEnd(7, 30, b""),),
        "coordinates": True, "asked": True, "forced": False, "yields": lambda _members: False,
        "name": str,
    }  # fmt: skip
    return Situation(**{**told, **other})


def decided(at: Situation, **more: Any) -> NextRole:
    return decide_role(
        at.memory, at.agreed, at.node, at.log, coordinates=at.coordinates, asked=at.asked,
        forced=at.forced, yields=at.yields, name=at.name, **more,
    )  # fmt: skip


def rows() -> list[list[str]]:
    """The table at the head of the file."""
    lines = str(election.__doc__).split("| rule |")[1].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_table_has_the_rules_in_their_order() -> None:
    assert [number for number, *_ in rows()] == ["1", "2", "3", *(rule.number for rule in RULES)]
    assert list(CASES) == [rule.number for rule in RULES]


@pytest.mark.parametrize("number", CASES)
def test_each_rule_decides_its_situation(number: str) -> None:
    expected, other = CASES[number]
    at = situation(**other)
    assert next(rule.number for rule in RULES if rule.decide(at) is not None) == number
    assert type(decided(at)) is expected


@pytest.mark.parametrize(("number", "_when", "says", "_source"), rows()[3:])
def test_each_row_says_what_its_rule_decides(
    number: str, _when: str, says: str, _source: str
) -> None:
    words = {
        StayWaiting: "WAIT", FollowLeader: "FOLLOW", FollowUpstream: "FOLLOW the upstream",
        ClaimLead: "CLAIM", ClaimByOrder: "CLAIM by order", ClaimAsFounder: "CLAIM as founder",
        NoteFounded: "note that the cluster is founded", TrustAgain: "trust it again",
    }  # fmt: skip
    found = decided(situation(**CASES[number][1]))
    assert says.startswith(words[type(found)])
    needs_operator = isinstance(found, StayWaiting) and found.distrust_reason
    assert says.endswith("for an operator") is needs_operator


@pytest.mark.parametrize("number", [number for number in CASES if number not in ("8", "13")])
def test_without_a_rule_its_situation_is_decided_otherwise(number: str) -> None:
    at = situation(**CASES[number][1])
    left = [rule for rule in RULES if rule.number != number]
    assert decided(at, rules=left) != decided(at)


@pytest.mark.parametrize("number", ["8", "13"])
def test_without_the_last_rule_or_an_isr_nothing_is_decided(number: str) -> None:
    left = [rule for rule in RULES if rule.number != number]
    with pytest.raises(StopIteration):
        decided(situation(**CASES[number][1]), rules=left)


def test_an_order_with_force_does_not_lead_an_undeclared_node() -> None:
    found = decided(situation(forced=True, coordinates=False))
    assert isinstance(found, StayWaiting) and "not declared coordinating" in found.why


def test_who_was_copied_waits_once_something_was_agreed() -> None:
    found = decided(situation(memory=KNOWN._replace(upstream=UPSTREAM), agreed=EMPTY))
    assert isinstance(found, StayWaiting) and "emptied" in found.why
