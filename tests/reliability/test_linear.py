"""R12: cache operations are linearisable, over the wire, across kills and pauses of the node; and
the checker that says so rejects histories that are not."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from storeclient import NONE, AsyncCache, OutcomeUnknown, errors
from storeclient.errors import Unreachable
from tests.cluster.histories.linear import ABSENT, Operation, impossible
from tests.reliability.rigs import DATABASE, NAMESPACE, Rig

Figure = Callable[[str, object], None]
KEYS = ("a", "b", "c", "d", "l1", "l2")


def op(name: str, *arguments: Any, answer: Any = None, at: tuple[float, float]) -> Operation:
    return Operation("k", name, arguments, answer, *at)


GOOD: dict[str, list[Operation]] = {
    "one after the other": [
        op("set", 1, answer=True, at=(0, 1)), op("get", answer=1, at=(2, 3)),
        op("incr", answer=2, at=(4, 5)), op("delete", answer=True, at=(6, 7)),
        op("get", answer=ABSENT, at=(8, 9)),
    ],
    "a read beside a write may see either": [
        op("set", 1, answer=True, at=(0, 1)), op("set", 2, answer=True, at=(2, 9)),
        op("get", answer=1, at=(3, 4)), op("get", answer=2, at=(5, 6)),
    ],
    "an unknown write may show late": [
        op("set", 1, answer=True, at=(0, 1)), Operation("k", "set", (2,), None, 2),
        op("get", answer=1, at=(3, 4)), op("get", answer=2, at=(5, 6)),
    ],
    "or never": [
        op("set", 1, answer=True, at=(0, 1)), Operation("k", "set", (2,), None, 2),
        op("get", answer=1, at=(3, 4)),
    ],
    "racing counters": [
        op("incr", answer=2, at=(0, 9)), op("incr", answer=1, at=(1, 8)),
        op("incr", answer=3, at=(2, 7)),
    ],
    "a lock changes hands": [
        op("lock", "x", answer=5, at=(0, 1)), op("lock", "y", answer=0, at=(2, 3)),
        op("lock", "x", answer=5, at=(4, 5)), op("unlock", "x", answer=True, at=(6, 7)),
        op("lock", "y", answer=8, at=(6, 9)), op("unlock", "x", answer=False, at=(10, 11)),
    ],
}  # fmt: skip
BAD: dict[str, list[Operation]] = {
    "a stale read": [
        op("set", 1, answer=True, at=(0, 1)), op("set", 2, answer=True, at=(2, 3)),
        op("get", answer=1, at=(4, 5)),
    ],
    "an acknowledged write is lost": [
        op("set", 1, answer=True, at=(0, 1)), op("get", answer=ABSENT, at=(2, 3)),
    ],
    "a value nobody wrote": [op("get", answer=7, at=(0, 1))],
    "two counters count to the same": [
        op("incr", answer=1, at=(0, 5)), op("incr", answer=1, at=(1, 6)),
    ],
    "a lost count": [
        op("incr", answer=1, at=(0, 1)), op("incr", answer=2, at=(2, 3)),
        op("get", answer=1, at=(4, 5)),
    ],
    "a read goes back in time": [
        op("set", 1, answer=True, at=(0, 1)), op("set", 2, answer=True, at=(2, 9)),
        op("get", answer=2, at=(3, 4)), op("get", answer=1, at=(5, 6)),
    ],
    "both compare-and-sets win": [
        op("set", 1, answer=True, at=(0, 1)), op("swap", 1, 2, answer=True, at=(2, 5)),
        op("swap", 1, 3, answer=True, at=(3, 6)),
    ],
    "a delete that came back": [
        op("set", 1, answer=True, at=(0, 1)), op("delete", answer=True, at=(2, 3)),
        op("get", answer=1, at=(4, 5)),
    ],
    "an unknown write comes and goes": [
        op("set", 1, answer=True, at=(0, 1)), Operation("k", "set", (2,), None, 2),
        op("get", answer=2, at=(3, 4)), op("get", answer=1, at=(5, 6)),
    ],
    "two holders": [
        op("lock", "x", answer=5, at=(0, 1)), op("lock", "y", answer=6, at=(2, 3)),
    ],
    "a fence that does not grow": [
        op("lock", "x", answer=5, at=(0, 1)), op("unlock", "x", answer=True, at=(2, 3)),
        op("lock", "y", answer=5, at=(4, 5)),
    ],
    "somebody else unlocked": [
        op("lock", "x", answer=5, at=(0, 1)), op("unlock", "y", answer=True, at=(2, 3)),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_a_good_history_is_accepted(name: str) -> None:
    assert impossible(GOOD[name]) == []


@pytest.mark.parametrize("name", BAD)
def test_a_planted_bad_history_is_rejected(name: str) -> None:
    assert impossible(BAD[name]) == ["k"]


# --- real histories -------------------------------------------------------------------------------


async def act(cache: AsyncCache, rng: random.Random, who: str, history: list[Operation]) -> None:
    """One operation of one client, with what came of it."""
    loop = asyncio.get_running_loop()
    key = rng.choice(KEYS)
    names = ("lock", "unlock") if key.startswith("l") else ("get", "set", "swap", "incr", "delete")
    name = rng.choice(names)
    arguments: tuple[Any, ...] = ()
    began = loop.time()
    try:
        answer: Any
        if name == "get":
            found = await cache.get(key, NONE)
            answer = ABSENT if found is NONE else found
        elif name == "set":
            arguments = (rng.randrange(50),)
            await cache.set(key, *arguments, ttl=rng.choice([None, 3600]))
            answer = True
        elif name == "swap":
            arguments = (rng.randrange(50), rng.randrange(50))
            answer = await cache.compare_and_set(key, *arguments)
        elif name == "incr":
            answer = await cache.incr(key)
        elif name == "delete":
            answer = await cache.delete(key)
        elif name == "lock":
            arguments = (who,)
            lease = await cache.lock(key, 3600, who)
            answer = 0 if lease is None else lease.fence
        else:
            arguments = (who,)
            answer = (await cache._write("unlock", key=key, holder=who))["released"]
    except OutcomeUnknown:
        history.append(Operation(key, name, arguments, None, began))
        return
    except (Unreachable, errors.Draining):
        return
    history.append(Operation(key, name, arguments, answer, began, loop.time()))


async def record(rig: Rig, seed: int, clients: int, each: int, kills: int, pauses: int) -> Any:
    """A history of so many clients, the node being killed and paused meanwhile."""
    history: list[Operation] = []
    rng = random.Random(seed)
    made = [rig.client() for _ in range(clients)]

    async def work(number: int) -> None:
        own = random.Random(seed * 1000 + number)
        cache = made[number].cache(NAMESPACE, DATABASE, "c")
        for _ in range(each):
            await act(cache, own, f"h{number}", history)

    tasks = [asyncio.create_task(work(number)) for number in range(clients)]
    troubles = ["kill"] * kills + ["pause"] * pauses
    rng.shuffle(troubles)
    for number, trouble in enumerate(troubles, 1):
        wanted = clients * each * number // (len(troubles) + 1)
        while len(history) < wanted and not all(task.done() for task in tasks):
            await asyncio.sleep(0.005)
        await (rig.kill() if trouble == "kill" else rig.pause(0.2))
    await asyncio.gather(*tasks)
    for client in made:
        with suppress(errors.StoreError):
            await client.close()
    return history


async def test_a_history_with_a_kill_is_linearisable(tmp_path: Path, figure: Figure) -> None:
    rig = Rig(tmp_path / "store", "DEFINE SPACE c")
    try:
        history = await record(rig, 1, clients=16, each=40, kills=1, pauses=1)
    finally:
        rig.end()
    assert impossible(history) == []
    unknown = sum(operation.answer is None for operation in history)
    figure(
        "R12 linearisability", f"{len(history)} operations, {unknown} of unknown outcome, 1 kill"
    )
    acknowledged = [o for o in history if o.name == "incr" and o.answer is not None]
    assert acknowledged


HISTORIES = 8


@pytest.mark.hard
async def test_histories_with_kills_and_pauses(tmp_path: Path, figure: Figure) -> None:
    total = unknown = 0
    for seed in range(HISTORIES):
        rig = Rig(tmp_path / f"store{seed}", "DEFINE SPACE c")
        try:
            history = await record(rig, seed, clients=16, each=125, kills=2, pauses=2)
        finally:
            rig.end()
        assert impossible(history) == [], f"seed {seed}"
        total += len(history)
        unknown += sum(operation.answer is None for operation in history)
    figure(
        f"R12 linearisability, {HISTORIES} histories",
        f"{total} operations, {unknown} unknown, 0 bad",
    )


# --- one lock -------------------------------------------------------------------------------------

LEASES = (10, 10, 20)
"""Before each kill of the node, and after the last."""


async def contend(
    rig: Rig, who: str, rng: random.Random, over: asyncio.Event, held: list[Any], ttl: float
) -> None:
    """One contender: acquires, works, releases; or dies while it holds, and comes back."""
    loop = asyncio.get_running_loop()
    client = rig.client()
    life = 0
    while not over.is_set():
        cache = client.cache(NAMESPACE, DATABASE, "c")
        holder = f"{who}.{life}"
        began = loop.time()
        try:
            lease = await cache.lock("the lock", ttl, holder)
        except errors.StoreError:
            continue
        if lease is None:
            await asyncio.sleep(rng.random() * 0.02)
            continue
        got = loop.time()
        await asyncio.sleep(rng.random() * 0.03)
        # Its own clock began before the node's: what it believes is never longer than what is so.
        ends = min(loop.time(), began + ttl)
        held.append((got, ends, lease.fence, holder))
        if rng.random() < 0.2:
            life += 1
            connection = client._nodes.connection
            if connection is not None:
                connection.abort()
            client = rig.client()
            continue
        with suppress(errors.StoreError):
            await lease.release()
    with suppress(errors.StoreError):
        await client.close()


def two_holders(held: list[Any]) -> list[Any]:
    """Pairs that held at once, or under one fence, or with fences in another order than time."""
    wrong = []
    for one, two in zip(sorted(held), sorted(held)[1:], strict=False):
        if one[1] > two[0] or (one[2] >= two[2] and one[3] != two[3]) or one[2] > two[2]:
            wrong.append((one, two))
    return wrong


async def test_32_contenders_for_one_lock_never_hold_it_two_at_a_time(
    tmp_path: Path, figure: Figure
) -> None:
    """Contenders die while they hold, and the node is killed; leases outlive neither."""
    rig = Rig(tmp_path / "store", "DEFINE SPACE c")
    loop = asyncio.get_running_loop()
    held: list[Any] = []
    try:
        over = asyncio.Event()
        work = [
            asyncio.create_task(contend(rig, f"c{n}", random.Random(n), over, held, 0.25))
            for n in range(32)
        ]
        ends = loop.time() + 60  # a limit, no figure to reach
        for part, more in enumerate(LEASES):
            if part:
                await rig.kill()
            wanted = len(held) + more
            while len(held) < wanted and loop.time() < ends:
                await asyncio.sleep(0.01)
        over.set()
        await asyncio.gather(*work)
    finally:
        rig.end()
    assert two_holders(held) == []
    assert len(held) >= wanted
    figure("lock, 32 contenders, node killed twice", f"{len(held)} leases, never two holders")
