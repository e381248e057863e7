"""Who has asked for something that can't be released, since followers are lost, does not wait for
ever, and nobody else waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from protocol import limits
from protocol.errors import NotEnoughReplicas, Refusal, UnknownOutcome
from protocol.messages import PublishMessages, TakeMessages
from protocol.spaces import LockKey, SetKey
from tests.actors.cluster.test_members import shows
from tests.actors.cluster.whole import ClusterMachine, Trio, cluster
from tests.actors.nodes import ANA
from tests.actors.parts import Played, outcome
from tests.keys import ask_keys
from tests.logbook import Logbook
from tests.operations import Operated

THINGS = (
    "DEFINE TABLE other; DEFINE TOPIC queue; DEFINE GROUP g ON queue DEADLINE 30s;"
    " DEFINE SPACE keys; CREATE other:1; PUBLISH INTO queue VALUE 1"
)
PLACE = ("a", "b")
MINUTE = 60_000_000
WRITES = {
    "a record": "CREATE t:late",
    "a transaction": "BEGIN; CREATE t:late; CREATE t:later; COMMIT",
    "a message": "PUBLISH INTO queue VALUE 2",
    "one that is taken": "TAKE FROM queue AS g",
    "a key": "SET 'a' IN keys VALUE 1",
    "a lock": "LOCK 'l' IN keys HOLDER 'h' EXPIRE 1m",
    "a declaration": "DEFINE TABLE late",
    "a user": "DEFINE USER late ROLE member PASSWORD 'correct horse battery'",
}
"""What is written, and by what."""


@pytest.fixture(autouse=True)
def quiet(logbook: Logbook) -> None:
    """What operators hear of."""
    logbook.allow("releases nothing")
    logbook.allow("leads no more|nobody leads|was not renewed|stopped following|was not answered")
    logbook.allow("were not kept|etcd does not answer")


@asynccontextmanager
async def whole(_kind: str, **more: Any) -> AsyncIterator[tuple[Trio, ClusterMachine]]:
    async with cluster(**more) as trio:
        leader = await trio.led()
        await leader.value(THINGS)
        yield trio, leader


played = Played(whole).stepped


def now(machine: ClusterMachine) -> float:
    return machine.runs.environment.clock.monotonic_us() / 1_000_000


async def within(machine: ClusterMachine, script: str, seconds: float) -> Refusal:
    """What it is refused with, in that time."""
    async with asyncio.timeout(seconds):
        found = await outcome(machine.value(script))
    assert isinstance(found, Refusal), found
    return found


def lose(trio: Trio) -> None:
    """Both followers, of which one is needed, in one moment."""
    for name in "bc":
        trio.named(name).cut()


@pytest.mark.parametrize("what", WRITES)
@played
async def test_who_writes_hears_that_its_outcome_is_unknown(
    trio: Trio, leader: ClusterMachine, /, what: str
) -> None:
    lose(trio)
    began = now(leader)
    refusal = await within(leader, WRITES[what], limits.RELEASE_SECONDS + 5)
    assert isinstance(refusal, UnknownOutcome), refusal
    assert refusal.detail["sequence"] == leader.runs.committer.committed
    assert now(leader) - began >= limits.RELEASE_SECONDS
    # Nothing else is held up: what is released is read at once, and writes are refused by name.
    assert await asyncio.wait_for(leader.value("SELECT VALUE id FROM other"), 1)
    assert isinstance(await within(leader, "CREATE other:2", 1), NotEnoughReplicas)


@pytest.mark.parametrize("asked", ["a key", "a lock", "publish", "take"])
@played
async def test_what_surfaces_ask_without_a_script_ends_too(
    trio: Trio, leader: ClusterMachine, /, asked: str
) -> None:
    lose(trio)
    node = leader.runs
    asks: dict[str, Callable[[], Awaitable[Any]]] = {
        "a key": lambda: ask_keys(node, ANA, ("a", "b", "keys"), SetKey("k", 1)),
        "a lock": lambda: ask_keys(node, ANA, ("a", "b", "keys"), LockKey("l", "h", MINUTE)),
        "publish": lambda: Operated(node, PublishMessages("queue", (1,), False), ANA, PLACE),
        "take": lambda: Operated(node, TakeMessages("queue", "g"), ANA, PLACE),
    }
    async with asyncio.timeout(limits.RELEASE_SECONDS + 5):
        found = await outcome(asks[asked]())
    assert isinstance(found, UnknownOutcome), found


@played
async def test_what_was_on_its_way_is_there_once_they_are_back(
    trio: Trio, leader: ClusterMachine, /
) -> None:
    lose(trio)
    assert isinstance(await within(leader, "CREATE t:late", 60), UnknownOutcome)
    # Who reads is shown nothing of what is on its way, and does not wait for it.
    assert await asyncio.wait_for(leader.value("SELECT * FROM t"), 1) == []
    trio.named("b").mend()
    await shows(trio, leader, 1)


@played
async def test_a_time_of_its_own_ends_the_wait_before(
    trio: Trio, leader: ClusterMachine, /
) -> None:
    lose(trio)
    refusal = await within(leader, "CREATE t:late TIMEOUT 700ms", 3)
    assert isinstance(refusal, UnknownOutcome)
