"""A cache keeps what was used last, within its bounds."""

from __future__ import annotations

from protocol.bounded_cache import BoundedCache


def test_what_was_used_longest_ago_makes_room() -> None:
    kept: BoundedCache[str] = BoundedCache(800)
    for number in range(50):
        kept.keep(number, str(number), 100)
        kept.get(0)
        assert kept.bytes == 100 * min(number + 1, 8)
    assert [number for number in range(50) if kept.get(number)] == [0, *range(43, 50)]


def test_a_value_is_counted_once_and_a_large_one_is_not_kept() -> None:
    kept: BoundedCache[str] = BoundedCache(800)
    for size in (10, 100, 60):
        kept.keep("a", "a", size)
    kept.keep("b", "b", 101)
    assert (kept.bytes, kept.get("a"), kept.get("b")) == (60, "a", None)


def test_values_are_bounded_in_number_too() -> None:
    kept: BoundedCache[int] = BoundedCache(most=3)
    for number in range(5):
        assert kept.keep(number, number)
        kept.get(0)
    assert (len(kept), [kept.get(number) for number in range(5)]) == (3, [0, None, None, 3, 4])
