"""A follower's side, on a link whose other end is this test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from itertools import pairwise

import pytest

from actors.cluster.log_matching import SyncStatus
from actors.cluster.replica_receiver import (
    FIRST_MS,
    LONGEST_MS,
    Backoff,
    CopyMissing,
    LeaderConnector,
    ReplicaReceiver,
)
from protocol import limits
from protocol.errors import BadRequest, Busy, DiskFull, Diverged, Failed, Refusal, Stranded
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
from storage.formats.frames import Frame
from tests.actors.cluster.fleet import Fleet, ModelNode
from tests.actors.cluster.wires import wire
from tests.logbook import Logbook
from tests.simulation.environment import SeededRng
from tests.simulation.loop import run


def frames(first: int, count: int, epoch: int = 1, size: int = 20) -> list[Frame]:
    return [Frame(sequence, epoch, 0, 0, bytes(size)) for sequence in range(first, first + count)]


class Follows:
    """A follower, and the link that it has with this test."""

    def __init__(self, node: ModelNode, epoch: int | None) -> None:
        self.node = node
        self.log = node.log
        self.here, self.there = wire("b", "a")
        self.receiving = ReplicaReceiver(
            node.runtime, node.committer, node.epochs, self.here, epoch
        )
        self.task = asyncio.ensure_future(self.receiving.run())

    def say(self, released: int, told: list[Frame], epoch: int = 1) -> None:
        self.there.send(Frames(epoch, released, [*told]))

    async def hears(self) -> Message:
        return await self.there.receive()

    async def attach(self, agree: int = 0, released: int = 0, epoch: int = 1) -> Attach:
        asked = await self.hears()
        assert isinstance(asked, Attach)
        self.there.send(Attached(epoch, agree, released))
        assert await self.hears() == Acknowledge(epoch, agree, self.log.commit_index)
        return asked


@asynccontextmanager
async def follows(held: list[Frame] | None = None, epoch: int | None = 1) -> AsyncIterator[Follows]:
    """A follower with some frames, of which none is released."""
    fleet = Fleet(1, "ab", "b")
    fleet.leader = "b"  # what it shows is taken for released
    fleet["b"].log.disk += held or []
    made = Follows(fleet["b"], epoch)
    try:
        yield made
    finally:
        made.task.cancel()
        with suppress(asyncio.CancelledError, LinkClosed, Refusal, CopyMissing):
            await made.task
        assert made.here.is_closed


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def test_it_tells_what_it_has_and_takes_what_follows() -> None:
    async def main() -> None:
        held = frames(1, 4)
        async with follows(held) as follower:
            asked = await follower.attach(agree=4, released=3)
            assert asked == Attach([(1, 4, held[-1].digest())], 4, 0, 1)
            assert follower.log.commit_index == 3
            follower.say(3, frames(5, 10))
            assert await follower.hears() == Acknowledge(1, 14, 3)
            follower.say(14, [])
            await until(lambda: follower.log.commit_index == 14)
            assert follower.receiving.is_in_sync
            follower.say(14, [])
            assert await follower.hears() == Acknowledge(1, 14, 14), "a sign of life is answered"

    run(main(), 1)


def test_the_promise_is_on_the_disk_before_anything_is_told() -> None:
    async def main() -> None:
        async with follows(epoch=7) as follower:
            asked = await follower.hears()
            assert isinstance(asked, Attach)
            assert asked.promised == follower.node.epochs.promised == 7
        async with follows(epoch=None) as follower:
            asked = await follower.hears()
            assert isinstance(asked, Attach)
            assert asked.promised == 0
            follower.there.send(Attached(3, 0, 0))
            assert await follower.hears() == Acknowledge(3, 0, 0)
            assert follower.node.epochs.promised == 3

    run(main(), 1)


def test_its_log_is_cut_before_it_acknowledges() -> None:
    async def main() -> None:
        async with follows(frames(1, 9)) as follower:
            await follower.attach(agree=5)
            assert follower.log.disk == frames(1, 5)
            follower.say(0, frames(6, 1, epoch=1, size=99))
            assert await follower.hears() == Acknowledge(1, 6, 0)

    run(main(), 1)


def test_what_is_synced_together_is_acknowledged_together() -> None:
    async def main() -> None:
        async with follows() as follower:
            await follower.attach()
            follower.log.stalled = True
            for first in range(1, 101):
                follower.say(0, frames(first, 1))
            await asyncio.sleep(0.1)
            before = len(follower.here.sent)
            follower.log.stalled = False
            assert await follower.hears() == Acknowledge(1, 100, 0)
            assert len(follower.here.sent) == before + 1

    run(main(), 1)


@pytest.mark.parametrize(
    ("said", "raised"),
    [
        (Frames(1, 0, [*frames(2, 1)]), Diverged),
        (Frames(1, 0, [*frames(1, 1, epoch=2)]), LinkClosed),
        (Frames(2, 0, [*frames(1, 1)]), LinkClosed),
        (CopyNeeded(9), CopyMissing),
        (Refused("Stranded", "planted"), Stranded),
        (Refused("Busy", "planted"), Busy),
        (Refused("NoSuchCode", "planted"), Failed),
        (Acknowledge(1, 1, 1), BadRequest),
    ],
)
def test_what_a_leader_should_not_say_ends_the_link(said: Message, raised: type[Exception]) -> None:
    async def main() -> None:
        async with follows() as follower:
            await follower.attach()
            follower.there.send(said)
            with pytest.raises(raised):
                await follower.task
            assert follower.log.disk == []

    run(main(), 1)


def test_a_leader_of_an_epoch_that_is_over_is_not_listened_to() -> None:
    async def main() -> None:
        async with follows() as follower:
            await follower.attach()
            follower.say(0, frames(1, 1))
            await follower.node.epochs.promise(2)
            follower.say(0, frames(2, 1))
            with pytest.raises(LinkClosed, match="2 was promised"):
                await follower.task
            with pytest.raises(LinkClosed):
                await follower.hears()
        async with follows() as follower:
            await follower.node.epochs.promise(2)
            await follower.hears()
            follower.there.send(Attached(1, 0, 0))
            with pytest.raises(LinkClosed, match="2 was promised"):
                await follower.task

    run(main(), 1)


def test_what_was_sent_before_a_promise_is_not_acknowledged_behind_it() -> None:
    async def main() -> None:
        async with follows() as follower:
            await follower.attach()
            follower.log.stalled = True
            follower.say(0, frames(1, 3))
            await asyncio.sleep(0.01)
            await follower.node.epochs.promise(2)
            follower.log.stalled = False
            await follower.log.quiet()
            await asyncio.sleep(0.01)
            assert not [said for said in follower.here.sent if said == Acknowledge(1, 3, 0)]

    run(main(), 1)


def test_a_log_that_takes_nothing_ends_the_link(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with follows() as follower:
            await follower.attach()
            refused: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            monkeypatch.setattr(follower.log, "receive", lambda told, released: refused)
            follower.say(0, frames(1, 1))
            await asyncio.sleep(0.01)
            refused.set_exception(DiskFull("no room"))
            with pytest.raises(DiskFull):
                await follower.task

    run(main(), 1)


def test_it_takes_no_more_than_its_disk_does() -> None:
    async def main() -> None:
        async with follows() as follower:
            await follower.attach()
            follower.log.stalled = True
            for first in range(1, 101):
                follower.say(0, frames(first, 1, size=limits.MIB))
            await asyncio.sleep(0.1)
            taken = sum(len(batch) for batch, _, _ in follower.log._taken)
            assert taken <= 2 * limits.SHIP_WINDOW_BYTES // limits.MIB + 1
            follower.log.stalled = False
            await until(lambda: len(follower.log.disk) == 100)

    run(main(), 1)


def test_a_leader_that_says_nothing_is_given_up() -> None:
    async def main() -> None:
        async with follows() as follower:
            await follower.attach()
            since = asyncio.get_running_loop().time()
            with pytest.raises(LinkClosed, match="30 s"):
                await follower.task
            passed = asyncio.get_running_loop().time() - since
            assert limits.SHIP_SILENT_SECONDS <= passed <= 1.5 * limits.SHIP_SILENT_SECONDS

    run(main(), 1)


# --- attempts -------------------------------------------------------------------------------------


def test_pauses_grow_are_bounded_and_differ() -> None:
    one, other = Backoff(SeededRng(1)), Backoff(SeededRng(2))
    pauses = [one.next_seconds() for _ in range(12)]
    at_most = [min(FIRST_MS << step, LONGEST_MS) / 1_000 for step in range(12)]
    assert all(most / 2 <= each <= most for each, most in zip(pauses, at_most, strict=True))
    assert pauses != [other.next_seconds() for _ in range(12)]
    one.over()
    assert one.next_seconds() <= FIRST_MS / 1_000


def test_it_comes_again_until_another_attempt_would_bring_nothing(logbook: Logbook) -> None:
    logbook.allow("this node stopped following the leader")

    async def main() -> None:
        fleet = Fleet(1, "ab", "a")
        node = fleet["b"]
        nobody: list[Message | None] = [None] * 6
        answers = [*nobody, Refused("Busy", "later"), CopyNeeded(7)]
        times: list[float] = []

        async def connect() -> Link:
            times.append(asyncio.get_running_loop().time())
            answer = answers.pop(0)
            if answer is None:
                raise LinkClosed("nobody is there")
            here, there = wire("b", "a")
            there.send(answer)
            return here

        follows = LeaderConnector(
            node.runtime, SeededRng(1), node.committer, node.epochs, connect, 1
        )
        task = asyncio.ensure_future(follows.run())
        await until(lambda: len(times) == 2)
        assert (follows.sync_status, follows.reason) == (SyncStatus.CATCHING_UP, "nobody is there")
        await task
        assert (follows.sync_status, follows.copy_from) == (SyncStatus.COPY_FAILED, 7)
        pauses = [later - before for before, later in pairwise(times)]
        assert pauses[0] < pauses[2] < pauses[4] < pauses[6]

    run(main(), 1)
