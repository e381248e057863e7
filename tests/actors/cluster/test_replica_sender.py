"""A leader's side of one follower, on a link whose other end is this test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import pytest

from actors.cluster.log_matching import SyncStatus, Window
from actors.cluster.replica_senders import (
    READ_INDEXES_AT_ONCE,
    Heard,
    ReplicaSender,
    ReplicaSenders,
)
from actors.commits.tail import FRAME_BYTES
from actors.log_reads import LogReads
from protocol import limits
from protocol.errors import LogPruned
from protocol.links import (
    Acknowledge,
    Attach,
    Attached,
    CopyNeeded,
    Frames,
    Link,
    LinkClosed,
    Message,
    Refused,
)
from storage.faults import LogDamaged
from storage.formats.frames import Frame
from tests.actors.cluster.fleet import Fleet, ModelNode
from tests.actors.cluster.wires import WireEnd, at_once, wire
from tests.logbook import Logbook
from tests.simulation.loop import run

NOBODY = Attach([], 0, 0, 0)
"""A follower that has nothing."""
BATCH = limits.SHIP_BATCH_BYTES
WINDOW = limits.SHIP_WINDOW_BYTES


class Leads:
    """A leader in epoch 1 with one follower, and what was heard of that."""

    def __init__(self, node: ModelNode, delay: float = 0.0) -> None:
        self.node = node
        self.here, self.there = wire("a", "b", lambda: delay)
        self.heard: list[tuple[str, int]] = []
        self.task: asyncio.Future[None] | None = None
        self.shipping = ReplicaSender(
            node.runtime, node.committer, cast(LogReads, node.reads), self.here, 1,
            lambda node, upto: self.heard.append(("attached", upto)),
            lambda node, upto: self.heard.append((node, upto)),
        )  # fmt: skip

    def sync_status(self) -> SyncStatus:
        return self.shipping.sync_status

    def owes(self) -> bool:
        return self.shipping.window.owed_since_us is not None

    def commit(self, count: int = 1, size: int = 20) -> None:
        for _ in range(count):
            self.node.log.commit(1, bytes(size))

    async def says(self) -> Any:
        """What it says next, signs of life left out."""
        while True:
            message = await self.there.receive()
            if message != Frames(1, self.node.log.commit_index, []):
                return message

    async def frames(self, upto: int, found: list[Frame] | None = None) -> list[Frame]:
        """All frames up to one; nothing is acknowledged."""
        found = [] if found is None else found
        while not found or found[-1].sequence < upto:
            message = await self.there.receive()
            assert isinstance(message, Frames)
            found += [Frame(*told) for told in message.frames]
        return found

    def acknowledge(self, upto: int, epoch: int = 1) -> None:
        self.there.send(Acknowledge(epoch, upto, 0))

    async def ended(self) -> None:
        """Wait for its end."""
        assert self.task is not None
        await self.task

    async def attach(self, asked: Attach = NOBODY) -> Message:
        self.task = asyncio.ensure_future(self.shipping.run(asked))
        return await self.there.receive()


@asynccontextmanager
async def leads(count: int = 0, delay: float = 0.0) -> AsyncIterator[Leads]:
    fleet = Fleet(1, "a", "a")
    fleet.leader = "a"
    made = Leads(fleet["a"], delay)
    made.commit(count)
    await made.node.log.quiet()
    try:
        yield made
    finally:
        if made.task is not None:  # None: the test was skipped before
            made.task.cancel()
            with suppress(asyncio.CancelledError):
                await made.task
            assert made.node.reads.pins.held == 0, "a pin is left"
            assert made.here.is_closed


def test_frames_follow_where_both_agree() -> None:
    async def main() -> None:
        async with leads(10) as leader:
            digest = leader.node.log.disk[3].digest()
            answer = await leader.attach(Attach([(1, 4, digest)], 4, 2, 1))
            assert answer == Attached(1, 4, 10)
            assert await leader.frames(10) == leader.node.log.disk[4:]
            assert leader.heard == [], "telling a history is no acknowledgement"
            assert leader.shipping.sync_status is SyncStatus.CATCHING_UP
            leader.acknowledge(4)
            leader.acknowledge(10)
            leader.commit()
            await leader.frames(11)
            assert leader.heard == [("attached", 4), ("b", 10)]
            assert (leader.shipping.sync_status, leader.shipping.lag) == (SyncStatus.IN_SYNC, 1)

    run(main(), 1)


@pytest.mark.parametrize(
    ("asked", "code", "sync_status"),
    [
        (Attach([], 0, 0, 2), "NotWritable", SyncStatus.CATCHING_UP),
        (Attach([(1, 20, b"x")], 20, 11, 1), "Stranded", SyncStatus.STRANDED),
        (Attach([(1, 10, b"another")], 10, 0, 1), "Stranded", SyncStatus.STRANDED),
        (Attach([(1, 20, b"x"), (1, 21, b"x")], 21, 0, 1), "BadRequest", SyncStatus.CATCHING_UP),
    ],
)
def test_who_is_not_shipped_to_is_told_why(
    asked: Attach, code: str, sync_status: SyncStatus, logbook: Logbook
) -> None:
    logbook.allow("a follower is stranded")

    async def main() -> None:
        async with leads(10) as leader:
            answer = await leader.attach(asked)
            assert isinstance(answer, Refused)
            assert answer.code == code
            await leader.ended()
            assert leader.shipping.sync_status is sync_status
            assert leader.shipping.reason == answer.message
            with pytest.raises(LinkClosed):
                await leader.there.receive()

    run(main(), 1)


def test_a_log_that_is_gone_is_not_waited_for() -> None:
    async def main() -> None:
        async with leads(10) as leader:
            leader.node.reads.prune(6)
            assert await leader.attach() == CopyNeeded(6)
            await leader.ended()
            assert leader.shipping.sync_status is SyncStatus.COPY_FAILED

    run(main(), 1)


def test_a_frame_that_cannot_be_read_ends_the_link(monkeypatch: pytest.MonkeyPatch) -> None:
    async def damaged(after: int, upto: int, bytes_max: int) -> list[Frame]:
        raise LogDamaged("log", 0, after + 1, "planted")

    async def main() -> None:
        async with leads(10) as leader:
            monkeypatch.setattr(leader.node.reads, "frames", damaged)
            monkeypatch.setattr(leader.node.log.tail, "first", 11)
            assert await leader.attach() == Attached(1, 0, 10)
            answer = await leader.says()
            assert isinstance(answer, Refused)
            assert answer.code == "Failed"

    run(main(), 1)


@pytest.mark.parametrize(
    "said",
    [Acknowledge(1, 11, 0), Acknowledge(2, 4, 0), Acknowledge(1, 3, 0), Attached(1, 4, 4)],
)
def test_what_no_follower_says_ends_the_link(said: Message) -> None:
    async def main() -> None:
        async with leads(10) as leader:
            digest = leader.node.log.disk[3].digest()
            await leader.attach(Attach([(1, 4, digest)], 4, 2, 1))
            leader.there.send(said)
            while not isinstance(answer := await leader.there.receive(), Refused):
                pass
            assert answer.code == "BadRequest"
            assert leader.heard == []

    run(main(), 1)


def test_what_is_released_is_said_at_once_and_gathered() -> None:
    async def main() -> None:
        async with leads() as leader:
            log = leader.node.log
            log.releasable = lambda durable: log.commit_index
            leader.commit(5)
            await log.quiet()
            await leader.attach()
            await leader.frames(5)
            leader.acknowledge(0)
            leader.acknowledge(5)
            await asyncio.sleep(0.01)
            before, since = len(leader.here.sent), asyncio.get_running_loop().time()
            upto = iter(range(1, 6))
            log.releasable = lambda durable: next(upto)
            for _ in range(5):
                log.release_more()
            assert await leader.there.receive() == Frames(1, 5, [])
            assert asyncio.get_running_loop().time() - since < 0.000_01, "it waited for a timer"
            assert len(leader.here.sent) == before + 1

    run(main(), 1)


def test_what_is_present_is_told_no_sooner_than_it_is_released() -> None:
    """Who has just taken the lead knows it before that: its own first frame waits for others."""

    async def main() -> None:
        async with leads() as leader:
            log = leader.node.log
            log.releasable = lambda durable: min(durable, 2)
            leader.commit(3)
            await log.quiet()
            leader.shipping._present = lambda: 3
            await leader.attach()
            await leader.frames(3)
            for asks in range(1, 50):
                leader.there.send(Acknowledge(1, 3, 2, asks=asks))
            assert await leader.there.receive() == Frames(1, 2, [])  # at once, and no answer
            while leader.shipping._asked < 49:
                await asyncio.sleep(0.001)
            assert len(leader.shipping._found) == 1, "they are answered together"
            log.releasable = lambda durable: durable
            log.release_more()
            while (said := await leader.says()) == Frames(1, 2, []):
                pass  # it was hurried meanwhile
            assert said == Frames(1, 3, [], present=49)

    run(main(), 1)


def test_what_a_follower_asks_while_no_round_ends_is_bounded_and_answered() -> None:
    """A member of the set is silent, and the clients of the follower go on asking."""

    async def main() -> None:
        async with leads() as leader:
            asked: list[asyncio.Future[int]] = []

            def present() -> asyncio.Future[int]:
                asked.append(asyncio.get_running_loop().create_future())
                return asked[-1]

            leader.shipping._present = present
            await leader.attach()
            for asks in range(1, 1_000):
                leader.there.send(Acknowledge(1, 0, 0, asks=asks))
            while leader.shipping._asked < 999:
                await asyncio.sleep(0.001)
            assert len(asked) == READ_INDEXES_AT_ONCE
            for one in asked[:]:
                one.set_result(0)
            while len(asked) == READ_INDEXES_AT_ONCE:
                await asyncio.sleep(0.001)
            answered = READ_INDEXES_AT_ONCE
            assert len(asked) == answered + 1, "the newest is asked for all the others"
            asked[-1].set_result(0)
            while answered < 999:
                said = await leader.there.receive()
                assert isinstance(said, Frames)
                answered = max(answered, said.present)

    run(main(), 1)


def test_a_slow_follower_costs_no_more_than_the_window() -> None:
    async def main() -> None:
        async with leads() as leader:
            await leader.attach()
            leader.acknowledge(0)
            found: list[Frame] = []
            log, follows = leader.node.log, asyncio.ensure_future(leader.frames(800, found))
            for _ in range(800):
                leader.commit(size=100_000)
                await asyncio.sleep(0.01)
            assert log.tail.bytes < limits.TAIL_BYTES + 100_000 + FRAME_BYTES
            assert WINDOW <= leader.shipping.window.bytes < WINDOW + BATCH
            assert leader.sync_status() is SyncStatus.CATCHING_UP
            assert leader.node.reads.asked == 0
            # It comes back to life: the rest is read from the log, and kept there until it was.
            while not follows.done():
                leader.acknowledge(len(found))
                await asyncio.sleep(0.01)
                leader.node.reads.prune(801)
                assert leader.shipping.window.bytes < WINDOW + BATCH
            assert found == log.disk
            leader.acknowledge(800)
            assert leader.node.reads.asked > 100
            await asyncio.sleep(0.1)
            assert leader.sync_status() is SyncStatus.IN_SYNC
            assert leader.node.reads.pins.held == 0, "the tail needs none"

    run(main(), 1)


def test_who_takes_nothing_costs_no_more_than_a_link_holds() -> None:
    async def main() -> None:
        async with leads() as leader:
            await leader.attach()
            for _ in range(200):
                leader.commit(size=100_000)
                await asyncio.sleep(0.01)
            assert leader.here.most < limits.LINK_BUFFER_BYTES + BATCH + 10_000

    run(main(), 1)


def test_a_planted_window_without_bound_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Window, "is_open", True)
    with pytest.raises(AssertionError):
        test_a_slow_follower_costs_no_more_than_the_window()


def test_who_stands_still_keeps_the_log_for_no_longer_than_a_pin_lasts() -> None:
    async def main() -> None:
        async with leads() as leader:
            await leader.attach()
            leader.acknowledge(0)
            for _ in range(800):
                leader.commit(size=100_000)
                await asyncio.sleep(0.001)
            for _ in range(limits.LOG_PIN_SECONDS + 60):
                await asyncio.sleep(1)
                leader.acknowledge(0)  # it lives
            leader.node.reads.prune(801)
            with pytest.raises(LogPruned):
                leader.node.reads.pin(800)
            leader.acknowledge(WINDOW // 100_000)
            while not isinstance(await leader.there.receive(), CopyNeeded):
                pass

    run(main(), 1)


def test_a_frame_larger_than_the_window_goes_alone() -> None:
    async def main() -> None:
        async with leads() as leader:
            await leader.attach()
            for _ in range(2):
                leader.commit(size=2 * WINDOW)
            leader.commit(3)
            first = await leader.says()
            assert [told[0] for told in first.frames] == [1]
            leader.acknowledge(0)
            await asyncio.sleep(0.1)
            assert leader.here.bytes < 100, "nothing more is sent"
            leader.acknowledge(1)
            second = await leader.says()
            assert [told[0] for told in second.frames] == [2]
            leader.acknowledge(2)
            assert len(await leader.frames(5)) == 3

    run(main(), 1)


def test_the_time_that_a_link_takes_bounds_nobodys_writing() -> None:
    async def main() -> None:
        async with leads(delay=0.05) as leader:
            await leader.attach()
            loop = asyncio.get_running_loop()

            async def acknowledges() -> None:
                upto = 0
                while upto < 2_000:
                    message = await leader.there.receive()
                    assert isinstance(message, Frames)
                    upto = message.frames[-1][0] if message.frames else upto
                    leader.acknowledge(upto)

            follower = asyncio.ensure_future(acknowledges())
            since = loop.time()
            for _ in range(2_000):
                leader.commit(size=10_000)
                await asyncio.sleep(0.000_1)
            await follower
            while leader.shipping.lag:
                await asyncio.sleep(0.001)
            assert loop.time() - since < 0.6, "twenty megabytes, with 100 ms there and back"

    run(main(), 1)


def test_it_says_something_every_second_and_knows_who_owes_an_answer() -> None:
    async def main() -> None:
        async with leads(1) as leader:
            await leader.attach()
            await leader.frames(1)
            leader.acknowledge(0)
            leader.acknowledge(1)
            await asyncio.sleep(0.01)
            assert not leader.owes()
            loop = asyncio.get_running_loop()
            for _ in range(3):
                since = loop.time()
                assert await leader.there.receive() == Frames(1, 1, [])
                assert loop.time() - since <= limits.SHIP_BEAT_SECONDS
                assert leader.owes()
                leader.acknowledge(1)
                await asyncio.sleep(0.01)
                assert not leader.owes()
            since = loop.time()
            with pytest.raises(LinkClosed, match="30 s"):
                while True:
                    await leader.there.receive()
            assert loop.time() - since <= limits.SHIP_SILENT_SECONDS + 1

    run(main(), 1)


def test_frames_of_a_later_epoch_are_not_sent_in_an_older_ones_name() -> None:
    async def main() -> None:
        async with leads(1) as leader:
            await leader.attach()
            await leader.frames(1)
            leader.node.log.commit(2, b"of who leads now")
            answer = await leader.says()
            assert isinstance(answer, Refused)
            assert answer.code == "NotWritable"

    run(main(), 1)


def test_a_link_that_a_follower_ends_leaves_nothing() -> None:
    async def main() -> None:
        async with leads(1) as leader:
            await leader.attach()
            leader.there.close("it stops")
            await leader.ended()
            assert leader.shipping.reason == "it stops"
            assert not leader.node.log.tail._followers

    run(main(), 1)


class Noted:
    """What the senders say of followers (`SendingMember`)."""

    sender_epoch = 1
    beat_seconds = 1.0

    def __init__(self) -> None:
        self.heard: list[tuple[str, str]] = []

    def check_copied(self) -> None:
        raise AssertionError("nobody copies here")

    def attached(self, node: str, upto: int) -> None:
        self.heard.append(("attached", node))

    def on_report(self, node: str, synced: int, applied: int, heard_us: int) -> None:
        pass

    def said(self, node: str, number: int) -> None:
        pass

    def left(self, node: str) -> None:
        self.heard.append(("left", node))


def test_who_comes_again_over_another_link_has_left_before() -> None:
    """What it acknowledged over the first link no longer counts: the second may be of an older
    copy."""

    async def main() -> None:
        fleet, member = Fleet(1, "a", "a"), Noted()
        fleet.leader = "a"
        node = fleet["a"]

        def begin(link: Link, epoch: int, attached: Heard, heard: Heard, beat: Any) -> Any:
            reads = cast(LogReads, node.reads)
            return ReplicaSender(
                node.runtime, node.committer, reads, link, epoch, attached, heard, beat
            )

        senders = ReplicaSenders(node.runtime.clock, member, begin)
        accepting = []
        for number in range(2):
            here, there = wire("a", "b", lambda: 0.0)
            accepting.append(asyncio.ensure_future(senders.accept(here)))
            there.send(NOBODY)
            assert isinstance(await there.receive(), Attached)
            assert member.heard[2 * number - 1 :] == [("left", "b")] * number
            there.send(Acknowledge(1, 0, 0))
            await until(lambda: member.heard[-1:] == [("attached", "b")])
        senders.end_all()
        await asyncio.gather(*accepting)
        assert member.heard == [("attached", "b"), ("left", "b")] * 2

    run(main(), 1)


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.01)


def test_the_other_end_is_this_test() -> None:
    async def main() -> None:
        one, other = wire("a", "b", at_once)
        assert isinstance(one, WireEnd)
        one.send(Frames(1, 1, []))
        one.close("over")
        assert await other.receive() == Frames(1, 1, [])
        with pytest.raises(LinkClosed, match="over"):
            await other.receive()

    run(main(), 1)
