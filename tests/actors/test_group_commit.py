"""Commits are gathered into batches, and nobody waits for others who do not come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from actors.commits.group_commit import GATHER_US, GroupCommit
from protocol import limits
from protocol.errors import Busy
from storage.formats.frames import Frame
from tests.actors.parts import Failures, play


def frame(sequence: int) -> Frame:
    return Frame(sequence, 1, 0, 0, b"")


class Clock:
    """Time that stands until it is moved."""

    now_us = 1

    def wall_us(self) -> int:
        return self.now_us

    def monotonic_us(self) -> int:
        return self.now_us

    def boottime_us(self) -> int:
        return self.now_us


class Held:
    """Batches on a loop, and what they have sent."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.sent: list[list[int]] = []
        self.batches = GroupCommit(
            Failures().runtime("stepped", self.clock),
            lambda frames: self.sent.append([frame.sequence for frame in frames]),
        )

    def add(self, *sequences: int) -> None:
        for sequence in sequences:
            self.batches.add(frame(sequence))


async def turns(count: int = 1) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def with_batches(test: Callable[[Held], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        await test(Held())

    play("stepped", main)


def test_a_commit_that_is_alone_goes_in_the_next_turn() -> None:
    async def main(held: Held) -> None:
        held.add(1)
        assert held.sent == [], "others of the same turn may follow"
        await turns()
        assert held.sent == [[1]]
        held.batches.returned()
        held.add(2)
        await turns()
        assert held.sent == [[1], [2]]

    with_batches(main)


def test_few_go_at_the_end_of_a_turn_in_which_nobody_else_has_anything_to_do() -> None:
    async def main(held: Held) -> None:
        held.add(1, 2)
        held.batches.on_turn_end()
        assert held.sent == [[1, 2]]
        held.add(3)
        held.batches.on_turn_end()
        await turns(3)
        assert held.sent == [[1, 2]], "one is out"
        held.batches.returned()
        held.batches.on_turn_end()
        assert held.sent == [[1, 2], [3]]
        held.batches.returned()
        await turns(3)
        held.batches.on_turn_end()
        assert len(held.sent) == 2, "nothing is sent twice"

    with_batches(main)


def test_who_may_commit_yet_in_a_turn_is_waited_for() -> None:
    async def main(held: Held) -> None:
        asyncio.get_running_loop().call_soon(held.add, 2)
        held.add(1)
        held.batches.on_turn_end()
        assert held.sent == [], "another is to be called in this turn"
        await turns(3)
        assert held.sent == [[1, 2]]

    with_batches(main)


def test_what_comes_while_a_batch_is_out_makes_up_the_next() -> None:
    async def main(held: Held) -> None:
        held.add(1)
        await turns()
        for sequence in range(2, 9):
            held.add(sequence)
            await turns(2)
        assert held.sent == [[1]]
        held.batches.returned()
        await turns(2)
        assert held.sent == [[1], [2, 3, 4, 5, 6, 7, 8]]
        held.batches.returned()
        await turns(9)
        assert len(held.sent) == 2

    with_batches(main)


def test_a_batch_waits_for_more_while_each_turn_brings_some_but_not_for_long() -> None:
    async def main(held: Held) -> None:
        held.add(1, 2)
        for sequence in range(3, 20):
            await turns()
            held.add(sequence)
        assert held.sent == []
        held.clock.now_us += GATHER_US
        await turns()
        assert held.sent == [list(range(1, 20))]
        held.batches.returned()
        held.add(20)
        await turns()
        assert len(held.sent) == 1, "the one before was large: others may follow this one"
        await turns()
        assert held.sent[1:] == [[20]], "none did"

    with_batches(main)


def test_what_is_withdrawn_is_not_sent() -> None:
    async def main(held: Held) -> None:
        held.add(1)
        await turns()
        held.add(2, 3)
        held.batches.roll_back()
        await turns(3)
        held.add(1)
        await turns()
        assert held.sent == [[1], [1]]

    with_batches(main)


def test_the_rest_is_sent_though_a_batch_is_out() -> None:
    async def main(held: Held) -> None:
        held.add(1)
        await turns()
        held.add(2)
        held.batches.send_all()
        held.batches.send_all()
        await turns(3)
        assert held.sent == [[1], [2]]

    with_batches(main)


def test_too_many_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAILBOX", 3)

    async def main(held: Held) -> None:
        held.add(1, 2, 3)
        with pytest.raises(Busy):
            held.add(4)
        await turns(2)
        assert held.sent == [[1, 2, 3]]
        held.add(4)

    with_batches(main)
