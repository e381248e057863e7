"""What a node does that does not lead, by what is agreed and what it remembers."""

from __future__ import annotations

from typing import Any, Final

import pytest

from actors.cluster.courses import (
    Course,
    Follow,
    Take,
    Wait,
    course,
    doubt,
    doubt_of_epoch,
    was_ordered_since,
    was_set_back,
)
from protocol.agreement import Agreed, InSync, Lead
from storage.cluster_file import Cluster

KNOWN: Final = Cluster("etcd", 20, promised=7)
SET: Final = InSync(7, frozenset({"a", "b"}), 15)
VACANT: Final = Agreed("etcd", 21, None, SET)


def decided(
    agreed: Agreed = VACANT, known: Cluster = KNOWN, node: str = "a", **said: Any
) -> Course:
    return course(known, agreed, node, **{"coordinates": True, "asked": True, **said})


def test_a_member_takes_a_vacant_lead() -> None:
    assert decided() == Take(SET)
    assert decided(node="b") == Take(SET)


def test_somebody_who_leads_is_followed() -> None:
    led = VACANT._replace(lead=Lead("b", 16))
    assert decided(led) == Follow(Lead("b", 16))
    assert decided(led, node="c", coordinates=False, asked=False) == Follow(Lead("b", 16))


@pytest.mark.parametrize(
    ("why", "decision"),
    [
        ("may not hold everything", decided(node="c")),
        ("never declared coordinating", decided(coordinates=False)),
        ("when it is told to", decided(asked=False)),
        ("led before", decided(VACANT._replace(lead=Lead("a", 16)))),
        ("not said yet", decided(VACANT._replace(insync=None), Cluster())),
    ],
)
def test_who_may_not_waits(why: str, decision: Course) -> None:
    assert isinstance(decision, Wait) and not decision.doubt
    assert why in decision.why


@pytest.mark.parametrize(
    ("why", "agreed"),
    [
        ("another one", VACANT._replace(cluster="other")),
        ("set back", VACANT._replace(revision=19)),
        ("emptied", VACANT._replace(insync=None)),
        ("over already", VACANT._replace(lead=Lead("b", 6))),
    ],
)
def test_an_agreement_that_can_not_be_believed_lets_nobody_lead(why: str, agreed: Agreed) -> None:
    decision = decided(agreed)
    assert isinstance(decision, Wait) and decision.doubt
    assert why in decision.why


def test_what_was_heard_is_no_reason_to_doubt() -> None:
    assert doubt(KNOWN, VACANT._replace(revision=20)) is None
    assert doubt(Cluster(), VACANT) is None


@pytest.mark.parametrize(("ended", "epoch", "fine"), [(7, 8, True), (8, 8, False), (3, 7, False)])
def test_an_epoch_is_above_all_that_were(ended: int, epoch: int, fine: bool) -> None:
    assert (doubt_of_epoch(KNOWN, ended, epoch) is None) is fine


def test_what_was_set_back_is_doubted_until_somebody_is_named() -> None:
    back = VACANT._replace(revision=KNOWN.revision - 1)
    assert was_set_back(KNOWN, back) and was_set_back(KNOWN, VACANT._replace(insync=None))
    assert not was_set_back(KNOWN, VACANT._replace(cluster="another"))
    doubting = KNOWN._replace(doubts=True)
    grown = VACANT._replace(revision=KNOWN.revision + 100)
    assert doubt(KNOWN, grown) is None and "set back" in str(doubt(doubting, grown))


@pytest.mark.parametrize(("lineage", "is_later"), [(0, False), (7, False), (20, False), (21, True)])
def test_an_order_counts_that_is_later_than_all_that_was_heard(
    lineage: int, is_later: bool
) -> None:
    assert was_ordered_since(KNOWN, VACANT._replace(lineage=lineage)) is is_later
