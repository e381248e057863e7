"""Who has asked for something that can't be released, since followers are lost, does not wait for
ever, and nobody else waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from actors.cluster.leader import LeadHolder
from protocol import limits
from protocol.errors import NotEnoughReplicas, Refusal, UnknownOutcome
from protocol.messages import PublishMessages, TakeMessages
from protocol.spaces import LockKey, SetKey
from tests.actors.cluster.test_members import refused, shows, wrote
from tests.actors.cluster.whole import ClusterMachine, Trio, cluster
from tests.actors.nodes import ANA
from tests.actors.parts import outcome
from tests.keys import ask_keys
from tests.logbook import Logbook
from tests.operations import Operated
from tests.simulation import loop as stepped

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


def played(main: Callable[[Trio, ClusterMachine], Coroutine[Any, Any, None]], **more: Any) -> None:
    async def whole() -> None:
        async with cluster(**more) as trio:
            leader = await trio.led()
            await leader.value(THINGS)
            await main(trio, leader)

    stepped.run(whole(), 1)


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
def test_who_writes_hears_that_its_outcome_is_unknown(what: str) -> None:
    async def main(trio: Trio, leader: ClusterMachine) -> None:
        lose(trio)
        began = now(leader)
        refusal = await within(leader, WRITES[what], limits.RELEASE_SECONDS + 5)
        assert isinstance(refusal, UnknownOutcome), refusal
        assert refusal.detail["sequence"] == leader.runs.committer.committed
        assert now(leader) - began >= limits.RELEASE_SECONDS
        # Nothing else is held up: what is released is read at once, and writes are refused by name.
        assert await asyncio.wait_for(leader.value("SELECT VALUE id FROM other"), 1)
        assert isinstance(await within(leader, "CREATE other:2", 1), NotEnoughReplicas)

    played(main)


@pytest.mark.parametrize("asked", ["a key", "a lock", "publish", "take"])
def test_what_surfaces_ask_without_a_script_ends_too(asked: str) -> None:
    async def main(trio: Trio, leader: ClusterMachine) -> None:
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

    played(main)


def test_what_was_on_its_way_is_there_once_they_are_back() -> None:
    async def main(trio: Trio, leader: ClusterMachine) -> None:
        lose(trio)
        assert isinstance(await within(leader, "CREATE t:late", 60), UnknownOutcome)
        # Who reads is shown nothing of what is on its way, and does not wait for it.
        assert await asyncio.wait_for(leader.value("SELECT * FROM t"), 1) == []
        trio.named("b").mend()
        await shows(trio, leader, 1)

    played(main)


def test_with_two_that_are_needed_the_loss_of_one_is_enough() -> None:
    async def main(trio: Trio, leader: ClusterMachine) -> None:
        trio.named("c").cut()
        assert isinstance(await within(leader, "CREATE t:late", 60), UnknownOutcome)
        await refused(leader, "CREATE t:later", NotEnoughReplicas)
        trio.named("c").mend()
        await trio.until_done(lambda: leader.value("CREATE t:later"))
        await shows(trio, leader, 2)

    played(main, acks=2)


def test_a_time_of_its_own_ends_the_wait_before() -> None:
    async def main(trio: Trio, leader: ClusterMachine) -> None:
        lose(trio)
        refusal = await within(leader, "CREATE t:late TIMEOUT 700ms", 3)
        assert isinstance(refusal, UnknownOutcome)

    played(main)


def test_nobody_waits_longer_for_what_is_only_slow_than_it_takes() -> None:
    async def main(trio: Trio, leader: ClusterMachine) -> None:
        await wrote(leader, 1)
        trio.named("b").cut()  # it leaves the set
        began = now(leader)
        await wrote(leader, 2)
        assert 0.5 < now(leader) - began < limits.RELEASE_SECONDS / 2

    played(main)


def test_a_planted_wait_without_bound_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(_holding: LeadHolder) -> str:
        over: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        return await over

    async def main(trio: Trio, leader: ClusterMachine) -> None:
        lose(trio)
        with pytest.raises(TimeoutError):
            await within(leader, "CREATE t:late", limits.RELEASE_SECONDS * 3)
        trio.named("b").mend()

    monkeypatch.setattr(LeadHolder, "_end_waits", never)
    played(main)
