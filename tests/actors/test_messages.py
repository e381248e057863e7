"""The engine for operations on messages: slow, full and failing disks, barriers, time, the end."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from actors.commits.priority_locks import PriorityLockRequest
from actors.messages import engine
from actors.node import Node
from actors.runtime import ask
from protocol import limits
from protocol.errors import Cancelled, DiskFull, SessionEnded, StatementTimeout, UnknownOutcome
from protocol.messages import (
    AckMessages,
    GiveUpMessages,
    MessageOperation,
    PublishMessages,
    TakeMessages,
)
from protocol.requests import SignIn, SignOut
from storage.catalog import places
from storage.engine.memory import MemoryEngine
from storage.topics import topics
from storage.txn.read_set import ReadSet
from storage.txn.tickets import RollBacks
from tests.actors.nodes import ANA, prepare, run, running, simulated_environment, value
from tests.actors.parts import Played, code, on_stepped, outcome
from tests.actors.scripts.test_stalled_disk import Stall, log_time
from tests.operations import Operated
from tests.receipts import settled
from tests.simulation.disk import Fault, SimulatedDisk

DECLARED = "DEFINE TOPIC q; DEFINE GROUP g ON q DEADLINE 10s IN FLIGHT 1000"
SECOND = 1_000_000


@asynccontextmanager
async def whole(_kind: str) -> AsyncIterator[tuple[Node, SimulatedDisk]]:
    disk = SimulatedDisk()
    async with running(simulated_environment("stepped", disk, MemoryEngine())) as node:
        await prepare(node)
        await value(node, DECLARED)
        yield node, disk


played = Played(whole).stepped


def do(node: Node, operation: MessageOperation, timeout_us: int | None = None) -> Operated:
    return Operated(node, operation, ANA, ("a", "b"), timeout_us)


def publish(node: Node, *values: Any, timeout_us: int | None = None) -> Operated:
    return do(node, PublishMessages("q", values, len(values) > 1), timeout_us)


def take(node: Node, wait_us: int | None = None, timeout_us: int | None = None) -> Operated:
    return do(node, TakeMessages("q", "g", wait_us=wait_us), timeout_us)


def ack(node: Node, *messages: Any) -> Operated:
    return do(node, AckMessages("q", "g", [one["receipt"] for one in messages]))


async def info(node: Node) -> list[dict[str, Any]]:
    return [one for one in await value(node, "INFO FOR RUNNING") if one["waiting"]]


# --- the end of a turn ----------------------------------------------------------------------------


def on_turn_end(node: Node) -> None:
    """As a surface that has asked for all that it read."""
    node.messages.on_turn_end()
    node.committer.on_turn_end()


def is_at_log(node: Node) -> bool:
    """Whether the log has a batch."""
    return node.committer.log_is_busy


@played
async def test_one_that_is_alone_is_at_the_log_when_its_turn_ends(node: Node, /) -> None:
    publishing = publish(node, 1)
    assert not is_at_log(node)
    on_turn_end(node)
    assert is_at_log(node)
    assert not publishing.told, "it is not on the disk"
    await publishing
    assert node.committer.commit_index == node.committer.committed


@played
async def test_a_message_and_its_taking_go_to_the_log_together_in_the_turn_of_the_first(
    node: Node, /
) -> None:
    taking = take(node, wait_us=60 * SECOND)
    while not await info(node):
        await asyncio.sleep(0)
    before, batches = node.committer.committed, batches_of(node)
    publishing = publish(node, 1)
    on_turn_end(node)
    assert node.committer.committed == before + 2
    assert batches == [[before + 1, before + 2]]
    assert not taking.told and not publishing.told, "neither is on the disk"
    assert len(await taking) == 1
    await publishing


@played
async def test_of_many_who_comes_waits_for_a_slice_at_most_and_who_is_alone_once(
    node: Node, /
) -> None:
    for one in [publish(node, number) for number in range(8)]:
        await one
    time = asyncio.get_running_loop().time
    for count in (5, 1):
        before, began = node.messages.commits, time()
        asked = [publish(node, number) for number in range(count)]
        on_turn_end(node)
        await asyncio.sleep(0)
        assert node.messages.commits == before, "others may come"
        while node.messages.commits == before:
            await asyncio.sleep(limits.SLICE_US / 10_000_000)
        assert (time() - began) * 1_000_000 < 1.5 * limits.SLICE_US, "in virtual time"
        for one in asked:
            await one
    publishing = publish(node, 1)
    on_turn_end(node)
    assert is_at_log(node)
    await publishing


def batches_of(node: Node) -> list[list[int]]:
    """Gets the sequences of each batch that is given to the log from now on."""
    batches: Any = node.committer._batches
    seen: list[list[int]] = []
    send = batches._send

    def sent(frames: list[Any]) -> None:
        seen.append([frame.sequence for frame in frames])
        send(frames)

    batches._send = sent
    return seen


# --- a disk that stalls ---------------------------------------------------------------------------


@played
async def test_a_deadline_counts_from_the_release_of_its_answer(node: Node, /) -> None:
    await publish(node, 1)
    stall = Stall(node)
    taking, other = take(node), take(node, wait_us=120 * SECOND)
    await asyncio.sleep(25)
    assert not taking.told and not other.told, "to nobody else meanwhile"
    stall.end()
    (taken,) = await taking
    assert taken["attempt"] == 1
    left = taken["deadline"] - log_time(node)
    assert timedelta(seconds=9) < left <= timedelta(seconds=10), "all of it is left"
    await asyncio.sleep(9)
    assert not other.told
    await asyncio.sleep(2)
    (again,) = await other
    assert again["attempt"] == 2, "it lapses in its time"
    assert (await ack(node, taken))["stale"] == 1
    assert (await ack(node, again))["acked"] == 1


@played
async def test_who_waits_for_the_disk_is_bounded_seen_and_ended(node: Node, /) -> None:
    stall = Stall(node)
    bounded = publish(node, 1, timeout_us=2 * SECOND)
    killed, waits = publish(node, 2), publish(node, 3)
    await asyncio.sleep(1)
    seen = await info(node)
    assert [one["text"] for one in seen] == ["PUBLISH INTO q VALUE $value"] * 3
    assert all(one["commit"] for one in seen) and seen[0]["left"] is not None
    await asyncio.sleep(1.1)
    assert type(await outcome(bounded)) is UnknownOutcome
    assert (await run(node, f"KILL '{killed.asked.id}'")).refusal is None
    await asyncio.sleep(0.5)
    assert not killed.told, "it gets a moment to learn what became of it"
    await asyncio.sleep(0.6)
    assert type(await outcome(killed)) is UnknownOutcome
    assert not waits.told
    stall.end()
    assert (await waits)["position"] == 3
    found = await value(node, "READ FROM q AFTER 0")
    assert [each["value"] for each in found] == [1, 2, 3], "and all of them happened"


@played
async def test_a_stall_holds_nobody_who_has_not_been_run(node: Node, /) -> None:
    """What comes while the log has a batch is held for a moment only, and then run."""
    stall = Stall(node)
    before = node.committer.committed
    first = publish(node, 1)
    await asyncio.sleep(0.1)
    second = publish(node, 2)
    await asyncio.sleep(0.1)
    assert node.committer.committed == before + 2
    stall.end()
    assert [(await one)["position"] for one in (first, second)] == [1, 2]


@played
async def test_what_comes_while_the_log_is_busy_shares_a_commit(node: Node, /) -> None:
    stall = Stall(node)
    first = publish(node, 0)
    await asyncio.sleep(0.01)
    before = node.committer.committed
    rest = []
    for number in range(1, 20):
        rest.append(publish(node, number))
        await asyncio.sleep(0)
    stall.end()
    await asyncio.gather(*map(outcome, (first, *rest)))
    assert node.committer.committed - before <= 2


# --- a full disk ----------------------------------------------------------------------------------


@played
async def test_a_full_disk_takes_what_only_removes(node: Node, disk: SimulatedDisk, /) -> None:
    """What adds is refused, what came with it and only removes is done: both in one gathering."""
    await publish(node, *range(50))
    taken = await do(node, TakeMessages("q", "g", 50))
    disk.plan = lambda kind, path: Fault(errno.ENOSPC) if kind == "append" else None
    assert type(await outcome(publish(node, "x" * 1000))) is DiskFull
    full = [publish(node, "x" * 1000) for _ in range(3)]
    assert {code(await outcome(one)) for one in full} == {"DiskFull"}
    disk.plan = None
    assert (await outcome(ack(node, *taken)))["acked"] == 50
    assert (await publish(node, 1))["position"] == 51


@played
async def test_what_is_taken_back_was_not_handed_out(node: Node, disk: SimulatedDisk, /) -> None:
    await publish(node, 1, 2)
    waits = take(node, wait_us=0)
    disk.plan = lambda kind, path: Fault(errno.ENOSPC) if kind == "append" else None
    assert type(await outcome(waits)) is DiskFull
    disk.plan = None
    (taken,) = await take(node)
    assert (taken["position"], taken["attempt"]) == (1, 1)


# --- barriers -------------------------------------------------------------------------------------


def barrier(node: Node) -> PriorityLockRequest:
    """One that keeps everything still."""
    reads = ReadSet(0, RollBacks())
    reads.add_range(b"\0", b"\xff" * 40)
    place = PriorityLockRequest(node.committer.priority_locks, "test", reads, lambda: None)
    node.committer.priority_locks.join(place)
    assert place.holds_lock
    return place


async def held_by_id(node: Node) -> tuple[PriorityLockRequest, Operated]:
    """A barrier that stands in the way of one publish alone, to another topic; and that publish,
    held back."""
    await value(node, "DEFINE TOPIC ids DEDUP 10m")
    with node.committer.begin_transaction() as tx:
        database = places.database(tx, places.namespace(tx, "a"), "b")
        topic = topics.topic(tx, database, "ids")
    reads = ReadSet(0, RollBacks())
    reads.add_key(topic.ids + b"x")
    place = PriorityLockRequest(node.committer.priority_locks, "test", reads, lambda: None)
    node.committer.priority_locks.join(place)
    held = do(node, PublishMessages("ids", ["held"], id="x"))
    while not held.asked.rests:
        await asyncio.sleep(0.01)
    return place, held


@played
async def test_a_barrier_holds_operations_back_in_their_order(node: Node, /) -> None:
    place = barrier(node)
    asked = [publish(node, number) for number in range(3)]
    await asyncio.sleep(0.5)
    later = [publish(node, number) for number in range(3, 5)]
    bounded = publish(node, "late", timeout_us=SECOND)
    waiting = take(node, wait_us=SECOND)
    await asyncio.sleep(2)
    assert type(await outcome(bounded)) is StatementTimeout, "it was never run"
    assert not any(one.told for one in (*asked, *later))
    assert len(await info(node)) >= 5
    asked[1].asked.end(Cancelled("gone"))
    assert type(await outcome(asked[1])) is Cancelled
    place.leave()
    positions = [(await one)["position"] for one in (asked[0], asked[2], *later)]
    assert positions == [1, 2, 3, 4]
    found = await value(node, "READ FROM q AFTER 0")
    assert [each["value"] for each in found] == [0, 2, 3, 4]
    assert [each["position"] for each in await waiting] == [1], "it came after them"


@played
async def test_a_take_that_waits_is_not_held_back_with_its_connection(node: Node, /) -> None:
    """It was put aside when its turn came, and kept it: nobody in its line heard of anything."""
    first = take(node, wait_us=5 * SECOND)
    other = replace(ANA, address="192.0.2.2:5000")
    waiting = TakeMessages("q", "g", wait_us=5 * SECOND)
    second = Operated(node, waiting, other, ("a", "b"))
    while not (first.asked.rests and second.asked.rests):
        await asyncio.sleep(0.01)
    place, held = await held_by_id(node)
    third = replace(ANA, address="192.0.2.3:5000")
    for number, taking in enumerate((first, second)):
        published = Operated(node, PublishMessages("q", [number]), third, ("a", "b"))
        await published
        assert [each["value"] for each in await taking] == [number]
    late = take(node)
    await asyncio.sleep(1)
    assert place.holds_lock and not held.told and not late.told, "what was sent behind it waits"
    place.leave()
    await held
    assert await late == []


@played
async def test_operations_that_were_all_ended_before_they_were_run_need_no_log(
    node: Node, /
) -> None:
    _place, held = await held_by_id(node)
    ended, behind = publish(node, 1), publish(node, 2)
    ended.asked.end(Cancelled("gone"))
    node.committer.lose(OSError(errno.EIO, "gone"))
    on_turn_end(node)
    assert behind.asked.rests, "it waits behind what is held back"
    for one in (held, behind):
        one.asked.end(Cancelled("gone"))
    for one in (ended, held, behind):
        assert type(await outcome(one)) is Cancelled


# --- waiting, time, the end -----------------------------------------------------------------------


@played
async def test_delayed_messages_and_deadlines_wake_who_waits(node: Node, /) -> None:
    await do(node, PublishMessages("q", ["later"], delay_us=3 * SECOND))
    began = log_time(node)
    (taken,) = await take(node, wait_us=60 * SECOND)
    assert taken["value"] == "later"
    assert log_time(node) - began < timedelta(seconds=3.5)
    (again,) = await take(node, wait_us=60 * SECOND)
    assert again["attempt"] == 2, "its deadline has passed"


@pytest.mark.parametrize("bad", [{"member": ""}, {"count": 0}])
@played
async def test_one_that_is_refused_leaves_what_there_is_to_who_came_with_it(
    node: Node, /, bad: dict[str, Any]
) -> None:
    """It had the turn of its line, and was gone before they stood in it: all of them slept beside a
    message for as long as they would wait."""
    await publish(node, 1)
    began, commits = log_time(node), node.messages.commits
    refused = do(node, TakeMessages("q", "g", wait_us=5 * SECOND, **bad))
    first, second = (take(node, wait_us=3 * SECOND) for _ in range(2))
    assert code(await outcome(refused)) == "BadRequest"
    assert [one["value"] for one in await first] == [1]
    assert log_time(node) - began < timedelta(seconds=1)
    assert node.messages.commits == commits + 1, "what was refused is no commit"
    assert await second == []


@played
async def test_a_take_that_has_much_to_pass_goes_on_in_parts(
    node: Node, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = [do(node, PublishMessages("q", [n], delay_us=900 * SECOND)) for n in range(1_300)]
    for one in hidden:
        await one
    await publish(node, "found")
    before = node.committer.committed
    (taken,) = await take(node)
    assert taken["value"] == "found"
    assert node.committer.committed - before == 3


@played
async def test_what_takes_longer_than_a_slice_is_run_as_a_script(node: Node, /) -> None:
    assert (await publish(node, *range(5_000)))["last"] == 5_000
    taken = await do(node, TakeMessages("q", "g", 600))
    receipts = [one["receipt"] for one in taken]
    gone = do(node, GiveUpMessages("q", "g", receipts[:300]))
    assert await gone == settled("given_up", 300)
    assert await do(node, AckMessages("q", "g", receipts)) == settled("acked", 300, receipts[:300])
    refused = await outcome(do(node, AckMessages("nowhere", "g", receipts)))
    assert code(refused) == "Unknown" and "line" not in refused.detail
    ended = do(node, AckMessages("q", "g", receipts))
    ended.asked.end(Cancelled("gone"))
    assert type(await outcome(ended)) is Cancelled


@played
async def test_a_give_up_that_is_too_large_is_not_half_done_and_spoils_no_other(
    node: Node, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some of its dead letters were made when it was refused."""
    await value(node, "DEFINE TOPIC dead; ALTER GROUP g ON q SET DEAD LETTER dead")
    for _ in range(8):
        await publish(node, "x" * 2 * limits.MIB)
    taken = [one for _ in range(8) for one in await take(node)]
    monkeypatch.setattr(limits, "TRANSACTION_BYTES", 8 * limits.MIB)
    receipts = [one["receipt"] for one in taken]
    before, large = do(node, AckMessages("q", "g", receipts[:1])), receipts[1:]
    refused = do(node, GiveUpMessages("q", "g", large))
    behind = publish(node, "small")
    assert await before == settled("acked", 1)
    assert code(await outcome(refused)) == "TooLarge"
    assert (await behind)["position"] == 9
    assert await value(node, "READ FROM dead AFTER 0") == []
    assert await do(node, AckMessages("q", "g", large)) == settled("acked", 7)


def test_a_gathering_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """In bytes and in number: one that comes with a thousand others does not wait for all."""
    monkeypatch.setattr(engine, "COMMIT_BYTES", 10_000)

    async def main(node: Node, _disk: SimulatedDisk) -> None:
        before = node.committer.committed
        asked = [publish(node, "x" * 4_000) for _ in range(30)]
        assert [(await one)["position"] for one in asked] == list(range(1, 31))
        assert node.committer.committed - before >= 10

    played.run(main)


@on_stepped
async def test_a_node_that_stops_answers_all() -> None:
    async def main(node: Node, _disk: SimulatedDisk) -> None:
        waits, queued = take(node, wait_us=60 * SECOND), publish(node, 1)
        await queued
        await waits
        waits = take(node, wait_us=60 * SECOND)
        await asyncio.sleep(0.1)
        await node.stop()
        assert code(await outcome(waits)) == "Draining" or await waits == []
        assert code(await outcome(publish(node, 2))) == "Draining"

    disk = SimulatedDisk()
    async with running(simulated_environment("stepped", disk, MemoryEngine())) as node:
        await prepare(node)
        await value(node, DECLARED)
        try:
            await main(node, disk)
        finally:
            node.stop = lambda: asyncio.sleep(0)  # type: ignore[method-assign]


@played
async def test_what_is_queued_when_its_session_ends_is_not_done(node: Node, /) -> None:
    await value(node, "DEFINE USER bob ROLE owner PASSWORD 'bob-bob-bob'")
    session = await ask(node.sessions, SignIn("bob", "bob-bob-bob", "wire", "192.0.2.2:1"))
    ended = ask(node.sessions, SignOut(session.token))
    late = Operated(node, PublishMessages("q", [1], False), session.caller, ("a", "b"), None)
    await ended
    assert isinstance(await outcome(late), SessionEnded)
    assert await value(node, "READ FROM q AFTER 0") == []
