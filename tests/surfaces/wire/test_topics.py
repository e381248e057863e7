"""Waiting over the wire, at its size: fair, free while idle, and out of the way of what runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from actors.environment import ready_calls
from actors.execution.scheduler import FiberScheduler
from protocol import limits
from protocol.frames import MessageKind, encode
from tests.actors.live import running_scripts
from tests.surfaces.wire.halls import PLACE, Hall, code, hall_of, value
from tests.surfaces.wire.peers import Peer, until

WAITERS = 500
"""More than may run at once."""
CONNECTIONS = 40


class WaitingHall(Hall):
    @property
    def waiting(self) -> int:
        return self.here.node.registry.waiting("wire")

    async def wait(self, peer: Peer, id: int, script: str) -> None:
        before = self.waiting
        peer.say(MessageKind.RUN, id, {"script": script, **PLACE})
        await until(lambda: self.waiting == before + 1)


@pytest.fixture
async def hall(tmp_path: Path) -> AsyncIterator[WaitingHall]:
    declared = "DEFINE TOPIC t; DEFINE GROUP g ON t DEADLINE 1h IN FLIGHT 100000"
    async with hall_of(WaitingHall, tmp_path / "store", declared) as hall:
        yield hall


@contextmanager
def turns() -> Iterator[Callable[[], int]]:
    """Counts how often the loop goes round."""
    loop: Any = asyncio.get_running_loop()
    count = 0
    select = loop._selector.select

    def counted(timeout: float | None = None) -> Any:
        nonlocal count
        count += 1
        return select(timeout)

    loop._selector.select = counted
    try:
        yield lambda: count
    finally:
        loop._selector.select = select


async def test_hundreds_that_wait(hall: WaitingHall, figure: Callable[[str, object], None]) -> None:
    """They cost nothing while nothing comes, leave all room to what runs, and are served in their
    order."""
    node = hall.here.node
    takers = [await hall.peer() for _ in range(CONNECTIONS)]
    with turns() as count:
        await asyncio.sleep(0.2)
        empty = count()
    for number in range(WAITERS):
        peer = takers[number % CONNECTIONS]
        await hall.wait(peer, number + 1, f"TAKE FROM t AS g MEMBER 'm{number}' WAIT 5m")
    assert (hall.waiting, hall.surface.running) == (WAITERS, 0)

    slices = sum(run.fiber.slices for run in running_scripts(node))
    begun, committed = node.topics.schedules.begun, node.committer.committed
    await until(lambda: node.committer.commit_index == committed)
    with turns() as count:
        await asyncio.sleep(0.2)
        idle = count()
    assert sum(run.fiber.slices for run in running_scripts(node)) == slices
    assert (node.topics.schedules.begun, node.committer.committed) == (begun, committed)
    # A mark of the idle log may fall into either window, and with it a few turns.
    assert idle <= empty + 20

    # As many as may run find room beside them.
    runner = await hall.peer()
    for number in range(limits.RUNNING):
        runner.say(MessageKind.RUN, number + 1, {"script": "RETURN 1", **PLACE})
    answers = [await runner.hear() for _ in range(limits.RUNNING)]
    assert [value(answer) for answer in answers] == [1] * limits.RUNNING

    runner.say(MessageKind.RUN, 1, {"script": "PUBLISH INTO t VALUES $v", **PLACE,
                             "params": {"v": list(range(WAITERS - 100))}})  # fmt: skip
    assert value(await runner.hear())["count"] == WAITERS - 100
    positions: dict[int, int] = {}
    for number in range(WAITERS - 100):
        peer = takers[number % CONNECTIONS]
        message = await peer.hear()
        (taken,) = value(message)
        assert message is not None
        positions[message.id - 1] = taken["position"]
        assert taken["member"] == f"m{message.id - 1}"
    assert positions == {number: number + 1 for number in range(WAITERS - 100)}
    assert hall.waiting == 100
    ran = sum(run.fiber.slices for run in running_scripts(node))
    runner.say(MessageKind.RUN, 1, {"script": "PUBLISH INTO t VALUE 1", **PLACE})
    assert value(await runner.hear())["position"] == WAITERS - 99
    await until(lambda: hall.waiting == 99)
    assert sum(run.fiber.slices for run in running_scripts(node)) - ran <= 6, (
        "one message woke more than one and the next"
    )
    figure(
        f"{WAITERS} waiting TAKEs",
        f"{idle} turns of the loop in an idle 0.2 s, {empty} with none; served in order",
    )


async def test_a_burst_of_readers_is_answered_whole(hall: WaitingHall) -> None:
    readers = [await hall.peer() for _ in range(8)]
    for number in range(WAITERS):
        await hall.wait(readers[number % 8], number + 1, "READ FROM t AFTER 0 WAIT 5m")
    await hall.here.values("PUBLISH INTO t VALUE 'for all'")
    for number in range(WAITERS):
        (read,) = value(await readers[number % 8].hear())
        assert read["value"] == "for all"
    await until(lambda: hall.surface.running == 0)


async def test_more_than_may_run_come_at_once_to_wait(hall: WaitingHall) -> None:
    """They count as running until they wait, and are not refused for that."""
    peers = [await hall.peer() for _ in range(4)]
    for peer in peers:
        for id in range(1, WAITERS // 4 + 1):
            peer.say(MessageKind.RUN, id, {"script": "TAKE FROM t AS g WAIT 5m", **PLACE})
    await until(lambda: hall.waiting == WAITERS)
    await hall.here.values("PUBLISH INTO t VALUES $v", {"v": list(range(WAITERS))})
    for peer in peers:
        for _ in range(WAITERS // 4):
            assert len(value(await peer.hear())) == 1


async def test_more_than_may_run_come_at_once_to_run(hall: WaitingHall) -> None:
    """What runs, runs; the others are refused, and every one is answered."""
    slow = "FOR $x IN 0..900000 { FOR $y IN 0..10 { LET $z = $y } }"
    peer, other = await hall.peer(), await hall.peer()
    for id in range(1, limits.RUNNING + 51):
        peer.say(MessageKind.RUN, id, {"script": slow, **PLACE})
    for _ in range(50):
        assert code(await peer.hear()) == "Busy"
    assert code(await other.run(1, "RETURN 1")) == "Busy"
    for id in range(1, limits.RUNNING + 1):
        peer.say(MessageKind.CANCEL, id)
    for _ in range(limits.RUNNING):
        assert code(await peer.hear()) == "Cancelled"
    assert value(await other.run(2, "RETURN 1")) == 1


async def test_a_drain_answers_who_waits_before_it_says_goodbye(hall: WaitingHall) -> None:
    peer = await hall.peer()
    await hall.wait(peer, 1, "TAKE FROM t AS g WAIT 5m")
    await hall.wait(peer, 2, "READ FROM t AFTER 0 WAIT 5m")
    hall.here.node.not_ready()
    draining = asyncio.ensure_future(hall.surface.drain())
    heard = [await peer.hear() for _ in range(3)]
    kinds = {message.kind for message in heard if message is not None}
    assert kinds == {MessageKind.ANSWER, MessageKind.BYE}
    answers = [
        message for message in heard if message is not None and message.kind is MessageKind.ANSWER
    ]
    assert [value(answer) for answer in answers] == [[], []]
    peer.say(MessageKind.BYE)
    assert await peer.closed()
    await peer.close()
    await draining


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (MessageKind.RUN, {"script": "PUBLISH INTO t VALUE 1"}),
        (MessageKind.TOPIC, {"op": "publish", "topic": "t", "value": 1}),
    ],
)
async def test_what_is_asked_alone_is_at_the_log_when_it_has_been_read(
    hall: WaitingHall, monkeypatch: pytest.MonkeyPatch, kind: MessageKind, body: dict[str, Any]
) -> None:
    monkeypatch.setattr(
        FiberScheduler, "slice_us", 60_000_000
    )  # not used up where the machine is slow
    peer = await hall.peer()
    connection = hall.only_connection
    committer, loop = hall.here.node.committer, asyncio.get_running_loop()
    answer = MessageKind.ANSWER if kind is MessageKind.RUN else MessageKind.VALUE
    peer.say(kind, 6, {**PLACE, **body})
    await peer.must_hear(answer, 6)  # its plan is made: that may take longer than a slice

    def busy() -> bool:
        return committer.log_is_busy

    while ready_calls(loop) or busy():
        await asyncio.sleep(0)
    connection.data_received(encode(kind, 7, {**PLACE, **body}))
    assert busy()
    assert committer.commit_index < committer.committed
    await peer.must_hear(answer, 7)
