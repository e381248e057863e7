"""Many workers on one group, over which everything happens at once: nothing is lost, nothing is
acknowledged twice, and nobody waits while there is something for him."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from actors.execution.units import SharedUnit
from actors.messages.request import MessageRequest
from actors.runtime import ask
from actors.scripts.request import ScriptRequest
from protocol.errors import Cancelled
from protocol.messages import (
    AckMessages,
    MessageOperation,
    NackMessages,
    PublishMessages,
    TakeMessages,
)
from protocol.requests import RunScript
from storage.txn.write_set import UNCHANGED
from tests.actors.parts import outcome
from tests.nodes import OWNER, Running
from tests.operations import Operated

PUBLISHED = 240
WORKERS = 24


class Crowd:
    """Workers, publishers and troublemakers on topic `t` and group `g`."""

    def __init__(self, here: Running, seed: int, messages: float) -> None:
        """:param messages: the part of what they ask that is no script"""
        self.here = here
        self.messages = messages
        self.rng = Random(seed)
        self.acked: Counter[int] = Counter()
        self.receipts: Counter[str] = Counter()
        """Of which an ACK said that it counted."""
        self.told: list[int] = []
        """Positions that publishers were told, with the value that is there."""
        self.values: dict[int, int] = {}
        self.cancelled = 0
        self.takes = 0
        self.over = False
        self._requests = 0

    async def value(self, script: str, parameters: Any = None) -> Any:
        return await self.here.value(script, parameters)

    def operate(self, operation: MessageOperation) -> Operated:
        """Do it without a script."""
        return Operated(self.here.node, operation, OWNER, ("shop", "main"))

    def _as_message(self) -> bool:
        return self.rng.random() < self.messages

    async def _publish(self, value: int) -> Any:
        key = f"k{value % 7}"
        if self._as_message():
            return await self.operate(PublishMessages("t", [value], key=key))
        return await self.value(f"PUBLISH INTO t VALUE {value} KEY '{key}'")

    async def _take(self, count: int, member: str) -> Any:
        """Messages, or what it was refused with."""
        if self._as_message():
            wait_us = 300 * 1_000_000
            return await outcome(self.operate(TakeMessages("t", "g", count, member, wait_us)))
        self._requests += 1
        script = f"TAKE {count} FROM t AS g MEMBER '{member}' WAIT 5m"
        request = RunScript(OWNER, script, f"c-{self._requests}", {}, "shop", "main")
        answer = await ask(self.here.node.scripts, request)
        return answer.refusal or answer.results[0].value

    async def _settle(self, verb: str, receipt: str) -> Any:
        if self._as_message():
            kind = AckMessages if verb == "ACK" else NackMessages
            return await self.operate(kind("t", "g", [receipt]))
        return await self.value(f"{verb} t AS g RECEIPTS $r", {"r": [receipt]})

    async def publish(self, values: range) -> None:
        """One publisher; now and then in a transaction that pauses."""
        for value in values:
            if value % 10 == 0:
                script = (
                    f"BEGIN; PUBLISH INTO t VALUE {value} KEY 'k{value % 7}';"
                    "FOR $x IN 0..3000 { LET $y = $x }; COMMIT"
                )
                answer = (await self.here.values(script))[1]
            else:
                answer = await self._publish(value)
            assert answer["position"] not in self.values, "two were told one position"
            self.values[answer["position"]] = value
            if value % 3 == 0:
                await asyncio.sleep(0)

    async def work(self, number: int, *, nacks: float, forgets: float) -> None:
        """One worker: waits for messages and answers for them, mostly."""
        rng = Random(self.rng.random())
        while not self.over:
            taken = await self._take(rng.randint(1, 4), f"m{number}")
            if isinstance(taken, Exception):
                assert isinstance(taken, Cancelled), taken
                self.cancelled += 1
                continue
            self.takes += 1
            for message in taken:
                what = rng.random()
                if what < nacks:
                    await self._settle("NACK", message["receipt"])
                elif what >= nacks + forgets:
                    said = await self._settle("ACK", message["receipt"])
                    self.acked[message["position"]] += said["acked"]
                    self.receipts[message["receipt"]] += said["acked"]

    async def cancel_some(self) -> None:
        """Ends waits of scripts at random."""
        while not self.over:
            registry = self.here.node.registry
            names = [
                one.id
                for one in registry
                if (isinstance(one, ScriptRequest) and one.is_running and one.run.waiting)
                or (isinstance(one, MessageRequest) and one.rests)
            ]
            if names:
                registry.kill(self.rng.choice(names))
            await asyncio.sleep(0.005)

    async def until_done(self) -> dict[str, Any]:
        """Until all that was published is acknowledged; the group's figures then."""
        async with asyncio.timeout(60):
            while True:
                figures: dict[str, Any] = await self.value("INFO FOR GROUP g ON t")
                if figures["committed"] == PUBLISHED:
                    return figures
                await asyncio.sleep(0.005)

    async def end(self, tasks: list[asyncio.Task[None]]) -> None:
        """Everybody goes home."""
        self.over = True
        self.here.node.not_ready()
        await asyncio.gather(*tasks)


async def published(crowd: Crowd) -> None:
    """Four publishers publish everything."""
    parts = [range(n, PUBLISHED, 4) for n in range(4)]
    await asyncio.gather(*(crowd.publish(part) for part in parts))
    assert sorted(crowd.values) == list(range(1, PUBLISHED + 1)), "positions are dense"


HOW = pytest.mark.parametrize("messages", [0.5, 1.0], ids=["both", "messages"])
"""Asked by scripts and by operations without one beside each other, or by these alone."""


@HOW
@pytest.mark.parametrize("ordered", ["", "ORDERED BY KEY"])
async def test_a_crowd_of_workers(
    node: Running, ordered: str, messages: float, figure: Callable[[str, object], None]
) -> None:
    await node.values(f"DEFINE TOPIC t; DEFINE GROUP g ON t DEADLINE 40ms IN FLIGHT 64 {ordered}")
    crowd = Crowd(node, 11, messages)
    tasks = [
        asyncio.ensure_future(crowd.work(number, nacks=0.05, forgets=0.02))
        for number in range(WORKERS)
    ]
    tasks.append(asyncio.ensure_future(crowd.cancel_some()))
    await published(crowd)
    figures = await crowd.until_done()
    await crowd.end(tasks)
    assert set(crowd.acked) >= set(range(1, PUBLISHED + 1))
    assert {count for count in crowd.acked.values() if count} == {1}
    assert (figures["in_flight"], figures["dead_lettered"]) == (0, 0)
    for message in await crowd.value("READ FROM t AFTER 0 LIMIT 1000"):
        assert crowd.values[message["position"]] == message["value"]
    assert len(node.node.topics.waits) == 0
    figure(
        f"a crowd of workers{' in order' if ordered else ''}, {messages:.0%} messages",
        f"{PUBLISHED} messages, {crowd.takes} takes, {figures['redelivered']} redelivered,"
        f" {crowd.cancelled} waits cancelled",
    )


@HOW
async def test_a_group_is_moved_under_its_workers(
    node: Running, messages: float, figure: Callable[[str, object], None]
) -> None:
    """Nothing is acknowledged twice by one receipt, none of an earlier epoch counts, and in the
    end everything after the last move is done."""
    await node.values("DEFINE TOPIC t; DEFINE GROUP g ON t DEADLINE 60ms IN FLIGHT 64")
    crowd = Crowd(node, 23, messages)
    moves = 0

    async def move() -> None:
        nonlocal moves
        while not crowd.over:
            to = crowd.rng.choice(("START", "END", str(crowd.rng.randint(0, len(crowd.values)))))
            await crowd.value(f"ALTER GROUP g ON t SET POSITION {to}")
            moves += 1
            await asyncio.sleep(0.02)

    tasks = [
        asyncio.ensure_future(crowd.work(number, nacks=0.05, forgets=0.02))
        for number in range(WORKERS)
    ]
    mover = asyncio.ensure_future(move())
    await published(crowd)
    mover.cancel()
    await asyncio.gather(mover, return_exceptions=True)
    await crowd.value("ALTER GROUP g ON t SET POSITION START")
    crowd.acked.clear()
    figures = await crowd.until_done()
    await crowd.end(tasks)
    assert set(crowd.receipts.values()) <= {0, 1}
    assert sum(crowd.acked.values()) >= PUBLISHED
    assert figures["in_flight"] == 0
    assert figures["epoch"] > moves / 2
    figure(
        f"a group moved under its workers, {messages:.0%} messages",
        f"{moves} moves, {crowd.takes} takes",
    )


@pytest.mark.parametrize("where", ["a take that is not logged", "an ack that is answered twice"])
async def test_a_planted_fault_is_seen(
    node: Running, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The crowd sees an engine that answers what did not happen."""
    work = SharedUnit.work

    def forgetful(self: SharedUnit[Any], tx: Any) -> None:
        work(self, tx)
        kind = TakeMessages if where.startswith("a take") else AckMessages
        if any(isinstance(one.operation, kind) and one.performed for one in self.done):
            tx.own, tx.size, tx.appends = UNCHANGED, 0, {}
            self.wrote = False

    monkeypatch.setattr(SharedUnit, "work", forgetful)
    await node.values("DEFINE TOPIC t; DEFINE GROUP g ON t DEADLINE 1h IN FLIGHT 64")
    crowd = Crowd(node, 11, 1.0)
    for value in range(20):
        await crowd.value(f"PUBLISH INTO t VALUE {value}")
    seen: set[str] = set()
    for _ in range(20):
        for message in await crowd.operate(TakeMessages("t", "g")):
            if message["receipt"] in seen:
                return
            seen.add(message["receipt"])
            for _ in range(2):
                said = await crowd.operate(AckMessages("t", "g", [message["receipt"]]))
                crowd.receipts[message["receipt"]] += said["acked"]
    assert max(crowd.receipts.values()) > 1, "nothing was seen"
