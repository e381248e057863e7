"""Takes on a disk that stalls: a deadline counts from when its answer is released."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from actors.node import Node
from storage import catalog, groups, topics
from storage.hand_outs import HandOuts
from storage.memory import MemoryEngine
from tests.actors.nodes import prepare, running, simulated_doors, value
from tests.actors.parts import play
from tests.simulation.disk import Fault, SimulatedDisk
from tests.simulation.doors import LoopClock

DECLARED = (
    "DEFINE TOPIC dead; DEFINE TOPIC q;"
    "DEFINE GROUP g ON q DEADLINE 10s DELIVERIES 2 DEAD LETTER dead; PUBLISH INTO q VALUE 1"
)


class Stall:
    """Holds what the log is given, as a disk does that does not answer."""

    def __init__(self, node: Node) -> None:
        self._batches: Any = node.committer._batches
        self._send = self._batches._send
        self._held: list[Any] = []
        self._batches._send = self._held.append

    def end(self) -> None:
        """The disk answers again."""
        self._batches._send = self._send
        held, self._held = self._held, []
        for batch in held:
            self._send(batch)


def played(main: Callable[[Node, SimulatedDisk], Awaitable[None]]) -> None:
    async def whole() -> None:
        disk = SimulatedDisk()
        clock = LoopClock(asyncio.get_running_loop())
        async with running(simulated_doors("stepped", disk, MemoryEngine(), clock=clock)) as node:
            await prepare(node)
            await value(node, DECLARED)
            await main(node, disk)

    play("stepped", whole)


def log_time(node: Node) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(
        microseconds=node.committer.ledger.log_time()
    )


async def acked(node: Node, message: Any) -> int:
    answer = await value(node, "ACK q AS g RECEIPTS $r", {"r": [message["receipt"]]})
    return int(answer["acked"])


def test_a_disk_that_stalls_for_longer_than_a_deadline_spends_no_attempt() -> None:
    async def main(node: Node, _disk: SimulatedDisk) -> None:
        stall = Stall(node)
        taking = asyncio.ensure_future(value(node, "TAKE FROM q AS g"))
        other = asyncio.ensure_future(value(node, "TAKE FROM q AS g WAIT 2m"))
        await asyncio.sleep(25)
        assert not taking.done() and not other.done(), "to nobody else meanwhile"
        stall.end()
        (taken,) = await taking
        assert (taken["attempt"], taken["position"]) == (1, 1)
        left = taken["deadline"] - log_time(node)
        assert timedelta(seconds=9) < left <= timedelta(seconds=10), "all of it is left"
        await asyncio.sleep(9)
        figures = await value(node, "INFO FOR GROUP g ON q")
        assert (figures["in_flight"], figures["redelivered"], figures["dead_lettered"]) == (1, 0, 0)
        assert not other.done()
        await asyncio.sleep(2)
        (again,) = await other
        assert again["attempt"] == 2, "it lapses in its time"
        assert await acked(node, taken) == 0
        assert await acked(node, again) == 1

    played(main)


def test_what_is_told_is_what_holds_over_a_restart() -> None:
    async def main(node: Node, _disk: SimulatedDisk) -> None:
        stall = Stall(node)
        taking = asyncio.ensure_future(value(node, "TAKE FROM q AS g"))
        await asyncio.sleep(6)
        stall.end()
        (taken,) = await taking
        with node.committer.begin() as tx:
            place = catalog.database(tx, catalog.namespace(tx, "a"), "b")
            group = groups.group(tx, topics.topic(tx, place, "q"), "g")
            due_us = HandOuts(tx, group).next_due_us()
            assert tx.saw <= node.committer.released_upto
        assert due_us is not None
        stored = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=due_us)
        assert taken["deadline"] == stored

    played(main)


def test_a_short_stall_leaves_a_deadline_as_it_is() -> None:
    async def main(node: Node, _disk: SimulatedDisk) -> None:
        stall = Stall(node)
        began, before = log_time(node), node.committer.committed
        taking = asyncio.ensure_future(value(node, "TAKE FROM q AS g"))
        await asyncio.sleep(4)
        stall.end()
        (taken,) = await taking
        assert taken["deadline"] - began < timedelta(seconds=10.1)
        assert node.committer.committed == before + 1, "and costs no commit"

    played(main)


def test_a_disk_that_is_full_then_leaves_the_deadline_that_is_logged() -> None:
    async def main(node: Node, disk: SimulatedDisk) -> None:
        stall = Stall(node)
        began = log_time(node)
        taking = asyncio.ensure_future(value(node, "TAKE FROM q AS g"))
        await asyncio.sleep(6)
        upto = node.committer.committed
        stall.end()
        while node.committer.committed == upto:
            await asyncio.sleep(0)
        # For the commit that counts it anew.
        disk.plan = lambda kind, path: Fault(errno.ENOSPC) if kind == "append" else None
        (taken,) = await taking
        disk.plan = None
        assert taken["deadline"] - began < timedelta(seconds=10.1)
        assert await acked(node, taken) == 1

    played(main)


def test_a_disk_that_stays_slow_is_answered_in_the_end() -> None:
    async def main(node: Node, _disk: SimulatedDisk) -> None:
        taking: asyncio.Task[Any] | None = None
        stall = Stall(node)
        taking = asyncio.ensure_future(value(node, "TAKE FROM q AS g"))
        stalls = 0
        while not taking.done():
            await asyncio.sleep(11)
            stall.end()
            stall = Stall(node)
            for _ in range(50):
                await asyncio.sleep(0)
            stalls += 1
        stall.end()
        assert stalls == 4
        assert taking.result()[0]["attempt"] == 1

    played(main)


def test_a_script_that_acknowledges_what_it_takes_has_nothing_prolonged() -> None:
    async def main(node: Node, _disk: SimulatedDisk) -> None:
        stall = Stall(node)
        script = "LET $m = TAKE FROM q AS g; ACK q AS g RECEIPTS [$m[0].receipt]"
        running_ = asyncio.ensure_future(value(node, script))
        await asyncio.sleep(25)
        stall.end()
        assert (await running_)["acked"] == 1
        figures = await value(node, "INFO FOR GROUP g ON q")
        assert (figures["in_flight"], figures["committed"]) == (0, 1)

    played(main)
