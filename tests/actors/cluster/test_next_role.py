"""What a node does that does not lead, by what is agreed and what it remembers."""

from __future__ import annotations

from typing import Any, Final

import pytest

from actors.cluster.election import (
    ClaimLead,
    FollowLeader,
    NextRole,
    StayWaiting,
    decide_role,
    distrust_reason,
    epoch_distrust_reason,
    was_ordered_since,
    was_set_back,
)
from actors.cluster.log_matching import frame_at, holds
from protocol.agreement import (
    AgreedState,
    InSyncReplicas,
    LeaderEntry,
    ReleasedFrame,
    ReleaseReport,
)
from storage.files.cluster_file import ClusterState
from storage.formats.positions import EpochEnd

KNOWN: Final = ClusterState("etcd", 20, promised=7)
SET: Final = InSyncReplicas(7, frozenset({"a", "b"}), 15)
VACANT: Final = AgreedState("etcd", 21, None, SET)
LOG: Final = (EpochEnd(3, 10, b""), EpochEnd(7, 30, b""))


def decided(
    agreed: AgreedState = VACANT, known: ClusterState = KNOWN, node: str = "a", **said: Any
) -> NextRole:
    return decide_role(
        known, agreed, node, **{"log": LOG, "coordinates": True, "asked": True, **said}
    )


def test_a_member_takes_a_vacant_lead() -> None:
    assert decided() == ClaimLead(SET)
    assert decided(node="b") == ClaimLead(SET)


def test_somebody_who_leads_is_followed() -> None:
    led = VACANT._replace(lead=LeaderEntry("b", 16))
    assert decided(led) == FollowLeader(LeaderEntry("b", 16))
    assert decided(led, node="c", coordinates=False, asked=False) == FollowLeader(
        LeaderEntry("b", 16)
    )


@pytest.mark.parametrize(
    ("why", "decision"),
    [
        ("may lack commits", decided(node="c")),
        ("not declared coordinating", decided(coordinates=False)),
        ("needs an order to lead", decided(asked=False)),
        ("led before", decided(VACANT._replace(lead=LeaderEntry("a", 16)))),
        (
            "not named the in-sync replicas yet",
            decided(VACANT._replace(insync=None), ClusterState()),
        ),
    ],
)
def test_who_may_not_waits(why: str, decision: NextRole) -> None:
    assert isinstance(decision, StayWaiting) and not decision.distrust_reason
    assert why in decision.why


@pytest.mark.parametrize(
    ("why", "agreed"),
    [
        ("another etcd cluster", VACANT._replace(cluster="other")),
        ("set back", VACANT._replace(revision=19)),
        ("emptied", VACANT._replace(insync=None)),
        ("had ended before", VACANT._replace(lead=LeaderEntry("b", 6))),
    ],
)
def test_an_agreement_that_can_not_be_believed_lets_nobody_lead(
    why: str, agreed: AgreedState
) -> None:
    decision = decided(agreed)
    assert isinstance(decision, StayWaiting) and decision.distrust_reason
    assert why in decision.why


def test_what_was_heard_is_no_reason_to_doubt() -> None:
    assert distrust_reason(KNOWN, VACANT._replace(revision=20)) is None
    assert distrust_reason(ClusterState(), VACANT) is None


@pytest.mark.parametrize(("ended", "epoch", "fine"), [(7, 8, True), (8, 8, False), (3, 7, False)])
def test_an_epoch_is_above_all_that_were(ended: int, epoch: int, fine: bool) -> None:
    assert (epoch_distrust_reason(KNOWN, ended, epoch) is None) is fine


def test_what_was_set_back_is_doubted_until_somebody_is_named() -> None:
    back = VACANT._replace(revision=KNOWN.revision - 1)
    assert was_set_back(KNOWN, back) and was_set_back(KNOWN, VACANT._replace(insync=None))
    assert not was_set_back(KNOWN, VACANT._replace(cluster="another"))
    doubting = KNOWN._replace(doubts=True)
    grown = VACANT._replace(revision=KNOWN.revision + 100)
    assert distrust_reason(KNOWN, grown) is None and "set back" in str(
        distrust_reason(doubting, grown)
    )


@pytest.mark.parametrize(("lineage", "is_later"), [(0, False), (7, False), (20, False), (21, True)])
def test_an_order_counts_that_is_later_than_all_that_was_heard(
    lineage: int, is_later: bool
) -> None:
    assert was_ordered_since(KNOWN, VACANT._replace(lineage=lineage)) is is_later


@pytest.mark.parametrize(
    ("promised", "is_later"), [(20, True), (21, True), (30, True), (40, True), (41, False)]
)
def test_what_was_promised_to_who_was_named_is_nothing_later(promised: int, is_later: bool) -> None:
    known = KNOWN._replace(promised=promised)
    agreed = VACANT._replace(cluster="another", revision=40, lineage=30)
    assert was_ordered_since(known, agreed) is is_later
    assert not was_ordered_since(known, agreed._replace(lineage=20))


def told(epoch: int, sequence: int) -> AgreedState:
    return VACANT._replace(told=ReleaseReport(ReleasedFrame(epoch, sequence), 18))


@pytest.mark.parametrize(("epoch", "sequence"), [(7, 30), (7, 11), (3, 10), (3, 1)])
def test_who_holds_what_was_told_takes_the_lead(epoch: int, sequence: int) -> None:
    assert decided(told(epoch, sequence)) == ClaimLead(SET)


@pytest.mark.parametrize(("epoch", "sequence"), [(7, 31), (8, 31), (5, 10), (3, 11)])
def test_who_lacks_what_was_told_does_not(epoch: int, sequence: int) -> None:
    decision = decided(told(epoch, sequence))
    assert isinstance(decision, StayWaiting) and decision.lacks
    assert f"frame {sequence} of epoch {epoch} was released, but its log ends at 30" in decision.why


def test_an_empty_log_lacks_whatever_was_told() -> None:
    decision = decided(told(1, 1), log=())
    assert isinstance(decision, StayWaiting) and "ends at 0" in decision.why
    assert decided(log=()) == ClaimLead(SET)


def test_a_new_lineage_ends_what_was_told_before_it() -> None:
    assert decided(told(7, 31)._replace(lineage=19)) == ClaimLead(SET)
    decision = decided(told(7, 31)._replace(lineage=17))
    assert isinstance(decision, StayWaiting) and decision.lacks


def test_a_frame_is_told_by_its_epoch() -> None:
    found = {at: frame_at(LOG, at) for at in (0, 1, 10, 11, 30, 31)}
    assert found == {
        0: None, 1: ReleasedFrame(3, 1), 10: ReleasedFrame(3, 10),
        11: ReleasedFrame(7, 11), 30: ReleasedFrame(7, 30), 31: None,
    }  # fmt: skip
    assert all(one is None or holds(LOG, one) for one in found.values())
