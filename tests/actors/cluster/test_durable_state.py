"""What a node remembers of its cluster counts when it is on the disk."""

from __future__ import annotations

import asyncio

import pytest

from actors.cluster.durable_state import DurableState
from actors.cluster.election import was_ordered_since
from protocol.agreement import AgreedState, InSyncReplicas, LeaderEntry
from protocol.errors import DiskFull
from storage.files.cluster_file import ClusterState

AGREED = AgreedState("etcd", 9, LeaderEntry("a", 8), InSyncReplicas(8, frozenset("ab"), 9))


class Disk:
    """Takes what is saved when it is let."""

    def __init__(self) -> None:
        self.saved: list[ClusterState] = []
        self.opens = asyncio.Event()
        self.opens.set()
        self.full = False

    async def save(self, cluster: ClusterState) -> None:
        await self.opens.wait()
        if self.full:
            raise DiskFull("no room")
        self.saved.append(cluster)


async def test_a_promise_is_one_when_it_is_written() -> None:
    disk = Disk()
    memory = DurableState(disk.save, ClusterState(promised=3))
    disk.opens.clear()
    promised = asyncio.ensure_future(memory.promise(8))
    await asyncio.sleep(0)
    assert memory.promised == 3
    disk.opens.set()
    await promised
    assert memory.promised == 8 == disk.saved[-1].promised


async def test_a_promise_that_is_cancelled_while_it_is_written_stands() -> None:
    """The file says so: a node that went by less would promise less until its next start."""
    disk = Disk()

    async def save(cluster: ClusterState) -> None:
        await asyncio.shield(disk.save(cluster))  # an actor saves it, whoever waits for it

    memory = DurableState(save, ClusterState(promised=3))
    disk.opens.clear()
    promised = asyncio.ensure_future(memory.promise(8))
    await asyncio.sleep(0.001)
    promised.cancel()
    other = asyncio.ensure_future(memory.promise(7))
    await asyncio.sleep(0.001)
    disk.opens.set()
    with pytest.raises(asyncio.CancelledError):
        await promised
    await other
    assert [one.promised for one in disk.saved] == [8] and memory.promised == 8


async def test_an_older_promise_changes_nothing() -> None:
    disk = Disk()
    memory = DurableState(disk.save, ClusterState(promised=3))
    await memory.promise(2)
    await memory.promise(3)
    assert memory.promised == 3 and not disk.saved


async def test_a_full_disk_takes_no_promise() -> None:
    disk = Disk()
    memory = DurableState(disk.save, ClusterState(promised=3))
    disk.full = True
    with pytest.raises(DiskFull):
        await memory.promise(8)
    assert memory.promised == 3


async def test_a_node_that_was_named_is_gone_by_when_that_is_written() -> None:
    """Else the order would be taken for one of before, once there is room again."""
    disk = Disk()
    known = ClusterState("etcd", 3, promised=2, doubts=True)
    memory = DurableState(disk.save, known)
    disk.full = True
    named = AGREED._replace(lineage=8)
    with pytest.raises(DiskFull):
        await memory.adopt(named)
    assert memory.now == known and was_ordered_since(memory.now, named)
    disk.full = False
    await memory.adopt(named)
    assert memory.now.revision == 9 and not memory.now.doubts


async def test_what_others_write_into_the_same_etcd_is_not_written_down() -> None:
    disk = Disk()
    memory = DurableState(disk.save, ClusterState())
    await memory.remember_agreed(AGREED)
    for revision in range(10, 20):
        await memory.remember_agreed(AGREED._replace(revision=revision))
    assert len(disk.saved) == 1 and memory.now.revision == 19
    await memory.remember_agreed(AGREED._replace(revision=20, lead=None))
    assert disk.saved[-1] == ClusterState("etcd", 20)


async def test_those_who_remember_at_once_forget_nothing() -> None:
    disk = Disk()
    memory = DurableState(disk.save, ClusterState())
    await asyncio.gather(memory.promise(8), memory.remember_agreed(AGREED), memory.promise(7))
    assert disk.saved[-1] == ClusterState("etcd", 9, 8)
