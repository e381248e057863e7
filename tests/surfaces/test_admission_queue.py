"""What is judged a little later."""

from __future__ import annotations

import asyncio
import math

from surfaces.admission_queue import TURNS, AdmissionQueue


class Room:
    """A surface with so much room."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.judged: list[tuple[int, bool]] = []
        self.later = AdmissionQueue(asyncio.get_running_loop(), lambda: not self.room)
        self.later.turn_seconds = math.inf

    def ask(self, name: int) -> None:
        """Put one off; when it is judged it takes its room, if there is any."""

        def judge() -> None:
            self.judged.append((name, self.room > 0))
            if self.room:
                self.room -= 1

        self.later.judge(judge)


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_first_come_first_judged_as_soon_as_there_is_room() -> None:
    here = Room(0)
    for name in range(5):
        here.ask(name)
    await turns(3)
    assert here.judged == []
    here.room = 2
    await turns(2)
    assert here.judged == [(0, True), (1, True)]
    here.room = 3
    await turns(2)
    assert here.judged[2:] == [(2, True), (3, True), (4, True)]


async def test_a_turn_of_the_loop_is_not_filled_with_them() -> None:
    here = Room(2)
    here.later.turn_seconds = 0.0
    here.ask(0)
    here.ask(1)
    await turns(1)
    assert here.judged == [(0, True)]
    await turns(1)
    assert here.judged == [(0, True), (1, True)]


async def test_when_the_time_is_over_it_is_judged_without_room() -> None:
    here = Room(0)
    here.ask(1)
    await turns(TURNS // 2)
    here.ask(2)
    await turns(TURNS // 2 + 2)
    assert here.judged == [(1, False)]
    await turns(TURNS // 2)
    assert here.judged == [(1, False), (2, False)]


async def test_one_that_is_put_off_while_another_is_judged() -> None:
    here = Room(0)
    again: list[int] = []

    def judge() -> None:
        again.append(1)
        if len(again) < 3:
            here.later.judge(judge)

    here.later.judge(judge)
    here.room = 1
    await turns(10)
    assert len(again) == 3
    assert not here.later._put_off and not here.later._scheduled
