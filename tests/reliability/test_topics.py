"""R13: a topic's totals, while its node is killed again and again under publishers and workers."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from storeclient import AsyncClient, OutcomeUnknown, errors
from tests.reliability.rigs import Rig
from tests.reliability.totals import (
    SLACK_SECONDS,
    DeadLetter,
    HandOut,
    History,
    Kept,
    Publish,
    Settle,
    Take,
    certainly_held,
    latest_redelivery,
    violations,
)

Figure = Callable[[str, object], None]

DEADLINE_SECONDS = 1.0
IN_FLIGHT = 100
"""Few enough that the workers want more all the time."""
DELIVERIES = 3
BACKOFF = (0.05, 0.2)
DEFINITIONS = (
    "DEFINE TOPIC work DEDUP 1h; DEFINE TOPIC dead;"
    f"DEFINE GROUP g ON work DEADLINE {DEADLINE_SECONDS:.0f}s IN FLIGHT {IN_FLIGHT}"
    f" DELIVERIES {DELIVERIES} DEAD LETTER dead BACKOFF 50ms, 200ms"
)
POISON = "poison"
"""Begins the marks of messages that no worker ever acknowledges."""
PUBLISHERS = 4
BATCHES = (1, 2, 10, 40, 100)
TAKES = (1, 5, 20, 60)
PAGE = 1000
TOTAL = 51_000
"""Of which a few never arrive, and nobody knows of it."""
STATEMENTS = {
    "ack": ("ACK work AS g RECEIPTS $r", "acked"),
    "nack": ("NACK work AS g RECEIPTS $r", "nacked"),
    "extend": ("EXTEND work AS g RECEIPTS $r BY $d", "extended"),
    "give up": ("GIVE UP work AS g RECEIPTS $r ERROR 'no use'", "given_up"),
}
LOST = (OutcomeUnknown, errors.Unreachable)


class Traffic:
    """Publishers, workers and who watches, on one node.

    :param total: messages, all publishers together
    """

    def __init__(self, rig: Rig, seed: int, total: int) -> None:
        self.history = History(IN_FLIGHT, DELIVERIES, BACKOFF)
        self.kills = 0
        self._rig = rig
        self._seed = seed
        self._total = total
        self._left = total
        self._settled = 0
        self._receipts: dict[tuple[int, int], str] = {}
        self._calm = False
        """Whether all is published and no kill comes any more: workers forget nothing now."""
        self._over = False

    async def run(self, publishers: int, workers: int, kills: int) -> History:
        publishing = [asyncio.create_task(self._publish(n)) for n in range(publishers)]
        working = [asyncio.create_task(self._work(n)) for n in range(workers)]
        watching = asyncio.create_task(self._watch())
        for number in range(1, kills + 1):
            while self._settled < self._total * number // (kills + 2):
                await asyncio.sleep(0.005)
                _raise_what_failed(*publishing, *working, watching)
            await self._rig.kill()
            self.kills += 1
        await asyncio.gather(*publishing)
        self._calm = True
        await asyncio.gather(*working, watching)
        await self._look()
        return self.history

    # --- publishers -----------------------------------------------------------------------------

    async def _publish(self, number: int) -> None:
        rng = random.Random(f"{self._seed} publisher {number}")
        async with self._rig.client() as client:
            sent = 0
            while self._left > 0:
                count = min(rng.choice(BATCHES), self._left)
                self._left -= count
                kind = POISON if rng.random() < 0.01 else "well"
                marks = tuple(f"{kind} {number} {sent + n}" for n in range(count))
                sent += count
                id = f"id {marks[0]}" if count == 1 and rng.random() < 0.7 else None
                known = await self._send(client, marks, id)
                while id and (not known or rng.random() < 0.1):
                    known = await self._send(client, marks, id)

    async def _send(self, client: AsyncClient, marks: tuple[str, ...], id: str | None) -> bool:
        values = [{"mark": mark} for mark in marks]
        script, params = "PUBLISH INTO work VALUES $v", dict[str, Any](v=values)
        if len(marks) == 1:
            script, params = "PUBLISH INTO work VALUE $v", dict[str, Any](v=values[0])
        if id is not None:
            script, params = f"{script} ID $id", {**params, "id": id}
        began = time.time()
        try:
            answer = await client.query(script, params)
        except OutcomeUnknown:
            self.history.publishes.append(Publish(marks, began, id=id))
            return False
        except errors.Unreachable:
            if id is None:  # else it is sent again
                self.history.unreached += len(marks)
            return False
        first = answer["position"] if len(marks) == 1 else answer["first"]
        duplicate = bool(answer.get("duplicate"))
        self.history.publishes.append(Publish(marks, began, time.time(), first, duplicate, id))
        return True

    # --- workers --------------------------------------------------------------------------------

    async def _work(self, number: int) -> None:
        rng = random.Random(f"{self._seed} worker {number}")
        async with self._rig.client() as client:
            while not self._over:
                found = await self._take(client, rng.choice(TAKES))
                await asyncio.sleep(rng.choice((0, 0.01, 0.05)))
                shares: dict[str, list[HandOut]] = {}
                for one in found:
                    shares.setdefault(self._choose(rng, one), []).append(one)
                for what, share in shares.items():
                    await self._settle(client, rng, what, share)

    def _choose(self, rng: random.Random, one: HandOut) -> str:
        if one.mark.startswith(POISON):
            return rng.choice(("nack", "forget", "nack later", "nack later", "nack later"))
        if self._calm:
            return "ack"
        (what,) = rng.choices(
            ("ack", "nack", "nack later", "extend", "extend, forget", "give up", "forget"),
            (80, 4, 4, 4, 1, 2, 5),
        )
        return what

    async def _take(self, client: AsyncClient, asked: int) -> tuple[HandOut, ...]:
        began = time.time()
        try:
            answer = await client.query(f"TAKE {asked} FROM work AS g WAIT 200ms")
        except OutcomeUnknown:
            self.history.takes.append(Take(asked, began))
            return ()
        except errors.Unreachable:
            return ()
        found = tuple(
            HandOut(m["position"], m["attempt"], m["value"]["mark"], m["deadline"].timestamp())
            for m in answer
        )
        self.history.takes.append(Take(asked, began, time.time(), found))
        for message, one in zip(answer, found, strict=True):
            self._receipts[one.name] = message["receipt"]
        return found

    async def _settle(
        self, client: AsyncClient, rng: random.Random, what: str, share: list[HandOut]
    ) -> None:
        names = tuple(one.name for one in share)
        if what == "forget":
            return
        if what == "nack later":
            await self._say(client, "nack", names, rng.choice((0.1, 0.5)))
        elif what.startswith("extend"):
            known = await self._say(client, "extend", names, rng.choice((1.0, 4.0)))
            if known and what == "extend":
                await asyncio.sleep(0.2)
                await self._say(client, "ack", names)
        else:
            await self._say(client, what, names)

    async def _say(
        self,
        client: AsyncClient,
        kind: Any,
        names: tuple[tuple[int, int], ...],
        seconds: float | None = None,
    ) -> bool:
        script, done = STATEMENTS[kind]
        if kind == "nack" and seconds is not None:
            script += " DELAY $d"
        params: dict[str, Any] = {"r": [self._receipts[name] for name in names]}
        if seconds is not None:
            script = script.replace("$d", f"{round(seconds * 1000)}ms")
        began = time.time()
        try:
            answer = await client.query(script, params)
        except OutcomeUnknown:
            self.history.settles.append(Settle(kind, names, began, seconds=seconds))
            return False
        except errors.Unreachable:
            return False
        assert answer[done] + answer["stale"] == len(names), answer
        self.history.settles.append(Settle(kind, names, began, time.time(), answer[done], seconds))
        if kind in ("ack", "give up"):
            self._settled += answer[done]
        return True

    # --- who watches ----------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Look at the figures now and then; once all is calm, tell the end of it."""
        async with self._rig.client() as client:
            while not self._over:
                with suppress(*LOST):
                    found = await client.query("INFO FOR GROUP g ON work", repeatable=True)
                    self.history.seen_in_flight.append(found["in_flight"])
                    topic = await client.query("INFO FOR TOPIC work", repeatable=True)
                    self._over = self._calm and found["committed"] == topic["last_position"]
                await asyncio.sleep(0.05)

    async def _look(self) -> None:
        """Into the history: what there is in the end."""
        history = self.history
        async with self._rig.client() as client:
            history.kept = [
                Kept(m["position"], m["at"].timestamp(), m["value"]["mark"])
                for m in await _all_of(client, "work")
            ]
            history.dead = [
                DeadLetter(
                    m["value"]["mark"],
                    int(m["headers"]["dead-position"]),
                    int(m["headers"]["dead-attempts"]),
                )
                for m in await _all_of(client, "dead")
            ]
            history.figures = await client.query("INFO FOR GROUP g ON work")


def _raise_what_failed(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        if task.done():
            task.result()


async def _all_of(client: AsyncClient, topic: str) -> list[Any]:
    found: list[Any] = []
    while True:
        after = found[-1]["position"] if found else 0
        page = await client.query(f"READ FROM {topic} AFTER $n LIMIT {PAGE}", {"n": after})
        if not page:
            return found
        found += page


async def traffic(path: Path, seed: int, total: int, kills: int, faults: str = "") -> History:
    """Let it happen on a new node."""
    rig = Rig(path / "store", DEFINITIONS, faults)
    try:
        return await Traffic(rig, seed, total).run(PUBLISHERS, workers=8, kills=kills)
    finally:
        rig.end()


async def totals(path: Path, seed: int, total: int, kills: int) -> str:
    """Run it and judge it. Answers the figure."""
    history = await traffic(path, seed, total, kills)
    found = violations(history)
    assert not found, "\n".join(found[:20])
    assert len(history.dead) > total // 1000
    unanswered = [one for one in history.publishes if one.first is None]
    assert len(unanswered) <= PUBLISHERS * kills, "a kill leaves each publisher without one answer"
    sent = {one.mark for one in history.kept} | {m for one in unanswered for m in one.marks}
    assert len(sent) + history.unreached == total
    unknown = sum(one.first is None for one in history.publishes)
    unknown += sum(one.found is None for one in history.takes)
    unknown += sum(one.done is None for one in history.settles)
    duplicates = sum(one.duplicate for one in history.publishes)
    return (
        f"{len(history.kept)} messages, {kills} kills, {unknown} requests of unknown outcome,"
        f" {duplicates} duplicates, {history.figures['redelivered']} redelivered,"
        f" {len(history.dead)} dead letters, most in flight {max(history.seen_in_flight)} by INFO"
        f" and {certainly_held(history)} held of {IN_FLIGHT}, latest redelivery"
        f" {latest_redelivery(history):.1f} s after its deadline; 0 lost, 0 ghosts, 0 early"
    )


async def test_totals_stay_true_across_kills(tmp_path: Path, figure: Figure) -> None:
    figure("R13 totals", await totals(tmp_path, seed=1, total=2_000, kills=2))


@pytest.mark.hard
@pytest.mark.timeout(900)
async def test_totals_of_50_000_messages_stay_true(tmp_path: Path, figure: Figure) -> None:
    figure("R13 totals, many", await totals(tmp_path, seed=2, total=TOTAL, kills=12))


@pytest.mark.hard
@pytest.mark.parametrize(
    "fault, seen",
    [("overfills", "in flight"), ("promises-too-long", "early"), ("forgets-attempts", "twice")],
)
async def test_a_node_that_does_otherwise_is_caught(tmp_path: Path, fault: str, seen: str) -> None:
    found = violations(await traffic(tmp_path, 3, total=3_000, kills=1, faults=fault))
    assert any(seen in one for one in found), found[:20]


@pytest.mark.hard
async def test_a_lapsed_hand_out_comes_again_within_a_second(
    tmp_path: Path, figure: Figure
) -> None:
    """On a node that lives, with a worker that waits and room for all of them."""
    rig = Rig(tmp_path / "store", DEFINITIONS)
    late, waited = [], []
    try:
        async with rig.client() as client:
            await client.query("PUBLISH INTO work VALUES $v", {"v": list(range(100))})
            first = await client.query("TAKE 100 FROM work AS g")
            deadlines = {message["position"]: message["deadline"] for message in first}
            while deadlines:
                for message in await client.query("TAKE 100 FROM work AS g WAIT 10s"):
                    assert message["attempt"] == 2
                    due = deadlines.pop(message["position"]).timestamp()
                    late.append(time.time() - due)
                    # By the node's own time: this process may have stood still.
                    waited.append(message["deadline"].timestamp() - DEADLINE_SECONDS - due)
    finally:
        rig.end()
    pause = BACKOFF[0]
    assert min(*late, *waited) >= pause - SLACK_SECONDS
    assert max(waited) - pause <= 1.0
    figure("R13 redelivery after the deadline", f"{min(late):.3f} to {max(late):.3f} s")
