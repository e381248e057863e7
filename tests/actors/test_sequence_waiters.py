"""Who waits for sequences: each is woken once, as soon as it is shown, and not before."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from actors.commits.sequence_waiters import SequenceWaiter, SequenceWaiters


def failing(error: BaseException) -> None:
    raise error


def compared(seed: int) -> None:
    """Arrivals, beside a list that is looked through each time."""
    rng, sequence_waiters = Random(seed), SequenceWaiters(failing)
    shown, woken = 0, list[int]()
    waits: dict[int, tuple[int, SequenceWaiter]] = {}

    def wake(number: int) -> Callable[[], None]:
        return lambda: woken.append(number)

    for number in range(200):
        if rng.random() < 0.6:
            sequence = shown + rng.randint(1, 9)
            waits[number] = (sequence, sequence_waiters.expect(sequence, wake(number)))
        elif waits and rng.random() < 0.5:
            sequence_waiters.leave(waits.pop(rng.choice(list(waits)))[1])
        else:
            shown += rng.randint(0, 3)
            due = {one for one, (sequence, _) in waits.items() if sequence <= shown}
            woken.clear()
            sequence_waiters.wake_upto(shown)
            assert sorted(woken) == sorted(due)
            for one in due:
                sequence_waiters.leave(waits.pop(one)[1])
        assert len(sequence_waiters) == len(waits)


@pytest.mark.parametrize("seed", range(20))
def test_at_random(seed: int) -> None:
    compared(seed)


def _too_early(patch: pytest.MonkeyPatch) -> None:
    wake_upto = SequenceWaiters.wake_upto
    patch.setattr(SequenceWaiters, "wake_upto", lambda self, upto: wake_upto(self, upto + 1))


def _nearest_alone(patch: pytest.MonkeyPatch) -> None:
    def wake_upto(self: Any, upto: int) -> None:
        if self._order and self._order[0].sequence <= upto:
            self._wakes.pop(self._order.pop(0))()

    patch.setattr(SequenceWaiters, "wake_upto", wake_upto)


def _left_behind(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SequenceWaiters, "leave", lambda self, arrival: None)


@pytest.mark.parametrize("planted", [_too_early, _nearest_alone, _left_behind])
def test_planted_ones_are_caught(
    planted: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    planted(monkeypatch)
    with pytest.raises(AssertionError):
        for seed in range(20):
            compared(seed)


def test_who_fails_keeps_nobody_else_waiting() -> None:
    heard, woken = list[BaseException](), list[int]()
    sequence_waiters = SequenceWaiters(heard.append)
    sequence_waiters.expect(1, lambda: failing(RuntimeError("a bug")))
    sequence_waiters.expect(1, lambda: woken.append(1))
    sequence_waiters.wake_upto(1)
    assert woken == [1] and [str(error) for error in heard] == ["a bug"]
    assert not len(sequence_waiters)
