"""Who may make a surface hold more."""

from __future__ import annotations

import random

from protocol.shares import fits
from surfaces.memory_quota import MemoryQuota


def filled(here: MemoryQuota, user: str, size: int = 1) -> int:
    """What a user gets that takes all it can."""
    while here.take(user, size):
        pass
    return here.of(user)


def test_each_leaves_room_for_the_next() -> None:
    here = MemoryQuota(1200)
    assert [filled(here, user) for user in "abcd"] == [600, 300, 150, 75]
    assert here.total == 1125


def test_what_one_alone_may_have_is_kept_from_none_and_the_rest_is_shared_out() -> None:
    held = dict.fromkeys("abcde", 0)
    for user in held:
        while fits(held[user], 1, sum(held.values()), 400, 64):
            held[user] += 1
    assert list(held.values()) == [400, 55, 7, 1, 1]


def test_who_holds_nothing_may_take_the_last_and_not_more() -> None:
    here = MemoryQuota(100)
    assert filled(here, "a", 10) == 50
    assert here.take("b", 50)
    assert not here.take("c", 1)
    here.give_back_bytes("b", 50)
    assert here.total == 50 and here.of("b") == 0
    assert not here.take("c", 51)


def test_the_ceiling_holds_whatever_is_taken_and_given() -> None:
    rng, here = random.Random(9), MemoryQuota(1000)
    held: list[tuple[str, int]] = []
    for _ in range(5000):
        if held and rng.random() < 0.4:
            here.give_back_bytes(*held.pop(rng.randrange(len(held))))
        else:
            piece = rng.choice("abcdef"), rng.randint(1, 300)
            if here.take(*piece):
                held.append(piece)
        assert here.total == sum(size for _, size in held) <= here.most
