"""Whom a leader asks into the set and out of it, and whether it writes at all."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from actors.cluster.leader_state import (
    ATTACHES_US,
    FollowerProgress,
    Followers,
    LeaderState,
    recent_isr_followers,
    wanted,
)
from protocol.agreement import InSyncReplicas

BEHIND: Final = 2_000_000
NOW: Final = 100_000_000
ALL: Final = frozenset("abcd")


def leads(*members: str, acks: int = 1, held: dict[str, int] | None = None) -> LeaderState:
    found = LeaderState(
        "a", 9, acks, InSyncReplicas(9, frozenset(members), 4), own=10, synced=20, released=20
    )
    return replace(found, held=tuple(sorted((held or {}).items())))


def on_report(**ago: int) -> Followers:
    """Followers that hold everything, and were heard so long ago."""
    return Followers({node: FollowerProgress(20, 20, NOW - us) for node, us in ago.items()})


def test_all_who_are_silent_go_together_where_none_may_go_alone() -> None:
    """The policy that lets them go is known to nobody but who leads."""
    leading = replace(leads("a", "b", "c", acks=0), acks_before=2, amended=21, synced=21)
    assert wanted(leading, on_report(b=BEHIND + 1, c=BEHIND + 1), ALL, NOW, BEHIND) == frozenset(
        "a"
    )
    assert wanted(leading, on_report(b=0, c=BEHIND + 1), ALL, NOW, BEHIND) is None, (
        "b is to hear of it"
    )
    known = replace(leading, held=(("b", 21),))
    assert wanted(known, on_report(b=0, c=BEHIND + 1), ALL, NOW, BEHIND) == frozenset("ab")


def test_who_is_silent_goes_out_while_enough_stay() -> None:
    leading = leads("a", "b", "c")
    silent = on_report(b=0, c=BEHIND + 1)
    assert wanted(leading, silent, ALL, NOW, BEHIND) == frozenset("ab")
    assert wanted(leads("a", "b", "c", acks=2), silent, ALL, NOW, BEHIND) is None
    assert wanted(leading, on_report(b=0, c=BEHIND), ALL, NOW, BEHIND) is None


def test_who_holds_everything_comes_in() -> None:
    followers = on_report(b=0, c=0)
    assert wanted(leads("a", "b", held={"c": 20}), followers, ALL, NOW, BEHIND) == frozenset("abc")
    assert wanted(leads("a", "b", held={"c": 19}), followers, ALL, NOW, BEHIND) is None


def test_who_is_not_attached_does_not() -> None:
    followers = on_report(b=0, c=0).left("c")
    assert wanted(leads("a", "b", held={"c": 20}), followers, ALL, NOW, BEHIND) is None


def test_of_who_has_gone_only_what_is_released_counts() -> None:
    """It may come back on an older copy, without what it had acknowledged."""
    leading = replace(leads("a", "b", "c", held={"b": 22, "c": 21}), synced=22)
    assert leading.releasable == 21
    gone = leading.left("b").on_report("c", 22)
    assert gone.releasable == 20, "nothing more is released on the word of who has gone"
    assert gone.attached("b", 21).releasable == 21
    assert gone.attached("b", 19).has_gone_back("b")
    assert leading.left("d") == leading


def test_who_has_no_row_is_no_member() -> None:
    followers = on_report(b=0, c=0)
    assert wanted(leads("a", "b", "c"), followers, frozenset("ab"), NOW, BEHIND) == frozenset("ab")
    rows = frozenset("ab")
    assert wanted(leads("a", "b", held={"c": 20}), followers, rows, NOW, BEHIND) is None


def test_a_new_leader_gives_the_others_time() -> None:
    leading = leads("a", "b", "c", acks=0)
    begun = Followers.begun(frozenset("bc"), NOW, {}, BEHIND)
    assert wanted(leading, begun, ALL, NOW + BEHIND, BEHIND) is None
    assert wanted(leading, begun, ALL, NOW + BEHIND + 1, BEHIND) == frozenset("ac")


def test_a_new_leader_has_waited_for_who_led_before() -> None:
    """It gets the time that it takes to attach, and no more."""
    leading = leads("a", "b", "c")

    def asks(heard_us: int, after_us: int, behind_us: int = BEHIND) -> frozenset[str] | None:
        followed = {"c": heard_us, "d": NOW}
        begun = Followers.begun(frozenset("bc"), NOW, followed, behind_us)
        assert begun.by_node.keys() == {"b", "c"}  # nobody else is a follower yet
        begun = begun.on_report("b", 20, 20, NOW + after_us)
        return wanted(leading, begun, ALL, NOW + after_us, behind_us)

    assert asks(NOW - 9 * BEHIND, ATTACHES_US) is None
    assert asks(NOW - 9 * BEHIND, ATTACHES_US + 1) == frozenset("ab")
    assert asks(NOW - 1, BEHIND - 1) is None  # it was heard just now
    assert asks(NOW - 1, BEHIND) == frozenset("ab")
    assert asks(NOW - 9 * BEHIND, 100_000, behind_us=100_000) is None  # as much as any other


def test_nothing_is_written_for_followers_that_nobody_hears() -> None:
    leading = leads("a", "b", "c")
    assert recent_isr_followers(leading, on_report(b=0, c=BEHIND), NOW, BEHIND) == 2
    assert recent_isr_followers(leading, on_report(b=BEHIND + 1, c=BEHIND + 1), NOW, BEHIND) == 0
    assert recent_isr_followers(leading, on_report(d=0), NOW, BEHIND) == 0  # it is not waited for


def test_how_far_behind() -> None:
    followers = on_report(b=0).on_report("c", 14, 12, NOW)
    assert followers.furthest_lag(20) == 6
    assert followers.left("c").furthest_lag(20) == 0
    assert Followers().furthest_lag(20) is None
    assert followers.held_by(frozenset("bc"), 30) == 14
    assert followers.held_by(frozenset("bd"), 30) == 0
    assert followers.shown_by(frozenset("bc"), 12)
    assert not followers.shown_by(frozenset("bc"), 13)


@given(
    st.frozensets(st.sampled_from("bcd")),
    st.dictionaries(st.sampled_from("bcd"), st.integers(15, 20)),
    st.dictionaries(st.sampled_from("bcd"), st.integers(0, 2 * BEHIND)),
    st.integers(0, 2),
    st.frozensets(st.sampled_from("abcd")),
)
def test_what_is_wanted_may_be_asked_for(
    members: frozenset[str], held: dict[str, int], ago: dict[str, int], acks: int,
    trusted: frozenset[str],
) -> None:  # fmt: skip
    """So the search over all histories (`test_every_history.py`) has tried it."""
    leading = leads("a", *members, acks=acks, held=held)
    found = wanted(leading, on_report(**ago), trusted, NOW, BEHIND)
    assert found is None or found in set(leading.changes())
