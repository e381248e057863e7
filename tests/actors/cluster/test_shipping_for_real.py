"""Three nodes on real disks, with RocksDB and threads, linked by TLS over real sockets."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from actors.cluster.leader_state import LeaderState
from actors.cluster.log_matching import SyncStatus
from actors.cluster.replica_receiver import LeaderConnector
from actors.cluster.replica_senders import ReplicaSender
from actors.environment import SystemClock, SystemRng
from actors.node import Node, start
from protocol.agreement import InSyncReplicas
from protocol.errors import NotWritable, UnknownOutcome
from protocol.links import Attach, Link
from storage.files import cluster_file
from storage.files.cluster_file import ClusterState
from storage.files.directory import StoreDirectory
from storage.files.disk import Disk
from tests.actors.nodes import leads_by_hand, prepare, real_environment, run, settings, value
from tests.logbook import Logbook
from tests.surfaces.peers.parts import FakePeering, at, identity, listening

AWAY = NotWritable("this node follows another one")


class Epochs:
    """What was promised; kept as long as the test runs."""

    promised = 0

    async def promise(self, epoch: int) -> None:
        self.promised = max(self.promised, epoch)


class LinkedMember:
    """A node, its place on the network, and what it is at."""

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self.name = name
        self.peering = FakePeering(name, identity(name))
        self.peering.accept = self._accept
        self.epochs = Epochs()
        self.node: Node
        self.address = ""
        self.leading: LeaderState | None = None
        self.follows: LeaderConnector | None = None
        self.tasks: list[asyncio.Task[None]] = []
        self.replica_senders: list[ReplicaSender] = []

    async def open(self) -> None:
        self.node = await start(settings(str(self.path)), real_environment())
        await leads_by_hand(self.node)

    async def lead(self, epoch: int, members: frozenset[str]) -> None:
        await self.epochs.promise(epoch)
        self.leading = LeaderState(
            self.name, epoch, len(members) - 1, InSyncReplicas(0, members, 1), own=1 << 60
        )
        self.node.committer.releasable = self._releasable
        promise = await self.node.committer.begin_leading(epoch)
        self.leading = LeaderState(
            self.name, epoch, len(members) - 1, InSyncReplicas(0, members, 1), promise.sequence
        )

    def _releasable(self, durable: int) -> int:
        assert self.leading is not None
        self.leading = self.leading.on_synced(durable).release()
        return max(self.leading.released, self.node.committer.commit_index)

    async def _accept(self, link: Link) -> None:
        asked = await link.receive()
        if self.leading is None or not isinstance(asked, Attach):
            return
        node = self.node
        shipping = ReplicaSender(
            node.runtime, node.committer, node.reads, link, self.leading.epoch,
            partial(self._heard, LeaderState.attached), partial(self._heard, LeaderState.on_report),
        )  # fmt: skip
        task = asyncio.ensure_future(shipping.run(asked))
        self.replica_senders.append(shipping)
        self.tasks.append(task)
        await asyncio.wait([task])
        self.replica_senders.remove(shipping)

    def _heard(
        self, told: Callable[[LeaderState, str, int], LeaderState], node: str, upto: int
    ) -> None:
        if self.leading is not None:
            self.leading = told(self.leading, node, upto)
            self.node.committer.release_more()

    def follow(self, leader: LinkedMember, epoch: int) -> None:
        links, pin = self.peering.links, leader.peering.shown.fingerprint
        self.follows = LeaderConnector(
            self.node.runtime, SystemRng(), self.node.committer, self.epochs,
            lambda: links.connect(leader.address, [pin]), epoch,
        )  # fmt: skip
        self.tasks.append(asyncio.ensure_future(self.follows.run()))

    async def rest(self) -> None:
        """Follow and lead no more."""
        for task in self.tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        self.tasks.clear()
        self.leading = self.follows = None
        self.node.committer.releasable = lambda _: self.node.committer.commit_index

    async def shown(self, upto: int) -> None:
        """Wait until it shows all up to a commit."""
        while self.node.committer.commit_index < upto:
            await asyncio.sleep(0.005)


@asynccontextmanager
async def members(path: Path, names: str = "abc") -> AsyncIterator[list[LinkedMember]]:
    """Some nodes of one store, of which nobody leads yet."""
    first = await start(settings(str(path / "first")), real_environment())
    await prepare(first)
    await first.stop()
    directory = StoreDirectory.open(
        str(path / "first"), Disk(), SystemClock(), SystemRng(), create=False
    )
    cluster_file.save(directory, ClusterState(coordinating=True))
    directory.close()
    found = []
    for name in names:
        shutil.copytree(path / "first", path / name)
        (path / name / "NODE").unlink()
        found.append(LinkedMember(path / name, name))
    async with AsyncExitStack() as stack:
        for member in found:
            for other in found:
                member.peering.knows(other.peering, other.name)
            surface = await stack.enter_async_context(listening(member.peering))
            member.peering.links = surface
            member.address = at(surface)
        for member in found:
            await member.open()
        try:
            yield found
        finally:
            for member in found:
                await member.rest()
                await member.node.stop()


def test_three_nodes_show_the_same_and_another_leads_on(tmp_path: Path, logbook: Logbook) -> None:
    logbook.allow("unreleased frames were cut off")

    async def main() -> None:
        async with members(tmp_path) as (a, b, c):
            everybody = frozenset("abc")
            await a.lead(2, everybody)
            b.follow(a, 2)
            c.follow(a, 2)
            rows = 50
            await asyncio.gather(*(value(a.node, f"UPSERT t:{n} SET n = {n}") for n in range(rows)))
            await c.rest()
            waits = asyncio.ensure_future(run(a.node, "UPSERT t:waits SET n = 1"))
            while b.node.committer.log_upto < a.node.committer.committed:
                await asyncio.sleep(0.005)
            assert not waits.done(), "one of the set has not got it"
            c.follow(a, 2)
            assert (await waits).refusal is None
            at_last = a.node.committer.commit_index
            states = []
            for one in (a, b, c):
                await one.shown(at_last)
                states.append(await value(one.node, "SELECT * FROM t ORDER BY id"))
            assert len(states[0]) == rows + 1
            assert states[0] == states[1] == states[2]
            assert {each.sync_status for each in a.replica_senders} == {SyncStatus.IN_SYNC}
            # a is cut off with something that nobody else has; b leads on.
            for one in (b, c):
                await one.rest()
            lost = asyncio.ensure_future(run(a.node, "UPSERT t:lost SET n = 1"))
            while a.node.committer.log_upto == at_last:
                await asyncio.sleep(0.005)
            await a.rest()
            await a.node.committer.begin_following(AWAY)
            with pytest.raises(UnknownOutcome):
                await lost
            await b.lead(3, everybody)
            a.follow(b, 3)
            c.follow(b, 3)
            await value(b.node, "UPSERT t:found SET n = 1")
            end = b.node.committer.commit_index
            hashes = []
            for one in (a, b, c):
                await one.shown(end)
                hashes.append((await value(one.node, "INFO FOR STATE"))["hash"])
            assert hashes[0] == hashes[1] == hashes[2]
            assert not await value(a.node, "SELECT * FROM t:lost")

    asyncio.run(main())


def test_a_follower_comes_back_after_a_restart_and_reads_what_it_lacks_from_the_log(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with members(tmp_path, "ab") as (a, b):
            await a.lead(2, frozenset("a"))
            b.follow(a, 2)
            await value(a.node, "UPSERT t:1 SET n = 1")
            await b.shown(a.node.committer.commit_index)
            await b.rest()
            await b.node.stop()
            text = "x" * 100_000
            for n in range(120):
                await value(a.node, f"UPSERT t:[{n}] SET n = $text", {"text": text})
            assert a.node.committer.tail.first > b.node.committer.log_upto + 1
            await b.open()
            b.follow(a, 2)
            end = a.node.committer.commit_index
            await b.shown(end)
            hashes = [(await value(one.node, "INFO FOR STATE"))["hash"] for one in (a, b)]
            assert hashes[0] == hashes[1]

    asyncio.run(main())
