"""Many workers on one group, over which everything happens at once: nothing is lost, nothing is
acknowledged twice, and nobody waits while there is something for him."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from actors.runtime import ask, tell
from protocol.errors import Cancelled
from protocol.requests import CancelScript, RunScript
from tests.nodes import OWNER, Running

PUBLISHED = 1_500
WORKERS = 24


class Crowd:
    """Workers, publishers and troublemakers on topic `t` and group `g`."""

    def __init__(self, here: Running, seed: int) -> None:
        self.here = here
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
                answer = await self.value(f"PUBLISH INTO t VALUE {value} KEY 'k{value % 7}'")
            assert answer["position"] not in self.values, "two were told one position"
            self.values[answer["position"]] = value
            if value % 3 == 0:
                await asyncio.sleep(0)

    async def work(self, number: int, *, nacks: float, forgets: float) -> None:
        """One worker: waits for messages and answers for them, mostly."""
        rng = Random(self.rng.random())
        while not self.over:
            self._requests += 1
            script = f"TAKE {rng.randint(1, 4)} FROM t AS g MEMBER 'm{number}' WAIT 5m"
            name = f"c-{self._requests}"
            request = RunScript(OWNER, script, name, {}, "shop", "main")
            answer = await ask(self.here.node.scripts, request)
            if answer.refusal is not None:
                assert isinstance(answer.refusal, Cancelled), answer.refusal
                self.cancelled += 1
                continue
            taken: Any = answer.results[0].value
            self.takes += 1
            for message in taken:
                what = rng.random()
                receipt = {"r": [message["receipt"]]}
                if what < nacks:
                    await self.value("NACK t AS g RECEIPTS $r", receipt)
                elif what >= nacks + forgets:
                    said = await self.value("ACK t AS g RECEIPTS $r", receipt)
                    self.acked[message["position"]] += said["acked"]
                    self.receipts[message["receipt"]] += said["acked"]

    async def cancel_some(self) -> None:
        """Ends waits of scripts at random."""
        while not self.over:
            running = [run for run in self.here.node.running if run.progress.waiting]
            if running:
                tell(self.here.node.scripts, CancelScript(self.rng.choice(running).request.request))
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


@pytest.mark.parametrize("ordered", ["", "ORDERED BY KEY"])
async def test_a_crowd_of_workers(
    node: Running, ordered: str, figure: Callable[[str, object], None]
) -> None:
    await node.values(f"DEFINE TOPIC t; DEFINE GROUP g ON t DEADLINE 40ms IN FLIGHT 64 {ordered}")
    crowd = Crowd(node, 11)
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
        f"a crowd of workers{' in order' if ordered else ''}",
        f"{PUBLISHED} messages, {crowd.takes} takes, {figures['redelivered']} redelivered,"
        f" {crowd.cancelled} waits cancelled",
    )


async def test_a_group_is_moved_under_its_workers(
    node: Running, figure: Callable[[str, object], None]
) -> None:
    """Nothing is acknowledged twice by one receipt, none of an earlier epoch counts, and in the
    end everything after the last move is done."""
    await node.values("DEFINE TOPIC t; DEFINE GROUP g ON t DEADLINE 60ms IN FLIGHT 64")
    crowd = Crowd(node, 23)
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
    figure("a group moved under its workers", f"{moves} moves, {crowd.takes} takes")
