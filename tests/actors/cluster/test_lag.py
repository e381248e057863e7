"""Values that say how a follower does: what is on its way to it, and whether it is late."""

from __future__ import annotations

from actors.cluster.log_matching import BATCH_BYTES, LATE_US, Lag, Window


def test_a_follower_is_late_until_it_has_what_was_released_when_it_came() -> None:
    follower = Lag(end=10, synced=4)
    assert follower.is_late(0)
    follower.ends(20, 4, 0)
    follower.synced(9)
    assert follower.is_late(0)
    follower.synced(10)
    assert not follower.is_late(0)
    assert not Lag(end=10, synced=10).is_late(0)


def test_what_is_on_its_way_makes_nobody_late() -> None:
    follower = Lag(end=0, synced=0)
    for sequence in range(1, 10_000):
        now_us = sequence * 1_000
        follower.ends(sequence, sequence - 1, now_us)
        assert not follower.is_late(now_us + 900)
        follower.synced(sequence)


def test_what_lacks_for_a_second_does() -> None:
    follower = Lag(end=5, synced=5)
    follower.ends(9, 5, 1_000)
    follower.ends(20, 7, 500_000)
    assert not follower.is_late(1_000 + LATE_US)
    assert follower.is_late(1_001 + LATE_US)
    follower.synced(8)
    assert follower.is_late(1_001 + LATE_US)
    follower.synced(9)
    assert not follower.is_late(1_001 + LATE_US)


def test_a_window_is_open_until_as_much_is_on_its_way() -> None:
    window, batch = Window(500), 60 + BATCH_BYTES
    window.sent(3, 60, 10)
    assert window.is_open
    window.sent(9, 60, 20)
    assert (window.is_open, window.bytes) == (False, 2 * batch)
    window.acknowledged(2)
    assert window.bytes == 2 * batch, "half a batch is none"
    window.acknowledged(3)
    assert (window.is_open, window.bytes) == (True, batch)
    window.acknowledged(9)
    assert window.bytes == 0


def test_who_owes_is_told_from_who_has_answered() -> None:
    window, owed = Window(100), list[int | None]()
    owed.append(window.owed_since_us)
    window.asked(5)
    window.asked(7)
    window.sent(3, 60, 10)
    owed.append(window.owed_since_us)
    window.acknowledged(2)  # it lives, and its disk takes nothing
    owed.append(window.owed_since_us)
    window.acknowledged(3)
    owed.append(window.owed_since_us)
    assert owed == [None, 5, 10, None]
