"""A leader's state and a follower's are compared; who differs is stranded, and says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from actors.cluster import state_check
from actors.cluster.log_matching import SyncStatus
from actors.cluster.replica_receiver import ReplicaReceiver
from actors.cluster.replica_senders import ReplicaSender
from actors.cluster.role import Alone
from actors.cluster.state_check import FollowerComparison, StateComparison
from actors.node import Node, start
from protocol import limits
from protocol.errors import NotWritable, Stranded
from protocol.links import Attach
from storage.engine.memory import MemoryEngine
from storage.files import cluster_file
from storage.files.cluster_file import ClusterState
from storage.files.directory import StoreDirectory
from storage.txn.transaction import Transaction
from tests.actors.cluster.wires import wire
from tests.actors.nodes import prepare, run, settings, simulated_environment
from tests.actors.parts import key
from tests.logbook import Logbook
from tests.simulation import loop as stepped
from tests.simulation.disk import SimulatedDisk
from tests.simulation.environment import LoopClock, SeededRng

AWAY = NotWritable("this node follows another one")


class Epochs:
    """What was promised, on a disk of its own."""

    promised = 0

    async def promise(self, epoch: int) -> None:
        self.promised = max(self.promised, epoch)


class Two:
    """A leader and its follower, attached."""

    def __init__(self, leader: Node, follower: Node, engine: MemoryEngine) -> None:
        self.leader, self.follower, self.engine = leader, follower, engine
        self.here, self.there = wire("a", "b")
        self.shipping = ReplicaSender(
            leader.runtime, leader.committer, leader.reads, self.here, 2, _nothing, _nothing
        )
        self.receiving = ReplicaReceiver(
            follower.runtime, follower.committer, Epochs(), self.there, 2
        )
        self.comparing = StateComparison(leader.runtime, leader.committer, lambda: [self.shipping])

    async def attach(self) -> None:
        self.following = asyncio.ensure_future(self.receiving.run())
        asked = await self.here.receive()
        assert isinstance(asked, Attach)
        self.leads = asyncio.ensure_future(self.shipping.run(asked))
        while self.shipping.sync_status is not SyncStatus.IN_SYNC:
            await asyncio.sleep(0.01)

    async def end(self) -> None:
        for task in (self.following, self.leads):
            task.cancel()
            with suppress(asyncio.CancelledError, Stranded):
                await task


def _nothing(_node: str, _upto: int) -> None:
    pass


@asynccontextmanager
async def two() -> AsyncIterator[Two]:
    clock = LoopClock(asyncio.get_running_loop())
    disk, engines = SimulatedDisk(), [MemoryEngine(), MemoryEngine(), MemoryEngine()]
    first = await start(settings(), simulated_environment("stepped", disk, engines[0], 1, clock))
    await prepare(first)
    await run(first, "FOR $n IN 1..50 { UPSERT t:[$n] SET n = $n }")
    await first.stop()
    directory = StoreDirectory.open("/store", disk, clock, SeededRng(1), create=False)
    cluster_file.save(directory, ClusterState(coordinating=True))
    directory.close()
    nodes = [
        await start(
            settings(),
            simulated_environment("stepped", SimulatedDisk(disk.image()), engine, 2, clock),
        )
        for engine in engines[1:]
    ]
    for node in nodes:  # what coordinates is the test
        await node.cluster.stop()
        node.member._role = Alone()
        node.roles.check_told = None
    await nodes[0].committer.begin_leading(2)
    made = Two(nodes[0], nodes[1], engines[2])
    await made.attach()
    try:
        yield made
    finally:
        await made.end()
        for node in nodes:
            await node.stop()


def test_states_are_compared_while_others_write(logbook: Logbook) -> None:
    async def main() -> None:
        async with two() as made:
            writes = [
                asyncio.ensure_future(run(made.leader, f"UPSERT t:{n} SET a = {n}"))
                for n in range(20)
            ]
            for _ in range(3):
                await made.comparing.compare()
                await asyncio.sleep(1)
            await asyncio.gather(*writes)
            while made.follower.committer.commit_index < made.leader.committer.committed:
                await asyncio.sleep(0.01)
            assert made.comparing.compared == 3
            assert logbook.names().count("the state is the leader's") == 3
            assert not made.leader.committer.ledger.state.moments
            assert not made.follower.committer.ledger.state.moments
            assert made.receiving.is_in_sync

    stepped.run(main(), 1)


def test_a_state_that_differs_strands_its_node(logbook: Logbook) -> None:
    logbook.allow("this node's state is not its leader's")
    logbook.allow("a follower is stranded")

    async def main() -> None:
        async with two() as made:
            at, engine = made.engine.applied, made.engine
            batch = engine.batch()
            batch.put(key("planted"), b"one key too many")
            engine.write(batch, at)
            await made.comparing.compare()
            with pytest.raises(Stranded, match="has digest"):
                await made.following
            await made.leads
            assert made.shipping.sync_status is SyncStatus.STRANDED
            assert made.shipping.reason in next(
                line for line in logbook.loud if "not its leader's" in line
            )

    stepped.run(main(), 1)


def test_a_large_state_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with two() as made:
            monkeypatch.setattr(limits, "COMPARE_BYTES", 10)
            await made.comparing.compare()
            assert made.comparing.compared == 0

    stepped.run(main(), 1)


def test_it_is_done_by_itself_every_so_often(
    logbook: Logbook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "COMPARE_SECONDS", 60)

    async def main() -> None:
        async with two() as made:
            task = asyncio.ensure_future(made.comparing.run())
            await asyncio.sleep(3.5 * limits.COMPARE_SECONDS)
            task.cancel()
            assert logbook.names().count("the state is the leader's") == 3

    stepped.run(main(), 1)


def test_a_link_that_ends_leaves_nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(kept: Transaction, _clock: object) -> bytes:
        try:
            await asyncio.Event().wait()
        finally:
            kept.release()
        return b""

    async def main() -> None:
        async with two() as made:
            monkeypatch.setattr(state_check, "hashed", never)
            made.shipping.compare(made.leader.committer.commit_index, b"")
            while not made.follower.committer.ledger.state.moments:
                await asyncio.sleep(0.000_1)
            await made.end()
            await asyncio.sleep(0.1)
            assert not made.follower.committer.ledger.state.moments

    stepped.run(main(), 1)


def test_a_comparison_that_ends_before_it_hashes_leaves_nothing_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begins = FollowerComparison._released

    def begins_and_ends(
        self: FollowerComparison, sequence: int, lost: BaseException | None
    ) -> None:
        begins(self, sequence, lost)
        assert self._hashing is not None
        self.close()

    async def main() -> None:
        async with two() as made:
            monkeypatch.setattr(FollowerComparison, "_released", begins_and_ends)
            await made.comparing.compare()
            await asyncio.sleep(1)
            assert not made.follower.committer.ledger.state.moments

    stepped.run(main(), 1)
