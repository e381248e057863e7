"""The checker of R13: a history that is well is accepted, and each planted bad one rejected."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

import pytest

from tests.reliability.totals import (
    DeadLetter,
    HandOut,
    History,
    Kept,
    Publish,
    Settle,
    Take,
    certainly_held,
    violations,
)

DEADLINE = 10.0


def good() -> History:
    """Seven messages: acknowledged at once, after a NACK, after a lapse, after an answer that never
    came; given up; handed out as often as may be; published twice under one id."""
    history = History(in_flight=3, deliveries=2, backoff=(1.0, 2.0))
    history.publishes = [
        Publish(("a", "b", "c"), 0.0, 0.1, 1), Publish(("d",), 0.2, id="one"),
        Publish(("d",), 0.3, 0.4, 4, duplicate=True, id="one"), Publish(("e", "f"), 0.3, 0.5, 5),
        Publish(("x", "y"), 0.6, refused="TooLarge"), Publish(("g",), 0.7), Publish(("z",), 0.7),
    ]  # fmt: skip
    history.kept = [Kept(n, 0.1 * n, mark) for n, mark in enumerate("abcdefg", 1)]

    def out(position: int, attempt: int, at: float) -> HandOut:
        return HandOut(position, attempt, "abcdefg"[position - 1], at + DEADLINE)

    history.takes = [
        Take(3, 1.0, 1.1, (out(1, 1, 1.0), out(2, 1, 1.0), out(3, 1, 1.0))),
        Take(2, 3.0, 3.1, (out(2, 2, 3.05), out(4, 1, 3.05))),
        Take(1, 11.5, 12.2, (out(3, 2, 12.1),)),
        Take(1, 13.0),  # 5, attempt 1
        Take(2, 30.0, 30.1, (out(5, 2, 30.0), out(6, 1, 30.0))),
        Take(1, 31.0, 31.1, (out(7, 1, 31.0),)),
        Take(1, 50.0, 50.1, (out(7, 2, 50.0),)),
        Take(5, 70.0, 70.1, ()),
    ]
    history.settles = [
        Settle("ack", ((1, 1),), 1.2, 1.3, 1), Settle("nack", ((2, 1),), 1.3, 1.4, 1),
        Settle("ack", ((2, 2), (4, 1)), 3.2, 3.3, 2), Settle("ack", ((3, 1),), 12.3, 12.4, 0),
        Settle("ack", ((3, 2),), 12.4), Settle("extend", ((5, 2),), 31.0, 31.1, 1, seconds=5.0),
        Settle("ack", ((5, 2),), 32.0, 32.1, 1), Settle("give up", ((6, 1),), 32.0, 32.1, 1),
    ]  # fmt: skip
    history.seen_in_flight = [0, 3, 2]
    history.dead = [DeadLetter("f", 6, 1), DeadLetter("g", 7, 2)]
    history.figures = {
        "in_flight": 0, "handed_out": 7, "committed": 7, "lag": 0, "width": 0,
        "pending": 0, "waiting": 0,
        "dead_lettered": 2, "redelivered": 4,
    }  # fmt: skip
    return history


def test_a_good_history_is_accepted() -> None:
    assert violations(good()) == []
    assert certainly_held(good()) == 3


def _lose(history: History) -> None:
    del history.kept[5:]
    del history.dead[:]


def _lose_the_last(history: History) -> None:
    history.kept[3:] = [Kept(4, 0.4, "e"), Kept(5, 0.5, "f"), Kept(6, 0.6, "g")]


def _twice(history: History) -> None:
    history.kept.append(Kept(8, 0.9, "g"))


def _position_twice(history: History) -> None:
    history.kept[2] = Kept(2, 0.2, "c")


def _ghost(history: History) -> None:
    history.kept.append(Kept(8, 0.9, "never sent"))


def _refused(history: History) -> None:
    history.kept.append(Kept(8, 0.9, "x"))


def _half(history: History) -> None:
    history.publishes[3] = Publish(("e", "v", "f"), 0.3)


def _not_deduplicated(history: History) -> None:
    history.publishes[1] = replace(history.publishes[1], first=4, ended=0.25)
    history.publishes[2] = replace(history.publishes[2], duplicate=False)


def _time_falls(history: History) -> None:
    history.kept[4] = replace(history.kept[4], at=0.3)


def _overrun(history: History) -> None:
    fourth = HandOut(4, 1, "d", 11.0)
    history.takes[0] = replace(history.takes[0], asked=4, found=(*_found(history, 0), fourth))
    history.takes[1] = replace(history.takes[1], found=_found(history, 1)[:1])


def _overrun_by_info(history: History) -> None:
    history.seen_in_flight.append(4)


def _after_ack(history: History) -> None:
    history.takes[-1] = replace(history.takes[-1], found=(HandOut(1, 2, "a", 80.0),))
    history.figures["redelivered"] += 1


def _early(history: History) -> None:
    history.takes[2] = replace(history.takes[2], ended=11.9)


def _early_after_nack(history: History) -> None:
    history.takes[1] = replace(history.takes[1], began=2.0, ended=2.2)


def _wrong_attempt(history: History) -> None:
    found = _found(history, 1)
    history.takes[1] = replace(history.takes[1], found=(replace(found[0], attempt=1), found[1]))


def _attempt_left_out(history: History) -> None:
    history.takes[3] = replace(history.takes[3], ended=13.1, found=())


def _more_attempts(history: History) -> None:
    history.takes[-1] = replace(history.takes[-1], found=(HandOut(7, 3, "g", 80.0),))


def _never_again(history: History) -> None:
    del history.takes[2]
    history.settles[4:5] = []


def _dead_twice(history: History) -> None:
    history.dead.append(DeadLetter("f", 6, 1))


def _dead_and_acknowledged(history: History) -> None:
    history.dead.append(DeadLetter("b", 2, 2))


def _given_up_and_gone(history: History) -> None:
    del history.dead[0]


def _dead_with_other_attempts(history: History) -> None:
    history.dead[1] = DeadLetter("g", 7, 1)


def _dead_too_soon(history: History) -> None:
    history.settles[-1] = replace(history.settles[-1], kind="nack")


def _redelivered_miscounted(history: History) -> None:
    history.figures["redelivered"] = 3


def _never_committed(history: History) -> None:
    history.figures["committed"] = 6


def _found(history: History, number: int) -> tuple[HandOut, ...]:
    found = history.takes[number].found
    assert found is not None
    return found


PLANTED: dict[Callable[[History], None], str] = {
    _lose: "lost: ('e', 'f')", _lose_the_last: "lost: ('d',)", _twice: "g is there 2 times",
    _position_twice: "not dense", _ghost: "ghost", _refused: "ghost: x", _half: "half of a publish",
    _not_deduplicated: "published 2 times anew", _time_falls: "time of messages falls",
    _overrun: "held them: 4", _overrun_by_info: "by INFO: 4",
    _after_ack: "1 was acknowledged at attempt 1 and came again", _early: "attempt 2 of 3 came",
    _early_after_nack: "attempt 2 of 2 came", _wrong_attempt: "attempt 1 of 2 was handed out twice",
    _attempt_left_out: "attempt 2 of 5 without attempt 1", _more_attempts: "attempt 3 of 7",
    _never_again: "lost: 3 was neither", _dead_twice: "6 is 2 dead letters",
    _dead_and_acknowledged: "2 was acknowledged and is a dead letter",
    _given_up_and_gone: "6 was given up and is no dead letter",
    _dead_with_other_attempts: "dead letter of 7 with 1 attempts: 2 were",
    _dead_too_soon: "nobody gave it up", _redelivered_miscounted: "redelivered is 3",
    _never_committed: "committed is 6",
}  # fmt: skip


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__.strip("_"))
def test_a_planted_bad_history_is_rejected(plant: Callable[[History], None]) -> None:
    history = deepcopy(good())
    plant(history)
    found = violations(history)
    assert any(PLANTED[plant] in one for one in found), found
